package orbit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rig runs an engine in a synctest bubble and writes down what it does and when, counted from run. Its
// back-off has no jitter.
type rig struct {
	*Engine
	t     testing.TB
	start time.Time
	// Locked by the engine before it writes down, and by the test before it lets the clock run: what the test
	// has read or set by then happened before, as the race detector sees it.
	fence  sync.Mutex
	looks  []time.Duration // when it took a snapshot: once a pass, and when a change made room
	rounds []Round         // what reached the hook
	at     []time.Duration // when
}

func newRig(t testing.TB, l Ledger, e *Engine) *rig {
	r := &rig{Engine: e, t: t}
	e.Ledger = &bent{Ledger: l, snapshot: func(ctx context.Context) (*State, error) {
		r.fence.Lock()
		defer r.fence.Unlock()
		r.looks = append(r.looks, time.Since(r.start))
		return l.Snapshot(ctx)
	}}
	e.Backoff.Jitter = -1
	e.OnRound = func(round Round) {
		r.fence.Lock()
		defer r.fence.Unlock()
		r.rounds, r.at = append(r.rounds, round), append(r.at, time.Since(r.start))
	}
	return r
}

// run starts the engine; it ends with the test.
func (r *rig) run() {
	r.start = time.Now()
	if nav, ok := r.Navigator.(*greedy); ok {
		nav.start = r.start
	}
	go func() { assert.NoError(r.t, r.Run(r.t.Context())) }()
	synctest.Wait()
}

// until lets the clock run to a time after run, and everything happen that happens then.
func (r *rig) until(d time.Duration) {
	r.fence.Lock()
	r.fence.Unlock() //nolint:staticcheck // a fence
	time.Sleep(d - time.Since(r.start))
	synctest.Wait()
}

// doubling are the times of passes that are all for nothing.
var doubling = []time.Duration{0, 10 * ms, 30 * ms, 70 * ms, 150 * ms, 310 * ms, 630 * ms, 1270 * ms, 2270 * ms, 3270 * ms}

// Nothing to do: each wait is twice the last, from Initial to Max. The hook hears nothing of it.
func TestBackoffGrowsWithNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &MemoryLedger{}, &Engine{Navigator: &greedy{}})
		r.run()
		r.until(doubling[9])
		assert.Equal(t, doubling, r.looks)
		assert.Empty(t, r.rounds)
	})
}

// Nothing committed, be it that nothing is proposed or that everything is refused: the same.
func TestBackoffGrowsWithNothingCommitted(t *testing.T) {
	for name, p := range map[string][]Proposal{
		"nothing proposed": nil,
		"refused":          {{Do: []Commitment{Place{Capsule: "c", Node: "gone"}}}},
		"invalid":          {{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &MemoryLedger{}
				commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
				r := newRig(t, l, &Engine{Navigator: planFunc(func(context.Context, *View, []*Capsule) (Plan, error) {
					return Plan{Proposals: append([]Proposal(nil), p...)}, nil
				})})
				r.run()
				r.until(doubling[9])
				assert.Equal(t, doubling, r.at)
			})
		})
	}
}

// A pass that committed something resets the back-off: the next pass comes after Initial, and then it grows
// again from there.
func TestBackoffResetsOnACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)})
		r := newRig(t, l, &Engine{Navigator: &greedy{}})
		r.run()
		r.until(2500 * ms)
		r.looks = nil
		commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		r.until(2600 * ms)
		at := 2500 * ms
		assert.Equal(t, []time.Duration{at, at + 10*ms, at + 30*ms, at + 70*ms}, r.looks)
		assert.Equal(t, NodeID("n"), where(t, l, "c"))
	})
}

// While there is more work than one pass takes, there is no wait at all.
func TestBacklogDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 1000)}, Submit{IDs: names("c", 25), Spec: wants(1)})
		r := newRig(t, l, &Engine{Navigator: &greedy{}, MaxPlan: 10})
		r.run()
		assert.Equal(t, []time.Duration{0, 0, 0}, r.at)
		assert.Equal(t, 25, snapshotOf(t, l).Node("n").Capsules)
	})
}

func names(prefix string, n int) []CapsuleID {
	out := make([]CapsuleID, n)
	for i := range out {
		out[i] = CapsuleID(fmt.Sprintf("%s%04d", prefix, i))
	}
	return out
}

// A conflict is nothing: no error in the round, nothing in any log, no retry before the back-off; then it is
// planned again, on a view at least as new as the receipt.
func TestConflictIsSilentAndPlannedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		log.SetOutput(&logged) // slog's default writes there too
		defer log.SetOutput(log.Default().Writer())
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("a", 10)}, PutNode{machine("b", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(10)})
		var taken Revision
		nav := &greedy{}
		nav.before = func(*View, []*Capsule) {
			if len(nav.at) == 1 {
				commit(t, l, Submit{IDs: []CapsuleID{"rival"}, Spec: wants(10), Owner: "rival"})
				taken = commit(t, l, Place{Capsule: "rival", Node: "a"})
			}
		}
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		r.until(time.Second)
		require.Len(t, r.rounds, 2)
		assert.Equal(t, []int{1, 0, 0}, []int{r.rounds[0].Conflicts, r.rounds[0].Committed, len(r.rounds[0].Errors)})
		assert.Equal(t, []time.Duration{0, 10 * ms}, nav.at)
		assert.GreaterOrEqual(t, nav.views[1], taken)
		assert.Equal(t, NodeID("b"), where(t, l, "c"))
		assert.Empty(t, logged.String())
	})
}

// mirror is a ledger of which reads lag behind until it catches up, as those of a remote one may.
type mirror struct {
	Ledger
	mu    sync.Mutex
	shown *State
	moved chan struct{}
	last  *Rejection // the last receipt
}

func newMirror(t require.TestingT, l Ledger) *mirror {
	return &mirror{Ledger: l, shown: snapshotOf(t, l), moved: make(chan struct{})}
}

func (m *mirror) catchUp(t require.TestingT) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown = snapshotOf(t, m.Ledger)
	close(m.moved)
	m.moved = make(chan struct{})
}

func (m *mirror) now() (*State, chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown, m.moved
}

func (m *mirror) Snapshot(context.Context) (*State, error) {
	s, _ := m.now()
	return s, nil
}

func (m *mirror) Changes(ctx context.Context, after Revision) ([]Change, error) {
	all, err := m.Ledger.Changes(ctx, after)
	s, _ := m.now()
	for i := range all {
		if all[i].Revision > s.Revision() {
			return all[:i], err
		}
	}
	return all, err
}

func (m *mirror) Wait(ctx context.Context, after Revision) (Revision, error) {
	for {
		s, moved := m.now()
		if s.Revision() > after {
			return s.Revision(), nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

func (m *mirror) Propose(ctx context.Context, p Proposal) (Revision, error) {
	rev, err := m.Ledger.Propose(ctx, p)
	errors.As(err, &m.last)
	return rev, err
}

// When the ledger's reads lag, a pass waits for the revision of the receipt before it plans; else it would
// lose to the same commit again and again.
func TestConflictWaitsForALaggingView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("a", 10)}, PutNode{machine("b", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(10)})
		m := newMirror(t, l)
		nav := &greedy{}
		nav.before = func(*View, []*Capsule) {
			if len(nav.at) == 1 {
				commit(t, l, Submit{IDs: []CapsuleID{"rival"}, Spec: wants(10), Owner: "rival"}, Place{Capsule: "rival", Node: "a"})
			}
		}
		r := newRig(t, m, &Engine{Navigator: nav})
		r.run()
		r.until(3 * time.Second)
		require.NotNil(t, m.last)
		assert.Len(t, nav.at, 1, "it would plan what has just been refused")
		m.catchUp(t)
		synctest.Wait()
		require.Len(t, nav.at, 2)
		assert.Equal(t, 3*time.Second, nav.at[1], "at once")
		assert.GreaterOrEqual(t, nav.views[1], m.last.At)
		assert.Equal(t, NodeID("b"), where(t, l, "c"))
	})
}

// The same for its own commits: what it has placed it does not plan again, though the reads lag. If they lag
// for longer than a Plan may take, the hook hears of it.
func TestOwnCommitsShowInTheNextView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("a", 10)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		m, nav := newMirror(t, l), &greedy{}
		r := newRig(t, m, &Engine{Navigator: nav, PlanTimeout: time.Second})
		r.run()
		r.until(1009 * ms)
		require.Len(t, r.rounds, 1)
		r.until(1010 * ms)
		require.Len(t, r.rounds, 2)
		assert.ErrorIs(t, errors.Join(r.rounds[1].Errors...), context.DeadlineExceeded)
		m.catchUp(t)
		r.until(5 * time.Second)
		assert.Len(t, nav.at, 1)
		assert.Len(t, r.rounds, 2)
	})
}

// idle starts an engine that is named "me", claims the module "mine" and has been idle for so long that its
// next pass is a second away.
func idle(t *testing.T, l *MemoryLedger) (*rig, *greedy) {
	nav := &greedy{claims: func(module string, _ AppClass) bool { return module == "mine" }}
	r := newRig(t, l, &Engine{Name: "me", Navigator: nav})
	r.run()
	r.until(2300 * ms) // the next pass is at 3270 ms
	r.looks = nil
	return r, nav
}

func ofModule(module string, cpu int64) *Spec {
	s := wants(cpu)
	s.Module = module
	return s
}

// standing is what the tests of waking find: capsules of others and of this engine's, waiting and placed.
func standing(t *testing.T) *MemoryLedger {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 100)})
	commit(t, l, Submit{IDs: []CapsuleID{"placed", "placed too"}, Spec: ofModule("mine", 1)},
		Place{Capsule: "placed", Node: "n"}, Place{Capsule: "placed too", Node: "n"})
	commit(t, l, Submit{IDs: []CapsuleID{"theirs", "theirs too"}, Spec: ofModule("theirs", 1)},
		Submit{IDs: []CapsuleID{"far"}, Spec: ofModule("mine", 1), Owner: "them"},
		Submit{IDs: []CapsuleID{"their placed"}, Spec: ofModule("theirs", 1)}, Place{Capsule: "their placed", Node: "n"})
	return l
}

// Work for this engine wakes it at once: its next pass and the placement come without any time going by.
func TestWorkWakesAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		do   []Commitment
		want CapsuleID
	}{
		"submit":              {[]Commitment{Submit{IDs: []CapsuleID{"new"}, Spec: ofModule("mine", 1)}}, "new"},
		"submit to owner":     {[]Commitment{Submit{IDs: []CapsuleID{"new"}, Spec: ofModule("theirs", 1), Owner: "me"}}, "new"},
		"gang":                {[]Commitment{Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: ofModule("mine", 1), Members: []CapsuleID{"m"}}}}}}, "m"},
		"assign":              {[]Commitment{Assign{Capsule: "theirs", Owner: "me"}}, "theirs"},
		"assign to no engine": {[]Commitment{Assign{Capsule: "far", From: "them"}}, "far"},
		"back to pending":     {[]Commitment{Release{Capsule: "placed", Stopped: true}}, "placed"},
		"new and assigned":    {[]Commitment{Submit{IDs: []CapsuleID{"new"}, Spec: ofModule("theirs", 1)}, Assign{Capsule: "new", Owner: "me"}}, "new"},
		"placed and back":     {[]Commitment{Submit{IDs: []CapsuleID{"new"}, Spec: ofModule("mine", 1)}, Place{Capsule: "new", Node: "n"}, Release{Capsule: "new"}}, "new"},
		"among other things":  {[]Commitment{Mark{Key: "k", Value: "v"}, PutNode{machine("m", 1)}, Submit{IDs: []CapsuleID{"new"}, Spec: ofModule("mine", 1)}}, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := standing(t)
				r, nav := idle(t, l)
				commit(t, l, c.do...)
				synctest.Wait()
				require.Len(t, nav.at, 1)
				assert.Equal(t, 2300*ms, nav.at[0])
				assert.Equal(t, []CapsuleID{c.want}, nav.asked[0])
				assert.NotEmpty(t, where(t, l, c.want))
				assert.Len(t, r.rounds, 1)
			})
		})
	}
}

// Commits that are not this engine's business do not wake it: no pass, not even a look, until its back-off
// is over.
func TestOthersCommitsDoNotWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := standing(t)
		r, nav := idle(t, l)
		for _, do := range [][]Commitment{
			{Submit{IDs: []CapsuleID{"x"}, Spec: ofModule("theirs", 1)}},
			{Submit{IDs: []CapsuleID{"y"}, Spec: ofModule("mine", 1), Owner: "them"}},
			{Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: ofModule("theirs", 1), Members: []CapsuleID{"m"}}}}}},
			{Place{Capsule: "theirs", Node: "n"}},
			{Release{Capsule: "theirs", Stopped: true}},
			{Release{Capsule: "their placed", Final: true}},
			{Release{Capsule: "placed too", Final: true}},
			{Assign{Capsule: "far", From: "them", Owner: "those"}},
			{PutNode{machine("m", 100)}},
			{PutNode{machine("n", 200)}},
			{Hold{ID: "h", Node: "n", Room: Resources{1}, Ends: time.Now().Add(time.Hour)}},
			{Release{Hold: "h"}},
			{RemoveNode{Node: "m"}},
			{Mark{Key: "k", Value: "v"}},
		} {
			commit(t, l, do...)
			synctest.Wait()
			assert.Empty(t, r.looks, "%T", do[0])
		}
		r.until(3270*ms - 1)
		assert.Empty(t, r.looks)
		r.until(3270 * ms)
		assert.Equal(t, []time.Duration{3270 * ms}, r.looks)
		assert.Empty(t, nav.at)
	})
}

// First contact: from Submit to the first placement no time goes by at all, whether the engine has just
// begun or has been idle for an hour.
func TestFirstPlacementTakesNoTime(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			l := &MemoryLedger{}
			r := newRig(t, l, &Engine{Navigator: &greedy{}})
			r.run()
			r.until(idle)
			commit(t, l, PutNode{machine("n", 1)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
			synctest.Wait()
			assert.Equal(t, idle, time.Since(r.start))
			assert.Equal(t, NodeID("n"), where(t, l, "c"))
		})
	}
}

// crowded is a constellation in which "big" (100 cpu in zone a) fits nowhere, each node for another reason.
func crowded(t *testing.T) *MemoryLedger {
	l := &MemoryLedger{}
	drained := machine("drained", 100).inZone("a")
	drained.State = Cordoned
	commit(t, l, PutNode{machine("full", 100).inZone("a")}, PutNode{machine("held", 100).inZone("a")}, PutNode{drained},
		PutNode{machine("small", 50).inZone("a")}, PutNode{machine("elsewhere", 100).inZone("b")})
	commit(t, l, Submit{IDs: []CapsuleID{"old"}, Spec: movable(100), Owner: "them"}, Place{Capsule: "old", Node: "full"},
		Submit{IDs: []CapsuleID{"theirs"}, Spec: wants(50), Owner: "them"},
		Hold{ID: "h", Node: "held", Room: Resources{CPU: 1}, Ends: time.Now().Add(time.Hour)})
	big := wants(100)
	big.Require = []Predicate{{Key: "zone", Op: "In", Values: []string{"a"}}}
	commit(t, l, Submit{IDs: []CapsuleID{"big"}, Spec: big})
	return l
}

// rooms are the changes that can help what fits nowhere, and the node that it then goes to.
var rooms = map[string]struct {
	do []Commitment
	on NodeID
}{
	"released for good":     {[]Commitment{Release{Capsule: "old", Final: true}}, "full"},
	"released":              {[]Commitment{Release{Capsule: "old", Stopped: true}}, "full"},
	"hold released":         {[]Commitment{Release{Hold: "h"}}, "held"},
	"node bigger":           {[]Commitment{PutNode{machine("small", 100).inZone("a")}}, "small"},
	"node new":              {[]Commitment{PutNode{machine("new", 100).inZone("a")}}, "new"},
	"node relabelled":       {[]Commitment{PutNode{machine("elsewhere", 100).inZone("a")}}, "elsewhere"},
	"node schedulable":      {[]Commitment{PutNode{machine("drained", 100).inZone("a")}}, "drained"},
	"node again":            {[]Commitment{RemoveNode{Node: "small"}, PutNode{machine("small", 100).inZone("a")}}, "small"},
	"moved":                 {[]Commitment{Evict{Capsule: "old", From: "full", Since: 2}, PutNode{machine("b", 100)}, Place{Capsule: "old", Node: "b"}}, "full"},
	"after what is no room": {[]Commitment{Mark{Key: "k", Value: "v"}, Release{Capsule: "old", Final: true}}, "full"},
}

// A class that fits nowhere is put aside; room for it wakes the engine at once.
func TestRoomBringsParkedClassesBack(t *testing.T) {
	for name, room := range rooms {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, nav := crowded(t), &greedy{}
				r := newRig(t, l, &Engine{Navigator: nav})
				r.run()
				r.until(2300 * ms)
				require.Equal(t, []time.Duration{0}, nav.at, "tried once, then put aside")
				require.Equal(t, 1, r.rounds[0].Parked)
				commit(t, l, room.do...)
				synctest.Wait()
				assert.Equal(t, []time.Duration{0, 2300 * ms}, nav.at)
				assert.Equal(t, room.on, where(t, l, "big"))
			})
		})
	}
}

// What is no room does not bring it back before ParkFor has passed, and then it comes back by itself: in the
// first pass at or after the bound, and not a nanosecond before.
func TestParkedClassesStayForWhatIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav := crowded(t), &greedy{}
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		for i, do := range [][]Commitment{
			{PutNode{machine("small", 99).inZone("a")}},
			{PutNode{machine("other", 1000).inZone("b")}},
			{Place{Capsule: "theirs", Node: "elsewhere"}},
			{Release{Capsule: "theirs", Final: true}},
			{Hold{ID: "i", Node: "elsewhere", Room: Resources{CPU: 1}, Ends: time.Now().Add(time.Hour)}, Release{Hold: "i"}},
			{RemoveNode{Node: "drained"}},
			{Mark{Key: "k", Value: "v"}},
			{Submit{IDs: []CapsuleID{"big two"}, Spec: snapshotOf(t, l).Capsule("big").Spec}}, // the same class
		} {
			r.until(time.Duration(i+1) * time.Second)
			commit(t, l, do...)
		}
		r.until(30*time.Second - 1)
		require.Equal(t, []time.Duration{0}, nav.at)
		r.until(31 * time.Second)
		require.Len(t, nav.at, 2)
		assert.GreaterOrEqual(t, nav.at[1], 30*time.Second)
		assert.Equal(t, []CapsuleID{"big"}, nav.asked[1], "one of the class")
	})
}

// The bound, to the nanosecond.
func TestParkForIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		e := Engine{Ledger: l, Navigator: &greedy{}, ParkFor: time.Minute}
		require.Equal(t, 1, e.Pass(t.Context()).Pending)
		time.Sleep(time.Minute - 1)
		require.Equal(t, 0, e.Pass(t.Context()).Pending)
		time.Sleep(1)
		require.Equal(t, 1, e.Pass(t.Context()).Pending)
	})
}

// What is known only from telemetry is a filter of the navigator: a report about a node on which the class
// fits brings it back in the next pass.
func TestReportBringsParkedClassesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tel := &MemoryLedger{}, &board{stale: time.Hour}
		commit(t, l, PutNode{machine("n", 10)}, PutNode{machine("tiny", 1)}, Submit{IDs: []CapsuleID{"c"}, Spec: wants(2)})
		nav := &greedy{placement: scan{Filter: func(_ *NodeState, r *Report, _ *Spec) string {
			if r.FreeSlots == 0 {
				return "have no free slot"
			}
			return ""
		}}}
		r := newRig(t, l, &Engine{Navigator: nav, Telemetry: tel})
		r.run()
		require.ErrorContains(t, r.rounds[0].Unplaced[0].Why, "0 of 2 nodes fit: 1 has no free slot, 1 lacks cpu")
		r.until(2 * time.Second)
		tel.say(Report{Node: "tiny", At: time.Now(), FreeSlots: 5}, time.Now())
		r.until(4 * time.Second)
		require.Len(t, nav.at, 1, "it does not fit there")
		tel.say(Report{Node: "n", At: time.Now(), FreeSlots: 5}, time.Now())
		r.until(5 * time.Second)
		require.Len(t, nav.at, 2)
		assert.Equal(t, NodeID("n"), where(t, l, "c"))
	})
}

// besides asks for company of group g in its rack.
func besides() *Spec {
	s := wants(1)
	s.Near = Near{Group: "g", Level: "rack"}
	return s
}

// racked returns a node in a rack.
func racked(id NodeID, rack string) Node {
	n := machine(id, 10)
	if rack != "" {
		n.Labels = map[string]string{"rack": rack}
	}
	return n
}

// A class that waits for company comes back when a member of the group is placed, by whomever: by the same
// plan too.
func TestCompanyBringsParkedClassesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav := &MemoryLedger{}, &greedy{}
		member := wants(1)
		member.Group, member.Priority = "g", -1
		commit(t, l, PutNode{racked("a", "1")}, PutNode{racked("b", "2")}, Submit{IDs: []CapsuleID{"c"}, Spec: besides()},
			Submit{IDs: []CapsuleID{"m"}, Spec: member, Owner: "them"})
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		require.ErrorContains(t, r.rounds[0].Unplaced[0].Why, "0 of 2 nodes fit: 2 wait for group g, of which nothing is placed")
		r.until(2300 * ms)
		commit(t, l, Place{Capsule: "m", Node: "b"})
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, 2300 * ms}, nav.at)
		assert.Equal(t, NodeID("b"), where(t, l, "c"))
		assert.Empty(t, r.view.queue.parked.ties)
	})
}

func TestCompanyFromTheSamePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		member := wants(1)
		member.Group, member.Priority = "g", -1
		commit(t, l, PutNode{racked("a", "1")}, PutNode{racked("b", "2")},
			Submit{IDs: []CapsuleID{"c"}, Spec: besides()}, Submit{IDs: []CapsuleID{"m"}, Spec: member})
		r := newRig(t, l, &Engine{Navigator: &greedy{}})
		r.run()
		assert.Equal(t, where(t, l, "m"), where(t, l, "c"))
		assert.NotEmpty(t, where(t, l, "c"))
	})
}

// A class that waits for company comes back, too, when the node on which a member already is gets its
// label: the nodes that now fit are its neighbours, which have not changed.
func TestLabelOfAMembersNodeBringsParkedClassesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav := &MemoryLedger{}, &greedy{}
		member := wants(10)
		member.Group = "g"
		commit(t, l, PutNode{racked("a", "")}, PutNode{racked("b", "2")}, Submit{IDs: []CapsuleID{"c"}, Spec: besides()},
			Submit{IDs: []CapsuleID{"m"}, Spec: member, Owner: "them"}, Place{Capsule: "m", Node: "a"})
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		r.until(2300 * ms)
		require.Len(t, nav.at, 1)
		commit(t, l, PutNode{racked("a", "2")}) // which is full
		r.until(5 * time.Second)
		assert.Equal(t, NodeID("b"), where(t, l, "c"))
	})
}

// A class that waits for company comes back when the group has stopped running: it may be started elsewhere.
// One of forks comes back when the parent has moved, or is gone for good.
func TestLeavingBringsParkedClassesBack(t *testing.T) {
	member, fork := wants(6), wants(6)
	member.Group, member.Near = "g", Near{Group: "g", Level: "zone"}
	fork.Start.Parent = "p"
	for name, c := range map[string]struct {
		spec *Spec
		do   []Commitment
	}{
		"group drained":      {member, []Commitment{Release{Capsule: "m", Stopped: true}}},
		"group ended":        {member, []Commitment{Release{Capsule: "m", Final: true}}},
		"parent moved":       {fork, []Commitment{Release{Capsule: "p"}, Place{Capsule: "p", Node: "b"}}},
		"parent gone":        {fork, []Commitment{Release{Capsule: "p", Final: true}}},
		"parent placed anew": {fork, []Commitment{Release{Capsule: "p", Stopped: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, nav := &MemoryLedger{}, &beside{}
				drained := machine("a", 10).inZone("x")
				commit(t, l, PutNode{drained}, PutNode{machine("b", 10).inZone("y")},
					Submit{IDs: []CapsuleID{"m"}, Spec: member}, Submit{IDs: []CapsuleID{"p"}, Spec: wants(1)},
					Place{Capsule: "m", Node: "a"}, Place{Capsule: "p", Node: "a"})
				drained.State = Cordoned
				commit(t, l, PutNode{drained}, Submit{IDs: []CapsuleID{"waits"}, Spec: c.spec})
				tel := &board{}
				tel.say(Report{Node: "b", At: time.Now(), FreeSlots: 1}, time.Now())
				r := newRig(t, l, &Engine{Navigator: nav, Telemetry: tel})
				r.run()
				r.until(2300 * ms)
				require.Len(t, nav.at, 1)
				commit(t, l, c.do...)
				r.until(2330 * ms) // a second pass if the parent has to go first
				pending := snapshotOf(t, l).PendingCount()
				assert.LessOrEqual(t, pending, btoi(name == "group drained"), "both members do not fit on b")
				assert.NotZero(t, snapshotOf(t, l).Node("b").Capsules)
			})
		})
	}
}

// What wakes an engine sets its back-off back: a conflict over new work, or over new room, is tried again after
// Initial, however long the engine has been idle. The end of a wait sets nothing back.
func TestWakingResetsTheBackoff(t *testing.T) {
	for name, wake := range map[string][]Commitment{
		"work": {Submit{IDs: []CapsuleID{"new"}, Spec: wants(10)}},
		"room": {PutNode{machine("m", 100)}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, nav := &MemoryLedger{}, &greedy{}
				commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"big"}, Spec: wants(100)})
				r := newRig(t, &bent{Ledger: l, propose: func(context.Context, Proposal) (Revision, error) {
					return 0, &Rejection{Kind: ErrConflict}
				}}, &Engine{Navigator: nav})
				r.run()
				r.until(20 * time.Second)
				nav.at = nil
				commit(t, l, wake...)
				r.until(20*time.Second + doubling[9])
				want := make([]time.Duration, len(doubling))
				for i, d := range doubling {
					want[i] = 20*time.Second + d
				}
				assert.Equal(t, want, nav.at)
			})
		})
	}
}

// SCENARIOS 19: room appears while a plan runs that finds none. The class is put aside by that plan, but the
// room is not overlooked: it is back at once.
func TestRoomDuringAPlanIsNotOverlooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav := crowded(t), &greedy{}
		nav.before = func(*View, []*Capsule) {
			if len(nav.at) == 1 {
				commit(t, l, Release{Capsule: "old", Final: true})
			}
		}
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		assert.Equal(t, []time.Duration{0, 0}, nav.at)
		assert.Equal(t, NodeID("full"), where(t, l, "big"))
	})
}

// What a plan reserved for a proposal that then failed is room again for a class that this very plan has put
// aside for want of it. No commit will ever announce that room.
func TestLostReservationBringsParkedClassesBack(t *testing.T) {
	for name, refuse := range map[string]error{"conflict": nil, "unavailable": ErrUnavailable, "invalid": ErrInvalid} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, nav, first := &MemoryLedger{}, &greedy{}, wants(100)
				first.Priority = 9
				commit(t, l, PutNode{machine("n", 100)}, Submit{IDs: []CapsuleID{"first"}, Spec: first}, Submit{IDs: []CapsuleID{"second"}, Spec: wants(60)})
				faulted := false
				r := newRig(t, &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
					if !faulted {
						faulted = true
						commit(t, l, Submit{IDs: []CapsuleID{"rival"}, Spec: wants(40), Owner: "them"}, Place{Capsule: "rival", Node: "n"})
						if refuse != nil {
							return 0, refuse
						}
					}
					return l.Propose(ctx, p)
				}}, &Engine{Navigator: nav})
				r.run()
				require.Len(t, r.rounds[0].Unplaced, 1, "first took it all")
				require.Zero(t, r.rounds[0].Parked, "it was put aside, and is back")
				r.until(time.Second)
				assert.Equal(t, NodeID("n"), where(t, l, "second"))
			})
		})
	}
}

// Whatever a plan reserves room with, and however its proposal comes to nothing: what was put aside for want of
// that room has its turn in the next pass.
func TestRoomOfWhatIsNotDoneBringsParkedClassesBack(t *testing.T) {
	for name, c := range map[string]struct {
		instead Commitment // of the plan's first placement
		refuse  error
		by      time.Duration
	}{
		"hold refused":           {Hold{ID: "h", Node: "n", Room: Resources{CPU: 100}, Ends: time.Unix(1<<33, 0)}, ErrConflict, 10 * ms},
		"removal not sent":       {RemoveNode{Node: "n"}, nil, 10 * ms},
		"cordon not sent":        {PutNode{Node{ID: "n", State: Cordoned}}, nil, 10 * ms},
		"placement given up":     {Place{Capsule: "first", Node: "n"}, ErrUnknown, 5 * time.Second},
		"never known and a hold": {Hold{ID: "h", Node: "n", Room: Resources{CPU: 100}, Ends: time.Unix(1<<33, 0)}, ErrUnknown, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, nav, first := &MemoryLedger{}, &greedy{}, wants(100)
				first.Priority = 9
				commit(t, l, PutNode{machine("n", 100)}, Submit{IDs: []CapsuleID{"first"}, Spec: first}, Submit{IDs: []CapsuleID{"second"}, Spec: wants(60)})
				nav.after = func(plan *Plan) {
					if len(nav.at) == 1 {
						plan.Proposals[0].ID, plan.Proposals[0].Do[0] = ProposalID{1}, c.instead
						commit(t, l, Release{Capsule: "first", Final: true}) // its user gives it up meanwhile
					}
				}
				r := newRig(t, &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
					if p.ID != (ProposalID{1}) {
						return l.Propose(ctx, p)
					}
					return 0, c.refuse
				}}, &Engine{Navigator: nav})
				r.run()
				require.Len(t, r.rounds[0].Unplaced, 1, "first took it all")
				r.until(c.by)
				assert.Equal(t, NodeID("n"), where(t, l, "second"))
			})
		})
	}
}

// beside is a navigator that starts groups: while nothing of a group runs, its first capsule may go anywhere
// and the others wait for it. A fork goes beside its parent, and anywhere once that is gone for good.
type beside struct {
	greedy
	reserved map[NodeID]int64
	started  map[string]bool
}

func (b *beside) Plan(_ context.Context, view *View, pending []*Capsule) (Plan, error) {
	b.at = append(b.at, time.Since(b.start))
	b.reserved, b.started = map[NodeID]int64{}, map[string]bool{}
	var plan Plan
	for i, c := range pending {
		n := b.choose(view, c.Spec)
		if n == nil {
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, &NoFit{}})
			continue
		}
		b.reserved[n.Node.ID] += c.Spec.Envelope.Reservation[CPU]
		p := Proposal{Do: []Commitment{Place{Capsule: c.ID, Node: n.Node.ID}}}
		if group := c.Spec.Near.Group; group != "" && !runs(view.State(), group) {
			b.started[group] = true
			p.Do = append(p.Do, b.holdFor(view, pending[i+1:], group)...)
		}
		plan.Proposals = append(plan.Proposals, p)
	}
	return plan, nil
}

// choose returns a node with room that is where the spec may be, nil if there is none.
func (b *beside) choose(view *View, spec *Spec) *NodeState {
	if b.started[spec.Near.Group] {
		return nil
	}
	for n := range view.State().Nodes() {
		if placeable(view.State(), n, view.Report(n), spec) && n.Free()[CPU]-b.reserved[n.Node.ID] >= spec.Envelope.Reservation[CPU] {
			return n
		}
	}
	return nil
}

// holdFor holds room for the next of a group that starts, for a moment.
func (b *beside) holdFor(view *View, rest []*Capsule, group string) []Commitment {
	for _, c := range rest {
		free := func(n *NodeState) bool {
			return n.Free()[CPU]-b.reserved[n.Node.ID] >= c.Spec.Envelope.Reservation[CPU]
		}
		for n := range view.State().Nodes() {
			if room := c.Spec.Envelope.Reservation; c.Spec.Near.Group == group && n.Fits(c.Spec) && free(n) && room != (Resources{}) {
				b.reserved[n.Node.ID] += room[CPU]
				return []Commitment{Hold{ID: HoldID(PlanPrefix + NewProposalID().String()), Node: n.Node.ID, Room: room, Ends: view.Now().Add(500 * ms)}}
			}
		}
	}
	return nil
}

func runs(s *State, group string) bool {
	for range s.GroupNodes(group) {
		return true
	}
	return false
}

// placeable reports whether a capsule of the spec could be placed on the node now, by brute force.
func placeable(s *State, n *NodeState, report *Report, spec *Spec) bool {
	if !n.Fits(spec) || report.FreeSlots == 0 {
		return false
	}
	if parent := s.Capsule(spec.Start.Parent); parent != nil && !parent.Released() {
		return !spec.Start.CrossHost && parent.Node == n.Node.ID || spec.Start.CrossHost && parent.Placed() && parent.Node != n.Node.ID
	}
	near := spec.Near
	switch {
	case near.Group == "":
		return true
	case !runs(s, near.Group): // its own members may start it
		return spec.IsIn(near.Group) && n.Node.Labels[near.Level] != ""
	}
	for m := range s.GroupNodes(near.Group) {
		if domain := n.Node.Labels[near.Level]; domain != "" && m.Node.Labels[near.Level] == domain {
			return true
		}
	}
	return false
}

// unrest is one thing that happens in a world of TestNothingThatFitsIsLeft.
type unrest struct {
	after                time.Duration
	what, node, id, size int
	flag                 bool
}

// unrestSpecs are what its capsules want.
func unrestSpecs() []*Spec {
	specs := []*Spec{wants(1), wants(2), wants(3), wants(1), wants(2), wants(1), wants(2), wants(1)}
	specs[1].Priority, specs[2].Priority, specs[4].Priority = 1, 2, 1
	specs[2].Require = []Predicate{{Key: "zone", Op: "In", Values: []string{"x"}}}
	specs[3].Group, specs[3].Near = "g", Near{Group: "g", Level: "zone"}
	specs[4].Group, specs[4].Near = "g", Near{Group: "g", Level: "zone"}
	specs[5].Near = Near{Group: "g", Level: "zone"}
	specs[6].Start.Parent = "c0"
	specs[7].Start = Start{Parent: "c1", CrossHost: true}
	return specs
}

// do commits one thing, if it can be done.
func (u *unrest) do(l Ledger, tel *board) {
	node, id := NodeID(string(rune('a'+u.node))), CapsuleID(fmt.Sprint("c", u.id))
	var do []Commitment
	switch u.what {
	case 0, 1, 2:
		do = []Commitment{Submit{IDs: []CapsuleID{id}, Spec: unrestSpecs()[(u.id+u.size)%8]}}
	case 3, 4:
		do = []Commitment{Release{Capsule: id, Final: u.flag}}
	case 5, 6:
		n := machine(node, int64(u.size)).inZone([]string{"x", "y"}[u.node%2])
		n.Cordon(u.flag && u.size%2 == 0)
		do = []Commitment{PutNode{n}}
	case 7:
		do = []Commitment{PutNode{machine(node, int64(u.size)).inZone([]string{"x", "y"}[u.size%2])}}
	case 8: // by others
		do = []Commitment{Release{Capsule: id, Stopped: true}, Place{Capsule: id, Node: node}}
	case 9:
		do = []Commitment{Hold{ID: HoldID(id), Node: node, Room: Resources{CPU: 1}, Ends: time.Now().Add(time.Duration(u.size) * 300 * ms)}}
	case 10:
		do = []Commitment{Release{Hold: HoldID(id)}}
	case 11:
		do = []Commitment{RemoveNode{Node: node}}
	case 12:
		tel.say(Report{Node: node, At: time.Now(), FreeSlots: btoi(u.flag)}, time.Now())
		return
	}
	_, _ = l.Propose(context.Background(), Proposal{ID: NewProposalID(), Do: do})
}

// unrestWorld runs an engine through what happens, with these faults of its proposals one after another, and
// says which pending capsule would fit somewhere when all is quiet.
func unrestWorld(t *testing.T, happens []unrest, faults []int, limits Limits) (left string) {
	synctest.Test(t, func(t *testing.T) {
		l, tel, rival := &MemoryLedger{Bounds: limits}, &board{}, 0
		for _, id := range []NodeID{"a", "b", "c", "d"} {
			tel.say(Report{Node: id, At: time.Now(), FreeSlots: 1}, time.Now())
		}
		gone := map[ProposalID]bool{}
		led := &bent{Ledger: l, propose: func(ctx context.Context, p Proposal) (Revision, error) {
			if len(faults) == 0 || gone[p.ID] {
				if gone[p.ID] {
					return 0, ErrUnknown
				}
				return l.Propose(ctx, p)
			}
			fault := faults[0]
			faults = faults[1:]
			switch fault {
			case 1:
				return 0, &Rejection{Kind: ErrConflict}
			case 2:
				return 0, ErrUnavailable
			case 3: // done, and not known
				_, _ = l.Propose(ctx, p)
				return 0, ErrUnknown
			case 4: // not done, and never known
				gone[p.ID] = true
				return 0, ErrUnknown
			case 5, 6, 7: // others are first
				if len(happens) > 0 {
					rival = (rival + fault) % len(happens)
					happens[rival].do(l, tel)
				}
			}
			return l.Propose(ctx, p)
		}}
		ctx, stop := context.WithCancel(t.Context())
		e := &Engine{Ledger: led, Telemetry: tel, Navigator: &beside{}, MaxPlan: 3, ParkFor: 24 * time.Hour, Backoff: Backoff{Jitter: -1}}
		go func() { _ = e.Run(ctx) }()
		for i := range happens {
			time.Sleep(happens[i].after)
			synctest.Wait()
			happens[i].do(l, tel)
		}
		time.Sleep(time.Minute) // ten tries with an unknown outcome, again and again
		synctest.Wait()
		stop()
		synctest.Wait()
		s := snapshotOf(t, l)
		for c := range s.Capsules() {
			for n := range s.Nodes() {
				report, _ := tel.Latest(n.Node.ID)
				if c.Pending() && placeable(s, n, &report, c.Spec) {
					left = fmt.Sprintf("%s would fit on %s: %+v", c.ID, n.Node.ID, c.Spec)
				}
			}
		}
	})
	return left
}

// When an engine is at rest nothing that waits fits anywhere, by brute force, whatever has happened: nodes
// join, leave, shrink, are cordoned and relabelled; holds end; capsules come, go and are moved by others;
// reports come; and proposals of its own are refused, lost, or committed without its knowing. Classes are
// parked for a day at most, so that the end of that time does not hide what should have brought them back.
func TestNothingThatFitsIsLeft(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		happens := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) unrest {
			return unrest{
				after: rapid.SampledFrom([]time.Duration{0, 0, 5 * ms, 40 * ms, 700 * ms}).Draw(t, "after"),
				what:  rapid.IntRange(0, 12).Draw(t, "what"), node: rapid.IntRange(0, 3).Draw(t, "node"),
				id: rapid.IntRange(0, 9).Draw(t, "id"), size: rapid.IntRange(0, 6).Draw(t, "size"), flag: rapid.Bool().Draw(t, "flag"),
			}
		}), 20, 80).Draw(r, "happens")
		faults := rapid.SliceOfN(rapid.IntRange(0, 8), 0, 20).Draw(r, "faults")
		limits := Limits{Terminal: rapid.SampledFrom([]int{0, 1, 3}).Draw(r, "terminal"), History: rapid.SampledFrom([]int{0, 0, 4}).Draw(r, "history")}
		if left := unrestWorld(t, happens, faults, limits); left != "" {
			r.Fatal(left)
		}
	})
}

// Highest priority first, then in order of submission, however the capsules came in; and never more than
// MaxPlan at a time.
func TestHighestPriorityFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		priorities := rapid.SliceOfN(rapid.Int32Range(-2, 2), 1, 30).Draw(t, "priorities")
		most := rapid.IntRange(1, 5).Draw(t, "MaxPlan")
		l, nav := &MemoryLedger{}, &greedy{}
		commit(t, l, PutNode{machine("n", 1000)})
		var want []CapsuleID
		for p := int32(2); p >= -2; p-- {
			for i, q := range priorities {
				if p == q {
					want = append(want, CapsuleID(fmt.Sprint("c", i)))
				}
			}
		}
		for i, p := range priorities {
			spec := wants(1)
			spec.Priority = p
			commit(t, l, Submit{IDs: []CapsuleID{CapsuleID(fmt.Sprint("c", i))}, Spec: spec})
		}
		e := Engine{Ledger: l, Navigator: nav, MaxPlan: most}
		var got []CapsuleID
		for e.Pass(context.Background()).Committed > 0 {
			last := nav.asked[len(nav.asked)-1]
			require.LessOrEqual(t, len(last), most)
			got = append(got, last...)
		}
		assert.Equal(t, want, got)
	})
}

// Classes of high priority that fit nowhere do not starve those below: put aside, they make way. Not even
// when there are more of them than passes within ParkFor.
func TestUnfitClassesDoNotStarveOthers(t *testing.T) {
	for _, unfit := range []int{1, 5, 100} {
		t.Run(fmt.Sprint(unfit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &MemoryLedger{}
				commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"low"}, Spec: wants(1)})
				for i := range unfit {
					spec := wants(int64(11 + i))
					spec.Priority = 9
					commit(t, l, Submit{IDs: names(fmt.Sprint("huge", i, "-"), 2), Spec: spec})
				}
				r := newRig(t, l, &Engine{Navigator: &greedy{}, MaxPlan: 1})
				r.run()
				r.until(10 * time.Minute)
				assert.Equal(t, NodeID("n"), where(t, l, "low"))
			})
		})
	}
}

// broken are the ways in which a view cannot be built, for as long as fail says so.
var broken = map[string]func(b *bent, tel *board, fail func() error){
	"Snapshot": func(b *bent, _ *board, fail func() error) {
		inner := b.snapshot
		b.snapshot = func(ctx context.Context) (*State, error) {
			s, _ := inner(ctx) // counted as a look
			if err := fail(); err != nil {
				return nil, err
			}
			return s, nil
		}
	},
	"Changes": func(b *bent, _ *board, fail func() error) {
		b.changes = func(ctx context.Context, after Revision) ([]Change, error) {
			if err := fail(); err != nil {
				return nil, err
			}
			return b.Ledger.Changes(ctx, after)
		}
	},
	"Reports": func(_ *bent, tel *board, fail func() error) { tel.fail = fail },
}

// A view that fails to build backs off and is reported, however long it lasts; work that comes meanwhile
// changes nothing about the pace. When it can be built again, the work is done.
func TestFailingViewBacksOff(t *testing.T) {
	for name, bend := range broken {
		for _, from := range []time.Duration{-1, 0} { // from the start; once there has been a view
			t.Run(fmt.Sprint(name, from), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { failingView(t, bend, from < 0) })
			})
		}
	}
}

func failingView(t *testing.T, bend func(*bent, *board, func() error), fromTheStart bool) {
	l, tel, boom := &MemoryLedger{}, &board{stale: time.Hour}, errors.New("boom")
	commit(t, l, PutNode{machine("n", 10)})
	r := newRig(t, l, &Engine{Navigator: &greedy{}, Telemetry: tel})
	failing, failed := fromTheStart, 0
	bend(r.Ledger.(*bent), tel, func() error {
		if !failing {
			return nil
		}
		if failed++; failed > 1000 {
			failing = false // it does not back off at all; let the bubble's clock go on
		}
		return boom
	})
	r.run()
	r.until(time.Second)
	failing = failing || !fromTheStart
	commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
	r.until(20 * time.Second)
	require.Less(t, failed, 80, "it spins")
	require.GreaterOrEqual(t, failed, 15)
	for _, round := range r.rounds {
		if round.Committed == 0 {
			assert.ErrorIs(t, errors.Join(round.Errors...), boom)
			assert.ErrorContains(t, errors.Join(round.Errors...), "view")
		}
	}
	failing = false
	r.until(22 * time.Second)
	assert.Equal(t, NodeID("n"), where(t, l, "c"))
	assert.Empty(t, r.rounds[len(r.rounds)-1].Errors)
}

// A ledger whose Wait fails is looked at again at the pace of the back-off, and not faster.
func TestFailingWaitBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 10)})
		r := newRig(t, deafLedger{l}, &Engine{Navigator: &greedy{}})
		r.run()
		r.until(doubling[7] + 1)
		assert.Equal(t, doubling[:8], r.looks)
		commit(t, l, Submit{IDs: []CapsuleID{"c"}, Spec: wants(1)})
		r.until(doubling[8])
		assert.Equal(t, NodeID("n"), where(t, l, "c"))
	})
}

// deafLedger cannot wait.
type deafLedger struct{ Ledger }

func (deafLedger) Wait(context.Context, Revision) (Revision, error) { return 0, ErrUnavailable }

// A history that is too short costs the engine a new view and nothing else: no work is lost, no error shows.
func TestShortHistoryLosesNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{Bounds: Limits{History: 1}}
		commit(t, l, PutNode{machine("n", 1000)})
		r := newRig(t, l, &Engine{Navigator: &greedy{}})
		r.run()
		for i, id := range names("c", 20) {
			r.until(time.Duration(i) * 300 * ms)
			commit(t, l, Mark{Key: "k", Value: "v"}, Submit{IDs: []CapsuleID{id}, Spec: wants(1)}, Mark{Key: "k"})
			synctest.Wait()
			assert.Equal(t, NodeID("n"), where(t, l, id), "at once")
		}
		for _, round := range r.rounds {
			assert.Empty(t, round.Errors)
		}
	})
}

// If calls of a telemetry's Wait do not return when their contexts end, the engine stops calling Wait, and its rounds
// report that. Once the calls have returned, the rounds report nothing any more.
func TestHungWaitIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tel := &MemoryLedger{}, &hungBoard{end: make(chan struct{})}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"large"}, Spec: wants(20)})
		r := newRig(t, l, &Engine{Navigator: &greedy{}, Telemetry: tel, OnError: func(error) {}})
		r.run()
		said := func(from int) (out error) {
			for _, round := range r.rounds[from:] {
				out = errors.Join(append([]error{out}, round.Errors...)...)
			}
			return out
		}
		r.until(time.Minute)
		assert.EqualValues(t, mostListening, tel.calls.Load())
		assert.ErrorContains(t, said(0), "reports wake nothing until one of them returns")
		close(tel.end)
		r.until(10 * time.Minute)
		before := len(r.rounds)
		r.until(20 * time.Minute)
		assert.NoError(t, said(before))
	})
}

// Calls of Wait that return a little after their contexts have ended, as they do on a busy machine, are no hung calls:
// nothing is reported, however many rests follow each other meanwhile, and a report still wakes the engine.
func TestSlowWaitIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tel := &MemoryLedger{}, &slowBoard{board: &board{}}
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"large"}, Spec: wants(20)})
		r := newRig(t, l, &Engine{Navigator: &greedy{}, Telemetry: tel, OnError: func(error) {}})
		r.run()
		for range 30 {
			time.Sleep(ms)
			r.Nudge()
		}
		r.until(time.Minute)
		for _, round := range r.rounds {
			assert.Empty(t, round.Errors)
		}
		assert.LessOrEqual(t, tel.most.Load(), int32(mostListening))
		tel.ended.Store(true)
	})
}

// slowBoard is telemetry whose Wait returns 20 ms after its context has ended.
type slowBoard struct {
	*board
	calls, most atomic.Int32
	ended       atomic.Bool // the test is over
}

func (b *slowBoard) Wait(ctx context.Context, _ uint64) error {
	b.most.Store(max(b.most.Load(), b.calls.Add(1)))
	defer b.calls.Add(-1)
	if <-ctx.Done(); !b.ended.Load() {
		time.Sleep(20 * ms)
	}
	return ctx.Err()
}

// hungBoard is telemetry whose Wait returns only after end has been closed.
type hungBoard struct {
	board
	end   chan struct{}
	calls atomic.Int32
}

func (b *hungBoard) Wait(ctx context.Context, _ uint64) error {
	b.calls.Add(1)
	<-b.end
	<-ctx.Done()
	return ctx.Err()
}
