package orbit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// small returns a ledger with nodes of 4 cores and 8 GiB each.
func small(nodes ...orbit.NodeID) *orbit.MemoryLedger {
	ledger := &orbit.MemoryLedger{}
	for _, id := range nodes {
		commit(ledger, orbit.PutNode{Node: orbit.Node{
			ID:       id,
			Capacity: orbit.Resources{orbit.CPU: 4_000, orbit.Memory: 8 << 30},
			Labels:   map[string]string{"rack": "r1"},
		}})
	}
	return ledger
}

func commit(ledger orbit.Ledger, do ...orbit.Commitment) orbit.Revision {
	rev, err := ledger.Propose(context.Background(), orbit.Proposal{Do: do})
	if err != nil {
		log.Fatal(err)
	}
	return rev
}

func snapshot(ledger orbit.Ledger) *orbit.State {
	state, err := ledger.Snapshot(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	return state
}

// cores asks for whole cores.
func cores(n int64) *orbit.Spec {
	return &orbit.Spec{Module: "web", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n * 1000}}}
}

// One engine, one navigator, one pass.
func Example() {
	ledger := small("node-a", "node-b")
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"web-1", "web-2"}, Spec: cores(1)})

	engine := &orbit.Engine{Name: "services", Ledger: ledger, Navigator: &nav.Services{}}
	fmt.Println(engine.Pass(context.Background()))

	state := snapshot(ledger)
	fmt.Println("web-1 on", state.Capsule("web-1").Node)
	fmt.Println("web-2 on", state.Capsule("web-2").Node)
	// Output:
	// services at 3: 2 pending, 2 proposed, 2 committed, 0 conflicts, 0 infeasible, 0 errors, 0 unplaced, 0 classes parked
	// web-1 on node-a
	// web-2 on node-b
}

// Two schedulers bet on the same room. The ledger settles who won, and says what the other one lacks.
func ExampleMemoryLedger_Propose() {
	ledger, ctx := small("node-a"), context.Background()
	rev := commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y"}, Spec: cores(3)})

	for _, id := range []orbit.CapsuleID{"x", "y"} {
		_, err := ledger.Propose(ctx, orbit.Proposal{
			View: rev, // both planned on this
			Do:   []orbit.Commitment{orbit.Place{Capsule: id, Node: "node-a"}},
			If:   []orbit.Precondition{orbit.NodeFreeOf{Node: "node-a", AtLeast: orbit.Resources{orbit.CPU: 3_000}}},
		})
		var receipt *orbit.Rejection
		if errors.As(err, &receipt) {
			fmt.Println(errors.Is(err, orbit.ErrConflict), receipt.Dimension, receipt.Want, receipt.Free)
		}
	}
	// Output: true cpu 3000 1000
}

// After a deadline or a lost connection the same proposal may be sent again: it has one effect.
func ExampleNewProposalID() {
	ledger, ctx := small("node-a"), context.Background()
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: cores(1)})
	p := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Place{Capsule: "x", Node: "node-a"}}}

	first, _ := ledger.Propose(ctx, p)
	again, err := ledger.Propose(ctx, p)
	fmt.Println(first == again, err)
	// Output: true <nil>
}

// To drain a node: cordon it, release its capsules in batches, and let it leave. Each released capsule returns to pending and is
// placed elsewhere by its navigator; budgets may refuse a batch that is too large. nav.Drain moves capsules one by one instead.
func ExampleState_On_drain() {
	ledger, ctx := small("node-a"), context.Background()
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"web-1", "web-2"}, Spec: cores(1)})
	engine := &orbit.Engine{Name: "services", Ledger: ledger, Navigator: &nav.Services{}}
	engine.Pass(ctx)
	commit(ledger, orbit.PutNode{Node: orbit.Node{ID: "node-b", Capacity: orbit.Resources{orbit.CPU: 4_000}}})

	node := snapshot(ledger).Node("node-a").Node.Clone()
	node.State = orbit.Cordoned
	commit(ledger, orbit.PutNode{Node: node})
	var batch []orbit.Commitment
	for c := range snapshot(ledger).On("node-a") {
		batch = append(batch, orbit.Release{Capsule: c.ID, From: "node-a"})
	}
	commit(ledger, batch...)
	engine.Pass(ctx)
	commit(ledger, orbit.RemoveNode{Node: "node-a"})

	state := snapshot(ledger)
	fmt.Println(state.NodeCount(), "node,", state.Node("node-b").Capsules, "capsules on node-b")
	// Output: 1 node, 2 capsules on node-b
}

// A dry run: State.Check says what Propose would say.
func ExampleState_Check() {
	ledger := small("node-a")
	rev := commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: cores(5)})
	err := snapshot(ledger).Check(orbit.Proposal{View: rev, Do: []orbit.Commitment{orbit.Place{Capsule: "x", Node: "node-a"}}})
	fmt.Println(errors.Is(err, orbit.ErrInfeasible))
	fmt.Println(err)
	// Output:
	// true
	// orbit: infeasible: commitment 0: node "node-a" is short: wants 5 cores, 4 free; nothing it rests on has changed since its view; correct the plan
}

// A capsule that fits nowhere comes back with the reasons counted.
func ExampleNoFit() {
	ledger, ctx := small("node-a", "node-b", "node-c"), context.Background()
	spec := cores(5)
	spec.Require = []orbit.Predicate{{Key: "rack", Op: "In", Values: []string{"r1"}}}
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"big"}, Spec: spec})

	placement, draft := &place.Exhaustive{}, &orbit.Draft{}
	navigator := nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		draft.Sync(view)
		_, err := placement.Best(draft, pending[0].Spec)
		return orbit.Plan{Unplaced: []orbit.Unplaced{{Capsule: pending[0], Why: err}}}, nil
	})
	round := (&orbit.Engine{Ledger: ledger, Navigator: navigator}).Pass(ctx)
	fmt.Println(round.Unplaced[0].Why)
	// Output: 0 of 3 nodes fit: 3 lack cpu; no node is that large: the largest has 4 cores
}

// coldest is a score of one's own: it packs, by free CPU, and can bound itself, so that Indexed finds the best of
// many nodes without rating them all.
type coldest struct{}

func (coldest) Score(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	return float64(n.Free()[orbit.CPU]), 0
}

func (coldest) Bound(*orbit.Spec, *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	return func(least, _ *score.Extent) (value, tie float64) { return float64(least.Free(orbit.CPU)), 0 }
}

// A score that says how good the nodes between two extremes can be takes part in the index. On a few nodes
// Indexed would not ask it to, so there are some.
func ExampleScore_bounded() {
	ids := make([]orbit.NodeID, 40)
	for i := range ids {
		ids[i] = orbit.NodeID(fmt.Sprintf("node-%02d", i))
	}
	ledger, ctx := small(ids...), context.Background()
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: cores(2)})

	navigator := &nav.Services{Placement: &place.Indexed{Score: coldest{}}}
	(&orbit.Engine{Ledger: ledger, Navigator: navigator}).Pass(ctx)
	for _, id := range []orbit.CapsuleID{"a", "b", "c"} {
		fmt.Println(id, snapshot(ledger).Capsule(id).Node)
	}
	// Output:
	// a node-00
	// b node-00
	// c node-01
}

// even spreads a module evenly over zones, by counts of its own.
type even struct {
	counts  map[string]int
	version uint64
}

func (s *even) Score(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	return float64(s.counts[n.Node.Labels["zone"]]), 0
}

func (s *even) Version() uint64 { return s.version }

// count notes a capsule in a zone.
func (s *even) count(n *orbit.NodeState) {
	s.counts[n.Node.Labels["zone"]]++
	s.version++
}

// A score that reads more than its arguments says so by its version. Its navigator counts: what the view shows, and
// then what it has reserved.
func ExampleScore_versioned() {
	ledger, ctx := &orbit.MemoryLedger{}, context.Background()
	for i, zone := range []string{"x", "x", "x", "y"} {
		node := orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Labels: map[string]string{"zone": zone}}
		node.Capacity[orbit.CPU] = 8_000
		commit(ledger, orbit.PutNode{Node: node})
	}
	commit(ledger, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c", "d"}, Spec: cores(2)})

	score := &even{}
	placement, draft := &place.Indexed{Score: score}, &orbit.Draft{}
	navigator := nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
		score.counts = map[string]int{}
		for n := range view.State().Nodes() {
			for range n.Capsules {
				score.count(n)
			}
		}
		draft.Sync(view)
		for _, c := range pending {
			choice, err := placement.Best(draft, c.Spec)
			if err == nil {
				err = draft.Place(c, choice)
			}
			if err != nil {
				return plan, err
			}
			plan.Proposals = append(plan.Proposals, draft.Propose())
			score.count(choice.Node)
		}
		return plan, nil
	})
	(&orbit.Engine{Ledger: ledger, Navigator: navigator}).Pass(ctx)
	fmt.Println(score.counts)
	// Output: map[x:2 y:2]
}

// A gang is placed by one proposal: whole, at least its minimum, or not at all.
func ExampleGang() {
	ledger, ctx := small("node-a", "node-b"), context.Background()
	commit(ledger, orbit.Submit{Gang: &orbit.Gang{
		ID:     "train",
		Levels: []string{"rack"},
		Roles:  []orbit.Role{{Name: "worker", Spec: cores(4), Members: []orbit.CapsuleID{"w0", "w1"}}},
	}})
	_, err := ledger.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "w0", Node: "node-a"}}})
	fmt.Println("half a gang:", err != nil)

	_, err = ledger.Propose(ctx, orbit.Proposal{
		Do: []orbit.Commitment{orbit.Place{Capsule: "w0", Node: "node-a"}, orbit.Place{Capsule: "w1", Node: "node-b"}},
		If: []orbit.Precondition{orbit.GangUnplaced{Gang: "train"}},
	})
	fmt.Println("all of it:", err, snapshot(ledger).Gang("train").Total())
	// Output:
	// half a gang: true
	// all of it: <nil> 2
}

// A dump holds the whole state; a ledger continues from it.
func ExampleState_Restore() {
	ledger := small("node-a", "node-b")
	var dump bytes.Buffer
	if err := snapshot(ledger).Dump(&dump); err != nil {
		log.Fatal(err)
	}
	var state orbit.State
	if err := state.Restore(&dump); err != nil {
		log.Fatal(err)
	}
	again := &orbit.MemoryLedger{Start: &state}
	fmt.Println(snapshot(again).NodeCount(), "nodes; next revision", commit(again, orbit.Mark{Key: "restored", Value: "yes"}))
	// Output: 2 nodes; next revision 3
}

// sweeps is a navigator for batch work.
type sweeps struct{ nav.Services }

func (*sweeps) Claims(_ string, class orbit.AppClass) bool { return class == orbit.Batch }

// Several engines run until nothing is pending any more. Each owns one class; all place on the same nodes.
func ExamplePopulation() {
	ledger := small("node-a", "node-b", "node-c")
	batch := cores(1)
	batch.Class = orbit.Batch
	commit(ledger,
		orbit.Submit{IDs: []orbit.CapsuleID{"web-1", "web-2", "web-3"}, Spec: cores(1)},
		orbit.Submit{IDs: []orbit.CapsuleID{"sweep-1", "sweep-2", "sweep-3"}, Spec: batch},
	)
	population := orbit.Population{
		Engines: []*orbit.Engine{
			{Name: "services", Ledger: ledger, Navigator: &nav.Services{Placement: &place.Exhaustive{Seed: 1}}},
			{Name: "batch", Ledger: ledger, Navigator: &sweeps{nav.Services{Placement: &place.Exhaustive{Seed: 2}}}},
		},
		OnError: func(err error) { fmt.Println(err) },
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		for state := snapshot(ledger); state.PendingCount() > 0; state = snapshot(ledger) {
			if _, err := ledger.Wait(ctx, state.Revision()); err != nil {
				return
			}
		}
	}()
	err := population.Run(ctx)
	state := snapshot(ledger)
	fmt.Println(err, state.PendingCount(), "pending; verify:", state.Verify())
	// Output: <nil> 0 pending; verify: <nil>
}

// The text form of a predicate is that of a label selector.
func ExamplePredicate_Set() {
	var p orbit.Predicate
	err := p.Set(`zone in (b, a)`)
	fmt.Println(p, err)
	fmt.Println(p.Matches(map[string]string{"zone": "a"}), p.Matches(nil))
	// Output:
	// zone in (a, b) <nil>
	// true false
}
