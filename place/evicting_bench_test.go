package place_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim"
)

// fullFleet is a constellation that is full to 99%, of work of the priorities 0 to 4.
type fullFleet struct {
	tb     testing.TB
	ledger *orbit.MemoryLedger
	r      *rand.Rand
	work   []sim.Capsule
	next   int
	view   orbit.View
	// The most CPU that a node has.
	largest int64
}

func newFullFleet(tb testing.TB, nodes, classes int) *fullFleet {
	f := &fullFleet{tb: tb, ledger: &orbit.MemoryLedger{}, r: rand.New(rand.NewPCG(1, 2))}
	f.work = sim.Expand(sim.Workload(sim.Mix{Capsules: 20 * classes, Classes: classes}))
	sim.Shuffle(f.work, 1)
	var do []orbit.Commitment
	for i, n := range sim.Constellation(sim.Fleet{Nodes: nodes}) {
		n.Labels = nil
		f.largest = max(f.largest, n.Capacity[orbit.CPU])
		do = append(do, orbit.PutNode{Node: n})
		free, most := n.Capacity, n.Capacity
		for d := range free {
			most[d] /= 100
		}
		for tries := range 101 {
			spec := f.spec(int32(f.r.IntN(5)))
			if tries == 100 { // the rest
				spec.Envelope.Reservation, _ = free.Sub(most)
			}
			if left, _ := free.Sub(spec.Envelope.Reservation); most.Within(left) {
				free = left
				id := f.id()
				do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: n.ID})
			}
		}
		if i%100 == 99 || i == nodes-1 {
			f.propose(orbit.Proposal{Do: do})
			do = nil
		}
	}
	f.sync()
	return f
}

func (f *fullFleet) id() orbit.CapsuleID {
	f.next++
	return orbit.CapsuleID(fmt.Sprintf("capsule-%08d", f.next))
}

// spec returns one of the classes of work, without devices and labels.
func (f *fullFleet) spec(priority int32) *orbit.Spec {
	s := f.work[f.r.IntN(len(f.work))].Spec
	return &orbit.Spec{Module: s.Module, Class: s.Class, Priority: priority, Envelope: s.Envelope}
}

// propose commits, unless the ledger has spared a victim in the room that an earlier proposal of the plan has left over.
func (f *fullFleet) propose(p orbit.Proposal) {
	if _, err := f.ledger.Propose(context.Background(), p); err != nil && !errors.Is(err, orbit.ErrConflict) {
		f.tb.Fatal(err)
	}
}

func (f *fullFleet) sync() {
	if err := f.view.Refresh(context.Background(), f.ledger, nil, time.Unix(0, 0)); err != nil {
		f.tb.Fatal(err)
	}
}

// submit adds capsules of the classes, of so many percent of their size, and returns them. Those of more than their size are too
// large for what is free of any node.
func (f *fullFleet) submit(n int, priority int32, size int64) (out []*orbit.Capsule) {
	var ids []orbit.CapsuleID
	for range n {
		id, spec := f.id(), f.spec(priority)
		for size > 100 && spec.Envelope.Reservation[orbit.CPU]*size/100 <= f.largest/100 {
			spec = f.spec(priority)
		}
		for d := range spec.Envelope.Reservation {
			spec.Envelope.Reservation[d] = spec.Envelope.Reservation[d] * size / 100
		}
		f.propose(orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}}})
		ids = append(ids, id)
	}
	f.sync()
	for _, id := range ids {
		out = append(out, f.view.State().Capsule(id))
	}
	return out
}

// BenchmarkEvicting is a preemption beside an ordinary placement, on nodes that are 99% full of work of five priorities and 20
// or 100 classes: by turns ten small capsules are placed and ten large ones evict others, on one draft, and all of it is
// committed. It reports the processor time that each takes, how many times as long a preemption takes, and how many times as long Exhaustive does.
func BenchmarkEvicting(b *testing.B) {
	for _, c := range []struct{ nodes, classes int }{{1_000, 20}, {10_000, 20}, {50_000, 20}, {50_000, 100}} {
		b.Run(fmt.Sprintf("nodes=%d/classes=%d", c.nodes, c.classes), func(b *testing.B) {
			f := newFullFleet(b, c.nodes, c.classes)
			m := newEvictingMeter(f)
			for range 10 { // until the classes are known
				m.round(false)
			}
			m.reset()
			i := 0
			for b.Loop() {
				m.round(i%8 == 0)
				i++
			}
			m.report(b)
		})
	}
}

// evictingMeter measures placements and preemptions, by turns.
type evictingMeter struct {
	f        *fullFleet
	draft    *orbit.Draft
	indexed  *place.Indexed
	plain    place.Exhaustive
	placing  time.Duration
	placed   int
	evicting time.Duration
	evicted  int
	victims  int
	rivalry  time.Duration
	asked    int

	opened, bounded int64
}

func newEvictingMeter(f *fullFleet) *evictingMeter {
	return &evictingMeter{f: f, draft: &orbit.Draft{}, indexed: &place.Indexed{}}
}

func (m *evictingMeter) reset() {
	*m = evictingMeter{f: m.f, draft: m.draft, indexed: m.indexed}
}

func (m *evictingMeter) round(rival bool) {
	const each = 10
	small, large := m.f.submit(each, 5, 5), m.f.submit(each, 5, 400)
	m.draft.Sync(&m.f.view)
	var proposals []orbit.Proposal
	for i := range each {
		var err error
		took := cputime.Of(func() {
			if err = m.draft.PlaceBest(m.indexed, small[i]); err == nil {
				proposals = append(proposals, m.draft.Propose())
			}
		})
		if err == nil {
			m.placed++
			m.placing += took
		}
		if rival {
			m.rivalry += cputime.Of(func() { _, _ = m.plain.BestEvicting(m.draft, large[i]) })
			m.asked++
		}
		var e place.Eviction
		took = cputime.Of(func() {
			if e, err = m.indexed.BestEvicting(m.draft, large[i]); err == nil {
				if err = e.On(m.draft, large[i]); err == nil {
					proposals = append(proposals, m.draft.Propose())
				}
			}
		})
		if err == nil && len(e.Victims) > 0 { // else it has the room that an earlier preemption has left over
			m.evicting += took
			m.evicted++
			m.victims += len(e.Victims)
		}
	}
	for _, note := range m.indexed.Notes() {
		switch note.Key {
		case "opened":
			m.opened += note.Value.Int64()
		case "bounded":
			m.bounded += note.Value.Int64()
		}
	}
	for _, p := range proposals {
		m.f.propose(p)
	}
}

func (m *evictingMeter) report(b *testing.B) {
	ordinary, preemption := float64(m.placing.Nanoseconds())/float64(m.placed), float64(m.evicting.Nanoseconds())/float64(m.evicted)
	b.ReportMetric(ordinary, "ns/placement")
	b.ReportMetric(preemption, "ns/preemption")
	b.ReportMetric(float64(m.victims)/float64(m.evicted), "victims/preemption")
	b.ReportMetric(float64(m.opened)/float64(m.evicted), "opened/preemption")
	b.ReportMetric(float64(m.bounded)/float64(m.evicted), "bounded/preemption")
	b.ReportMetric(preemption/ordinary, "xplacement")
	b.ReportMetric(float64(m.rivalry.Nanoseconds())/float64(m.asked)/preemption, "xexhaustive")
}

// TestEvictingInLongRuns: what a preemption costs, in nodes searched for victims and bounds computed, depends neither on how many nodes there
// are nor on how many preemptions there have been: between two capsules of a class others have evicted and placed on many nodes.
func TestEvictingInLongRuns(t *testing.T) {
	scale.Sweep(t)
	if scale.Race {
		t.Skip("its counts are the same without the race detector, in a tenth of the time")
	}
	type cost struct{ opened, bounded float64 }
	run := func(nodes int) (early, late cost) {
		m := newEvictingMeter(newFullFleet(t, nodes, 100))
		measure := func(rounds int) cost {
			m.reset()
			for range rounds {
				m.round(false)
			}
			return cost{float64(m.opened) / float64(m.evicted), float64(m.bounded) / float64(m.evicted)}
		}
		measure(10) // until the classes are known
		early = measure(10)
		measure(20)
		return early, measure(10)
	}
	small, _ := run(2_000)
	large, late := run(8_000)
	t.Logf("2,000 nodes: %.1f; 8,000 nodes: %.1f, later %.1f", small, large, late)
	for _, c := range []cost{small, large, late} {
		require.Less(t, c.opened, 4.0, "nodes searched for one preemption; one is enough, and it is searched once more when it is taken")
	}
	require.Less(t, large.bounded, 1.5*small.bounded, "four times as many nodes")
	require.Less(t, late.bounded, 1.5*large.bounded, "after three times as many preemptions")
}
