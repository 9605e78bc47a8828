package nav_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// cordon puts nodes as they are, but cordoned or not.
func cordon(t require.TestingT, l orbit.Ledger, on bool, ids ...string) {
	for _, id := range ids {
		n := *snapshot(t, l).Node(orbit.NodeID(id)).Node
		n.Cordon(on)
		commit(t, l, orbit.PutNode{Node: n})
	}
}

// drainUntilStill passes until a pass changes nothing, and returns all that the passes did, and the last one.
func drainUntilStill(t require.TestingT, d *nav.Drain) (moved []orbit.CapsuleID, last nav.DrainRound) {
	for range 100 {
		last = d.Pass(context.Background())
		require.Empty(t, last.Errors)
		require.Zero(t, last.Conflicts)
		if moved = append(moved, last.Moved...); len(last.Moved)+len(last.Released) == 0 {
			return moved, last
		}
	}
	require.Fail(t, "it goes on for ever")
	return nil, last
}

// on returns what is on a node, in order.
func on(t require.TestingT, l orbit.Ledger, id string) (out []orbit.CapsuleID) {
	for c := range snapshot(t, l).On(orbit.NodeID(id)) {
		out = append(out, c.ID)
	}
	slices.Sort(out)
	return out
}

// Ten of twenty nodes at once: each capsule is moved once, is placed at every revision, and never goes to a node that
// is to be drained with its own.
func TestDrainMovesEachOnce(t *testing.T) {
	l := &orbit.MemoryLedger{}
	var cordoned []string
	for i := range 20 {
		commit(t, l, node(fmt.Sprint("n", i), 10))
	}
	for i := range 100 {
		put(t, l, fmt.Sprint("c", i), fmt.Sprint("n", i%20), spec(1, int32(i%3)))
	}
	for i := range 10 {
		cordoned = append(cordoned, fmt.Sprint("n", 2*i))
	}
	cordon(t, l, true, cordoned...)
	before := snapshot(t, l)
	moved, last := drainUntilStill(t, &nav.Drain{Ledger: l})
	require.Len(t, moved, 50)
	slices.Sort(moved)
	require.Len(t, slices.Compact(moved), 50, "nothing is moved twice")
	require.Len(t, last.Emptied, 10)
	require.Empty(t, last.Nodes)
	changes, err := l.Changes(t.Context(), before.Revision())
	require.NoError(t, err)
	for state := before; len(changes) > 0; changes = changes[2:] {
		require.Equal(t, changes[0].Revision, changes[1].Revision, "each is taken off its node and placed again by one proposal")
		state, err = state.Apply(changes[:2])
		require.NoError(t, err)
		require.Zero(t, state.PendingCount())
		require.False(t, slices.Contains(cordoned, string(changes[1].Node)))
	}
	require.NoError(t, snapshot(t, l).Verify())
}

// Where there is not room for all, the node with the least left is emptied, and the others say what they lack.
func TestDrainSaysWhatBlocks(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("few", 8), node("many", 8), node("spare", 4))
	put(t, l, "a", "few", spec(2, 0))
	for _, id := range []string{"b", "c", "d"} {
		put(t, l, id, "many", spec(2, 1))
	}
	commit(t, l, orbit.Hold{ID: "h", Node: "many", Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Unix(1<<33, 0)})
	cordon(t, l, true, "few", "many")
	d := &nav.Drain{Ledger: l}
	_, last := drainUntilStill(t, d)
	require.Equal(t, []orbit.CapsuleID{"c", "d"}, on(t, l, "many"))
	require.Empty(t, on(t, l, "few"))
	require.Equal(t, "many: 2 left, 1 holds: c: 0 of 3 nodes fit: 2 are unschedulable, 1 lacks cpu; MayWait does not let it wait for room; "+
		"d: 0 of 3 nodes fit: 2 are unschedulable, 1 lacks cpu; MayWait does not let it wait for room",
		last.Nodes[0].String())
	require.Contains(t, last.String(), "\nmany: 2 left")

	commit(t, l, orbit.Release{Capsule: "a", Final: true}, orbit.Release{Hold: "h"})
	moved, last := drainUntilStill(t, d)
	require.Equal(t, []orbit.CapsuleID{"c"}, moved)
	cordon(t, l, false, "many")
	require.Empty(t, d.Pass(t.Context()).Nodes, "what is not cordoned any more is left alone")
	_ = last

	// What ends when it leaves its node may not wait anyway, so MayWait is no help.
	ends := spec(8, 0)
	ends.Ends, ends.Movable = true, true
	commit(t, l, node("last", 8))
	put(t, l, "ends", "last", ends)
	cordon(t, l, true, "last")
	_, last = drainUntilStill(t, d)
	require.Contains(t, last.String(), "ends: 0 of 4 nodes fit")
	require.NotContains(t, last.String(), "MayWait")
}

// A gang that keeps to a rack is moved within the rack of the others. What has no room there waits if it may: alone while the minimum
// is kept, and else with all of the gang.
func TestDrainGangs(t *testing.T) {
	for _, c := range []struct {
		name          string
		min           int
		mayWait       bool
		room          int64 // of another node of the rack
		moved, placed int
		says          string
	}{
		{name: "within the rack", min: 3, room: 4, moved: 2, placed: 3},
		{name: "no room in the rack", min: 3, placed: 3, says: "m0: 0 of 4 nodes fit: 2 lack cpu, 1 is unschedulable, 1 does not meet rack in (r1)"},
		{name: "surplus may wait", min: 1, mayWait: true, placed: 1},
		{name: "all of it may wait", min: 3, mayWait: true, placed: 0},
		{name: "one may go, and the rest with it", min: 2, mayWait: true, placed: 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, rackNode("n1", "r1", 4), rackNode("n2", "r1", 1), rackNode("n3", "r1", c.room), rackNode("far", "r2", 100))
			g := gangSpec(1)
			ids := []orbit.CapsuleID{"m0", "m1", "m2"}
			commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: g, Members: ids, Min: c.min}}}},
				orbit.Place{Capsule: "m0", Node: "n1"}, orbit.Place{Capsule: "m1", Node: "n1"}, orbit.Place{Capsule: "m2", Node: "n2"})
			cordon(t, l, true, "n1")
			d := &nav.Drain{Ledger: l}
			if c.mayWait {
				d.MayWait = func(*orbit.Capsule) bool { return true }
			}
			moved, last := drainUntilStill(t, d)
			require.Len(t, moved, c.moved)
			s := snapshot(t, l)
			require.Equal(t, c.placed, s.Gang("g").Total())
			require.Empty(t, on(t, l, "far"), "a gang keeps to its rack")
			if c.says != "" {
				require.Contains(t, last.String(), c.says)
				return
			}
			require.Empty(t, on(t, l, "n1"))
		})
	}
}

// What may wait goes back to pending, and the rest stays.
func TestDrainReleasesOnlyWhatMayWait(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 4))
	put(t, l, "service", "n", spec(1, 0))
	put(t, l, "task", "n", batchSpec(1))
	cordon(t, l, true, "n")
	d := &nav.Drain{Ledger: l, MayWait: func(c *orbit.Capsule) bool { return c.Spec.Class == orbit.Batch }}
	round := d.Pass(t.Context())
	require.Equal(t, []orbit.CapsuleID{"task"}, round.Released)
	require.Equal(t, []orbit.CapsuleID{"service"}, on(t, l, "n"))
	require.Equal(t, 1, round.Nodes[0].Left)
	require.Len(t, round.Nodes[0].Blocked, 1)
}

// Nodes that are cordoned for other reasons are left alone.
func TestDrainOnlyWhatIsToBeDrained(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("silent", 4), node("old", 4), node("new", 4), node("gone", 4))
	put(t, l, "a", "silent", spec(1, 0))
	put(t, l, "c", "gone", spec(1, 0))
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "gone", State: orbit.Lost}})
	put(t, l, "b", "old", spec(1, 0))
	cordon(t, l, true, "silent", "old")
	d := &nav.Drain{Ledger: l, Drains: func(n *orbit.Node) bool { return n.ID == "old" || n.ID == "gone" }}
	moved, last := drainUntilStill(t, d)
	require.Equal(t, []orbit.CapsuleID{"b"}, moved)
	require.Empty(t, last.Nodes)
	require.Equal(t, []orbit.CapsuleID{"a"}, on(t, l, "silent"))
	require.Equal(t, []orbit.CapsuleID{"c"}, on(t, l, "gone"), "what is on a lost node is lost, and not moved")
}

// Run goes on at once when room comes, however long nothing has happened, and ends with its context.
func TestDrainRunsOnWhenRoomComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("old", 8), node("new", 2))
		for _, id := range []string{"a", "b", "c"} {
			put(t, l, id, "old", spec(2, 0))
		}
		cordon(t, l, true, "old")
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var rounds []nav.DrainRound
		d := &nav.Drain{Ledger: l, OnRound: func(r nav.DrainRound) { rounds = append(rounds, r) }}
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait() // a pass may run at this very moment
		require.Len(t, on(t, l, "old"), 2)
		require.Len(t, rounds, 1, "one that moves and finds the others blocked; then nothing is said for an hour")
		start := time.Now()
		commit(t, l, node("newer", 4))
		for len(on(t, l, "old")) > 0 {
			time.Sleep(time.Millisecond)
		}
		require.Less(t, time.Since(start), 50*time.Millisecond)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []orbit.NodeID{"old"}, rounds[len(rounds)-1].Emptied)
		stop()
		require.NoError(t, <-ended)
	})
}

// confirming returns a node with an agent that confirms.
func confirming(id string, cpu int64) orbit.PutNode {
	put := node(id, cpu)
	put.Node.Confirms = true
	return put
}

// A capsule that has begun is moved to a node that confirms, for it has to stop first; and its node is not empty before it has.
func TestDrainWhereSomeNodesConfirm(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, confirming("a", 4), node("m", 4), confirming("z", 4))
	put(t, l, "x", "a", spec(1, 0))
	since := snapshot(t, l).Capsule("x").PlacedAt
	commit(t, l, orbit.Confirm{Capsule: "x", Since: since, Begun: true})
	cordon(t, l, true, "a")
	d := &nav.Drain{Ledger: l}
	require.Equal(t, []orbit.CapsuleID{"x"}, d.Pass(t.Context()).Moved)
	require.Equal(t, orbit.NodeID("z"), snapshot(t, l).Capsule("x").Node)
	round := d.Pass(t.Context())
	require.Empty(t, round.Emptied)
	require.Equal(t, []nav.DrainNode{{Node: "a", Stopping: 1}}, round.Nodes)
	require.Contains(t, round.String(), "a: 0 left, 1 still stop")
	round.Errors = []error{errors.New("the ledger is away")}
	require.Contains(t, round.String(), "\nerror: the ledger is away")
	commit(t, l, orbit.Confirm{Capsule: "x", Since: since, Stopped: true})
	require.Equal(t, []orbit.NodeID{"a"}, d.Pass(t.Context()).Emptied)
	commit(t, l, orbit.RemoveNode{Node: "a"})
}

// If no node confirms, it waits if it may, and stays otherwise.
func TestDrainWhereNoOtherNodeConfirms(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, confirming("a", 4), node("m", 4))
	put(t, l, "x", "a", spec(1, 0))
	commit(t, l, orbit.Confirm{Capsule: "x", Since: snapshot(t, l).Capsule("x").PlacedAt, Begun: true})
	cordon(t, l, true, "a")
	d := &nav.Drain{Ledger: l}
	require.Contains(t, d.Pass(t.Context()).String(), `node "m" does not confirm`)
	d.MayWait = func(*orbit.Capsule) bool { return true }
	require.Equal(t, []orbit.CapsuleID{"x"}, d.Pass(t.Context()).Released)
	commit(t, l, confirming("z", 4))
	e := engineOf(l, &nav.Services{})
	require.Empty(t, e.Pass(t.Context()).Errors)
	require.Equal(t, orbit.NodeID("z"), snapshot(t, l).Capsule("x").Node, "it has not stopped")
}

// Two that drain the same nodes beside each other, and an engine that fills the nodes: nothing is moved twice, or lost.
func TestDrainBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		var ids []string
		for i := range 20 {
			commit(t, l, node(fmt.Sprint("n", i), 10))
		}
		for i := range 60 {
			put(t, l, fmt.Sprint("c", i), fmt.Sprint("n", i%10), spec(1, 0))
		}
		for i := range 10 {
			ids = append(ids, fmt.Sprint("n", i))
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 3)
		for range 2 {
			d := &nav.Drain{Ledger: l, MaxMoves: 7}
			d.OnRound = func(r nav.DrainRound) { assert.Empty(t, r.Errors) }
			go func() { ended <- d.Run(ctx) }()
		}
		engine := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}}
		go func() { ended <- engine.Run(ctx) }()
		from := snapshot(t, l).Revision()
		cordon(t, l, true, ids...)
		submit(t, l, "new", 30, spec(1, 0))
		time.Sleep(10 * time.Second)
		stop()
		for range 3 {
			require.NoError(t, <-ended)
		}
		s := snapshot(t, l)
		require.Zero(t, s.PendingCount())
		for _, id := range ids {
			require.Empty(t, on(t, l, id))
		}
		changes, err := l.Changes(context.Background(), from)
		require.NoError(t, err)
		evicted := map[orbit.CapsuleID]int{}
		for _, c := range changes {
			if e, ok := c.Do.(orbit.Evict); ok {
				evicted[e.Capsule]++
				require.Equal(t, 1, evicted[e.Capsule], e.Capsule)
			}
		}
		require.Len(t, evicted, 60)
		require.NoError(t, s.Verify())
	})
}

// Whatever is placed, held and cordoned: no move leaves a gang in part or a node over its capacity; what is left does not fit
// anywhere, or is refused by the ledger; and the round counts it.
func TestDrainProperty(t *testing.T) {
	for reached := range scale.Reach(t, "moved") {
		rapid.Check(t, func(t *rapid.T) {
			l := &orbit.MemoryLedger{}
			nodes := rapid.IntRange(2, 6).Draw(t, "nodes")
			for i := range nodes {
				commit(t, l, rackNode(fmt.Sprint("n", i), fmt.Sprint("r", i%2), rapid.Int64Range(1, 8).Draw(t, "capacity")))
			}
			for i := range rapid.IntRange(0, 12).Draw(t, "capsules") {
				s := spec(rapid.Int64Range(1, 3).Draw(t, "size"), rapid.Int32Range(0, 2).Draw(t, "priority"))
				_, _ = l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
					orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: s},
					orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprint("c", i)), Node: orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "on")))}}})
			}
			gang := &orbit.Gang{ID: "g", Levels: []string{"rack"}, Loose: rapid.Bool().Draw(t, "loose"),
				Roles: []orbit.Role{{Name: "w", Spec: gangSpec(1), Members: []orbit.CapsuleID{"m0", "m1", "m2"}, Min: rapid.IntRange(1, 3).Draw(t, "min")}}}
			do := []orbit.Commitment{orbit.Submit{Gang: gang}}
			for _, id := range gang.Roles[0].Members {
				do = append(do, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "on")))})
			}
			_, _ = l.Propose(context.Background(), orbit.Proposal{Do: do})
			for i := range nodes {
				if rapid.Bool().Draw(t, "cordoned") {
					cordon(t, l, true, fmt.Sprint("n", i))
				}
			}
			before := snapshot(t, l)
			d := &nav.Drain{Ledger: l}
			if rapid.Bool().Draw(t, "may wait") {
				d.MayWait = func(c *orbit.Capsule) bool { return c.Spec.Priority == 0 }
			}
			moved, last := drainUntilStill(t, d)
			reached["moved"] += len(moved)
			s := snapshot(t, l)
			require.NoError(t, s.Verify())
			if d.MayWait == nil {
				require.Equal(t, before.PendingCount(), s.PendingCount())
			}
			left := 0
			for n := range s.Nodes() {
				require.True(t, n.Used().Within(n.Node.Capacity))
				if n.Node.State != orbit.Cordoned {
					continue
				}
				for c := range s.On(n.Node.ID) {
					left++
					require.False(t, d.MayWait != nil && c.Spec.Priority == 0 && c.Gang() == "", "%s may wait", c.ID)
					for other := range s.Nodes() {
						require.False(t, c.Gang() == "" && other.Fits(c.Spec), "%s fits on %s", c.ID, other.Node.ID)
					}
				}
			}
			for _, n := range last.Nodes {
				require.Len(t, n.Blocked, n.Left)
				left -= n.Left
			}
			require.Zero(t, left)
		})
	}
}

// Of 50,000 nodes a pass looks at those that have changed, and at what is on the ones that are drained.
func TestDrainLooksAtLittle(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	l := &orbit.MemoryLedger{}
	total := 50_000
	for i := range total / 1000 {
		var p orbit.Proposal
		for k := range 1000 {
			p.Do = append(p.Do, node(fmt.Sprint("n", 1000*i+k), 10))
		}
		_, err := l.Propose(t.Context(), p)
		require.NoError(t, err)
	}
	for i := range 300 {
		put(t, l, fmt.Sprint("c", i), fmt.Sprint("n", i), spec(1+int64(i%2), 0))
	}
	d := &nav.Drain{Ledger: l}
	first := d.Pass(t.Context())
	require.Equal(t, total, first.Looked)
	for _, k := range []int{1, 10, 100} {
		var ids []string
		for i := range k {
			ids = append(ids, fmt.Sprint("n", k+i))
		}
		cordon(t, l, true, ids...)
		round := d.Pass(t.Context())
		require.Len(t, round.Moved, k)
		require.LessOrEqual(t, round.Looked, 8*k+300, "nodes that have changed, cordoned nodes, and what is on them")
		again := d.Pass(t.Context())
		require.LessOrEqual(t, again.Looked, 8*k+300)
		require.LessOrEqual(t, d.Pass(t.Context()).Looked, 2*k+20, "only the cordoned nodes")
		cordon(t, l, false, ids...)
	}
}

// A ledger that is away is reported, and changes nothing; without one nothing runs.
func TestDrainFaults(t *testing.T) {
	d := &nav.Drain{}
	require.ErrorIs(t, d.Run(t.Context()), orbit.ErrInvalid)
	require.ErrorIs(t, errors.Join(d.Pass(t.Context()).Errors...), orbit.ErrInvalid)
	l := &orbit.MemoryLedger{}
	commit(t, l, node("old", 4), node("new", 4))
	put(t, l, "a", "old", spec(1, 0))
	cordon(t, l, true, "old")
	for _, fault := range []error{orbit.ErrUnknown, orbit.ErrUnavailable} {
		round := (&nav.Drain{Ledger: deaf{l, fault}}).Pass(t.Context())
		require.Len(t, round.Errors, 1)
		require.ErrorIs(t, round.Errors[0], fault)
		require.True(t, strings.HasPrefix(round.Errors[0].Error(), `nav: drain: capsule "a"`))
		require.Equal(t, 1, round.Nodes[0].Left)
	}
}

// deaf is a ledger that takes no proposal.
type deaf struct {
	orbit.Ledger
	err error
}

func (d deaf) Propose(context.Context, orbit.Proposal) (orbit.Revision, error) { return 0, d.err }

// What a budget keeps stays, and the round says by which budget and how much; what it allows goes, one after the other.
func TestDrainKeepsBudgets(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("old", 8), node("new", 8))
	db := spec(1, 0)
	db.Group = "db"
	for _, id := range []string{"db-0", "db-1", "db-2"} {
		put(t, l, id, "old", db)
	}
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Group: "db", Expected: 3}})
	cordon(t, l, true, "old")
	d := &nav.Drain{Ledger: l, MayWait: func(*orbit.Capsule) bool { return true }}
	round := d.Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, `old: 3 left: db-0: budget "db": 2 healthy of 3 after this, 3 needed; db-1: budget "db": 2 healthy of 3 after this, 3 needed; `+
		`db-2: budget "db": 2 healthy of 3 after this, 3 needed`, round.Nodes[0].String())
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Group: "db", Expected: 3, Missing: 1}})
	from := snapshot(t, l)
	moved, last := drainUntilStill(t, d)
	require.ElementsMatch(t, []orbit.CapsuleID{"db-0", "db-1", "db-2"}, moved)
	require.Empty(t, last.Nodes)
	changes, err := l.Changes(t.Context(), from.Revision())
	require.NoError(t, err)
	require.Len(t, changes, 6)
	require.Equal(t, 3, snapshot(t, l).Node("new").Capsules)
}
