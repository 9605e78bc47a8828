package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/nav"
)

// pilot plays an engine that may be stopped between its view and its proposals, one pass at a time.
type pilot struct {
	name      string
	partition *PartitionLedger
	// view is the view of the pass under way; nil: none.
	view *orbit.State
	dead bool
}

func (p *pilot) look(t fataler) { p.view = snapshot(t, p.partition) }

// propose places a capsule on the n-th schedulable node of its view, and reports whether there is one.
func (p *pilot) propose(id orbit.CapsuleID, n int) (node orbit.NodeID, err error, ok bool) {
	var open []orbit.NodeID
	for n := range p.view.Nodes() {
		if n.Node.Schedulable() {
			open = append(open, n.Node.ID)
		}
	}
	view := p.view
	if p.view = nil; len(open) == 0 {
		return "", nil, false
	}
	node = open[n%len(open)]
	_, err = p.partition.Propose(context.Background(), orbit.Proposal{ID: orbit.NewProposalID(), View: view.Revision(),
		Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}}})
	return node, err, true
}

// TestHandoffProperty: for any order of snapshots, proposals, Steps of two Groups, joins, deaths and returns: a
// proposal of a living scheduler is committed if the node was schedulable in its view, every commit is on a node whose
// group mark names the scheduler at that revision, and every handoff ends when all take snapshots and steps.
func TestHandoffProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		ledger := &orbit.MemoryLedger{}
		leases := &lease.Keeper{Ledger: ledger, Prefix: LeasePrefix, Terms: -1}
		groups := [2]*Groups{}
		for i := range groups {
			groups[i] = &Groups{Ledger: ledger, Leases: leases, Tolerance: 0.001, Patience: -1, By: []Rule{nil, ByHash}[i]}
		}
		pilots, terms := map[string]*pilot{}, map[string]lease.Term{}
		come := func(name string) {
			term, err := leases.Acquire(ctx, name, name)
			require.NoError(t, err)
			terms[name] = term
			pilots[name] = &pilot{name: name, partition: &PartitionLedger{Ledger: ledger, Scheduler: name, Hook: func(err error) { t.Error(err) }}}
		}
		names := []string{"a", "b/", "c"}
		nodes, capsules := 0, 0
		for _, name := range names { // before all views
			for i := range 80 {
				submit(t, ledger, name, 1, orbit.CapsuleID(fmt.Sprint(name, i)))
			}
		}
		come("a")
		actions := []string{"look", "look", "look", "propose", "propose", "propose", "step", "step", "join", "join", "come", "die", "crash"}
		for range rapid.IntRange(1, 80).Draw(t, "actions") {
			name := rapid.SampledFrom(names).Draw(t, "scheduler")
			p := pilots[name]
			switch action := rapid.SampledFrom(actions).Draw(t, "action"); {
			case action == "join" && nodes < 8:
				commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", nodes)), Capacity: orbit.Resources{1000}}})
				nodes++
			case action == "step":
				r := groups[rapid.IntRange(0, 1).Draw(t, "groups")].Step(ctx)
				require.Empty(t, r.Errors)
			case action == "come" && p == nil:
				come(name)
			case p == nil:
			case action == "look":
				p.look(t)
			case action == "propose" && p.view != nil:
				id := orbit.CapsuleID(fmt.Sprint(name, capsules))
				capsules++
				node, err, ok := p.propose(id, rapid.IntRange(0, 7).Draw(t, "which"))
				if !ok {
					continue
				}
				if !p.dead {
					require.NoError(t, err, "a proposal of %s for %s is lost", name, node)
				}
				if owner, _ := snapshot(t, ledger).Mark("group/" + string(node)); err == nil {
					require.Equal(t, name, owner, "placed on a node of another scheduler")
				} else {
					require.ErrorIs(t, err, orbit.ErrConflict)
				}
			case action == "die" && !p.dead: // it resigns its lease, and none of its proposals is under way
				require.NoError(t, leases.Resign(ctx, terms[name]))
				delete(pilots, name)
			case action == "crash" && !p.dead: // its engine does not know that its lease is over
				require.NoError(t, leases.Resign(ctx, terms[name]))
				p.dead = true
			}
		}
		for range 3 {
			for _, name := range names {
				if p := pilots[name]; p != nil && !p.dead {
					p.look(t)
				}
			}
			require.Empty(t, groups[0].Step(ctx).Errors)
		}
		require.NoError(t, snapshot(t, ledger).Verify())
		living := func(p *pilot) bool { return p != nil && !p.dead }
		for key, value := range snapshot(t, ledger).Marks("leaving/") {
			if !living(pilots["a"]) && !living(pilots["b/"]) && !living(pilots["c"]) {
				break // there is no living scheduler to get the nodes
			}
			require.Failf(t, "a handoff has not ended", "%s = %s", key, value)
		}
	})
}

// twoGroups returns a ledger with two nodes of a, and Groups that will give one of them to b.
func twoGroups(t *testing.T) (*orbit.MemoryLedger, *Groups) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(2, orbit.Resources{4})...)
	give(t, ledger, "a", "n00", "n01")
	return ledger, &Groups{Ledger: ledger, Schedulers: []string{"a", "b"}}
}

// marksOf returns the marks of a node.
func marksOf(t *testing.T, ledger orbit.Ledger, node orbit.NodeID) (out [3]string) {
	for i, kind := range markOrder {
		out[i], _ = snapshot(t, ledger).Mark(kind.key(string(node)))
	}
	return out
}

// TestHandoffWaitsForPass: proposals that are under way when a node is asked for are committed, and then the engine
// answers.
func TestHandoffWaitsForPass(t *testing.T) {
	ctx := context.Background()
	ledger, g := twoGroups(t)
	submit(t, ledger, "a", 4, "x", "y")
	partition := &PartitionLedger{Ledger: ledger, Scheduler: "a"}
	var moved orbit.NodeID
	inner := partition.Navigator(plain)
	engine := &orbit.Engine{Name: "a", Ledger: partition, Navigator: nav.Func(func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
		plan, err := inner.Plan(ctx, view, pending)
		if moved == "" { // planned, and not yet proposed
			r := g.Step(ctx)
			require.Len(t, r.Moved, 1)
			assert.Equal(t, Move{Node: r.Moved[0].Node, From: "a", To: "b", Why: ForBalance}, r.Moved[0])
			assert.Equal(t, 1, r.Waiting)
			moved = r.Moved[0].Node
			assert.Zero(t, g.Step(ctx).Ended)
		}
		return plan, err
	})}
	r := engine.Pass(ctx)
	assert.Equal(t, 2, r.Committed, "%v", r)
	assert.Equal(t, [3]string{"a", "b", ""}, marksOf(t, ledger, moved))
	assert.Zero(t, g.Step(ctx).Ended, "it has not looked yet")
	engine.Pass(ctx)
	assert.Equal(t, [3]string{"a", "b", "a"}, marksOf(t, ledger, moved))
	rev := snapshot(t, ledger).Revision()
	engine.Pass(ctx)
	assert.Equal(t, rev, snapshot(t, ledger).Revision(), "one answer is enough")
	assert.Equal(t, 1, g.Step(ctx).Ended)
	assert.Equal(t, [3]string{"b", "", ""}, marksOf(t, ledger, moved))
	assert.Equal(t, 1, snapshot(t, ledger).Node(moved).Capsules, "what runs there stays")
}

// TestHandoffAtRest: an engine without work answers at once, however long it rests.
func TestHandoffAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, g := twoGroups(t)
		ctx, cancel := context.WithCancel(t.Context())
		engine, _ := engineOf(ledger, "a", Strict)
		engine.Backoff = orbit.Backoff{Initial: time.Hour, Max: time.Hour}
		done := make(chan error)
		go func() { done <- engine.Run(ctx) }()
		synctest.Wait()
		start := time.Now()
		require.Len(t, g.Step(ctx).Moved, 1)
		synctest.Wait()
		assert.Equal(t, 1, g.Step(ctx).Ended)
		assert.Zero(t, time.Since(start))
		cancel()
		require.NoError(t, <-done)
	})
}

// TestHandoffInRefresh: a mark that is set between the snapshot and the changes of one refresh is answered after the
// next one, because the engine is about to plan on a view in which the node is schedulable.
func TestHandoffInRefresh(t *testing.T) {
	ctx := context.Background()
	ledger, g := twoGroups(t)
	submit(t, ledger, "a", 1, "x")
	a := &pilot{name: "a", partition: &PartitionLedger{Ledger: ledger, Scheduler: "a"}}
	a.look(t)
	was := a.view.Revision()
	for _, id := range []orbit.CapsuleID{"y", "z"} {
		submit(t, ledger, "a", 1, id)
		a.look(t)
	}
	moved := g.Step(ctx).Moved[0].Node
	changes, err := a.partition.Changes(ctx, was)
	require.NoError(t, err)
	assert.NotEmpty(t, changes)
	assert.Equal(t, [3]string{"a", "b", ""}, marksOf(t, ledger, moved))
	_, err, _ = a.propose("x", slices.Index(openIn(a.view), moved))
	assert.NoError(t, err)
	changes, err = a.partition.Changes(ctx, a.partition.viewed)
	require.NoError(t, err)
	assert.NotEmpty(t, changes)
	assert.Equal(t, [3]string{"a", "b", "a"}, marksOf(t, ledger, moved), "at rest")
}

// TestHandoffPatience: a living owner that does not answer keeps its node for exactly Patience. Its proposals after
// that are refused, and its capsules are still pending.
func TestHandoffPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		ledger, g := twoGroups(t)
		g.Patience = time.Minute
		stuck := &pilot{name: "a", partition: &PartitionLedger{Ledger: ledger, Scheduler: "a"}}
		submit(t, ledger, "a", 1, "x")
		stuck.look(t)
		moved := g.Step(ctx).Moved[0].Node
		time.Sleep(time.Minute - 1)
		r := g.Step(ctx)
		assert.Zero(t, r.Ended)
		assert.Equal(t, 1, r.Waiting)
		time.Sleep(1)
		r = g.Step(ctx)
		assert.Equal(t, 1, r.Ended)
		assert.Zero(t, r.Waiting)
		assert.Equal(t, []Move{{Node: moved, From: "a", To: "b", Why: NoAnswer}}, r.Moved)
		assert.Equal(t, [3]string{"b", "", ""}, marksOf(t, ledger, moved))
		index := snapshot(t, ledger).Node(moved).Index()
		_, err, _ := stuck.propose("x", index)
		assert.ErrorIs(t, err, orbit.ErrConflict)
		assert.True(t, snapshot(t, ledger).Capsule("x").Pending())
	})
}

// TestHandoffRestart: Groups that start in the middle of a handoff wait for the full Patience, and ignore an answer of
// another scheduler than the owner.
func TestHandoffRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		ledger, g := twoGroups(t)
		moved := g.Step(ctx).Moved[0].Node
		time.Sleep(20 * time.Second)
		next := &Groups{Ledger: ledger, Schedulers: g.Schedulers}
		commit(t, ledger, orbit.Mark{Key: "left/" + string(moved), Value: "b"})
		for range 2 {
			r := next.Step(ctx)
			assert.Zero(t, r.Ended)
			assert.Equal(t, 1, r.Waiting)
			time.Sleep(30*time.Second - 1)
		}
		time.Sleep(2)
		assert.Equal(t, 1, next.Step(ctx).Ended)
	})
}

// TestHandoffRunDeadline: Run wakes at the end of Patience without a change, and keeps the time at which it asked when
// the table is made anew.
func TestHandoffRunDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, g := twoGroups(t)
		g.Patience = time.Minute
		start := time.Now()
		var ended time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		g.Hook = func(r Regrouping) {
			if r.Ended > 0 {
				ended = time.Since(start)
				cancel()
			}
		}
		go func() {
			time.Sleep(time.Second)
			g.mu.Lock()
			g.table.rebuild(g.table.state)
			g.mu.Unlock()
		}()
		require.NoError(t, g.Run(ctx))
		assert.Equal(t, time.Minute, ended)
		synctest.Wait()
		assert.Len(t, slices.Collect(keysOf(snapshot(t, ledger), "group/", "b")), 1)
	})
}

// keysOf yields the keys of marks with a value.
func keysOf(state *orbit.State, prefix, value string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key, v := range state.Marks(prefix) {
			if v == value && !yield(key) {
				return
			}
		}
	}
}

// TestHandoffInterrupted: a node leaves or is drained during its handoff, or its owner or its next owner dies.
func TestHandoffInterrupted(t *testing.T) {
	type world struct {
		ledger *orbit.MemoryLedger
		leases *lease.Keeper
		terms  map[string]lease.Term
		g      *Groups
		a      *pilot
		moved  orbit.NodeID
	}
	for name, c := range map[string]struct {
		happens func(t *testing.T, w *world)
		want    [3]string
	}{
		"node leaves": {func(t *testing.T, w *world) {
			commit(t, w.ledger, orbit.RemoveNode{Node: w.moved})
			assert.Equal(t, 1, w.g.Step(t.Context()).Cleared)
		}, [3]string{}},
		"node leaves after the answer": {func(t *testing.T, w *world) {
			w.a.look(t)
			commit(t, w.ledger, orbit.RemoveNode{Node: w.moved})
			assert.Equal(t, 1, w.g.Step(t.Context()).Cleared)
		}, [3]string{}},
		"node is drained": {func(t *testing.T, w *world) {
			n := *snapshot(t, w.ledger).Node(w.moved).Node
			n.State = orbit.Cordoned
			commit(t, w.ledger, orbit.PutNode{Node: n})
			assert.Zero(t, w.g.Step(t.Context()).Ended)
			w.a.look(t)
			assert.Equal(t, 1, w.g.Step(t.Context()).Ended)
		}, [3]string{"b"}},
		"owner dies": {func(t *testing.T, w *world) {
			require.NoError(t, w.leases.Resign(t.Context(), w.terms["a"]))
			r := w.g.Step(t.Context())
			assert.Equal(t, 1, r.Ended)
			assert.Len(t, r.Moved, 2, "both nodes of a, at once")
			_, err, _ := w.a.propose("x", 0)
			assert.ErrorIs(t, err, orbit.ErrConflict)
		}, [3]string{"b"}},
		"new owner dies": {func(t *testing.T, w *world) {
			require.NoError(t, w.leases.Resign(t.Context(), w.terms["b"]))
			r := w.g.Step(t.Context())
			assert.Equal(t, 1, r.Cancelled)
			assert.Empty(t, r.Moved)
			w.a.look(t)
			assert.Len(t, openIn(w.a.view), 2, "it is a's again")
		}, [3]string{"a"}},
		"new owner dies after the answer": {func(t *testing.T, w *world) {
			w.a.look(t)
			assert.Len(t, openIn(w.a.view), 1)
			require.NoError(t, w.leases.Resign(t.Context(), w.terms["b"]))
			assert.Equal(t, 1, w.g.Step(t.Context()).Cancelled)
			w.a.look(t)
			assert.Len(t, openIn(w.a.view), 2)
		}, [3]string{"a"}},
		"both die": {func(t *testing.T, w *world) {
			require.NoError(t, w.leases.Resign(t.Context(), w.terms["b"]))
			require.NoError(t, w.leases.Resign(t.Context(), w.terms["a"]))
			_, err := w.leases.Acquire(t.Context(), "c", "c")
			require.NoError(t, err)
			r := w.g.Step(t.Context())
			assert.Len(t, r.Moved, 2)
			assert.Equal(t, OwnerGone, r.Moved[0].Why)
		}, [3]string{"c"}},
		"owner comes back in a new term": {func(t *testing.T, w *world) {
			require.NoError(t, w.leases.Resign(t.Context(), w.terms["a"]))
			_, err := w.leases.Acquire(t.Context(), "a", "a")
			require.NoError(t, err)
			assert.Zero(t, w.g.Step(t.Context()).Ended, "its nodes have not been reassigned yet")
			w.a.look(t)
			assert.Equal(t, 1, w.g.Step(t.Context()).Ended)
		}, [3]string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			ledger := &orbit.MemoryLedger{}
			w := &world{ledger: ledger, leases: &lease.Keeper{Ledger: ledger, Prefix: LeasePrefix}, terms: map[string]lease.Term{}}
			w.g = &Groups{Ledger: ledger, Leases: w.leases}
			commit(t, ledger, fleet(2, orbit.Resources{4})...)
			submit(t, ledger, "a", 1, "x")
			for _, name := range []string{"a", "b"} {
				term, err := w.leases.Acquire(t.Context(), name, name)
				require.NoError(t, err)
				w.terms[name] = term
				if name == "a" {
					require.Equal(t, 2, w.g.Step(t.Context()).Grouped)
				}
			}
			w.a = &pilot{name: "a", partition: &PartitionLedger{Ledger: ledger, Scheduler: "a"}}
			w.a.look(t)
			r := w.g.Step(t.Context())
			require.Len(t, r.Moved, 1)
			w.moved = r.Moved[0].Node
			c.happens(t, w)
			assert.Equal(t, c.want, marksOf(t, ledger, w.moved))
			again := w.g.Step(t.Context())
			assert.Zero(t, again.Ended+again.Cancelled+again.Cleared)
			assert.Empty(t, again.Moved)
		})
	}
}

// openIn lists the schedulable nodes of a state.
func openIn(state *orbit.State) (out []orbit.NodeID) {
	for n := range state.Nodes() {
		if n.Node.Schedulable() {
			out = append(out, n.Node.ID)
		}
	}
	return out
}

// TestHandoffOwnerComesBack: a dead owner that comes back while its nodes are being reassigned keeps the others,
// because each reassignment bets on the lease.
func TestHandoffOwnerComesBack(t *testing.T) {
	ctx := context.Background()
	ledger := &orbit.MemoryLedger{}
	leases := &lease.Keeper{Ledger: ledger, Prefix: LeasePrefix}
	commit(t, ledger, fleet(1, orbit.Resources{4})...)
	give(t, ledger, "a", "n00")
	_, err := leases.Acquire(ctx, "b", "b")
	require.NoError(t, err)
	late := &meddler{Ledger: ledger, before: func() {
		_, err := leases.Acquire(ctx, "a", "a")
		require.NoError(t, err)
	}}
	g := &Groups{Ledger: late, Leases: leases}
	r := g.Step(ctx)
	assert.Equal(t, 1, r.Conflicts)
	assert.Empty(t, r.Moved)
	assert.Equal(t, []Group{{Scheduler: "b", Worst: "cpu", Off: 0}}, []Group{{Scheduler: r.Groups[0].Scheduler, Worst: "cpu"}})
	assert.Zero(t, r.Groups[0].Nodes, "what was not committed is not counted")
	assert.Equal(t, [3]string{"a", "", ""}, marksOf(t, ledger, "n00"))
	r = g.Step(ctx)
	assert.Empty(t, r.Moved)
	assert.True(t, r.Balanced)
}

// TestGroupsCompareAndSwap: a change is refused if any of the three marks of the node has changed since it was read.
func TestGroupsCompareAndSwap(t *testing.T) {
	ctx := context.Background()
	for _, kind := range markOrder {
		inner, g := twoGroups(t)
		moved := orbit.NodeID("")
		if kind != groupMark { // at the end of the handoff
			moved = g.Step(ctx).Moved[0].Node
			snapshot(t, &PartitionLedger{Ledger: inner, Scheduler: "a"})
		} else {
			commit(t, inner, orbit.PutNode{Node: orbit.Node{ID: "new", Capacity: orbit.Resources{4}}})
			moved = "new"
		}
		g.Ledger = &meddler{Ledger: inner, before: func() { commit(t, inner, orbit.Mark{Key: kind.key(string(moved)), Value: "meddler"}) }}
		r := g.Step(ctx)
		assert.Equal(t, 1, r.Conflicts, "%v of %s", r, kind)
		assert.Zero(t, r.Grouped+r.Ended)
		value, _ := snapshot(t, inner).Mark(kind.key(string(moved)))
		assert.Equal(t, "meddler", value)
	}
}

// meddler lets the test change something before the first proposal, and may lose answers.
type meddler struct {
	orbit.Ledger
	before func()
	after  func(p orbit.Proposal, err error) error
}

func (m *meddler) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if before := m.before; before != nil {
		m.before = nil
		before()
	}
	rev, err := m.Ledger.Propose(ctx, p)
	if m.after != nil {
		if e := m.after(p, err); e != err { //nolint:errorlint // the very same
			return 0, e
		}
	}
	return rev, err
}

// TestHandoffUnknown: while the outcome of a proposal is unknown its nodes are not answered for. When the engine sends
// it again it has its old bets, so it has one effect.
func TestHandoffUnknown(t *testing.T) {
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			inner, g := twoGroups(t)
			submit(t, inner, "a", 1, "x", "y")
			lost := true
			ledger := &meddler{Ledger: inner}
			ledger.after = func(p orbit.Proposal, err error) error {
				if _, place := p.Do[0].(orbit.Place); place && lost {
					return orbit.ErrUnknown
				}
				return err
			}
			if !applied {
				real := ledger.Ledger
				ledger.Ledger = &dropper{Ledger: real, drop: func(p orbit.Proposal) bool {
					_, place := p.Do[0].(orbit.Place)
					return place && lost
				}}
			}
			partition := &PartitionLedger{Ledger: ledger, Scheduler: "a", Hook: func(err error) { t.Error(err) }}
			view := snapshot(t, partition).Revision()
			moved := g.Step(ctx).Moved[0].Node
			p := orbit.Proposal{ID: orbit.NewProposalID(), View: view, Do: []orbit.Commitment{orbit.Place{Capsule: "x", Node: moved}}}
			_, err := partition.Propose(ctx, p)
			require.ErrorIs(t, err, orbit.ErrUnknown)
			_, err = partition.Propose(ctx, orbit.Proposal{View: view, Do: []orbit.Commitment{orbit.Release{Capsule: "y", Final: true}}})
			require.NoError(t, err, "the same pass goes on")
			for range 3 {
				snapshot(t, partition)
				assert.Zero(t, g.Step(ctx).Ended)
				_, err = partition.Propose(ctx, p)
				require.ErrorIs(t, err, orbit.ErrUnknown)
			}
			lost = false
			_, err = partition.Propose(ctx, p)
			require.NoError(t, err, "the node is closed by now, and yet")
			assert.Equal(t, moved, nodeOf(t, inner, "x"))
			snapshot(t, partition)
			assert.Equal(t, 1, g.Step(ctx).Ended)
		})
	}
}

// dropper loses proposals before they arrive.
type dropper struct {
	orbit.Ledger
	drop func(orbit.Proposal) bool
}

func (d *dropper) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if d.drop(p) {
		return 0, errors.New("lost")
	}
	return d.Ledger.Propose(ctx, p)
}

// TestHandoffWhileSending: while a proposal is being sent no node is answered for, even if a snapshot is taken
// meanwhile.
func TestHandoffWhileSending(t *testing.T) {
	ctx := context.Background()
	inner, g := twoGroups(t)
	submit(t, inner, "a", 1, "x")
	ledger := &meddler{Ledger: inner}
	partition := &PartitionLedger{Ledger: ledger, Scheduler: "a"}
	view := snapshot(t, partition).Revision()
	moved := g.Step(ctx).Moved[0].Node
	ledger.before = func() {
		snapshot(t, partition)
		assert.Equal(t, [3]string{"a", "b", ""}, marksOf(t, inner, moved))
	}
	_, err := partition.Propose(ctx, orbit.Proposal{View: view, Do: []orbit.Commitment{orbit.Place{Capsule: "x", Node: moved}}})
	require.NoError(t, err)
	assert.Equal(t, [3]string{"a", "b", ""}, marksOf(t, inner, moved))
	snapshot(t, partition)
	assert.Equal(t, [3]string{"a", "b", "a"}, marksOf(t, inner, moved))
}

// TestHandoffUnknownGivenUp: an engine that has given up a proposal and goes on with others answers.
func TestHandoffUnknownGivenUp(t *testing.T) {
	ctx := context.Background()
	inner, g := twoGroups(t)
	submit(t, inner, "a", 1, "x", "y")
	ledger := &meddler{Ledger: inner, after: func(p orbit.Proposal, err error) error {
		if place, ok := p.Do[0].(orbit.Place); ok && place.Capsule == "x" {
			return orbit.ErrUnknown
		}
		return err
	}}
	partition := &PartitionLedger{Ledger: ledger, Scheduler: "a"}
	view := snapshot(t, partition)
	moved := g.Step(ctx).Moved[0].Node
	place := func(id orbit.CapsuleID, node orbit.NodeID) error {
		_, err := partition.Propose(ctx, orbit.Proposal{View: view.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}}})
		return err
	}
	require.ErrorIs(t, place("x", moved), orbit.ErrUnknown)
	view = snapshot(t, partition)
	assert.Zero(t, g.Step(ctx).Ended)
	require.NoError(t, place("y", openIn(view)[0]))
	snapshot(t, partition)
	assert.Equal(t, 1, g.Step(ctx).Ended)
}

// TestHandoffAnswerFails: an answer that could not be committed is reported and sent again.
func TestHandoffAnswerFails(t *testing.T) {
	ctx := context.Background()
	inner, g := twoGroups(t)
	fail := true
	var told []error
	partition := &PartitionLedger{Scheduler: "a", Hook: func(err error) { told = append(told, err) }, Ledger: &meddler{Ledger: inner, after: func(_ orbit.Proposal, err error) error {
		if fail {
			return orbit.ErrUnavailable
		}
		return err
	}}}
	snapshot(t, partition)
	require.Len(t, g.Step(ctx).Moved, 1)
	snapshot(t, partition)
	require.Len(t, told, 1)
	assert.ErrorIs(t, told[0], orbit.ErrUnavailable)
	fail = false
	snapshot(t, partition)
	assert.Equal(t, 1, g.Step(ctx).Ended)
}

// TestSeveralGroups: two Groups at once, on real goroutines, never lose a node, and come to rest.
func TestSeveralGroups(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(60, orbit.Resources{4})...)
	names := []string{"a", "b", "c"}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	for i := range 2 {
		g := &Groups{Ledger: ledger, Schedulers: names, Every: time.Microsecond, By: AtRandom(uint64(i)), Tolerance: 0.01}
		go func() { done <- g.Run(ctx) }()
	}
	for _, name := range names {
		engine, _ := engineOf(ledger, name, Strict)
		go func() { done <- engine.Run(ctx) }()
	}
	for i := range 200 {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%02d", i%60)), Capacity: orbit.Resources{4}, State: map[bool]orbit.Condition{true: orbit.Cordoned}[i%7 == 0]}
		commit(t, ledger, orbit.PutNode{Node: n})
	}
	require.Eventually(t, func() bool {
		state := snapshot(t, ledger)
		for range state.Marks("leaving/") {
			return false
		}
		m := modelOf(state, names, 0.01)
		return !slices.Contains(m.owner, "") && m.excess(m.owner) < 1e-18
	}, time.Minute, 5*time.Millisecond)
	cancel()
	for range 5 {
		require.NoError(t, <-done)
	}
}
