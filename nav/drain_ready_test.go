package nav_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// serving is the agent of all nodes: what is placed begins as soon as it may and serves ten seconds later, but for members that never
// do; what has left stops after two seconds.
func serving(ctx context.Context, l orbit.Ledger, crashes orbit.CapsuleID) {
	since := map[orbit.Confirm]time.Time{}
	say := func(c orbit.Confirm, after time.Duration) {
		if since[c].IsZero() {
			since[c] = time.Now()
		}
		if time.Since(since[c]) >= after {
			_, _ = l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{c}}) // refused: it asks again later
		}
	}
	for ctx.Err() == nil {
		s, err := l.Snapshot(ctx)
		if err != nil {
			return
		}
		for c := range s.Capsules() {
			if c.Remains() != nil {
				say(orbit.Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true}, 2*time.Second)
			}
			switch {
			case !c.Placed() || c.Ready:
			case !c.Begun:
				say(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: true}, 0)
			case c.ID != crashes:
				say(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Ready: true}, 10*time.Second)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// rollingDrain drains three nodes with two members each while agents work, and returns the least number of members that served at any
// revision, how long the drain took, and how many capsules are left on the nodes after two minutes.
func rollingDrain(t *testing.T, budget orbit.Budget, crashes orbit.CapsuleID) (least int, took time.Duration, left int) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		db := spec(1, 0)
		db.Group = "db"
		for i := range 6 {
			n := node(fmt.Sprint("n", i), 4)
			n.Node.Confirms = true
			commit(t, l, n)
		}
		for i := range 6 {
			put(t, l, fmt.Sprint("db-", i), fmt.Sprint("n", i%3), db)
			id := orbit.CapsuleID(fmt.Sprint("db-", i))
			commit(t, l, orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt, Ready: id != crashes, Begun: id == crashes})
		}
		budget.ID, budget.Group, budget.Expected = "db", "db", 6
		commit(t, l, orbit.PutBudget{Budget: budget})
		cordon(t, l, true, "n0", "n1", "n2")
		from, began := snapshot(t, l), time.Now()
		d := &nav.Drain{Ledger: l, OnRound: func(r nav.DrainRound) {
			if len(r.Moved) > 0 {
				took = time.Since(began)
			}
		}}
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		var agents sync.WaitGroup
		agents.Go(func() { serving(ctx, l, crashes) })
		require.NoError(t, d.Run(ctx))
		agents.Wait()

		changes, err := l.Changes(context.Background(), from.Revision())
		require.NoError(t, err)
		least = 6
		for s := from; ; {
			serve, n := 0, 0
			for c := range s.Capsules() {
				serve += btoi(c.Ready)
			}
			least = min(least, serve)
			for n < len(changes) && changes[n].Revision == changes[0].Revision {
				n++
			}
			if n == 0 {
				break
			}
			s, err = s.Apply(changes[:n])
			require.NoError(t, err)
			changes = changes[n:]
		}
		for i := range 3 {
			left += snapshot(t, l).Node(orbit.NodeID(fmt.Sprint("n", i))).Capsules
		}
	})
	return least, took, left
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestRollingDrain: members that need ten seconds to serve are moved one after the other, and at no revision do fewer serve than the
// budget asks for. If the budget does not look at who serves, the drain takes nearly all of them away at once.
func TestRollingDrain(t *testing.T) {
	least, took, left := rollingDrain(t, orbit.Budget{Missing: 1}, "")
	t.Logf("at least %d of 6 served; the last move came after %v", least, took)
	require.Equal(t, 5, least)
	require.Zero(t, left)
	require.InDelta(t, 60, took.Seconds(), 6, "each waits for the one before: two seconds to stop, ten to serve")

	least, took, left = rollingDrain(t, orbit.Budget{Missing: 1, IgnoreReady: true}, "")
	t.Logf("without counting who serves: at least %d of 6 served; the last move came after %v", least, took)
	require.Zero(t, least)
	require.Zero(t, left)
}

// TestRollingDrainPastACrashLoop: a member that never serves keeps its node from being drained where all have to serve, unless the
// budget lets go who does not serve.
func TestRollingDrainPastACrashLoop(t *testing.T) {
	least, _, left := rollingDrain(t, orbit.Budget{}, "db-0")
	require.Equal(t, []int{5, 6}, []int{least, left})
	least, _, left = rollingDrain(t, orbit.Budget{FreeUnready: true}, "db-0")
	require.Equal(t, []int{5, 5}, []int{least, left}, "the one that does not serve goes, and the others stay")
	least, _, left = rollingDrain(t, orbit.Budget{Missing: 1}, "db-0")
	require.Equal(t, []int{5, 5}, []int{least, left}, "it may be missing, and then nobody else")
	least, _, left = rollingDrain(t, orbit.Budget{Missing: 2}, "db-0")
	require.Equal(t, []int{4, 0}, []int{least, left})
}

// TestDrainWaitsForProtection: a drain names what is protected and until when, and moves it as soon as an engine has ended that, which has
// no work of its own.
func TestDrainWaitsForProtection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		movable := spec(1, 0)
		movable.Movable = true
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var engines sync.WaitGroup
		engines.Go(func() { _ = (&orbit.Engine{Name: "idle", Ledger: l, Navigator: &nav.Services{}}).Run(ctx) })
		commit(t, l, node("old", 4), node("new", 4))
		time.Sleep(10 * time.Second)
		at := time.Now()
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: movable, Owner: "other"},
			orbit.Place{Capsule: "a", Node: "old", At: orbit.Instant(at.UnixNano())}, orbit.Protect{Capsule: "a", For: time.Minute})
		cordon(t, l, true, "old")
		round := (&nav.Drain{Ledger: l}).Pass(ctx)
		require.Equal(t, `old: 1 left: a: capsule "a" is protected on node "old" for 1m0s from revision 2 on, until about `+
			at.Add(time.Minute).UTC().Format(time.RFC3339), round.Nodes[0].String())
		var moved time.Duration
		d := &nav.Drain{Ledger: l, OnRound: func(r nav.DrainRound) {
			if len(r.Moved) > 0 {
				moved = time.Since(at)
			}
		}}
		engines.Go(func() { _ = d.Run(ctx) })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.InDelta(t, 60, moved.Seconds(), 2)
		require.Zero(t, snapshot(t, l).Protected("a"))
		stop()
		engines.Wait()
	})
}
