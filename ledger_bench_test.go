package orbit_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// capsulesPerNode is how many capsules each node of a benchmark's constellation takes.
const capsulesPerNode = 20

var (
	benchWant     = orbit.Resources{orbit.CPU: 100, orbit.Memory: 1 << 20}
	benchCapacity = orbit.Resources{orbit.CPU: 100 * capsulesPerNode, orbit.Memory: capsulesPerNode << 20}
)

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
		put[i] = orbit.PutNode{Node: orbit.Node{ID: id, Capacity: benchCapacity}}
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

// recordAll measures the floor, which is a [sim.Recorder], over all placements.
func (w *benchWorld) recordAll(b *testing.B, targets []orbit.NodeID) time.Duration {
	r := sim.NewRecorder()
	for _, id := range w.nodes {
		r.Join(id, benchCapacity)
	}
	runtime.GC()
	start := time.Now()
	for i, id := range w.capsules {
		if !r.Place(id, targets[i], benchWant) {
			b.Fatal("the floor has no room for what the ledger takes")
		}
	}
	return time.Since(start)
}

// targets are the nodes of the proposals.
func (w *benchWorld) targets() []orbit.NodeID {
	out := make([]orbit.NodeID, len(w.proposals))
	for i, p := range w.proposals {
		out[i] = p.Do[0].(orbit.Place).Node
	}
	return out
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

// benchmarkPropose measures the floor again at every new start, so that both see the same machine.
func benchmarkPropose(b *testing.B, w *benchWorld, every int) {
	ctx, targets := context.Background(), w.targets()
	floors := []time.Duration{w.recordAll(b, targets)}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(w.proposals)
		if i > 0 && at == 0 {
			b.StopTimer()
			floors = append(floors, w.recordAll(b, targets))
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
	slices.Sort(floors)
	floor := float64(floors[len(floors)/2].Nanoseconds()) / float64(len(w.proposals))
	perOp := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	b.ReportMetric(floor, "floor-ns")
	b.ReportMetric(perOp/floor, "xfloor")
	b.ReportMetric(1e9/perOp, "placements/s")
}
