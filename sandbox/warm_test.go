package sandbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
)

// Warm claims what Services does, or the modules that it is told, and never gangs.
func TestWarmClaims(t *testing.T) {
	all, some := &sandbox.Warm{}, &sandbox.Warm{Modules: []string{"sandbox"}}
	for class, want := range map[orbit.AppClass]bool{
		orbit.LatencySensitive: true, orbit.BestEffort: true, orbit.Batch: false, orbit.GangClass: false, 9: false,
	} {
		require.Equal(t, want, all.Claims("any", class), "%v", class)
		require.Equal(t, class < orbit.GangClass, some.Claims("sandbox", class), "%v", class)
		require.False(t, some.Claims("any", class))
	}
}

// warmEngine runs Warm on the fleet.
func (f *fleet) warmEngine() *orbit.Engine {
	return &orbit.Engine{Ledger: f.ledger, Telemetry: f.board, Navigator: &sandbox.Warm{Board: f.board}}
}

// Through an engine: warm slots first, then cold; the rest is told why, is parked, and is taken back when a node reports
// a free slot.
func TestWarmThroughAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.join("pz20", 16_384)
		f.report("pz20", 4, 2, 31)
		f.join("n1v2", 16_384)
		f.report("n1v2", 1, 1, 12)
		submit(t, f.ledger, "c", 8, bootSpec(code))
		e := f.warmEngine()
		round := e.Pass(context.Background())
		require.Equal(t, 5, round.Committed)
		require.Equal(t, []int{3, 2, 3}, []int{noted(t, round, "warm"), noted(t, round, "cold"), noted(t, round, "noSlot")})
		require.Equal(t, 1, round.Parked)
		require.Len(t, round.Unplaced, 3)
		require.ErrorIs(t, round.Unplaced[0].Why, sandbox.ErrNoSlot)
		require.EqualError(t, round.Unplaced[0].Why, `template "code-interpreter": no free slot: 0 of 2 nodes fit: 2 have no free slot; bring up a host, or wait`)
		require.Equal(t, "pz20 warm", f.noteOf("c-0"))
		require.Equal(t, 3, e.Pass(context.Background()).Pending, "its own claims are a change of the nodes' reports")
		require.Zero(t, e.Pass(context.Background()).Pending, "they are aside")
		time.Sleep(10 * time.Second)
		f.report("n1v2", 2, 0, 12)
		round = e.Pass(context.Background())
		require.Equal(t, []int{3, 2}, []int{round.Pending, round.Committed})
	})
}

// The navigator debits each slot that it promises once on the board that all share, until the node reports. The next
// plan gives back the slots of placements that were not committed.
func TestWarmClaimsOnTheBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 9, 5, 0)
		f.host("b", 1, 0, 0)
		w := &sandbox.Warm{Board: f.board}
		var view orbit.View
		seen := func(id orbit.NodeID) [2]int {
			r, ok := f.board.Latest(id)
			require.True(t, ok)
			return [2]int{r.FreeSlots, r.Warm[code]}
		}
		plan := func() orbit.Plan {
			require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
			plan, err := w.Plan(context.Background(), &view, view.State().Pending())
			require.NoError(t, err)
			return plan
		}
		submit(t, f.ledger, "c", 3, bootSpec(code))
		first := plan()
		require.Len(t, first.Proposals, 3)
		require.Equal(t, [2]int{6, 2}, seen("a"))
		_, err := f.ledger.Propose(context.Background(), first.Proposals[0])
		require.NoError(t, err)
		time.Sleep(time.Second)
		second := plan() // two were lost: their claims are given back, and claimed anew
		require.Len(t, second.Proposals, 2)
		require.Equal(t, [2]int{6, 2}, seen("a"))
		require.Equal(t, uint64(2), f.board.Stats().Unclaimed)
		for _, p := range second.Proposals {
			_, err := f.ledger.Propose(context.Background(), p)
			require.NoError(t, err)
		}
		require.Empty(t, plan().Proposals)
		require.Equal(t, [2]int{6, 2}, seen("a"))
		time.Sleep(time.Second)
		f.report("a", 6, 4, 0) // it has refilled its pool
		require.Equal(t, [2]int{6, 4}, seen("a"))
	})
}

// A deleted capsule, one that another placed elsewhere, and one that came back: only a claim whose placement held is
// kept.
func TestWarmSettlesItsClaims(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 9, 0)
	f.host("b", 9, 0, 0)
	w := &sandbox.Warm{Board: f.board}
	var view orbit.View
	plan := func() orbit.Plan {
		require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
		plan, err := w.Plan(context.Background(), &view, view.State().Pending())
		require.NoError(t, err)
		return plan
	}
	submit(t, f.ledger, "c", 5, bootSpec(code))
	p := plan()
	for _, i := range []int{0, 1} {
		_, err := f.ledger.Propose(context.Background(), p.Proposals[i])
		require.NoError(t, err)
	}
	commit(t, f.ledger, orbit.Release{Capsule: "c-1", Final: true}) // ran and ended: the node has not said so yet
	commit(t, f.ledger, orbit.Release{Capsule: "c-2", Final: true}) // never placed
	commit(t, f.ledger, orbit.Place{Capsule: "c-3", Node: "b"})
	plan()
	require.Equal(t, uint64(3), f.board.Stats().Unclaimed, "c-2, c-3 and c-4")
}

// Warm leaves members of gangs to a gang navigator.
func TestWarmLeavesGangs(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 9, 0)
	s := bootSpec(code)
	commit(t, f.ledger, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: s, Members: []orbit.CapsuleID{"m"}}}}})
	round := f.warmEngine().Pass(context.Background())
	require.Zero(t, round.Committed)
	require.ErrorContains(t, round.Unplaced[0].Why, `member of gang "g", and its spec has the class LatencySensitive: only specs of the class Gang`)
}

// Without telemetry the ledger alone decides: its slots count, and every template is there, but no volume.
func TestWarmWithoutTelemetry(t *testing.T) {
	f := newFleet(t)
	f.join("less", 3)
	f.join("more", 5)
	e := &orbit.Engine{Ledger: f.ledger, Navigator: &sandbox.Warm{}}
	submit(t, f.ledger, "c", 9, bootSpec(code))
	s := bootSpec(code)
	s.Start.Volumes = []string{"v"}
	submit(t, f.ledger, "v", 1, s)
	round := e.Pass(context.Background())
	require.Equal(t, 8, round.Committed)
	require.Equal(t, "more cold", f.noteOf("c-0"))
	require.ErrorIs(t, whyOf(round, "c-8"), sandbox.ErrNoSlot)
	require.ErrorIs(t, whyOf(round, "v-0"), sandbox.ErrNoVolume)
}

// A stale node gets no work however warm it is; with AllowStale the score's own numbers decide, in which 18 warm slots
// outweigh the malus.
func TestWarmStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.join("pz20", 16_384)
		f.report("pz20", 21, 18, 31)
		time.Sleep(30 * time.Second)
		f.join("n1v2", 16_384)
		f.report("n1v2", 23, 5, 12)
		submit(t, f.ledger, "c", 2, bootSpec(code))
		e := f.warmEngine()
		e.MaxPlan = 1
		e.Pass(context.Background())
		require.Equal(t, "n1v2 warm", f.noteOf("c-0"))
		e.Navigator = &sandbox.Warm{Board: f.board, AllowStale: true}
		e.Pass(context.Background())
		require.Equal(t, "pz20 warm", f.noteOf("c-1"))
	})
}

// Under leases a node gets work only while its term lives, to the nanosecond, and every placement bets on the term: one
// that was planned before the end was committed is refused (SCENARIOS 27, I13).
func TestWarmUnderLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.board.Leases = &lease.Keeper{Ledger: f.ledger}
		f.board.Stale = -1
		term, err := f.board.Leases.Acquire(context.Background(), "a", "agent")
		require.NoError(t, err)
		f.host("a", 9, 9, 0)
		f.join("b", 9) // has no lease
		w := &sandbox.Warm{Board: f.board}
		var view orbit.View
		plan := func() orbit.Plan {
			require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
			plan, err := w.Plan(context.Background(), &view, view.State().Pending())
			require.NoError(t, err)
			return plan
		}
		submit(t, f.ledger, "c", 1, bootSpec(code))
		time.Sleep(60*time.Second - 1)
		late := plan()
		require.Len(t, late.Proposals, 1)
		require.Contains(t, late.Proposals[0].If, orbit.MarkAt{Key: f.board.Leases.Key("a"), Revision: term.Epoch})
		time.Sleep(1)
		require.ErrorIs(t, plan().Unplaced[0].Why, sandbox.ErrAllStale)
		_, err = f.board.Leases.Step(context.Background())
		require.NoError(t, err)
		_, err = f.ledger.Propose(context.Background(), late.Proposals[0])
		require.ErrorIs(t, err, orbit.ErrConflict)
		_, err = f.board.Leases.Acquire(context.Background(), "a", "agent")
		require.NoError(t, err)
		f.report("a", 9, 9, 0)
		require.Len(t, plan().Proposals, 1)
	})
}

// A plan whose context has ended returns what it has.
func TestWarmContextEnds(t *testing.T) {
	f := newFleet(t)
	f.host("a", 9, 9, 0)
	submit(t, f.ledger, "c", 3, bootSpec(code))
	var view orbit.View
	require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	plan, err := (&sandbox.Warm{}).Plan(ctx, &view, view.State().Pending())
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, plan.Proposals)
	require.NotEmpty(t, plan.Notes)
}

// Impossible numbers from a broken reporter, passed on by telemetry that does not refuse them, exclude that reporter's
// node and no other node (SCENARIOS 28, I14).
func TestWarmHostileReports(t *testing.T) {
	zero := 0.0
	for _, cpu := range []float64{zero / zero, 1 / zero, -1 / zero, 1e308} {
		l := &orbit.MemoryLedger{}
		for _, id := range []string{"bad", "good", "silent"} {
			commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.Slots: 1<<63 - 1}}})
		}
		submit(t, l, "c", 2, bootSpec(code))
		at := time.Now()
		tel := said{
			"bad":  {Node: "bad", At: at, Received: at, FreeSlots: 1<<63 - 1, CPUPercent: cpu, Warm: map[string]int{code: 1<<63 - 1}, Templates: []string{code}},
			"good": {Node: "good", At: at, Received: at, FreeSlots: 9, Warm: map[string]int{code: -5}, Templates: []string{code}},
		}
		e := &orbit.Engine{Ledger: l, Telemetry: tel, Navigator: &sandbox.Warm{}}
		round := e.Pass(context.Background())
		require.Empty(t, round.Errors)
		require.Equal(t, 2, round.Committed)
		for c := range snapshot(t, l).Capsules() {
			require.Equal(t, "good cold", fmt.Sprint(c.Node, " ", c.Note()), "cpu %v", cpu)
		}
	}
}

// said is telemetry that says what it is told to.
type said map[orbit.NodeID]orbit.Report

func (s said) Reports(context.Context, uint64) ([]orbit.Report, uint64, error) { return nil, 0, nil }

func (s said) Latest(id orbit.NodeID) (orbit.Report, bool) {
	r, ok := s[id]
	return r, ok
}

func (s said) StaleAfter() time.Duration { return 30 * time.Second }

// With thousands of reports and hundreds of templates between two looks at one, what the books have of it is dropped or
// made anew, and still exact.
func TestWarmForgetsAndCatchesUp(t *testing.T) {
	f := newFleet(t)
	const hosts = 40
	for i := range hosts {
		f.host(fmt.Sprintf("h%02d", i), 16_384, i%7, float64(i%5))
	}
	w := &sandbox.Warm{Board: f.board}
	var view orbit.View
	serial := 0
	check := func(templates ...string) {
		for _, template := range templates {
			serial++
			s := bootSpec(template)
			s.Envelope.Reservation[orbit.Memory] = int64(serial % 3)
			submit(t, f.ledger, fmt.Sprint("c", serial, "-"), 1, s)
		}
		require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
		pending := view.State().Pending()
		reference := newScan(w, &view)
		plan, err := w.Plan(context.Background(), &view, pending)
		require.NoError(t, err)
		reference.check(t, pending, plan)
		for _, c := range pending {
			commit(t, f.ledger, orbit.Release{Capsule: c.ID, Final: true})
		}
	}
	check(code, "browser", code)
	for n := range 3000 {
		f.report(fmt.Sprintf("h%02d", n%hosts), 100+n%900, n%11, float64(n%13))
		if n%10 == 0 {
			check("none")
		}
		if n%500 == 0 {
			check(code, "browser")
		}
	}
	check(code, "browser")
	var many []string
	for n := range 300 {
		many = append(many, fmt.Sprint("template-", n))
	}
	check(append(many, code)...)
}

// What is kept of classes is bounded: with more of them than there is room for, those asked for longest ago are dropped,
// and made anew when they are asked for again.
func TestWarmForgetsClasses(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	f := newFleet(t)
	for i := range 3000 {
		f.host(fmt.Sprintf("h%04d", i), 10, i%7, float64(i%5))
	}
	w := &sandbox.Warm{Board: f.board}
	var view orbit.View
	for round := range 2 {
		for n := range 360 {
			submit(t, f.ledger, fmt.Sprint("x", round, "-", n), 1, bootSpec(fmt.Sprint("template-", n)))
		}
		submit(t, f.ledger, fmt.Sprint("c", round), 2, bootSpec(code))
		require.NoError(t, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
		pending := view.State().Pending()
		reference := newScan(w, &view)
		plan, err := w.Plan(context.Background(), &view, pending)
		require.NoError(t, err)
		require.Len(t, plan.Proposals, 2)
		reference.check(t, pending, plan)
		for _, c := range pending {
			commit(t, f.ledger, orbit.Release{Capsule: c.ID, Final: true})
		}
	}
}

// occupied is a host of 16,384 slots, the default, of which so many are in use, in the ledger and by its own
// report.
func (f *fleet) occupied(id string, used, warm int, cpu float64) {
	f.join(id, lease.DefaultSlots)
	for i := range used {
		c := orbit.CapsuleID(fmt.Sprint(id, "/", i))
		commit(f.t, f.ledger, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: inUse}, orbit.Place{Capsule: c, Node: orbit.NodeID(id)})
	}
	f.report(id, lease.DefaultSlots-used, warm, cpu)
}

var inUse = bootSpec("browser")

// What can start warm does, though a hundred hosts are emptier by 200 slots and idle: by the queue and by the
// gateway, every warm slot of the fleet is used before the first sandbox boots cold, and cold ones go where
// there is most room.
func TestWarmSlotsGoBeforeEmptyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, queue := range []bool{true, false} {
			f, warm := newFleet(t), 0
			for i := range 100 {
				f.occupied(fmt.Sprint("empty", i), 0, 0, 0)
			}
			for i := range 10 {
				warm += 1 + i%3
				f.occupied(fmt.Sprint("warm", i), 200+i, 1+i%3, 90)
			}
			if queue {
				submit(t, f.ledger, "c", warm+5, bootSpec(code))
				settle(t, f.warmEngine())
			} else {
				g := f.gateway()
				for i := range warm + 5 {
					require.Equal(t, i < warm, f.create(g, fmt.Sprint("c", i)).Warm, "create %d of %d warm slots", i, warm)
				}
			}
			on := map[string]int{}
			for c := range snapshot(t, f.ledger).Capsules() {
				if c.Spec.Start.Template == code {
					on[string(c.Node)[:4]+" "+c.Note()]++
				}
			}
			require.Equal(t, map[string]int{"warm warm": warm, "empt cold": 5}, on)
		}
	})
}

// Whatever hosts there are, and whatever they have in use: no sandbox boots cold while a host could start it
// warm.
func TestNoSandboxBootsColdWhileOneIsWarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, warm, room := newFleet(t), 0, 0
		for i := range rapid.IntRange(1, 20).Draw(t, "hosts") {
			free := rapid.SampledFrom([]int{0, 1, 3, 21, 16_000, lease.DefaultSlots}).Draw(t, "free")
			has := rapid.SampledFrom([]int{0, 0, 1, 2, 18}).Draw(t, "warm")
			id := fmt.Sprint("h", i)
			f.join(id, lease.DefaultSlots)
			f.report(id, free, has, rapid.Float64Range(0, 100).Draw(t, "cpu"))
			warm, room = warm+min(free, has), room+free
		}
		g, gone := f.gateway(), 0
		for i := range min(room, rapid.IntRange(1, 60).Draw(t, "creates")) {
			made := f.create(g, fmt.Sprint("c", i))
			require.Equal(t, gone < warm, made.Promised, "create %d, %d warm slots were left", i, warm-gone)
			gone++
		}
	})
}

// Where stale hosts get work, 1,000 is against them, whatever room they have: with ten warm slots a stale host
// is as good as a fresh one that has none, with more it counts as warm, with less it comes last.
func TestStaleHostsComeLastUnlessTheyHaveManyWarmSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			warm int // on the stale host, which is empty
			used int // on the fresh one, which has nothing warm
			want string
		}{
			{0, 500, "fresh"}, {1, 16_000, "fresh"}, {9, 16_000, "fresh"}, {11, 0, "stale"}, {18, 0, "stale"}, {10, 500, "stale"},
		} {
			f := newFleet(t)
			f.occupied("stale", 0, c.warm, 0)
			f.join("fresh", lease.DefaultSlots)
			time.Sleep(31 * time.Second)
			f.report("fresh", lease.DefaultSlots-c.used, 0, 50)
			g := f.gateway()
			g.AllowStale = true
			require.Equal(t, c.want, string(f.create(g, "c").Node), "%+v", c)
		}
	})
}
