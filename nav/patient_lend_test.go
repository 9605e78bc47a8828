package nav_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// lendTrial is two gangs of ten whole nodes that wait, on 12 nodes of 4 cores: on each node runs a task of which it is known when it ends,
// on the first after 10 s, on the next after 20 s, and so on. Short tasks of one core, of which it is known that they run for 2 s, always
// wait, and more of them than there is room for.
type lendTrial struct {
	backfill bool

	l      *orbit.MemoryLedger
	next   int
	used   float64
	starts []time.Duration
	// Commits for the gangs other than placements of borrowers, and borrowers that were evicted.
	mine, evicted int
}

const (
	lendTick    = 50 * time.Millisecond
	lendHorizon = 200 * time.Second
	lendShort   = 2 * time.Second
	lendGang    = 30 * time.Second
)

func (p *lendTrial) run(t *testing.T) *lendTrial {
	synctest.Test(t, func(t *testing.T) {
		p.l = &orbit.MemoryLedger{}
		for i := range 12 {
			id := fmt.Sprintf("n%02d", i)
			commit(t, p.l, node(id, 4))
			running(t, p.l, "long-"+id, id, batchSpec(4), 0, time.Duration(i+1)*10*time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for name, n := range map[string]orbit.Navigator{"short": &nav.Batch{}, "gangs": &nav.Patient{Navigator: &nav.Gang{}, After: time.Second}} {
			e := &orbit.Engine{Name: name, Ledger: p.l, ParkFor: time.Second, Navigator: n, OnRound: func(r orbit.Round) {
				assert.Zero(t, r.Infeasible+r.Invalid)
				if name == "gangs" {
					p.mine += r.Committed
				}
			}}
			all.Go(func() { assert.NoError(t, e.Run(ctx)) })
		}
		large := batchSpec(4)
		large.Class, large.Module, large.Priority = orbit.GangClass, "large", 10
		large.RunsAtMost = lendGang
		for g := range 2 {
			id := fmt.Sprint("g", g)
			commit(t, p.l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "worker", Spec: large, Members: gangMembers(id, 10)}}}, Owner: "gangs"})
		}
		p.submit(t, 60)
		p.watch(t)
		cancel()
		all.Wait()
		require.NoError(t, snapshot(t, p.l).Verify())
	})
	return p
}

func gangMembers(id string, n int) (out []orbit.CapsuleID) {
	for i := range n {
		out = append(out, orbit.CapsuleID(fmt.Sprint(id, "-", i)))
	}
	return out
}

func (p *lendTrial) submit(t *testing.T, n int) {
	s := batchSpec(1)
	s.RunsAtMost, s.Backfills = lendShort, p.backfill
	for range n {
		commit(t, p.l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("short-", p.next))}, Spec: s, Owner: "short"})
		p.next++
	}
}

// watch ends what has run for its time, and lets a short task follow each that has ended.
func (p *lendTrial) watch(t *testing.T) {
	seen, start := snapshot(t, p.l).Revision(), time.Now()
	for p.starts = nil; time.Since(start) < lendHorizon; time.Sleep(lendTick) {
		synctest.Wait()
		s := snapshot(t, p.l)
		changes, err := p.l.Changes(t.Context(), seen)
		require.NoError(t, err)
		for i := range changes {
			seen = changes[i].Revision
			switch c := changes[i].Do.(type) {
			case orbit.Place:
				if c.Capsule == "g0-0" || c.Capsule == "g1-0" {
					p.starts = append(p.starts, time.Since(start))
				}
			case orbit.Evict:
				p.evicted++
			}
		}
		var over []orbit.Commitment
		short := 0
		for c := range s.Capsules() {
			if c.Placed() && time.Since(c.PlaceTime.Time()) >= c.Spec.RunsAtMost {
				over = append(over, orbit.Release{Capsule: c.ID, Final: true})
				short += btoi(c.Spec.RunsAtMost == lendShort)
			}
		}
		for n := range s.Nodes() {
			p.used += float64(n.Used()[orbit.CPU]) * lendTick.Seconds()
		}
		if len(over) > 0 {
			commit(t, p.l, over...)
		}
		p.submit(t, short)
	}
}

// Lending nominated room to short tasks fills what would lie idle, and no gang starts later for it.
func TestLendingFillsWhatLiesIdle(t *testing.T) {
	scale.Long(t)
	without, with := (&lendTrial{}).run(t), (&lendTrial{backfill: true}).run(t)
	share := func(p *lendTrial) float64 { return 100 * p.used / (48 * lendHorizon.Seconds()) }
	t.Logf("without: %.1f%% used, gangs start at %v, %d commits of their engine; with: %.1f%%, %v, %d commits, %d evicted",
		share(without), without.starts, without.mine, share(with), with.starts, with.mine, with.evicted)
	require.Len(t, without.starts, 2)
	require.Len(t, with.starts, 2)
	for i := range with.starts {
		require.LessOrEqual(t, with.starts[i], without.starts[i]+lendTick)
	}
	require.Greater(t, share(with), share(without)+10)
	require.Zero(t, without.evicted)
}

// lending returns a ledger on which "large", of so many cores, is nominated on a node where a task runs for an hour, and three capsules of
// two cores each that can borrow the room.
func lending(t *testing.T, on orbit.Node, large, task int64) (*lossy, *orbit.Engine) {
	l := &lossy{MemoryLedger: &orbit.MemoryLedger{}}
	commit(t, l, orbit.PutNode{Node: on})
	running(t, l, "task", "n", batchSpec(task), 0, time.Hour)
	short := batchSpec(2)
	short.RunsAtMost, short.Backfills = time.Minute, true
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(large, 5), Owner: "large"},
		orbit.Submit{IDs: []orbit.CapsuleID{"short", "next", "last"}, Spec: short})
	e := engineOf(l, impatient(&nav.Services{}))
	e.Pass(t.Context())
	time.Sleep(time.Millisecond) // in a bubble it takes no time to wait too long
	require.Equal(t, []orbit.NodeID{"n"}, nominatedFor(t, l, e, "large"))
	return l, e
}

// Room is lent for as long as it is known that the nominee waits, and not where that is not known, or where what leaves has to stop first.
func TestPatientLendsWhatItExpectsToWait(t *testing.T) {
	four := orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}}
	l, _ := lending(t, four, 4, 1)
	require.InDelta(t, time.Hour, snapshot(t, l).Capsule("large").Nomination().Lends, float64(time.Minute))
	four.Confirms = true
	l, _ = lending(t, four, 4, 1)
	require.Zero(t, snapshot(t, l).Capsule("large").Nomination().Lends)

	unknown := &orbit.MemoryLedger{}
	commit(t, unknown, node("n", 4))
	put(t, unknown, "task", "n", batchSpec(1))
	commit(t, unknown, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: spec(4, 5), Owner: "large"})
	nominatedFor(t, unknown, engineOf(unknown, impatient(&nav.Services{})), "large")
	require.Zero(t, snapshot(t, unknown).Capsule("large").Nomination().Lends)
}

// A nominee is placed as soon as it fits without what borrows its room: the end of the last other task wakes its engine, and the
// commit that places it evicts as many as are in the way.
func TestPatientRecallsWhatIsInTheWay(t *testing.T) {
	l, e := lending(t, orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 8}}, 5, 4)
	commit(t, l, orbit.Place{Capsule: "short", Node: "n"})
	commit(t, l, orbit.Place{Capsule: "next", Node: "n"})
	require.Equal(t, &orbit.Nominee{Capsule: "large"}, snapshot(t, l).Capsule("short").Borrows())
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("large").Pending())
	at := snapshot(t, l).Revision()
	commit(t, l, orbit.Release{Capsule: "task", Final: true})
	changes, err := l.Changes(t.Context(), at)
	require.NoError(t, err)
	require.True(t, e.Wake(t.Context(), changes), "it fits now without what borrows its room")
	e.Pass(t.Context())
	s := snapshot(t, l)
	require.Equal(t, orbit.NodeID("n"), s.Capsule("large").Node)
	require.Equal(t, orbit.NodeID("n"), s.Capsule("short").Node, "there is room for one of the two")
	require.True(t, s.Capsule("next").Pending(), "which has done least")
}

// lossy is a ledger on which others come and go before some proposals.
type lossy struct {
	*orbit.MemoryLedger
	before func(orbit.Proposal)
}

func (l *lossy) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if l.before != nil {
		l.before(p)
	}
	return l.MemoryLedger.Propose(ctx, p)
}

func (l *lossy) ProposeBatch(ctx context.Context, batch []orbit.Proposal) (out []orbit.Outcome) {
	for _, p := range batch {
		rev, err := l.Propose(ctx, p)
		out = append(out, orbit.Outcome{Revision: rev, Err: err})
	}
	return out
}

// Borrowers that come before every proposal cannot keep the nominee out: it stops lending, which rests on none of them, and the next
// proposal places it.
func TestPatientStopsLending(t *testing.T) {
	l, e := lending(t, orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}}, 4, 1)
	commit(t, l, orbit.Place{Capsule: "short", Node: "n"}, orbit.Release{Capsule: "task", Final: true})
	n, others := 0, l.MemoryLedger
	l.before = func(orbit.Proposal) { // another one comes, and the one before ends
		id, short := orbit.CapsuleID(fmt.Sprint("quick-", n)), *snapshot(t, l).Capsule("short").Spec
		short.Envelope.Reservation[orbit.CPU] = 1
		_, err := others.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &short}, orbit.Place{Capsule: id, Node: "n"}}})
		if err != nil {
			return
		}
		if n > 0 {
			commit(t, others, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("quick-", n-1)), Final: true})
		}
		n++
	}
	placed := 0
	for pass := 1; pass <= 6 && placed == 0; pass++ {
		r := e.Pass(t.Context())
		require.Empty(t, r.Errors)
		placed = pass * btoi(snapshot(t, l).Capsule("large").Placed())
	}
	require.Positive(t, placed)
	t.Log("placed in pass", placed)
}

// What backfills and waits in the same engine does not take the room anew in the plan that could place the nominee.
func TestPatientKeepsWhatItNeedsNow(t *testing.T) {
	l, e := lending(t, orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}}, 4, 1)
	short := spec(1, 0)
	short.Module, short.RunsAtMost, short.Backfills = "own", time.Minute, true
	commit(t, l, orbit.Submit{IDs: gangMembers("own", 3), Spec: short, Owner: "large"})
	e.Pass(t.Context())
	require.Equal(t, 4, snapshot(t, l).Node("n").Capsules, "three of its own borrow the room")
	commit(t, l, orbit.Release{Capsule: "task", Final: true}, orbit.Release{Capsule: "own-0", Final: true})
	commit(t, l, orbit.Submit{IDs: gangMembers("more", 3), Spec: short, Owner: "large"})
	e.Pass(t.Context())
	require.True(t, snapshot(t, l).Capsule("large").Placed())
}

// A renewal lends for as much less as the nominee still waits: what borrows the room does not make it wait.
func TestPatientLendsLessWithEachRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, e := lending(t, orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}}, 4, 1)
		for range 3 {
			commit(t, l, orbit.Place{Capsule: "short", Node: "n", At: orbit.Instant(time.Now().Add(2 * time.Hour).UnixNano())})
			before := snapshot(t, l).Capsule("large").Nomination()
			time.Sleep(61 * time.Second)
			e.Pass(t.Context())
			after := snapshot(t, l).Capsule("large").Nomination()
			require.Equal(t, 61*time.Second, before.Lends-after.Lends)
			require.Greater(t, after.Made, before.Made)
			commit(t, l, orbit.Release{Capsule: "short", Stopped: true})
		}
	})
}
