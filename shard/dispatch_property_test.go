package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/nav"
)

// world makes random changes around dispatchers, and checks them against a simple model that reads whole states only.
type world struct {
	*stage
	rt          *rapid.T
	dispatchers []*Dispatcher
	// faults is the ledger that the dispatchers use: it returns conflicts without a reason, and loses proposals and
	// answers.
	faults     *ledgertest.Faults
	leased     bool
	movePinned bool
	strict     bool
	// checked is the state up to which the history has been checked.
	checked *orbit.State
	pinned  map[unit]string
	serial  int
}

var worldSchedulers = []string{"a", "b/c", "d d", "é"}

func newWorld(rt *rapid.T) *world {
	w := &world{stage: newStage(rt), rt: rt, leased: true, pinned: map[unit]string{}}
	w.ledger.Bounds = orbit.Limits{Terminal: 5, History: rapid.SampledFrom([]int{0, 0, 30}).Draw(rt, "history")}
	if rapid.IntRange(0, 3).Draw(rt, "small values") == 0 {
		w.ledger.Bounds.ValueBytes = 40
	}
	w.movePinned, w.strict = rapid.Bool().Draw(rt, "move pinned"), rapid.Bool().Draw(rt, "strict")
	chance := rapid.SampledFrom([]float64{0, 0, 0.3, 0.6})
	w.faults = &ledgertest.Faults{Seed: 1, Conflict: chance.Draw(rt, "conflicts"), Lost: chance.Draw(rt, "lost") / 4, Applied: chance.Draw(rt, "applied") / 4}
	for range rapid.IntRange(1, 3).Draw(rt, "dispatchers") {
		w.dispatchers = append(w.dispatchers, w.dispatcher())
	}
	w.checked = w.state()
	return w
}

func (w *world) dispatcher() *Dispatcher {
	policies := []Policy{nil, &Random{Seed: 7}, LeastLoaded{}, Hash{}, Hash{Of: func(c *orbit.Capsule) string { return string(c.ID) }}}
	return &Dispatcher{
		Ledger: w.faults.Around(w.ledger), Leases: w.leases, MovePinned: w.movePinned, Strict: w.strict,
		Policy:  policies[rapid.IntRange(0, len(policies)-1).Draw(w.rt, "policy")],
		MaxStep: rapid.SampledFrom([]int{0, 1, 3}).Draw(w.rt, "max step"),
		Retry:   orbit.Backoff{Initial: time.Second, Max: 10 * time.Second},
	}
}

// try proposes; a proposal that is refused has no effect.
func (w *world) try(do ...orbit.Commitment) {
	_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
}

func (w *world) anyScheduler() string {
	return rapid.SampledFrom(worldSchedulers).Draw(w.rt, "scheduler")
}

// any returns a capsule for which the condition holds, nil if there is none.
func (w *world) any(which func(*orbit.Capsule) bool) *orbit.Capsule {
	var all []*orbit.Capsule
	for c := range w.state().Capsules() {
		if which(c) {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *orbit.Capsule) int { return int(a.Submitted) - int(b.Submitted) })
	return all[rapid.IntRange(0, len(all)-1).Draw(w.rt, "which")]
}

func (w *world) submit() {
	w.serial++
	s := Submission{Submit: orbit.Submit{Spec: cpu(rapid.Int64Range(1, 4).Draw(w.rt, "cpu"))}}
	for i := range rapid.IntRange(1, 3).Draw(w.rt, "capsules") {
		id := orbit.CapsuleID(fmt.Sprint("x/", w.serial, "/", i))
		if rapid.IntRange(0, 9).Draw(w.rt, "old id") == 0 {
			id = orbit.CapsuleID(fmt.Sprint("x/", rapid.IntRange(1, w.serial).Draw(w.rt, "serial"), "/", i))
		}
		s.IDs = append(s.IDs, id)
	}
	if rapid.IntRange(0, 2).Draw(w.rt, "gang") == 0 {
		half := (len(s.IDs) + 1) / 2
		roles := []orbit.Role{{Name: "r", Spec: s.Spec, Members: s.IDs[:half], Min: 1}}
		if half < len(s.IDs) {
			roles = append(roles, orbit.Role{Name: "q", Spec: cpu(1), Members: s.IDs[half:], Min: 1})
		}
		s.Submit = orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(fmt.Sprint("x/", w.serial)), Roles: roles}}
	}
	if rapid.IntRange(0, 4).Draw(w.rt, "pinned") == 0 {
		s.Schedulers = []string{w.anyScheduler()}
	}
	_, _ = Import(context.Background(), w.ledger, s)
}

// giveUp makes the owner of a capsule give it back, on a view that may be old.
func (w *world) giveUp(old *orbit.View) {
	c := w.any(func(c *orbit.Capsule) bool { return c.Pending() && c.Owner() != "" })
	if c == nil {
		return
	}
	view := &orbit.View{}
	require.NoError(w.t, view.Refresh(context.Background(), w.ledger, nil, time.Now()))
	if rapid.Bool().Draw(w.rt, "stale") && old.State() != nil && old.State().Capsule(c.ID) != nil {
		view = old
		c = old.State().Capsule(c.ID)
		if !c.Pending() || c.Owner() == "" {
			return
		}
	}
	inner := nav.Func(func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
		return orbit.Plan{Unplaced: []orbit.Unplaced{{Capsule: c, Why: &orbit.NoFit{}}}}, nil
	})
	plan, err := (&Scheduler{Name: c.Owner(), Navigator: inner}).Plan(context.Background(), view, nil)
	require.NoError(w.t, err)
	for _, p := range plan.Proposals {
		_, _ = w.ledger.Propose(context.Background(), p)
	}
}

func (w *world) place() {
	c := w.any((*orbit.Capsule).Pending)
	if c == nil {
		return
	}
	var do []orbit.Commitment
	for n := range w.state().Nodes() {
		for m := range unitOf(c).members(w.state()) {
			if m.Pending() && len(do) < 6 {
				do = append(do, orbit.Place{Capsule: m.ID, Node: n.Node.ID})
			}
		}
		w.try(do...)
		do = nil
	}
}

func (w *world) release() {
	c := w.any(func(c *orbit.Capsule) bool { return !c.Released() })
	if c == nil {
		return
	}
	final := rapid.Bool().Draw(w.rt, "final")
	w.try(orbit.Release{Capsule: c.ID, Final: final, Stopped: !final})
}

func (w *world) putNode() {
	id := orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, 3).Draw(w.rt, "node")))
	n := node(id, rapid.Int64Range(0, 6).Draw(w.rt, "size"))
	n.Node.Cordon(rapid.IntRange(0, 4).Draw(w.rt, "drained") == 0)
	w.try(n)
	if rapid.IntRange(0, 2).Draw(w.rt, "group") == 0 {
		w.try(orbit.Mark{Key: groupMark.key(string(id)), Value: w.anyScheduler()})
	}
}

func (w *world) liveOrDie() {
	name := w.anyScheduler()
	if _, lives := w.terms[name]; lives && rapid.Bool().Draw(w.rt, "die") {
		w.die(name)
	} else {
		w.live(name)
	}
}

func (w *world) corrupt() {
	key := rapid.SampledFrom([]string{"plan/capsule/failed/", "plan/gang/failed/", "pinned/", "pinned-gang/", "plan/capsule/failed/unknown", "pinned/unknown", "scheduler/x", "scheduler/%zz", "group/", "group/unknown"}).Draw(w.rt, "key")
	if c := w.any(func(*orbit.Capsule) bool { return true }); c != nil && key == "plan/capsule/failed/" {
		key += string(c.ID)
	}
	w.try(orbit.Mark{Key: key, Value: rapid.SampledFrom([]string{"x", "1 ", "1+ ", "1 a=1,", "1 zz=1,", "1 live a"}).Draw(w.rt, "value")})
}

func (w *world) step() {
	i := rapid.IntRange(0, len(w.dispatchers)-1).Draw(w.rt, "dispatcher")
	if rapid.IntRange(0, 5).Draw(w.rt, "restart") == 0 {
		w.dispatchers[i] = w.dispatcher()
	}
	before := w.state().Revision()
	r := w.dispatchers[i].Step(context.Background())
	require.True(w.t, r.Conflicts == 0 || w.faults.Conflict > 0, "no other process was at work")
	w.checkStep(before)
}

// checkStep checks what a dispatcher has committed after a revision.
func (w *world) checkStep(before orbit.Revision) {
	changes, err := w.ledger.Changes(context.Background(), before)
	if err != nil {
		return
	}
	state := w.state()
	for _, c := range changes {
		if a, ok := c.Do.(orbit.Assign); ok {
			_, lives := w.leases.In(state, a.Owner) // no other process has changed the leases
			require.True(w.t, lives, "%+v to one who does not live", a)
			require.NotEqual(w.t, a.From, a.Owner)
			_, lived := w.leases.In(state, a.From)
			require.False(w.t, a.From != "" && lived, "%+v takes from one who lives", a)
		}
	}
}

// settleAll calls Step until no dispatcher has anything to do now.
func (w *world) settleAll() {
	for quiet := 0; quiet < len(w.dispatchers); {
		for _, d := range w.dispatchers {
			before := w.state().Revision()
			r := d.Step(context.Background())
			failed := r.Conflicts > 0 || slices.ContainsFunc(r.Errors, func(err error) bool { return errors.Is(err, orbit.ErrUnknown) })
			if quiet++; failed || w.state().Revision() != before || r.Left > 0 && len(r.Dispatched) > 0 {
				quiet = 0
			}
		}
	}
}

// check checks the state after all dispatchers have read every change.
func (w *world) check() {
	state := w.state()
	for _, kind := range []markKind{failedMark, failedGangMark, pinnedMark, pinnedGangMark} {
		for key := range state.Marks(string(kind)) {
			u, ok := unitOfKey(key)
			if !ok {
				continue
			}
			pending, gone := u.life(state)
			require.False(w.t, gone, "mark %q has outlived its capsule", key)
			require.True(w.t, pending || kind == pinnedMark || kind == pinnedGangMark, "mark %q of a placed capsule", key)
		}
	}
	for _, d := range w.dispatchers {
		w.checkBooks(d, state)
	}
	living := schedulersIn(state, w.leases)
	for c := range state.Capsules() {
		if c.Pending() && len(living) > 0 && !slices.Contains(living, c.Owner()) {
			w.excused(state, c, living)
		}
	}
	for g := range state.Gangs() {
		w.checkGang(state, g, living)
	}
}

// checkBooks compares the dispatcher's loads with a new count.
func (w *world) checkBooks(d *Dispatcher, state *orbit.State) {
	count := map[string]int{}
	for c := range state.Capsules() {
		if c.Pending() {
			count[c.Owner()]++
		}
	}
	require.Equal(w.t, state.Revision(), d.state.Revision())
	for name, o := range d.loads.owners {
		require.Equal(w.t, count[name], o.count, "waiting at %q", name)
		require.LessOrEqual(w.t, len(o.ids), 3*o.count+200)
		delete(count, name)
	}
	require.Empty(w.t, count)
	specs := map[*orbit.Spec]bool{}
	for _, f := range d.failing.units {
		for _, spec := range f.specs {
			specs[spec] = true
		}
	}
	require.Len(w.t, d.failing.classes, len(specs))
	require.Len(w.t, d.failing.bySpec, len(specs))
}

// excused fails unless there is a reason why a pending capsule has no living owner.
func (w *world) excused(state *orbit.State, c *orbit.Capsule, living []string) {
	u := unitOf(c)
	pinned, _ := state.Mark(u.pinnedMark().key(u.id))
	value, _ := state.Mark(u.failedMark().key(u.id))
	list, _ := parseFailures(value)
	failed := func(name string) bool {
		term, _ := w.leases.In(state, name)
		one, ok := list.find(name)
		return ok && one.View >= term.Epoch
	}
	if pinned != "" && !w.movePinned {
		require.True(w.t, !slices.Contains(living, pinned) || failed(pinned), "capsule %q is pinned to %q, who lives", c.ID, pinned)
		return
	}
	for _, name := range living {
		require.True(w.t, failed(name) || list.more, "capsule %q has owner %q, and %q has not failed it (%q)", c.ID, c.Owner(), name, value)
	}
	for _, d := range w.dispatchers {
		require.False(w.t, d.retry.record(u).due.IsZero(), "capsule %q will never be tried again", c.ID)
	}
}

// checkGang: all pending members of a gang have one owner, if that owner lives.
func (w *world) checkGang(state *orbit.State, g *orbit.GangState, living []string) {
	owners := map[string]bool{}
	for c := range state.Members(g.Gang.ID) {
		if c.Pending() && slices.Contains(living, c.Owner()) {
			owners[c.Owner()] = true
		}
	}
	require.LessOrEqual(w.t, len(owners), 1, "gang %q", g.Gang.ID)
}

func TestDispatchersAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) { liveOn(rt) })
	})
}

func liveOn(rt *rapid.T) {
	w := newWorld(rt)
	old := &orbit.View{}
	actions := []func(){
		w.submit, w.submit, w.submit, w.place, w.place, w.release, w.release, w.putNode, w.liveOrDie, w.liveOrDie, w.corrupt,
		w.step, w.step, w.step, w.step,
		func() { w.giveUp(old) }, func() { w.giveUp(old) }, func() { w.giveUp(old) },
		func() { require.NoError(rt, old.Refresh(context.Background(), w.ledger, nil, time.Now())) },
		func() { time.Sleep(time.Duration(rapid.IntRange(1, 5).Draw(rt, "seconds")) * time.Second) },
		func() { _, _ = w.leases.Step(context.Background()) },
		func() { w.settleAll(); w.check() },
	}
	for range rapid.IntRange(1, 60).Draw(rt, "actions") {
		actions[rapid.IntRange(0, len(actions)-1).Draw(rt, "action")]()
	}
	w.settleAll()
	w.check()
	w.end()
}

// end gives every capsule a scheduler and capacity: then no capsule is forgotten, and no mark is left.
func (w *world) end() {
	w.live(worldSchedulers...)
	w.try(orbit.Mark{Key: "scheduler/x"}, orbit.Mark{Key: "group/unknown"})
	w.try(node("large", 1000))
	for range 200 {
		w.settleAll()
		state := w.state()
		if state.PendingCount() == 0 {
			break
		}
		for _, c := range state.Pending() {
			if c.Owner() == "" || w.state().Capsule(c.ID).Placed() {
				continue
			}
			var do []orbit.Commitment
			for m := range unitOf(c).members(state) {
				if m.Pending() {
					do = append(do, orbit.Place{Capsule: m.ID, Node: "large"})
				}
			}
			if _, err := w.ledger.Propose(context.Background(), orbit.Proposal{Do: do}); err != nil && c.Gang() != "" {
				for i, place := range do { // members of the gang have been released for good
					do[i] = orbit.Release{Capsule: place.(orbit.Place).Capsule, Final: true}
				}
				w.try(do...)
			}
		}
		time.Sleep(2 * time.Second)
	}
	require.Zero(w.t, w.state().PendingCount(), "forgotten: %v", w.state().Pending())
	w.settleAll()
	for key, value := range w.state().Marks("plan/") {
		if _, ok := unitOfKey(key); !ok {
			continue // the capsule has no owner
		}
		w.t.Fatalf("mark %q=%q is left", key, value)
	}
}
