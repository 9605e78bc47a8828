package orbit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the tests of engine, view and population share.

func machine(id NodeID, cpu int64) Node { return Node{ID: id, Capacity: Resources{CPU: cpu}} }

// inZone returns the machine with a label.
func (n Node) inZone(zone string) Node {
	n.Labels = map[string]string{"zone": zone}
	return n
}

func wants(cpu int64) *Spec { return &Spec{Envelope: Envelope{Reservation: Resources{CPU: cpu}}} }

// commit commits, or fails the test.
func commit(t require.TestingT, l Ledger, do ...Commitment) Revision {
	rev, err := l.Propose(context.Background(), Proposal{Do: do})
	require.NoError(t, err)
	return rev
}

func snapshotOf(t require.TestingT, l Ledger) *State {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return s
}

// where returns the node that a capsule is on.
func where(t require.TestingT, l Ledger, id CapsuleID) NodeID {
	c := snapshotOf(t, l).Capsule(id)
	require.NotNil(t, c, "capsule %q", id)
	return c.Node
}

// scan is a placement engine that rates every node.
type scan struct {
	Score  Score
	Filter func(*NodeState, *Report, *Spec) string
	Seed   uint64
}

// scoring makes a Score of a function.
type scoring func(*NodeState, *Report, *Spec) (value, tie float64)

func (f scoring) Score(n *NodeState, r *Report, s *Spec) (value, tie float64) { return f(n, r, s) }

// fewest is the score of a scan that has none: fewer capsules first, then the node that is left with less.
type fewest struct{}

func (fewest) Score(n *NodeState, _ *Report, spec *Spec) (value, tie float64) {
	for i := range spec.Prefer {
		if p := &spec.Prefer[i]; p.Matches(n.Node.Labels) {
			value -= p.Weight
		}
	}
	for d, free := range n.Free() {
		if free > 0 {
			tie += float64(free-spec.Envelope.Reservation[d]) / float64(free) / Dimensions
		}
	}
	if spec.SpreadsAcross(n.Node) {
		value -= 2.5
	}
	return max(0, value+5*float64(n.Capsules)+tie), 0
}

func (e *scan) Best(d *Draft, spec *Spec) (best Choice, err error) {
	score, refused := Score(fewest{}), map[Misfit]int{}
	if e.Score != nil {
		score = e.Score
	}
	for n := range d.Nodes() {
		why := e.misfit(d, n, spec)
		if why != (Misfit{}) {
			if d.Misfit(n, spec) == (Misfit{}) {
				refused[why]++
			}
			continue
		}
		value, tie := score.Score(n, d.View().Report(n), spec)
		if math.IsNaN(value) || math.IsInf(value, 0) {
			continue
		}
		if best.Node == nil || value < best.Value || value == best.Value && e.before(n, best.Node) {
			best.Node, best.Value, best.Tie = n, value, tie
		}
	}
	if best.Node == nil {
		return best, d.Diagnose(spec, refused, Misfit{Why: "have a score that is no number"})
	}
	best.Devices, _ = best.Node.PickDevices(spec)
	return best, nil
}

func (e *scan) misfit(d *Draft, n *NodeState, spec *Spec) (why Misfit) {
	if spec.Near.Group != "" || !n.Fits(spec) {
		why = d.Misfit(n, spec)
	}
	if why == (Misfit{}) && e.Filter != nil {
		if text := e.Filter(n, d.View().Report(n), spec); text != "" {
			why = Misfit{Why: text}
		}
	}
	return why
}

// before breaks ties: by id, or at random with a seed.
func (e *scan) before(a, b *NodeState) bool {
	if e.Seed == 0 {
		return a.Node.ID < b.Node.ID
	}
	mix := func(n *NodeState) uint64 {
		x := (uint64(n.index) + e.Seed<<32) * 0x9e3779b97f4a7c15
		return (x ^ x>>29) * 0xbf58476d1ce4e5b9
	}
	return mix(a) < mix(b)
}

// greedy is a navigator: for each capsule the best node. It writes down what it was asked.
type greedy struct {
	placement scan
	draft     Draft
	claims    func(module string, class AppClass) bool // nil: everything
	before    func(view *View, pending []*Capsule)     // called in every Plan, before it plans
	after     func(plan *Plan)                         // bends the plan
	start     time.Time                                // at counts from here
	at        []time.Duration                          // when it was asked
	views     []Revision                               // on what
	asked     [][]CapsuleID                            // for what
}

func (g *greedy) Claims(module string, class AppClass) bool {
	return g.claims == nil || g.claims(module, class)
}

func (g *greedy) Plan(_ context.Context, view *View, pending []*Capsule) (Plan, error) {
	g.at, g.views = append(g.at, time.Since(g.start)), append(g.views, view.Revision())
	g.asked = append(g.asked, idsOf(pending))
	if g.before != nil {
		g.before(view, pending)
	}
	var plan Plan
	g.draft.Sync(view)
	for _, c := range pending {
		if err := g.draft.PlaceBest(&g.placement, c); err != nil {
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, err})
			continue
		}
		plan.Proposals = append(plan.Proposals, g.draft.Propose())
	}
	if g.after != nil {
		g.after(&plan)
	}
	return plan, nil
}

func idsOf(capsules []*Capsule) []CapsuleID {
	out := make([]CapsuleID, len(capsules))
	for i, c := range capsules {
		out[i] = c.ID
	}
	return out
}

// bent is a ledger that a test can bend. It takes no batches.
type bent struct {
	Ledger
	snapshot func(context.Context) (*State, error)
	changes  func(context.Context, Revision) ([]Change, error)
	propose  func(context.Context, Proposal) (Revision, error)
}

func (b *bent) Snapshot(ctx context.Context) (*State, error) {
	if b.snapshot != nil {
		return b.snapshot(ctx)
	}
	return b.Ledger.Snapshot(ctx)
}

func (b *bent) Changes(ctx context.Context, after Revision) ([]Change, error) {
	if b.changes != nil {
		return b.changes(ctx, after)
	}
	return b.Ledger.Changes(ctx, after)
}

func (b *bent) Propose(ctx context.Context, p Proposal) (Revision, error) {
	if b.propose != nil {
		return b.propose(ctx, p)
	}
	return b.Ledger.Propose(ctx, p)
}

// planFunc is a navigator that claims everything and plans with the function.
type planFunc func(ctx context.Context, view *View, pending []*Capsule) (Plan, error)

func (planFunc) Claims(string, AppClass) bool { return true }

func (f planFunc) Plan(ctx context.Context, view *View, pending []*Capsule) (Plan, error) {
	return f(ctx, view, pending)
}

// once returns a navigator that calls first in its first Plan and is greedy in all others.
func once(first func(ctx context.Context, view *View, pending []*Capsule) (Plan, error)) Navigator {
	called, then := false, &greedy{}
	return planFunc(func(ctx context.Context, view *View, pending []*Capsule) (Plan, error) {
		if !called {
			called = true
			return first(ctx, view, pending)
		}
		return then.Plan(ctx, view, pending)
	})
}

// SCENARIOS 2: whatever step of a pass fails, the next pass does the work, and nothing has been done twice.
// A fault is counted by its kind and reported; a conflict is counted and not reported.
func TestOutcomesAreCountedByKind(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		err      error
		applied  bool // the commit happened all the same
		want     Round
		reported bool
	}{
		"conflict":    {&Rejection{Kind: ErrConflict}, false, Round{Conflicts: 1}, false},
		"infeasible":  {&Rejection{Kind: ErrInfeasible}, false, Round{Infeasible: 1}, true},
		"invalid":     {&Rejection{Kind: ErrInvalid}, false, Round{Invalid: 1}, true},
		"unknown":     {fmt.Errorf("sent: %w", ErrUnknown), false, Round{Unknown: 1}, true},
		"applied":     {fmt.Errorf("sent: %w", ErrUnknown), true, Round{Unknown: 1}, true},
		"unavailable": {fmt.Errorf("down: %w", ErrUnavailable), false, Round{Failed: 1}, true},
		"other":       {boom, false, Round{Failed: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &MemoryLedger{}
			commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
			faults := 1
			e := Engine{Navigator: &greedy{}, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
				if faults--; faults < 0 {
					return l.Propose(ctx, p)
				}
				if c.applied {
					_, _ = l.Propose(ctx, p)
				}
				return 0, c.err
			}}}
			got := e.Pass(t.Context())
			assert.Equal(t, []int{1, 1, 0}, []int{got.Pending, got.Proposed, got.Committed})
			want := c.want
			assert.Equal(t, [5]int{want.Conflicts, want.Infeasible, want.Invalid, want.Unknown, want.Failed},
				[5]int{got.Conflicts, got.Infeasible, got.Invalid, got.Unknown, got.Failed})
			if c.reported {
				assert.Equal(t, []error{c.err}, got.Errors)
			} else {
				assert.Empty(t, got.Errors)
			}
			again := e.Pass(t.Context())
			assert.Empty(t, again.Errors)
			s := snapshotOf(t, l)
			assert.Equal(t, 1, s.Node("n").Capsules, "placed once, whatever the first answer was")
			assert.NoError(t, s.Verify())
		})
	}
}

// A round keeps at most 16 errors of a kind, and counts them all: a broken navigator must not fill memory.
func TestRoundKeepsFewErrorsOfAKind(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 1000)})
	e := Engine{Ledger: l, Navigator: planFunc(func(_ context.Context, _ *View, pending []*Capsule) (Plan, error) {
		plan := Plan{Proposals: make([]Proposal, 100)} // empty: invalid
		for range 50 {
			plan.Proposals = append(plan.Proposals, Proposal{Do: []Commitment{Place{Capsule: "ghost", Node: "n"}}})
		}
		return plan, nil
	})}
	commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	round := e.Pass(t.Context())
	assert.Equal(t, [2]int{100, 50}, [2]int{round.Invalid, round.Infeasible})
	assert.Len(t, round.Errors, 2*maxErrors)
	assert.Contains(t, round.String(), "50 infeasible, 100 errors")
}

// SCENARIOS 4: the ledger applies a proposal and the answer is lost. The very same proposal goes out again,
// and has one effect: the capsule that was released and resubmitted meanwhile is not placed behind its back.
func TestUnknownIsSentAgainWithTheSameID(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	var sent []Proposal
	e := Engine{Navigator: &greedy{}, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
		rev, err := l.Propose(ctx, p)
		if sent = append(sent, p); len(sent) == 1 {
			return 0, ErrUnknown
		}
		return rev, err
	}}}
	first := e.Pass(t.Context())
	require.Equal(t, 1, first.Unknown)
	commit(t, l, Release{Capsule: "c", Final: true}) // SCENARIOS 20: the cancel stays
	second := e.Pass(t.Context())
	require.Len(t, sent, 2)
	assert.Equal(t, sent[0].ID, sent[1].ID)
	assert.False(t, sent[0].ID.IsZero())
	assert.Equal(t, sent[0].View, sent[1].View)
	assert.Equal(t, 1, second.Committed, "it had been committed")
	s := snapshotOf(t, l)
	assert.True(t, s.Capsule("c").Released())
	assert.Zero(t, s.Node("n").Capsules)
	third := e.Pass(t.Context())
	assert.Zero(t, third.Proposed, "settled is settled")
}

// SCENARIOS 25: a hold whose release did not get through is released by a later pass. Every hold ends, be
// the ledger unavailable at the very moment or not.
func TestHoldEndsThoughTheLedgerWasUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, down := &MemoryLedger{}, true
		commit(t, l, PutNode{machine("n", 10)},
			Hold{ID: "h", Node: "n", Room: Resources{CPU: 10}, Ends: time.Now().Add(time.Second)})
		e := Engine{Navigator: &greedy{}, Ledger: &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
			if down {
				return 0, ErrUnavailable
			}
			return l.Propose(ctx, p)
		}}}
		time.Sleep(time.Second)
		assert.Equal(t, 1, e.Pass(t.Context()).Failed)
		down = false
		time.Sleep(time.Second)
		e.Pass(t.Context())
		_, lives := snapshotOf(t, l).Hold("h")
		assert.False(t, lives, "the hold's end has passed, and it is still there")
	})
}

// A hold is released by the first pass at or after its end, and not one nanosecond before. Its room is then
// there for who waited.
func TestHoldsAreReleasedAtTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, end := &MemoryLedger{}, time.Now().Add(time.Second)
		commit(t, l, PutNode{machine("n", 10)},
			Hold{ID: "a", Node: "n", Room: Resources{CPU: 4}, Ends: end},
			Hold{ID: "b", Node: "n", Room: Resources{CPU: 6}, Ends: end.Add(1)},
			Submit{IDs: []CapsuleID{"c"}, Spec: wants(4)})
		e, rival := Engine{Ledger: l, Navigator: &greedy{}}, Engine{Ledger: l, Navigator: &greedy{}}
		time.Sleep(time.Second - 1)
		assert.Equal(t, 1, e.Pass(t.Context()).Parked)
		assert.Zero(t, snapshotOf(t, l).Node("n").Free()[CPU])
		time.Sleep(1)
		assert.Equal(t, 2, e.Pass(t.Context()).Committed, "the release, and the placement in its room by the same pass")
		_, a := snapshotOf(t, l).Hold("a")
		_, b := snapshotOf(t, l).Hold("b")
		assert.Equal(t, []bool{false, true}, []bool{a, b})
		assert.Equal(t, NodeID("n"), where(t, l, "c"))
		time.Sleep(1)
		first, second := rival.Pass(t.Context()), e.Pass(t.Context())
		assert.Equal(t, 1, first.Committed+second.Committed, "one of two engines releases it")
		assert.Empty(t, append(first.Errors, second.Errors...))
		assert.NoError(t, snapshotOf(t, l).Verify())
	})
}

// SCENARIOS 8: a plan reads one revision only. What others commit and report while it runs shows in the
// next view.
func TestViewStandsStillDuringAPlan(t *testing.T) {
	l, tel := &MemoryLedger{}, &board{stale: time.Hour}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	seen := 0
	nav := &greedy{before: func(view *View, pending []*Capsule) {
		n := view.State().Node("n")
		rev, free, report, now := view.Revision(), n.Free(), *view.Report(n), view.Now()
		commit(t, l, Submit{IDs: []CapsuleID{"x"}, Spec: wants(3)}, Place{Capsule: "x", Node: "n"})
		commit(t, l, PutNode{machine("m", 10)})
		tel.say(Report{Node: "n", At: time.Now(), FreeSlots: 7}, time.Now())
		n = view.State().Node("n")
		assert.Equal(t, rev, view.Revision())
		assert.Equal(t, free, n.Free())
		assert.Equal(t, report, *view.Report(n))
		assert.Equal(t, now, view.Now())
		assert.Nil(t, view.State().Node("m"))
		assert.Equal(t, 1, view.State().NodeCount())
		seen++
	}}
	e := Engine{Ledger: l, Navigator: nav, Telemetry: tel}
	e.Pass(t.Context())
	nav.before = nil
	e.Pass(t.Context())
	assert.Equal(t, 1, seen)
	assert.Equal(t, 7, e.view.Report(e.view.state.Node("n")).FreeSlots)
	assert.NotNil(t, e.view.state.Node("m"))
}

// SCENARIOS 1: a commit fails; the reservation that the navigator made for it is forgotten, so that nothing
// leaks: the capsule is planned again, elsewhere, and use recounts right.
func TestLostReservationIsForgotten(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 10)}, PutNode{machine("b", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(10)})
	nav := &greedy{before: func(*View, []*Capsule) {
		commit(t, l, Submit{IDs: []CapsuleID{"rival"}, Spec: wants(1)}, Place{Capsule: "rival", Node: "a"})
	}}
	e := Engine{Ledger: l, Navigator: nav}
	require.Equal(t, 1, e.Pass(t.Context()).Conflicts)
	nav.before = nil
	commit(t, l, Submit{IDs: []CapsuleID{"d"}, Spec: wants(9)})
	require.Equal(t, 2, e.Pass(t.Context()).Committed, "all room that is free can be used")
	assert.Equal(t, []NodeID{"b", "a"}, []NodeID{where(t, l, "c"), where(t, l, "d")})
	assert.NoError(t, snapshotOf(t, l).Verify())
}

// SCENARIOS 3: two engines plan the same capsule on the same view. One places it; the other loses silently,
// its view converges and it does not try again.
func TestTwoEnginesPlaceTheSameCapsule(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("a", 10)}, PutNode{machine("b", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	winner := Engine{Name: "w", Ledger: l, Navigator: &greedy{}}
	nav := &greedy{before: func(*View, []*Capsule) { winner.Pass(context.Background()) }}
	loser := Engine{Name: "l", Ledger: l, Navigator: nav}
	round := loser.Pass(t.Context())
	assert.Equal(t, 1, round.Conflicts)
	assert.Empty(t, round.Errors)
	again := loser.Pass(t.Context())
	assert.Zero(t, again.Pending)
	assert.Equal(t, where(t, l, "c"), loser.view.state.Capsule("c").Node)
	assert.Equal(t, 1, snapshotOf(t, l).Node("a").Capsules+snapshotOf(t, l).Node("b").Capsules)
}

// SCENARIOS 20: a cancel races with a commit and wins. The capsule is not placed, not planned again, and
// stays released.
func TestCancelRacesWithACommit(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	nav := &greedy{before: func(*View, []*Capsule) { commit(t, l, Release{Capsule: "c", Final: true}) }}
	e := Engine{Ledger: l, Navigator: nav}
	round := e.Pass(t.Context())
	assert.Equal(t, []int{1, 0}, []int{round.Conflicts, len(round.Errors)})
	assert.Zero(t, e.Pass(t.Context()).Pending)
	assert.True(t, snapshotOf(t, l).Capsule("c").Released())
	assert.Zero(t, snapshotOf(t, l).Node("n").Used())
}

// SCENARIOS 21: evict, then place in its stead, in one proposal of one pass. The room of the evicted counts
// at once, and the evicted is pending again.
func TestEvictAndPlaceInOnePass(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"low"}, Spec: wants(10)}, Place{Capsule: "low", Node: "n"})
	high := wants(10)
	high.Priority = 9
	commit(t, l, Submit{IDs: []CapsuleID{"high"}, Spec: high})
	e := Engine{Ledger: l, Navigator: once(func(_ context.Context, v *View, pending []*Capsule) (Plan, error) {
		var d Draft
		d.Sync(v)
		if err := d.Evict(Evict{Capsule: "low", For: "high"}); err != nil {
			return Plan{}, err
		}
		if err := d.Place(pending[0], Choice{Node: v.State().Node("n")}); err != nil {
			return Plan{}, err
		}
		return Plan{Proposals: []Proposal{d.Propose()}}, nil
	})}
	round := e.Pass(t.Context())
	require.Equal(t, 1, round.Committed, "%v", round.Errors)
	again := e.Pass(t.Context())
	require.Len(t, again.Unplaced, 1)
	assert.Equal(t, CapsuleID("low"), again.Unplaced[0].Capsule.ID)
	assert.Equal(t, NodeID("n"), where(t, l, "high"))
}

// SCENARIOS 24: a navigator, a score and a hook call the ledger, and the hook its engine too. Nothing
// deadlocks, for no user code runs under a lock.
func TestCallbacksMayCallTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		calls := func() {
			commit(t, l, Mark{Key: "k", Value: "v"})
			_, err := l.Wait(t.Context(), 0)
			assert.NoError(t, err)
			_, err = l.Changes(t.Context(), 0)
			assert.NoError(t, err)
			snapshotOf(t, l)
		}
		nav := &greedy{before: func(*View, []*Capsule) { calls() }}
		nav.placement.Score = scoring(func(*NodeState, *Report, *Spec) (float64, float64) { calls(); return 0, 0 })
		e := &Engine{Ledger: l, Navigator: nav}
		rounds := 0
		e.OnRound = func(r Round) {
			calls()
			assert.Empty(t, append(r.Errors, e.Pass(t.Context()).Errors...))
			rounds++
		}
		go func() { _ = e.Run(t.Context()) }()
		synctest.Wait()
		assert.Equal(t, NodeID("n"), where(t, l, "c"))
		assert.Equal(t, 1, rounds)
	})
}

// SCENARIOS 24: a Plan that waits for a Pass of its own engine waits for itself. It overruns its deadline like
// any other that blocks, and the engine goes on.
// (In real time: a bubble's clock stands still while the inner Pass waits for the outer one's lock.)
func TestPassWithinAPlanOverruns(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	e, inner := &Engine{Ledger: l, PlanTimeout: 10 * ms}, make(chan Round, 1)
	e.Navigator = once(func(context.Context, *View, []*Capsule) (Plan, error) {
		inner <- e.Pass(context.Background())
		return Plan{}, nil
	})
	assert.ErrorIs(t, errors.Join(e.Pass(t.Context()).Errors...), ErrNavigator)
	assert.ErrorIs(t, errors.Join((<-inner).Errors...), ErrNavigator, "it is still running, as it should know")
	assert.Eventually(t, func() bool { return e.Pass(t.Context()).Committed == 1 }, time.Minute, ms)
}

// faulty are the ways in which a Plan can go wrong without returning.
var faulty = map[string]func(){
	"panics":          func() { panic("out of cheese") },
	"panics with nil": func() { panic(error(nil)) },
	"exits":           runtime.Goexit,
	"dereferences":    func() { var s *Spec; _ = s.Priority },
}

// A navigator that panics or exits its goroutine loses its pass: the engine says so, plans the work again
// and places it. What Claims does wrong is contained too, and counts as no.
func TestPanicAndExitAreContained(t *testing.T) {
	for name, fail := range faulty {
		t.Run(name, func(t *testing.T) {
			l := &MemoryLedger{}
			commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
			e := Engine{Name: "odd", Ledger: l, Navigator: once(func(context.Context, *View, []*Capsule) (Plan, error) {
				fail()
				return Plan{}, nil
			})}
			round := e.Pass(t.Context())
			require.Len(t, round.Errors, 1)
			require.ErrorIs(t, round.Errors[0], ErrNavigator)
			require.ErrorContains(t, round.Errors[0], `"odd"`)
			require.Zero(t, round.Proposed)
			require.Equal(t, 1, e.Pass(t.Context()).Committed)

			deaf := Engine{Name: "deaf", Ledger: l, Navigator: &greedy{claims: func(string, AppClass) bool { fail(); return true }}}
			commit(t, l, Submit{IDs: []CapsuleID{"d"}, Spec: wants(1)})
			round = deaf.Pass(t.Context())
			require.Zero(t, round.Pending)
			require.ErrorIs(t, errors.Join(round.Errors...), ErrNavigator)
			require.Empty(t, deaf.Pass(t.Context()).Errors, "asked once")
		})
	}
}

// A Plan that overruns its deadline: the pass returns, and until that Plan has returned nothing is planned
// and the view is left alone, whatever happens in the ledger. What it returns then is dropped, and the
// engine goes on at once.
func TestLatePlanIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, gate := &MemoryLedger{}, make(chan struct{})
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		var views []Revision
		r := newRig(t, l, &Engine{PlanTimeout: time.Second, Navigator: once(func(_ context.Context, view *View, pending []*Capsule) (Plan, error) {
			views = append(views, view.Revision())
			<-gate
			views = append(views, view.Revision())
			return Plan{Proposals: []Proposal{{Do: []Commitment{Place{Capsule: pending[0].ID, Node: "n", Note: "late"}}}}}, nil
		})})
		r.run()
		r.until(time.Second - 1)
		assert.Empty(t, r.rounds, "within its time")
		r.until(5 * time.Second)
		looks := len(r.looks)
		commit(t, l, PutNode{machine("m", 10)}, Submit{IDs: []CapsuleID{"d"}, Spec: wants(1)})
		r.until(8 * time.Second)
		assert.Len(t, r.looks, looks, "the view is the late Plan's")
		assert.Zero(t, snapshotOf(t, l).Node("n").Capsules)
		require.Greater(t, len(r.rounds), 3)
		for _, round := range r.rounds {
			assert.ErrorIs(t, errors.Join(round.Errors...), ErrNavigator, "it keeps saying why nothing moves")
			assert.Zero(t, round.Proposed)
		}
		close(gate)
		synctest.Wait()
		assert.Equal(t, views[0], views[1])
		for _, id := range []CapsuleID{"c", "d"} {
			assert.NotEmpty(t, where(t, l, id))
			assert.Empty(t, snapshotOf(t, l).Capsule(id).Note(), "planned afresh")
		}
		assert.Equal(t, 8*time.Second, r.at[len(r.at)-1])
	})
}

// The engine's deadline tells Plan to end. A Plan that does as told, returning what it has so far, is not
// late: else a navigator with more work than one deadline takes would never place anything (I11).
func TestPlanThatEndsWithItsContextCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			l := &MemoryLedger{}
			commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
			e := Engine{Ledger: l, PlanTimeout: time.Second, Navigator: planFunc(func(ctx context.Context, _ *View, pending []*Capsule) (Plan, error) {
				<-ctx.Done()
				return Plan{Proposals: []Proposal{{Do: []Commitment{Place{Capsule: pending[0].ID, Node: "n"}}}}}, ctx.Err()
			})}
			round := e.Pass(t.Context())
			require.ErrorIs(t, errors.Join(round.Errors...), context.DeadlineExceeded)
			require.Equal(t, 1, round.Committed, "what it did plan counts")
		}
	})
}

// Run ends when its context does, in the middle of a Plan too, and it is no error.
func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		gate := make(chan struct{})
		e := Engine{Ledger: l, Navigator: &greedy{before: func(*View, []*Capsule) { <-gate }}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var last Round
		e.OnRound = func(r Round) { last = r }
		start := time.Now()
		assert.NoError(t, e.Run(ctx))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1, last.Pending, "the hook hears of it")
		close(gate)
	})
}

// nonsense are plans that no navigator should return, and how the engine counts them.
var nonsense = map[string]struct {
	plan func(view *View, pending []*Capsule) Plan
	want Round
}{
	"empty proposals":      {bad(Proposal{}, Proposal{ID: ProposalID{1}}), Round{Invalid: 2}},
	"nil commitment":       {bad(Proposal{Do: []Commitment{nil}}), Round{Invalid: 1}},
	"nil bet":              {bad(Proposal{Do: []Commitment{Place{Capsule: "c", Node: "n"}}, If: []Precondition{nil}}), Round{Invalid: 1}},
	"pointer":              {bad(Proposal{Do: []Commitment{&Place{Capsule: "c", Node: "n"}}}), Round{Invalid: 1}},
	"nil pointer":          {bad(Proposal{Do: []Commitment{(*Place)(nil)}}), Round{Invalid: 1}},
	"unknown capsule":      {bad(Proposal{Do: []Commitment{Place{Capsule: "x", Node: "n"}}}), Round{Infeasible: 1}},
	"unknown node":         {bad(Proposal{Do: []Commitment{Place{Capsule: "c", Node: "x"}}}), Round{Infeasible: 1}},
	"no names":             {bad(Proposal{Do: []Commitment{Place{}}}), Round{Invalid: 1}},
	"devices it has not":   {bad(Proposal{Do: []Commitment{Place{Capsule: "c", Node: "n", Devices: 0xffff}}}), Round{Infeasible: 1}},
	"twice in a proposal":  {bad(Proposal{Do: []Commitment{Place{Capsule: "c", Node: "n"}, Place{Capsule: "c", Node: "n"}}}), Round{Infeasible: 1}},
	"negative room":        {bad(Proposal{Do: []Commitment{Place{Capsule: "c", Node: "n"}}, If: []Precondition{NodeFreeOf{Node: "n", AtLeast: Resources{-1}}}}), Round{Invalid: 1}},
	"overflowing hold":     {bad(Proposal{Do: []Commitment{Hold{ID: "plan/h", Node: "n", Room: Resources{math.MaxInt64}, Ends: time.Unix(1, 0)}}}), Round{Infeasible: 1}},
	"endless hold":         {bad(Proposal{Do: []Commitment{Hold{ID: "h", Node: "n", Room: Resources{1}}}}), Round{Invalid: 1}},
	"over limits":          {bad(Proposal{Do: make([]Commitment, 1<<16+1)}), Round{Invalid: 1}},
	"a novel for a note":   {bad(Proposal{Do: []Commitment{Place{Capsule: "c", Node: "n", Note: strings.Repeat("x", 5000)}}}), Round{Invalid: 1}},
	"a view to come":       {bad(Proposal{View: math.MaxUint64, Do: []Commitment{Place{Capsule: "x", Node: "n"}}}), Round{Invalid: 1}},
	"nothing":              {bad(), Round{}},
	"none is unplaced":     {unplaced(nil, nil), Round{}},
	"none is a misfit":     {unplaced(nil, &NoFit{}), Round{}},
	"no reason":            {unplaced(&Capsule{ID: "c"}, nil), Round{}},
	"typed nil for reason": {unplaced(&Capsule{Spec: wants(1)}, (*NoFit)(nil)), Round{}},
	"a spec of its own":    {unplaced(&Capsule{ID: "x", Spec: wants(77)}, &NoFit{}), Round{}},
	"a spec that is nil":   {unplaced(&Capsule{ID: "x"}, &NoFit{}), Round{}},
	"NaN scores":           {badScore(math.NaN()), Round{Parked: 1}},
	"infinite scores":      {badScore(math.Inf(-1)), Round{Parked: 1}},
}

func bad(p ...Proposal) func(*View, []*Capsule) Plan {
	return func(*View, []*Capsule) Plan { return Plan{Proposals: p} }
}

func unplaced(c *Capsule, why error) func(*View, []*Capsule) Plan {
	return func(*View, []*Capsule) Plan { return Plan{Unplaced: []Unplaced{{c, why}}} }
}

func badScore(x float64) func(*View, []*Capsule) Plan {
	return func(view *View, pending []*Capsule) Plan {
		e := scan{Score: scoring(func(*NodeState, *Report, *Spec) (float64, float64) { return x, x })}
		draft := Draft{}
		draft.Sync(view)
		_, err := e.Best(&draft, pending[0].Spec)
		return Plan{Unplaced: []Unplaced{{pending[0], err}}}
	}
}

// A navigator that returns nonsense loses its own pass and nothing else: nothing of it reaches the state,
// it is counted, and the capsule is planned again in the next pass or, if its class was put aside, later.
func TestNonsenseIsContained(t *testing.T) {
	for name, c := range nonsense {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &MemoryLedger{}
				before := commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
				e := Engine{Ledger: l, Navigator: once(func(_ context.Context, view *View, pending []*Capsule) (Plan, error) {
					return c.plan(view, pending), nil
				})}
				var got Round
				require.NotPanics(t, func() { got = e.Pass(t.Context()) }, "the process would be gone")
				want := c.want
				assert.Equal(t, [5]int{0, want.Infeasible, want.Invalid, 0, want.Parked},
					[5]int{got.Committed, got.Infeasible, got.Invalid, got.Conflicts, got.Parked}, "%v", got.Errors)
				assert.Equal(t, before, snapshotOf(t, l).Revision())
				time.Sleep(30 * time.Second)
				assert.Equal(t, 1, e.Pass(t.Context()).Committed)
				assert.NoError(t, snapshotOf(t, l).Verify())
			})
		})
	}
}

// An error of Plan is reported, and what the plan holds all the same is proposed; notes are handed on.
func TestPlanErrorsAndNotesAreHandedOn(t *testing.T) {
	l, boom := &MemoryLedger{}, errors.New("boom")
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	e := Engine{Name: "e", Ledger: l, Navigator: planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
		return Plan{
			Proposals: []Proposal{{Do: []Commitment{Place{Capsule: "c", Node: "n"}}}},
			Notes:     []slog.Attr{slog.Int("tried", 3)},
		}, boom
	})}
	round := e.Pass(t.Context())
	assert.ErrorIs(t, errors.Join(round.Errors...), boom)
	assert.NotErrorIs(t, errors.Join(round.Errors...), ErrNavigator)
	assert.Equal(t, []slog.Attr{slog.Int("tried", 3)}, round.Notes)
	assert.Equal(t, 1, round.Committed)
	assert.Equal(t, "e", round.Engine)
	assert.Equal(t, "e at 1: 1 pending, 1 proposed, 1 committed, 0 conflicts, 0 infeasible, 1 errors, 0 unplaced, 0 classes parked; orbit: engine \"e\": plan: boom", round.String())
}

// Passes of one engine run one after another, from however many goroutines: at most one Plan at a time.
func TestPassesOfOneEngineDoNotOverlap(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(100)})
	var planning, most atomic.Int32
	e := Engine{Ledger: l, Navigator: planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
		most.Store(max(most.Load(), planning.Add(1)))
		runtime.Gosched()
		planning.Add(-1)
		return Plan{}, nil
	})}
	done := make(chan Round)
	for range 8 {
		go func() { done <- e.Pass(context.Background()) }()
	}
	for range 8 {
		assert.Equal(t, 1, (<-done).Pending)
	}
	assert.EqualValues(t, 1, most.Load())
}

// NewProposalID and an engine's own ids never repeat.
func TestProposalIDsDiffer(t *testing.T) {
	a, b, seen := newIDSource(), newIDSource(), map[ProposalID]bool{}
	for range 1000 {
		for _, id := range []ProposalID{a.next(), b.next(), NewProposalID()} {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
}

// A pass in which nothing changed allocates nothing, with telemetry and without.
func TestIdlePassAllocatesNothing(t *testing.T) {
	for name, tel := range map[string]Telemetry{"alone": nil, "telemetry": &board{stale: time.Hour}} {
		l := &MemoryLedger{}
		for i := range 100 {
			commit(t, l, PutNode{machine(NodeID(fmt.Sprint("n", i)), 10)})
		}
		commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)}, Submit{IDs: []CapsuleID{"huge"}, Spec: wants(11)})
		if b, ok := tel.(*board); ok {
			b.say(Report{Node: "n7", At: time.Now()}, time.Now())
		}
		e := Engine{Ledger: l, Navigator: &greedy{}, Telemetry: tel}
		require.Equal(t, 1, e.Pass(t.Context()).Committed)
		e.Pass(t.Context())
		ctx := context.Background()
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			if r := e.Pass(ctx); r.active() || len(r.Errors) > 0 {
				t.Errorf("%s: not idle: %v", name, r)
			}
		}), name)
	}
}
