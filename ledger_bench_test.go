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
	"github.com/orbitsched/orbit/internal/cputime"
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
			ID: orbit.ProposalID{1, byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)},
			Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}},
			If: []orbit.Precondition{orbit.NodeFreeOf{Node: node, AtLeast: benchWant}},
		})
	}
	w.reset(b)
	return w
}

// reset starts over with nothing placed.
func (w *benchWorld) reset(b *testing.B) { w.resetIn(b, "") }

// resetIn is reset for capsules that all name a queue, which is at the third level of a tree.
func (w *benchWorld) resetIn(b *testing.B, queue orbit.QueueID) {
	w.ledger = &orbit.MemoryLedger{}
	put := make([]orbit.Commitment, len(w.nodes))
	for i, id := range w.nodes {
		put[i] = orbit.PutNode{Node: orbit.Node{ID: id, Capacity: benchCapacity}}
	}
	spec := &orbit.Spec{Queue: queue, Envelope: orbit.Envelope{Reservation: benchWant}}
	batch := slices.Collect(slices.Chunk(put, 1000))
	if queue != "" {
		has := map[string]int64{"cpu": 1 << 40, "memory": 1 << 50}
		batch = append(batch, []orbit.Commitment{orbit.PutQueue{Queue: orbit.Queue{ID: "company", Nominal: has}},
			orbit.PutQueue{Queue: orbit.Queue{ID: "team", Parent: "company"}}, orbit.PutQueue{Queue: orbit.Queue{ID: queue, Parent: "team", Weight: 2}}})
	}
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

// newFloor returns the floor that a ledger is measured against, with all nodes and nothing placed.
func (w *benchWorld) newFloor() *sim.Floor {
	r := sim.NewFloor()
	for _, id := range w.nodes {
		r.Join(id, benchCapacity)
	}
	return r
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

// BenchmarkProposeInQueue places capsules that name a queue at the third level of a tree, which borrows all that it uses, and in turns the same
// capsules without a queue on another ledger. It reports how many times the time of the latter the former takes.
func BenchmarkProposeInQueue(b *testing.B) {
	const slice = 2_000
	plain, queued := newBenchWorld(b, 10_000), newBenchWorld(b, 10_000)
	queued.resetIn(b, "queue")
	var took [2]time.Duration
	for i := 0; i < b.N; i += slice {
		from := i % len(plain.proposals)
		if i > 0 && from == 0 {
			plain.reset(b)
			queued.resetIn(b, "queue")
		}
		for k, w := range []*benchWorld{plain, queued} {
			began := cputime.Process()
			for _, p := range w.proposals[from : from+slice] {
				if _, err := w.ledger.Propose(context.Background(), p); err != nil {
					b.Fatal(err)
				}
			}
			took[k] += cputime.Process() - began
		}
	}
	b.ReportMetric(float64(took[1])/float64(took[0]), "xplain")
	b.ReportMetric(0, "ns/op")
}

// floorSlice is how many proposals go by from one measurement of the floor to the next.
const floorSlice = 2_000

// benchmarkPropose measures the floor after every slice of proposals, for the placements of that slice, so that both see
// the same machine and the same caches. Work and floor are processor time, the collector's with the work, because other
// programs that run meanwhile add to wall time (ns/op) at random. The range of floors is that of the middle half of slices.
func benchmarkPropose(b *testing.B, w *benchWorld, every int) {
	ctx, recorder := context.Background(), w.newFloor()
	var work, floor time.Duration
	var floors []float64
	from, began := 0, cputime.Process()
	settle := func(to int) {
		work += cputime.Process() - began
		took := cputime.Of(func() {
			for _, p := range w.proposals[from:to] {
				place := p.Do[0].(orbit.Place)
				if !recorder.Place(place.Capsule, place.Node, benchWant) {
					b.Fatal("the floor has no room for what the ledger takes")
				}
			}
		})
		floor += took
		floors = append(floors, float64(took.Nanoseconds())/float64(max(to-from, 1)))
		if from = to; to == len(w.proposals) {
			from, recorder = 0, w.newFloor()
			w.reset(b)
		}
		began = cputime.Process()
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i % len(w.proposals)
		if _, err := w.ledger.Propose(ctx, w.proposals[at]); err != nil {
			b.Fatal(err)
		}
		if every > 0 && i%every == 0 {
			if _, err := w.ledger.Snapshot(ctx); err != nil {
				b.Fatal(err)
			}
		}
		if (at+1)%floorSlice == 0 {
			b.StopTimer()
			settle(at + 1)
			b.StartTimer()
		}
	}
	b.StopTimer()
	if rest := b.N % len(w.proposals); rest > from {
		settle(rest)
	}
	slices.Sort(floors)
	b.ReportMetric(floors[len(floors)/4], "floor-low-ns")
	b.ReportMetric(float64(floor.Nanoseconds())/float64(b.N), "floor-ns")
	b.ReportMetric(floors[len(floors)*3/4], "floor-high-ns")
	b.ReportMetric(float64(work)/float64(floor), "xfloor")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "placements/s")
}
