package race

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// liveTurn is one event at the time when it happens, with the state at that time.
type liveTurn struct {
	*livePlay
	r     *rand.Rand
	state *orbit.State
	nodes []*orbit.NodeState
	id    int
	// serial makes the ids of several groups that one event submits distinct.
	serial int
}

// liveKind is a kind of events, with its relative frequency. The function do returns the proposals of an event: each list
// of commitments is one proposal.
type liveKind struct {
	name   string
	weight int
	do     func(t *liveTurn) [][]orbit.Commitment
}

// liveKinds are the kinds of events; liveFacts and liveQueues have further ones.
var liveKinds = []liveKind{
	{"submit", 4, (*liveTurn).submit},
	{"group", 3, (*liveTurn).group},
	{"hogs", 1, (*liveTurn).hogs},
	{"gang", 3, (*liveTurn).gang},
	{"finish", 3, (*liveTurn).finish},
	{"short", 2, (*liveTurn).short},
	{"again", 1, (*liveTurn).again},
	{"grow", 2, (*liveTurn).grow},
	{"replace", 2, (*liveTurn).replace},
	{"fork", 2, (*liveTurn).fork},
	{"end", 4, (*liveTurn).end},
	{"abandon", 2, (*liveTurn).abandon},
	{"disband", 2, (*liveTurn).disband},
	{"lose", 2, (*liveTurn).lose},
	{"fail", 2, (*liveTurn).fail},
	{"migrate", 3, (*liveTurn).migrate},
	{"displace", 3, (*liveTurn).displace},
	{"budget", 1, (*liveTurn).budget},
	{"flap", 1, (*liveTurn).flap},
	{"assign", 1, (*liveTurn).assign},
	{"hold", 2, (*liveTurn).hold},
	{"nominate", 2, (*liveTurn).nominate},
	{"join", 2, (*liveTurn).join},
	{"flash", 2, (*liveTurn).flash},
	{"leave", 1, (*liveTurn).leave},
	{"cordon", 2, (*liveTurn).cordon},
	{"evacuate", 2, (*liveTurn).evacuate},
	{"uncordon", 2, (*liveTurn).uncordon},
	{"resize", 2, (*liveTurn).resize},
	{"respec", 2, (*liveTurn).respec},
	{"move", 2, (*liveTurn).move},
	{"sour", 2, (*liveTurn).sours},
	{"sicken", 1, (*liveTurn).sicken},
	{"silence", 1, (*liveTurn).silence},
	{"speak", 2, (*liveTurn).speak},
}

// happen does what an event does, now. The ledger may refuse it, because events are drawn without a check that they are
// possible.
func (w *livePlay) happen(ctx context.Context, e *Event) {
	state := w.snapshot()
	t := &liveTurn{livePlay: w, r: rand.New(rand.NewPCG(w.draft.seed, uint64(e.id))), state: state, id: e.id, nodes: slices.Collect(state.Nodes())}
	for _, k := range slices.Concat(liveKinds, liveFacts, liveQueues) {
		if k.name != e.kind {
			continue
		}
		for _, do := range k.do(t) {
			if len(do) > 0 {
				_ = w.world.propose(ctx, &orbit.Proposal{ID: w.world.nextID(), Do: do})
			}
		}
	}
}

// once returns a single proposal with these commitments, as the functions of liveKinds return it.
func once(do ...orbit.Commitment) [][]orbit.Commitment { return [][]orbit.Commitment{do} }

// ids returns new ids for capsules of this event.
func (t *liveTurn) ids(prefix string, n int) (out []orbit.CapsuleID) {
	for k := range n {
		out = append(out, orbit.CapsuleID(fmt.Sprintf("%s.%d.%d", prefix, t.id, k)))
	}
	return out
}

// owner returns the owner that new work of an engine is submitted with, or "" if the engine claims such work.
func (t *liveTurn) owner(e *liveEngine) string {
	if e.assigned || lucky(t.r, 20) {
		return e.name
	}
	return ""
}

// anyEngine returns one of the engines, nil if shrinking has taken it away. It draws among all engines of the draft, so
// that the event means the same in a world of fewer engines, or nothing.
func (t *liveTurn) anyEngine() *liveEngine {
	return t.engine(one(t.r, t.draft.engines...).name)
}

// submit submits some capsules of one engine.
func (t *liveTurn) submit() [][]orbit.Commitment {
	e := t.anyEngine()
	switch {
	case e == nil:
		return nil
	case e.kind == "gang":
		return t.gang()
	case e.kind == "warm" && lucky(t.r, 40):
		return t.fork()
	}
	return once(t.plain(e, "c", 1+t.r.IntN(3))...)
}

// plain submits this number of classes of an engine, which compete for room in one plan.
func (t *liveTurn) plain(e *liveEngine, prefix string, classes int) (do []orbit.Commitment) {
	for k := range classes {
		ids := t.ids(fmt.Sprintf("%s%c", prefix, 'a'+k), 1+t.r.IntN(2))
		do = append(do, orbit.Submit{IDs: ids, Spec: one(t.r, e.specs...), Owner: t.owner(e)})
	}
	return do
}

// hogs submits work of one engine that no node is large enough for, and that comes before all other work: 6 to 30
// classes, or as many gangs of two.
func (t *liveTurn) hogs() [][]orbit.Commitment {
	e := t.anyEngine()
	if e == nil || e.maxPlan > 0 { // they would fill all plans
		return nil
	}
	var do []orbit.Commitment
	for k := range 6 + t.r.IntN(25) {
		spec := *one(t.r, e.specs...)
		spec.Envelope.Reservation[orbit.CPU], spec.Priority = 100+int64(k), 3
		ids := t.ids(fmt.Sprint("hog", k), 2)
		if e.kind == "gang" {
			g := &orbit.Gang{ID: orbit.GangID(fmt.Sprint("hog", k, ".", t.id)), Roles: []orbit.Role{{Name: "role0", Spec: &spec, Members: ids}}}
			do = append(do, orbit.Submit{Gang: g, Owner: t.owner(e)})
		} else {
			do = append(do, orbit.Submit{IDs: ids, Spec: &spec, Owner: t.owner(e)})
		}
	}
	return once(do...)
}

// group submits members of a group and plain work of the same engine, at times of two groups. All compete for room in
// one plan.
func (t *liveTurn) group() [][]orbit.Commitment {
	if len(t.draft.groups) == 0 {
		return t.submit()
	}
	do := t.members(one(t.r, t.draft.groups...))
	if lucky(t.r, 30) {
		do = append(do, t.members(one(t.r, t.draft.groups...))...)
	}
	return once(do...)
}

// members submits members of a group: of all its specs, or of some.
func (t *liveTurn) members(g liveGroup) (do []orbit.Commitment) {
	e := t.engine(g.engine)
	if e == nil {
		return nil
	}
	t.serial++
	do = t.plain(e, fmt.Sprintf("c%d", t.serial), one(t.r, 0, 0, 1, 2))
	percent, owner := one(t.r, 30, 70, 100), t.owner(e)
	for k, spec := range g.specs {
		if lucky(t.r, percent) {
			ids := t.ids(fmt.Sprintf("%s-%d%c", g.name, t.serial, 'a'+k), 1+t.r.IntN(2))
			do = append(do, orbit.Submit{IDs: ids, Spec: spec, Owner: owner})
		}
	}
	return do
}

// gang submits a gang of one to three roles.
func (t *liveTurn) gang() [][]orbit.Commitment {
	e := t.engine("gang")
	if e == nil {
		return nil
	}
	g := &orbit.Gang{ID: orbit.GangID(fmt.Sprint("gang", t.id)), Loose: lucky(t.r, 15)}
	for _, level := range liveLevels {
		if lucky(t.r, 45) {
			g.Levels = append(g.Levels, level)
		}
	}
	for k := range one(t.r, 1, 1, 1, 2, 3) {
		role := orbit.Role{Name: fmt.Sprint("role", k), Spec: one(t.r, e.specs...)}
		role.Members = t.ids(fmt.Sprintf("m%c", 'a'+k), 1+t.r.IntN(4))
		if lucky(t.r, 50) {
			role.Min = 1 + t.r.IntN(len(role.Members))
		}
		g.Roles = append(g.Roles, role)
		if lucky(t.r, 30) {
			g.Min += 1 + t.r.IntN(len(role.Members))
		}
	}
	return once(orbit.Submit{Gang: g, Owner: t.owner(e)})
}

// fork submits a capsule that is forked from another one, in whatever state the parent is.
func (t *liveTurn) fork() [][]orbit.Commitment {
	e := t.engine("warm")
	parent := t.capsule(func(c *orbit.Capsule) bool { return c.Gang() == "" && (c.Placed() || lucky(t.r, 20)) })
	if e == nil || parent == nil {
		return nil
	}
	spec := *one(t.r, e.specs...)
	spec.Module, spec.Start.Parent, spec.Start.CrossHost = "fork", parent.ID, lucky(t.r, 40)
	return once(orbit.Submit{IDs: t.ids("f", 1+t.r.IntN(2)), Spec: &spec, Owner: e.name})
}

// capsules returns the capsules for which are reports true, sorted by id.
func (t *liveTurn) capsules(are func(*orbit.Capsule) bool) (out []*orbit.Capsule) {
	for c := range t.state.Capsules() {
		if are(c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *orbit.Capsule) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// capsule returns a random one of these capsules; nil: there is none.
func (t *liveTurn) capsule(are func(*orbit.Capsule) bool) *orbit.Capsule {
	if all := t.capsules(are); len(all) > 0 {
		return one(t.r, all...)
	}
	return nil
}

// node returns a random one of the nodes for which are reports true; nil: there is none.
func (t *liveTurn) node(are func(*orbit.NodeState) bool) *orbit.NodeState {
	all := slices.DeleteFunc(slices.Clone(t.nodes), func(n *orbit.NodeState) bool { return !are(n) })
	if len(all) == 0 {
		return nil
	}
	return one(t.r, all...)
}

func anyNode(*orbit.NodeState) bool { return true }

// end releases some capsules for good, in most cases placed ones.
func (t *liveTurn) end() [][]orbit.Commitment {
	waiting := lucky(t.r, 25)
	all := t.capsules(func(c *orbit.Capsule) bool { return !c.Released() && c.Pending() == waiting })
	t.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var do []orbit.Commitment
	for _, c := range all[:min(len(all), 1+t.r.IntN(4))] {
		do = append(do, orbit.Release{Capsule: c.ID, Final: true})
	}
	return once(do...)
}

// abandon ends all pending capsules that share a group or gang with a certain pending capsule, or its spec.
func (t *liveTurn) abandon() [][]orbit.Commitment {
	all := t.capsules((*orbit.Capsule).Pending)
	if len(all) == 0 {
		return nil
	}
	if lucky(t.r, 80) { // choose a capsule that was submitted by the newest submission
		newest := slices.MaxFunc(all, func(a, b *orbit.Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) })
		all = slices.DeleteFunc(all, func(c *orbit.Capsule) bool { return c.Submitted>>20 < newest.Submitted>>20 })
	}
	of := one(t.r, all...)
	var do []orbit.Commitment
	for _, c := range t.capsules((*orbit.Capsule).Pending) {
		if c.Spec == of.Spec || (of.Spec.Group != "" || of.Gang() != "") && c.Spec.Group == of.Spec.Group && c.Gang() == of.Gang() {
			do = append(do, orbit.Release{Capsule: c.ID, Final: true})
		}
	}
	return once(do...)
}

// disband releases all placed members of a group, at times for good.
func (t *liveTurn) disband() [][]orbit.Commitment {
	of := t.capsule(func(c *orbit.Capsule) bool { return c.Placed() && c.Spec.Group != "" })
	if of == nil {
		return nil
	}
	var do []orbit.Commitment
	final := lucky(t.r, 30)
	for _, c := range t.capsules((*orbit.Capsule).Placed) {
		if c.Spec.Group == of.Spec.Group {
			if final {
				do = append(do, orbit.Release{Capsule: c.ID, Final: true})
			} else {
				do = append(do, t.stopped(c)...)
			}
		}
	}
	return once(do...)
}

// lose releases a placed capsule, so that it is pending again.
func (t *liveTurn) lose() [][]orbit.Commitment {
	c := t.capsule((*orbit.Capsule).Placed)
	if c == nil {
		return nil
	}
	return once(t.stopped(c)...)
}

// fail lets all capsules on a node fail.
func (t *liveTurn) fail() [][]orbit.Commitment {
	n := t.node(func(n *orbit.NodeState) bool { return n.Capsules > 0 })
	if n == nil {
		return nil
	}
	return once(t.release(n)...)
}

// stopped returns the release of a placed capsule that has failed, now or at an unknown time. A capsule that has failed
// twice in a row fails no more: engines would wait for 2 s before they place it again, and an Anchor then holds room for
// 1.5 s more, so the rest would be over.
func (t *liveTurn) stopped(c *orbit.Capsule) []orbit.Commitment {
	return stopped(t.state, c.ID, lucky(t.r, 70))
}

// stopped is the release of a capsule that has failed, with the time of that if timed is set; none if it may fail no more.
func stopped(state *orbit.State, id orbit.CapsuleID, timed bool) []orbit.Commitment {
	if state.Failures(id).InARow > 1 {
		return nil
	}
	r := orbit.Release{Capsule: id, Stopped: true}
	if timed {
		r.At = orbit.Instant(time.Now().UnixNano())
	}
	return []orbit.Commitment{r}
}

// migrate moves a capsule to another node, if it fits there.
func (t *liveTurn) migrate() [][]orbit.Commitment {
	c := t.parent()
	if c == nil || lucky(t.r, 30) {
		c = t.capsule((*orbit.Capsule).Placed)
	}
	if c == nil || c.Spec.Devices.Count > 0 {
		return nil
	}
	n := t.node(func(n *orbit.NodeState) bool { return n.Node.ID != c.Node && n.Fits(c.Spec) })
	if n == nil {
		return nil
	}
	return once(orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}, orbit.Place{Capsule: c.ID, Node: n.Node.ID})
}

// parent returns a placed capsule of which a fork is pending, nil if there is none.
func (t *liveTurn) parent() *orbit.Capsule {
	f := t.capsule(func(c *orbit.Capsule) bool {
		parent := t.state.Capsule(c.Spec.Start.Parent)
		return c.Pending() && parent != nil && parent.Placed()
	})
	if f == nil {
		return nil
	}
	return t.state.Capsule(f.Spec.Start.Parent)
}

// assign assigns a pending capsule to another engine.
func (t *liveTurn) assign() [][]orbit.Commitment {
	e := t.anyEngine()
	c := t.capsule(func(c *orbit.Capsule) bool { return c.Pending() && c.Gang() == "" })
	if e == nil || c == nil || e.kind == "gang" || c.Owner() == e.name {
		return nil
	}
	return once(orbit.Assign{Capsule: c.ID, From: c.Owner(), Owner: e.name})
}

// hold holds room for a third party, until some time before the next rest.
func (t *liveTurn) hold() [][]orbit.Commitment {
	n := t.node(anyNode)
	if n == nil {
		return nil
	}
	left := t.left()
	h := orbit.Hold{ID: orbit.HoldID(fmt.Sprint("hold", t.id)), Node: n.Node.ID, For: "a third party"}
	h.Room[orbit.CPU] = max(1, n.Free()[orbit.CPU]-t.r.Int64N(3))
	h.Ends = time.Now().Add(time.Duration(t.r.Int64N(int64(max(left, 1)))))
	return once(h)
}

// nominate nominates a capsule for room on a node, or a gang for room on up to two, whether it is free or not, until some time before
// the next rest or for longer than the world lasts. At times it ends a nomination.
func (t *liveTurn) nominate() [][]orbit.Commitment {
	c := t.capsule((*orbit.Capsule).Pending)
	if c == nil {
		return nil
	}
	do := orbit.Nominate{Capsule: c.ID}
	if c.Gang() != "" {
		do = orbit.Nominate{Gang: c.Gang()}
	}
	if lucky(t.r, 20) {
		return once(do)
	}
	left := t.left()
	do.Aged = int32(t.r.IntN(3))
	if do.Ends = time.Now().Add(time.Hour); lucky(t.r, 50) {
		do.Ends = time.Now().Add(time.Duration(t.r.Int64N(int64(max(left, 1)))))
	}
	most := 1
	if g := t.state.Gang(do.Gang); g != nil {
		most = min(2, len(g.Gang.Roles[0].Members))
	}
	for _, n := range t.nodes {
		if lucky(t.r, 50) || len(do.Parts) == most {
			continue
		}
		part := orbit.NominatedRoom{Node: n.Node.ID, Room: c.Spec.Envelope.Reservation}
		if want := &c.Spec.Devices; want.Count > 0 {
			part.Devices, part.Milli = orbit.DeviceSet(1)<<want.Count-1, want.Milli
		}
		do.Parts = append(do.Parts, part)
	}
	return once(do)
}
