package orbit_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
)

// capsulesPerNode is how many capsules each node of a benchmark's constellation takes.
const capsulesPerNode = 20

var benchWant = orbit.Resources{orbit.CPU: 100, orbit.Memory: 1 << 20}

// benchWorld is a constellation with all its capsules submitted, and one proposal to place each, on nodes
// far apart from one to the next.
type benchWorld struct {
	ledger    *orbit.MemoryLedger
	nodes     []orbit.NodeID
	capsules  []orbit.CapsuleID
	proposals []orbit.Proposal
}

func newBenchWorld(b *testing.B, nodes int) *benchWorld {
	w := &benchWorld{}
	for i := range nodes {
		w.nodes = append(w.nodes, orbit.NodeID(fmt.Sprintf("node-%06d", i)))
	}
	for i := range nodes * capsulesPerNode {
		id := orbit.CapsuleID(fmt.Sprintf("capsule-%08d", i))
		node := w.nodes[i*7919%nodes]
		w.capsules = append(w.capsules, id)
		w.proposals = append(w.proposals, orbit.Proposal{
			ID:   orbit.ProposalID{1, byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)},
			View: 1,
			Do:   []orbit.Commitment{orbit.Place{Capsule: id, Node: node}},
			If:   []orbit.Precondition{orbit.NodeFreeOf{Node: node, AtLeast: benchWant}},
		})
	}
	w.reset(b)
	return w
}

// reset starts over with nothing placed.
func (w *benchWorld) reset(b *testing.B) {
	w.ledger = &orbit.MemoryLedger{}
	put := make([]orbit.Commitment, len(w.nodes))
	for i, id := range w.nodes {
		capacity := orbit.Resources{orbit.CPU: 100 * capsulesPerNode, orbit.Memory: capsulesPerNode << 20}
		put[i] = orbit.PutNode{Node: orbit.Node{ID: id, Capacity: capacity}}
	}
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: benchWant}}
	batch := slices.Collect(slices.Chunk(put, 1000))
	for ids := range slices.Chunk(w.capsules, 1000) {
		batch = append(batch, []orbit.Commitment{orbit.Submit{IDs: ids, Spec: spec}})
	}
	for _, do := range batch {
		if _, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC() // what the set-up left behind is not collected on the clock
}

// floor is what it costs merely to record a placement: lock, fit check, subtract, insert the capsule's id
// into a map. It returns the median of three runs over all placements, per placement.
func (w *benchWorld) floor() time.Duration {
	index := map[orbit.NodeID]int{}
	for i, id := range w.nodes {
		index[id] = i
	}
	target := make([]int, len(w.proposals))
	for i, p := range w.proposals {
		target[i] = index[p.Do[0].(orbit.Place).Node]
	}
	var runs []time.Duration
	for range 3 {
		runs = append(runs, w.recordAll(target))
	}
	slices.Sort(runs)
	return runs[1] / time.Duration(len(w.capsules))
}

func (w *benchWorld) recordAll(target []int) time.Duration {
	var mu sync.Mutex
	free := make([]orbit.Resources, len(w.nodes))
	for i := range free {
		free[i] = orbit.Resources{orbit.CPU: 100 * capsulesPerNode, orbit.Memory: capsulesPerNode << 20}
	}
	placed := map[orbit.CapsuleID]int{}
	runtime.GC()
	start := time.Now()
	for i, id := range w.capsules {
		mu.Lock()
		if node := &free[target[i]]; benchWant.Within(*node) {
			*node, _ = node.Sub(benchWant)
			placed[id] = target[i]
		}
		mu.Unlock()
	}
	return time.Since(start)
}

func nodesName(n int) string { return fmt.Sprintf("nodes=%d", n) }

// BenchmarkPropose places capsule after capsule and reports xfloor: how many times the floor that costs.
func BenchmarkPropose(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 50_000, 100_000} {
		for _, every := range []int{0, 1000} {
			name := "never"
			if every > 0 {
				name = strconv.Itoa(every)
			}
			b.Run(nodesName(nodes)+"/snapshots="+name, func(b *testing.B) {
				benchmarkPropose(b, newBenchWorld(b, nodes), every)
			})
		}
	}
}

func benchmarkPropose(b *testing.B, w *benchWorld, every int) {
	ctx := context.Background()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(w.proposals)
		if i > 0 && at == 0 {
			b.StopTimer()
			w.reset(b)
			b.StartTimer()
		}
		if _, err := w.ledger.Propose(ctx, w.proposals[at]); err != nil {
			b.Fatal(err)
		}
		if every > 0 && i%every == 0 {
			if _, err := w.ledger.Snapshot(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(perOp/float64(w.floor().Nanoseconds()), "xfloor")
	b.ReportMetric(1e9/perOp, "placements/s")
}
