package place_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// BenchmarkRequired places capsules that may be on one node alone, by a label with its host name or by its id, or on one of a
// few by several terms, each with a spec of its own, beside plain ones with as many specs. It reports how many times as long as a plain placement of the
// same run each takes.
func BenchmarkRequired(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := newRequired(b, nodes)
			spent := map[string]float64{}
			for b.Loop() {
				for _, kind := range requiredKinds {
					spent[kind] += w.pass(kind)
				}
			}
			for _, kind := range requiredKinds {
				each := spent[kind] / float64(b.N*requiredEach)
				b.ReportMetric(each, "ns/"+kind)
				b.ReportMetric(each*float64(b.N*requiredEach)/spent["plain"], "x/"+kind)
			}
		})
	}
}

// requiredEach is how many capsules are placed at once, each of another spec.
const requiredEach = 200

var requiredKinds = []string{"plain", "host", "node", "terms"}

// required is a constellation of nodes that carry their host names, and an engine.
type required struct {
	b         *testing.B
	ledger    *orbit.MemoryLedger
	view      orbit.View
	draft     orbit.Draft
	placement place.Indexed
	nodes     int
	serial    int
}

func newRequired(b *testing.B, nodes int) *required {
	w := &required{b: b, ledger: &orbit.MemoryLedger{}, nodes: nodes}
	for from := 0; from < nodes; from += 1_000 {
		var do []orbit.Commitment
		for i := from; i < min(from+1_000, nodes); i++ {
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: 64_000},
				Labels: map[string]string{"host": fmt.Sprint("h", i), "zone": fmt.Sprint("z", i%3)}}})
		}
		_, err := w.ledger.Propose(b.Context(), orbit.Proposal{Do: do})
		require.NoError(b, err)
	}
	for range 3 { // until the labels are known
		for _, kind := range requiredKinds {
			w.pass(kind)
		}
	}
	return w
}

func nodeID(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprintf("node-%06d", i)) }

// pass submits capsules of a kind, places them and ends them. It returns how long placing took, in nanoseconds.
func (w *required) pass(kind string) float64 {
	ids := make([]orbit.CapsuleID, requiredEach)
	do := make([]orbit.Commitment, requiredEach)
	for i := range ids {
		w.serial++
		at := w.serial * 7919 % w.nodes
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: int64(100 + i)}}}
		host := orbit.Predicate{Key: "host", Op: "In", Values: []string{fmt.Sprint("h", at)}}
		node := orbit.Predicate{Key: orbit.NodeKey, Op: "In", Values: []string{string(nodeID(at))}}
		switch kind {
		case "host":
			spec.Require = []orbit.Predicate{host}
		case "node":
			spec.Require = []orbit.Predicate{node}
		case "terms":
			spec.Require = []orbit.Predicate{{Op: "AnyOf", Terms: [][]orbit.Predicate{{host}, {node, {Key: "zone", Op: "Exists"}}}}}
		}
		ids[i] = orbit.CapsuleID(fmt.Sprint(kind, w.serial))
		do[i] = orbit.Submit{IDs: ids[i : i+1], Spec: spec}
	}
	_, err := w.ledger.Propose(w.b.Context(), orbit.Proposal{Do: do})
	require.NoError(w.b, err)
	require.NoError(w.b, w.view.Refresh(w.b.Context(), w.ledger, nil, time.Now()))
	began := time.Now()
	w.draft.Sync(&w.view)
	for _, id := range ids {
		require.NoError(w.b, w.draft.PlaceBest(&w.placement, w.view.State().Capsule(id)))
	}
	p := w.draft.Propose()
	spent := time.Since(began)
	_, err = w.ledger.Propose(w.b.Context(), p)
	require.NoError(w.b, err)
	for i, id := range ids {
		do[i] = orbit.Release{Capsule: id, Final: true}
	}
	_, err = w.ledger.Propose(w.b.Context(), orbit.Proposal{Do: do})
	require.NoError(w.b, err)
	return float64(spent.Nanoseconds())
}
