package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/navtest"
)

// ready are the ready navigators.
var ready = map[string]func() orbit.Navigator{
	"services": func() orbit.Navigator { return &nav.Services{} },
	"anchor":   func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}} },
	"batch":    func() orbit.Navigator { return &nav.Batch{} },
	"gang":     func() orbit.Navigator { return &nav.Gang{} },
}

// racks returns nodes in racks of two, as many as wanted.
func racks(count int, cores int64) (do []orbit.Commitment) {
	for i := range count {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%02d", i)), Capacity: orbit.Resources{cores},
			Labels: map[string]string{"rack": fmt.Sprint("r", i/2)}}})
	}
	return do
}

// passUntil calls Pass until everything in a ledger is placed, at most that often, and returns the last round.
func passUntil(engine *orbit.Engine, ledger orbit.Ledger, passes int) (r orbit.Round) {
	for range passes {
		r = engine.Pass(context.Background())
		if state, _ := ledger.Snapshot(context.Background()); state.PendingCount() == 0 {
			break
		}
	}
	return r
}

// modeEngine returns an engine with a navigator in a mode.
func modeEngine(ledger orbit.Ledger, name string, mode Mode, make func() orbit.Navigator) *orbit.Engine {
	partition := &PartitionLedger{Ledger: ledger, Scheduler: name, Mode: mode}
	return &orbit.Engine{Name: name, Ledger: partition, Navigator: partition.Navigator(make)}
}

// TestSoftHomeFirst: a soft scheduler fills its own group first and then other nodes. In shared mode there are no
// groups.
func TestSoftHomeFirst(t *testing.T) {
	for mode, atHome := range map[Mode]int{Strict: 4, Soft: 4, Shared: 1} {
		t.Run(mode.String(), func(t *testing.T) {
			ledger := &orbit.MemoryLedger{}
			commit(t, ledger, fleet(6, orbit.Resources{2})...)
			give(t, ledger, "a", "n04", "n05")
			give(t, ledger, "b", "n00", "n01", "n02", "n03")
			submit(t, ledger, "a", 1, "u", "v", "w", "x", "y", "z")
			r := passUntil(modeEngine(ledger, "a", mode, ready["services"]), ledger, 3)
			home := 0
			for _, node := range []orbit.NodeID{"n04", "n05"} {
				home += snapshot(t, ledger).Node(node).Capsules
			}
			if mode == Shared {
				assert.LessOrEqual(t, home, 2, "spread over all")
			} else {
				assert.Equal(t, atHome, home)
			}
			if mode == Strict {
				assert.Equal(t, 2, snapshot(t, ledger).PendingCount())
				return
			}
			assert.Zero(t, snapshot(t, ledger).PendingCount())
			assert.Zero(t, r.Conflicts+r.Infeasible)
		})
	}
}

// TestModesGangs: a gang that needs the nodes of two groups is placed in soft and in shared mode; in strict mode the
// reason names the group.
func TestModesGangs(t *testing.T) {
	for _, mode := range []Mode{Strict, Soft, Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			ledger := &orbit.MemoryLedger{}
			commit(t, ledger, racks(4, 4)...)
			give(t, ledger, "a", "n00", "n02")
			give(t, ledger, "b", "n01", "n03")
			gang := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "worker", Members: []orbit.CapsuleID{"x", "y"},
				Spec: &orbit.Spec{Module: "m", Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{3}}}}}}
			commit(t, ledger, orbit.Submit{Gang: gang, Owner: "a"})
			r := passUntil(modeEngine(ledger, "a", mode, ready["gang"]), ledger, 3)
			if mode != Strict {
				assert.Equal(t, 2, snapshot(t, ledger).Gang("g").Total(), "%v", r)
				return
			}
			require.Len(t, r.Unplaced, 2)
			why := r.Unplaced[0].Why
			assert.ErrorIs(t, why, ErrGroup)
			var noFit *nav.GangNoFit
			assert.ErrorAs(t, why, &noFit)
			assert.ErrorContains(t, why, `the group of scheduler "a" has 2 of the 4 schedulable nodes; soft mode would use the others too`)
		})
	}
}

// TestModesNear: a capsule wants to be near a group that runs on nodes of another scheduler.
func TestModesNear(t *testing.T) {
	for _, mode := range []Mode{Strict, Soft, Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			ledger := &orbit.MemoryLedger{}
			commit(t, ledger, racks(4, 4)...)
			give(t, ledger, "a", "n00", "n01")
			give(t, ledger, "b", "n02", "n03")
			cache := &orbit.Spec{Module: "cache", Group: "cache", Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}}
			commit(t, ledger, orbit.Submit{IDs: []orbit.CapsuleID{"cache"}, Spec: cache, Owner: "b"}, orbit.Place{Capsule: "cache", Node: "n02"})
			web := &orbit.Spec{Module: "web", Near: orbit.Near{Group: "cache", Level: "rack"}, Envelope: cache.Envelope}
			commit(t, ledger, orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: web, Owner: "a"})
			r := passUntil(modeEngine(ledger, "a", mode, ready["anchor"]), ledger, 1)
			if mode != Strict {
				assert.Contains(t, []orbit.NodeID{"n02", "n03"}, nodeOf(t, ledger, "web"))
				return
			}
			require.Len(t, r.Unplaced, 1)
			assert.ErrorIs(t, r.Unplaced[0].Why, ErrGroup)
		})
	}
}

// TestSoftNotStarved: a gang that needs the own group and another one is placed although small capsules for the own
// group never end.
func TestSoftNotStarved(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, racks(2, 40)...)
	give(t, ledger, "a", "n00")
	gang := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "worker", Members: []orbit.CapsuleID{"x", "y"},
		Spec: &orbit.Spec{Module: "m", Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{30}}}}}}
	commit(t, ledger, orbit.Submit{Gang: gang, Owner: "a"})
	both := func() orbit.Navigator {
		gangs, others := &nav.Gang{}, &nav.Services{}
		return nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			var g, o []*orbit.Capsule
			for _, c := range pending {
				if c.Gang() != "" {
					g = append(g, c)
				} else {
					o = append(o, c)
				}
			}
			plan, _ := gangs.Plan(ctx, view, g)
			more, err := others.Plan(ctx, view, o)
			plan.Proposals, plan.Unplaced = append(plan.Proposals, more.Proposals...), append(plan.Unplaced, more.Unplaced...)
			return plan, err
		})
	}
	engine := modeEngine(ledger, "a", Soft, both)
	for i := range 2 {
		submit(t, ledger, "a", 1, orbit.CapsuleID(fmt.Sprint("small-", i)))
		r := engine.Pass(context.Background())
		assert.Zero(t, r.Conflicts+r.Infeasible, "%v", r)
		assert.Equal(t, i == 1, snapshot(t, ledger).Gang("g").Total() == 2)
	}
	engine.Pass(context.Background())
	assert.Zero(t, snapshot(t, ledger).PendingCount(), "what was left out for it comes next")
}

// TestSoftPlans: every navigator keeps its rules in soft mode too, with half of the nodes as the own group. The
// exception are gangs that only prefer a rack: they are placed in the own group, even across racks.
func TestSoftPlans(t *testing.T) {
	scale.Long(t)
	for name, make := range ready {
		t.Run(name, func(t *testing.T) {
			navtest.Suite{Worlds: 16, Skip: map[string]string{"gangs": "the own group comes before a rack that is only preferred"}}.Run(t, func() orbit.Navigator {
				return &soft{near: make(), far: make(), closed: func(n *orbit.NodeState) bool { return hash(0, string(n.Node.ID))%2 == 0 }}
			})
		})
	}
}

// TestSoftCommits: all plans of soft schedulers commit at their own view, in order. Each capsule is placed or has a
// reason, and a capsule is placed outside the group only if it does not fit inside.
func TestSoftCommits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger := &orbit.MemoryLedger{}
		nodes := rapid.IntRange(1, 8).Draw(t, "nodes")
		for i := range nodes {
			id := orbit.NodeID(fmt.Sprint("n", i))
			commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{rapid.Int64Range(0, 6).Draw(t, "cores")}}})
			if rapid.Bool().Draw(t, "own") {
				give(t, ledger, "a", id)
			}
		}
		capsules := 0
		engine := modeEngine(ledger, "a", Soft, ready["services"])
		inner := engine.Navigator
		engine.Navigator = nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			plan, err := inner.Plan(ctx, view, pending)
			require.NoError(t, err)
			require.Equal(t, len(pending), len(plan.Proposals)+len(plan.Unplaced))
			trial := &orbit.MemoryLedger{Start: view.State()}
			away := map[*orbit.Spec]bool{}
			for _, p := range plan.Proposals {
				commit(t, trial, p.Do...)
				for _, bet := range p.If {
					require.IsType(t, orbit.NodeFreeOf{}, bet, "nothing rests on groups")
				}
				place := p.Do[0].(orbit.Place)
				if owner, _ := view.State().Mark("group/" + string(place.Node)); owner != "a" {
					away[view.State().Capsule(place.Capsule).Spec] = true
				}
			}
			for n := range snapshot(t, trial).Nodes() {
				if owner, _ := view.State().Mark("group/" + string(n.Node.ID)); owner == "a" {
					for spec := range away {
						require.False(t, n.Fits(spec), "there was room at home")
					}
				}
			}
			return plan, err
		})
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			var ids []orbit.CapsuleID
			for range rapid.IntRange(1, 6).Draw(t, "capsules") {
				ids = append(ids, orbit.CapsuleID(fmt.Sprint("c", capsules)))
				capsules++
			}
			submit(t, ledger, "a", rapid.Int64Range(1, 4).Draw(t, "cores"), ids...)
			r := engine.Pass(context.Background())
			require.Zero(t, r.Conflicts+r.Infeasible+r.Invalid, "%v", r)
			if rapid.Bool().Draw(t, "regroup") {
				give(t, ledger, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"), orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "node"))))
			}
		}
	})
}

// TestSoftSaysWhichAreClosed: the reason of a capsule that fits nowhere says which unschedulable nodes are only closed
// because the pass has used them.
func TestSoftSaysWhichAreClosed(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(2, orbit.Resources{4})...)
	give(t, ledger, "a", "n00")
	give(t, ledger, "b", "n01")
	submit(t, ledger, "a", 1, "small")
	submit(t, ledger, "a", 9, "big")
	engine, _ := engineOf(ledger, "a", Soft)
	r := engine.Pass(context.Background())
	assert.Equal(t, 1, r.Committed)
	require.Len(t, r.Unplaced, 1)
	assert.EqualError(t, r.Unplaced[0].Why, "0 of 2 nodes fit: 1 is unschedulable, 1 lacks cpu; no node is that large: the largest has 0.004 cores; 1 of the unschedulable ones are only closed to this plan, because the pass has used them for other capsules; they do not fit either")
	assert.Equal(t, 1, r.Parked, "it is a NoFit all the same")
	submit(t, ledger, "a", 8, "alone")
	r = engine.Pass(context.Background())
	require.Len(t, r.Unplaced, 1)
	assert.EqualError(t, r.Unplaced[0].Why, "0 of 2 nodes fit: 2 lack cpu; no node is that large: the largest has 0.004 cores", "nothing was planned on")
}

// TestSoftVainTurns: a far navigator that goes first in vain does so again after twice as many passes each time, 64 at
// most, and other capsules are planned in between.
func TestSoftVainTurns(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(2, orbit.Resources{1000})...)
	give(t, ledger, "a", "n00")
	submit(t, ledger, "a", 1, "vain")
	vain, helps := orbit.CapsuleID("vain"), false // helps says that going first places the capsule
	unsure := nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		var plan orbit.Plan
		turn := len(pending) == 1 && view.State().Node("n00").Node.Schedulable()
		for _, c := range pending {
			if c.ID == vain && (!helps || !turn) {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: errBehind})
			} else {
				plan.Proposals = append(plan.Proposals, orbit.Proposal{View: view.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: "n00"}}})
			}
		}
		return plan, nil
	})
	engine := modeEngine(ledger, "a", Soft, func() orbit.Navigator { return unsure })
	var turns []int
	for pass := range 300 {
		submit(t, ledger, "a", 1, orbit.CapsuleID(fmt.Sprint("small-", pass)))
		if r := engine.Pass(context.Background()); r.Committed == 0 {
			turns = append(turns, pass)
		}
	}
	assert.Equal(t, []int{1, 4, 8, 14, 24, 42, 76, 142, 208, 274}, turns)

	// After a turn that was not in vain the pauses start over.
	helps = true
	for pass := 0; snapshot(t, ledger).Capsule("vain").Pending() && pass < 100; pass++ {
		submit(t, ledger, "a", 1, orbit.CapsuleID(fmt.Sprint("meanwhile-", pass)))
		engine.Pass(context.Background())
	}
	require.True(t, snapshot(t, ledger).Capsule("vain").Placed())
	engine.Pass(context.Background())
	vain, helps, turns = "again", false, nil
	submit(t, ledger, "a", 1, "again")
	for pass := range 20 {
		submit(t, ledger, "a", 1, orbit.CapsuleID(fmt.Sprint("later-", pass)))
		if r := engine.Pass(context.Background()); r.Committed == 0 {
			turns = append(turns, pass)
		}
	}
	assert.Equal(t, []int{1, 4, 8, 14}, turns)
}

// TestSoftLeavesWhatNearHasBegun: a capsule that wants to be near a group which near has just placed is not given to
// far in this pass. Its NoFit does not park its class; other reasons stay as they are.
func TestSoftLeavesWhatNearHasBegun(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, orbit.Submit{IDs: []orbit.CapsuleID{"first"}, Spec: &orbit.Spec{Module: "m", Group: "g"}},
		orbit.Submit{IDs: []orbit.CapsuleID{"full", "broken"}, Spec: &orbit.Spec{Module: "m", Near: orbit.Near{Group: "g", Level: "rack"}}})
	state, broken := snapshot(t, ledger), errors.New("broken")
	plan := orbit.Plan{Proposals: []orbit.Proposal{{Do: []orbit.Commitment{orbit.Place{Capsule: "first", Node: "n"}}}},
		Unplaced: []orbit.Unplaced{{Capsule: state.Capsule("full"), Why: &orbit.NoFit{}}, {Capsule: state.Capsule("broken"), Why: broken}}}
	left, rest := (&soft{}).splitUnplaced(state, &plan, state.Pending())
	require.Empty(t, rest)
	require.Equal(t, []error{errBehind, broken}, []error{left[0].Why, left[1].Why})
}
