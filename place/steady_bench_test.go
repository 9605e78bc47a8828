package place_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim"
)

// planner is a navigator that plans with one engine, greedily, and measures what that takes: time, and how often
// memory is taken. Now and then it asks Exhaustive too.
type planner struct {
	placement orbit.PlacementEngine
	draft     *orbit.Draft
	rival     place.Exhaustive
	sample    int // calls of the rival in a plan

	planned, asked    int
	unplaced          int
	planning, rivalry time.Duration
	mallocs           uint64
}

func (p *planner) Claims(string, orbit.AppClass) bool { return true }

func (p *planner) Plan(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	plan := orbit.Plan{Proposals: make([]orbit.Proposal, 0, len(pending))}
	if p.sample > 0 {
		p.draft.Sync(view)
		start := time.Now()
		for _, c := range pending[:min(p.sample, len(pending))] {
			_, _ = p.rival.Best(p.draft, c.Spec)
			p.asked++
		}
		p.rivalry += time.Since(start)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	p.draft.Sync(view)
	for _, c := range pending {
		if err := p.draft.PlaceBest(p.placement, c); err != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
			continue
		}
		plan.Proposals = append(plan.Proposals, p.draft.Propose())
	}
	p.planning += time.Since(start)
	runtime.ReadMemStats(&after)
	p.mallocs += after.Mallocs - before.Mallocs
	p.planned += len(pending)
	p.unplaced += len(plan.Unplaced)
	return plan, nil
}

// steadyWorld is a constellation that is nine tenths full, on the average and in every dimension, and stays so.
type steadyWorld struct {
	b      *testing.B
	ledger *orbit.MemoryLedger
	nodes  []orbit.Node
	work   []sim.Capsule
	next   int
	r      *rand.Rand
}

func newSteadyWorld(b *testing.B, nodes, classes int) *steadyWorld {
	w := &steadyWorld{b: b, ledger: &orbit.MemoryLedger{}, r: rand.New(rand.NewPCG(1, 2))}
	w.nodes = sim.Constellation(sim.Fleet{Nodes: nodes})
	for from := 0; from < nodes; from += 500 {
		var do []orbit.Commitment
		for i := from; i < min(from+500, nodes); i++ {
			do = append(do, orbit.PutNode{Node: w.nodes[i]}, w.hold(i, 85+w.r.Int64N(11)))
		}
		w.propose(do)
	}
	w.work = sim.Expand(sim.Workload(sim.Mix{Capsules: 20 * classes, Classes: classes}))
	sim.Shuffle(w.work, 1)
	return w
}

// hold takes so many percent of a node.
func (w *steadyWorld) hold(i int, percent int64) orbit.Hold {
	h := orbit.Hold{ID: orbit.HoldID("hold-" + w.nodes[i].ID), Node: w.nodes[i].ID, Ends: time.Now().Add(24 * time.Hour)}
	for d, capacity := range w.nodes[i].Capacity {
		h.Room[d] = capacity / 100 * percent
	}
	return h
}

func (w *steadyWorld) propose(do []orbit.Commitment) {
	if _, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil {
		w.b.Fatal(err)
	}
}

// submit adds the next n capsules of the mix, and returns their ids.
func (w *steadyWorld) submit(n int) (ids []orbit.CapsuleID) {
	do := make([]orbit.Commitment, n)
	for i := range do {
		id := orbit.CapsuleID(fmt.Sprintf("capsule-%08d", w.next))
		do[i] = orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: w.work[w.next%len(w.work)].Spec}
		ids = append(ids, id)
		w.next++
	}
	w.propose(do)
	return ids
}

// change takes the capsules off again, and changes what is held of n nodes.
func (w *steadyWorld) change(ids []orbit.CapsuleID, n int) {
	var do []orbit.Commitment
	for _, id := range ids {
		do = append(do, orbit.Release{Capsule: id, Final: true})
	}
	for range n {
		i := w.r.IntN(len(w.nodes))
		h := w.hold(i, 85+w.r.Int64N(11))
		w.propose([]orbit.Commitment{orbit.Release{Hold: h.ID}})
		do = append(do, h)
		w.propose(do)
		do = do[:0]
	}
}

// BenchmarkSteady is what importers see every day: a pass of 1,000 mixed capsules on nodes that are 90% full, of
// which 1,000 others change between passes. It reports what planning a capsule takes, in nanoseconds, in
// allocations, and beside Exhaustive: how many times as long that takes.
func BenchmarkSteady(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 50_000} {
		for _, name := range []string{"indexed", "sampled"} {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				p := &planner{placement: &place.Indexed{}, draft: &orbit.Draft{}, sample: 10}
				if name == "sampled" {
					p.placement = &place.Sampled{}
				}
				benchmarkSteady(b, newSteadyWorld(b, nodes, 1_000), p)
			})
		}
	}
}

func benchmarkSteady(b *testing.B, w *steadyWorld, p *planner) {
	e := &orbit.Engine{Ledger: w.ledger, Navigator: p}
	pass := func() {
		ids := w.submit(1_000)
		if r := e.Pass(context.Background()); r.Committed < 900 || len(r.Errors) > 0 {
			b.Fatal(r)
		}
		w.change(ids, 1_000)
	}
	for range 3 { // until all classes are known
		pass()
	}
	*p = planner{placement: p.placement, draft: p.draft, sample: p.sample}
	for b.Loop() {
		pass()
	}
	planned := float64(p.planned)
	b.ReportMetric(float64(p.planning.Nanoseconds())/planned, "ns/planned")
	b.ReportMetric(float64(p.mallocs)/planned, "allocs/planned")
	b.ReportMetric(float64(p.unplaced)/planned, "unplaced/planned")
	each := float64(p.rivalry.Nanoseconds()) / float64(p.asked)
	b.ReportMetric(each, "exhaustive-ns")
	b.ReportMetric(each/(float64(p.planning.Nanoseconds())/planned), "xexhaustive")
}
