package nav_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// taint puts nodes as they are, but with these taints.
func taint(t require.TestingT, l orbit.Ledger, id string, taints ...orbit.Taint) {
	n := *snapshot(t, l).Node(orbit.NodeID(id)).Node
	n.Taints = taints
	commit(t, l, orbit.PutNode{Node: n})
}

// tolerant is a spec of one core with tolerations.
func tolerant(tolerate ...orbit.Toleration) *orbit.Spec {
	s := spec(1, 0)
	s.Tolerate = tolerate
	return s
}

var sick = orbit.Taint{Key: "sick", Effect: "NoExecute"}

// aWhile tolerates the taint for so long.
func aWhile(lasts time.Duration) orbit.Toleration {
	return orbit.Toleration{Key: "sick", Op: "Exists", Effect: "NoExecute", For: lasts}
}

// A node becomes sick: what does not tolerate that moves at once, what tolerates it for a minute moves after a minute, also if it was
// placed later, and never to another sick node; the rest stays.
func TestDrainMovesWhatATaintExpels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 8), node("b", 8), node("z", 8))
		for id, s := range map[string]*orbit.Spec{"at-once": tolerant(), "minute": tolerant(aWhile(time.Minute)), "longest": tolerant(aWhile(time.Minute), aWhile(time.Hour)),
			"for-ever": tolerant(aWhile(time.Minute), orbit.Toleration{Op: "Exists"}), "later": tolerant(aWhile(time.Minute))} {
			submit(t, l, id, 1, s)
		}
		for _, id := range []orbit.CapsuleID{"at-once-0", "minute-0", "longest-0", "for-ever-0"} {
			commit(t, l, orbit.Place{Capsule: id, Node: "a"})
		}
		start := time.Now()
		moved := map[orbit.CapsuleID]time.Duration{}
		d := &nav.Drain{Ledger: l, OnRound: func(r nav.DrainRound) {
			assert.Empty(t, r.Errors)
			assert.Empty(t, r.Emptied, "no node was to be emptied")
			for _, id := range r.Moved {
				moved[id] = time.Since(start)
			}
		}}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- d.Run(ctx) }()
		taint(t, l, "a", sick)
		taint(t, l, "b", sick)
		time.Sleep(30 * time.Second)
		commit(t, l, orbit.Place{Capsule: "later-0", Node: "a", At: orbit.Instant(time.Now().UnixNano())})
		time.Sleep(2 * time.Hour)
		stop()
		require.NoError(t, <-done)
		for id, after := range map[orbit.CapsuleID]time.Duration{"at-once-0": 0, "minute-0": time.Minute, "later-0": 90 * time.Second, "longest-0": time.Hour} {
			require.Contains(t, moved, id)
			require.GreaterOrEqual(t, moved[id], after, id)
			require.LessOrEqual(t, moved[id], after+3*time.Second, id)
			require.Equal(t, orbit.NodeID("z"), snapshot(t, l).Capsule(id).Node)
		}
		require.Equal(t, []orbit.CapsuleID{"for-ever-0"}, on(t, l, "a"))
		require.Len(t, moved, 4, "each was moved once")
	})
}

// A taint that goes and comes back counts anew; one that stays does not, whatever else changes about the node.
func TestDrainCountsEachTaint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		commit(t, l, node("a", 8), node("z", 8))
		submit(t, l, "x", 1, tolerant(aWhile(time.Minute)))
		commit(t, l, orbit.Place{Capsule: "x-0", Node: "a"})
		d := &nav.Drain{Ledger: l}
		after := func(wait time.Duration, taints ...orbit.Taint) int {
			time.Sleep(wait)
			taint(t, l, "a", taints...)
			return len(d.Pass(t.Context()).Moved)
		}
		require.Zero(t, after(0, sick))
		require.Zero(t, after(50*time.Second))
		require.Zero(t, after(0, sick))
		require.Zero(t, after(50*time.Second, sick, orbit.Taint{Key: "old", Effect: "PreferNoSchedule"}))
		require.Equal(t, 1, after(10*time.Second, sick))
	})
}

// What has to leave a tainted node and cannot, for want of room or by a budget, stays, and the round says why; MayWait does not send it
// back to pending, which no rule allows there.
func TestDrainSaysWhatStaysOnATaintedNode(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 8), node("z", 1))
	s := tolerant()
	s.Module = "db"
	for _, id := range []string{"x", "y"} {
		submit(t, l, id, 1, s)
		commit(t, l, orbit.Place{Capsule: orbit.CapsuleID(id + "-0"), Node: "a"})
	}
	taint(t, l, "a", sick)
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Module: "db", Expected: 2}})
	d := &nav.Drain{Ledger: l, MayWait: func(*orbit.Capsule) bool { return true }}
	moved, last := drainUntilStill(t, d)
	require.Empty(t, moved)
	require.Contains(t, last.String(), `a: 2 left: x-0: budget "db"`)
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Module: "db", Expected: 2, Missing: 1}})
	moved, last = drainUntilStill(t, d)
	require.Equal(t, []orbit.CapsuleID{"x-0"}, moved, "there is room for one")
	require.Contains(t, last.String(), "a: 1 left: y-0: 0 of 2 nodes fit")
	require.Equal(t, 1, last.Nodes[0].Left)
	taint(t, l, "a")
	require.Empty(t, d.Pass(t.Context()).Nodes)
}
