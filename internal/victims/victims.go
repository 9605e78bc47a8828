// Package victims finds out who has to make way on one node for a capsule that fits nowhere.
//
//	all of lower priority leave ─► does it fit? ─► in order of importance each comes back that fits beside it ─► the others
//
// That is the order in which the ledger spares whom it can, so what is found here is what it evicts.
package victims

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Search looks for victims for one capsule, on one node after another. Begin begins it.
type Search struct {
	// Gentle leaves gangs alone that would be evicted whole.
	Gentle bool
	// Pick chooses devices on a node that takes the capsule; nil: [orbit.NodeState.PickDevices].
	Pick func(*orbit.NodeState, *orbit.Spec) orbit.DeviceSet

	draft *orbit.Draft
	state *orbit.State
	of    *orbit.Capsule
	spec  *orbit.Spec
	// The nomination of the capsule or of its gang, if one lives.
	own *orbit.Nomination
	// All of lower priority may be evicted for it.
	ceiling int32
	// Whom the draft does not let go from the node that is looked at.
	kept map[orbit.CapsuleID]bool
	// Memory for one node.
	found []*orbit.Capsule
	units []unit
	gangs []gangHere
}

// Key orders what was found on nodes: the least comes first.
type Key struct {
	// Refused counts the capsules that would have made way, and that the draft did not let go: others do instead.
	Refused int
	// Highest is the highest priority of a victim; math.MinInt64: there is none. A gang that is evicted whole has that of its
	// highest role.
	Highest int64
	// Sum adds up the priorities of the victims, each counted from the least that there is.
	Sum int64
	// Count is how many victims there are.
	Count int
	// Start is when the first began of those of the highest priority.
	Start int64
}

// Compare orders keys: fewest refused, lowest highest victim, least sum, fewest victims, and then the latest start.
func (k *Key) Compare(o *Key) int {
	switch {
	case k.Refused != o.Refused:
		return cmp.Compare(k.Refused, o.Refused)
	case k.Highest != o.Highest:
		return cmp.Compare(k.Highest, o.Highest)
	case k.Sum != o.Sum:
		return cmp.Compare(k.Sum, o.Sum)
	case k.Count != o.Count:
		return cmp.Compare(k.Count, o.Count)
	}
	return cmp.Compare(o.Start, k.Start)
}

// Priority is the highest priority of a victim, math.MinInt32 if there is none.
func (k *Key) Priority() int32 { return int32(max(k.Highest, math.MinInt32)) }

// None is the key of a node that takes the capsule as it is.
var None = Key{Highest: math.MinInt64, Start: math.MaxInt64}

// Weight is what a victim adds to Key.Sum.
func Weight(priority int32) int64 { return int64(priority) - math.MinInt32 }

// Start is when a capsule was placed, for comparing. Where no time was said it is the revision, which is less than any time: what is
// unknown counts as old.
func Start(c *orbit.Capsule) int64 { return cmp.Or(int64(c.PlaceTime), int64(c.PlacedAt)) }

// Found is who makes way on a node.
type Found struct {
	Key
	// Node is the node as the draft had it.
	Node *orbit.NodeState
	// Devices are the instances that the capsule takes then; only after Settle.
	Devices orbit.DeviceSet
	// Victims are those that leave, most important first.
	Victims []*orbit.Capsule
	// Volatile says that it rests on more than what is on the node.
	Volatile bool
}

// Before reports whether f is better than o.
func (f *Found) Before(o *Found) bool {
	c := f.Compare(&o.Key)
	return c < 0 || c == 0 && f.Node.Node.ID < o.Node.Node.ID
}

// unit is what leaves or stays together: a capsule, or a gang of which all that is placed would leave.
type unit struct {
	priority int32
	start    int64
	// Nil: one capsule.
	gang    *gangHere
	capsule *orbit.Capsule
}

// gangHere is a gang with members on the node that is looked at.
type gangHere struct {
	state *orbit.GangState
	// Of each role, how many members may leave and leave its minimum.
	surplus []int
	here    []*orbit.Capsule
	// All that are placed; nil: the gang may not be evicted whole.
	all     []*orbit.Capsule
	highest int32
}

// Begin makes it a search for a capsule on a draft that has a view.
func (s *Search) Begin(draft *orbit.Draft, c *orbit.Capsule) {
	s.draft, s.state, s.of, s.spec = draft, draft.View().State(), c, c.Spec
	s.ceiling, s.own = Ceiling(s.state, c), c.Nomination
	if g := s.state.Gang(c.Gang); g != nil && !s.own.Lives() {
		s.own = g.Nomination
	}
	if !s.own.Lives() {
		s.own = nil
	}
}

// Ceiling returns the priority from which on nothing is evicted for a capsule. A gang evicts with that of its lowest role.
func Ceiling(state *orbit.State, c *orbit.Capsule) int32 {
	priority := c.Spec.Priority
	if g := state.Gang(c.Gang); g != nil {
		for i := range g.Gang.Roles {
			priority = min(priority, g.Gang.Roles[i].Spec.Priority)
		}
	}
	if l := state.Limits(); priority <= l.TruceTo {
		priority = min(priority, l.TruceFrom)
	}
	return priority
}

// Evict is the commitment with which a victim makes way for the capsule, or for its gang.
func (s *Search) Evict(victim *orbit.Capsule) orbit.Evict {
	e := orbit.Evict{Capsule: victim.ID, From: victim.Node, Since: victim.PlacedAt}
	if s.of.Gang == "" {
		e.For = s.of.ID
	} else {
		e.ForGang = s.of.Gang
	}
	return e
}

// On finds out who makes way on a node; false: the node does not take the capsule whoever leaves. The draft has not been asked
// whether it lets them go.
func (s *Search) On(n *orbit.NodeState) (f Found, ok bool) {
	clear(s.kept)
	return s.on(n)
}

func (s *Search) on(n *orbit.NodeState) (f Found, ok bool) {
	if s.draft.Misfit(&orbit.NodeState{Node: n.Node}, s.spec) != (orbit.Misfit{}) {
		return f, false
	}
	f.Volatile = s.gather(n)
	r := s.roomOf(n, &f)
	s.single()
	if !s.tryUnits(r, &f) {
		if s.Gentle || !s.wholeGangs() || !s.tryUnits(r, &f) {
			return f, false
		}
	}
	f.Node, f.Refused = n, len(s.kept)
	return f, true
}

// gather lists what may leave the node. It reports whether that rests on more than the node.
func (s *Search) gather(n *orbit.NodeState) (volatile bool) {
	s.found, s.gangs = s.found[:0], s.gangs[:0]
	for v := range s.state.On(n.Node.ID) {
		if v.Spec.Priority >= s.ceiling || s.kept[v.ID] || v.Gang != "" && v.Gang == s.of.Gang || s.draft.Uses(v.ID) ||
			s.spec.Near.Group != "" && v.Spec.Group == s.spec.Near.Group {
			continue
		}
		if v.Gang != "" {
			volatile = true
			g := s.gang(v.Gang)
			g.here = append(g.here, v)
			continue
		}
		s.found = append(s.found, v)
	}
	return volatile
}

// gang returns a gang with members on the node.
func (s *Search) gang(id orbit.GangID) *gangHere {
	for i := range s.gangs {
		if s.gangs[i].state.Gang.ID == id {
			return &s.gangs[i]
		}
	}
	g := gangHere{state: s.state.Gang(id), highest: math.MinInt32}
	g.surplus = make([]int, len(g.state.Gang.Roles))
	whole := true
	for i := range g.state.Gang.Roles {
		role := &g.state.Gang.Roles[i]
		g.highest = max(g.highest, role.Spec.Priority)
		for _, member := range role.Members {
			c := s.state.Capsule(member)
			if c == nil || c.Gang != id || !c.Placed() {
				continue
			}
			if s.draft.Uses(member) || s.kept[member] {
				whole = false
			}
			if !s.draft.Uses(member) {
				g.surplus[i]++
			}
			g.all = append(g.all, c)
		}
		g.surplus[i] -= least(role)
	}
	if !whole || g.highest >= s.ceiling {
		g.all = nil
	}
	if slices.Min(g.surplus) < 0 { // a gang that lacks members loses no other but all
		clear(g.surplus)
	}
	s.gangs = append(s.gangs, g)
	return &s.gangs[len(s.gangs)-1]
}

// least is how many members of a role run at least.
func least(r *orbit.Role) int { return cmp.Or(r.Min, len(r.Members)) }

// single makes units of those that may leave each for itself: members of gangs only beyond the minimum of their role.
func (s *Search) single() {
	s.units = s.units[:0]
	for _, v := range s.found {
		s.units = append(s.units, unit{priority: v.Spec.Priority, start: Start(v), capsule: v})
	}
	for i := range s.gangs {
		s.beyond(&s.gangs[i])
	}
	slices.SortFunc(s.units, (unit).compare)
}

// beyond adds the members of a gang on the node that it can do without, least important first.
func (s *Search) beyond(g *gangHere) {
	for i := range g.state.Gang.Roles {
		here := slices.DeleteFunc(slices.Clone(g.here), func(c *orbit.Capsule) bool {
			return !slices.Contains(g.state.Gang.Roles[i].Members, c.ID)
		})
		slices.SortFunc(here, func(a, b *orbit.Capsule) int {
			return cmp.Or(cmp.Compare(Start(b), Start(a)), cmp.Compare(b.ID, a.ID))
		})
		for _, v := range here[:min(len(here), g.surplus[i])] {
			s.units = append(s.units, unit{priority: v.Spec.Priority, start: Start(v), capsule: v})
		}
	}
}

// wholeGangs makes units of the gangs that may be evicted whole, beside those that leave for themselves. It reports whether there
// are any.
func (s *Search) wholeGangs() (there bool) {
	s.units = s.units[:0]
	for _, v := range s.found {
		s.units = append(s.units, unit{priority: v.Spec.Priority, start: Start(v), capsule: v})
	}
	for i := range s.gangs {
		g := &s.gangs[i]
		if g.all == nil {
			s.beyond(g)
			continue
		}
		there = true
		u := unit{priority: g.highest, start: math.MaxInt64, gang: g, capsule: g.all[0]}
		for _, m := range g.all {
			u.start = min(u.start, Start(m))
		}
		s.units = append(s.units, u)
	}
	slices.SortFunc(s.units, (unit).compare)
	return there
}

// compare orders units, the most important first: by priority, a gang before a capsule, a larger gang before a smaller one, and then
// by age.
func (u unit) compare(o unit) int {
	size := func(u unit) int {
		if u.gang == nil {
			return 0
		}
		return len(u.gang.all)
	}
	return cmp.Or(cmp.Compare(o.priority, u.priority), cmp.Compare(size(o), size(u)), cmp.Compare(u.start, o.start),
		cmp.Compare(u.capsule.ID, o.capsule.ID))
}

// tryUnits takes all units off the node and puts those back that may stay. It reports false if the capsule does not fit even
// without them.
func (s *Search) tryUnits(r room, f *Found) bool {
	for _, u := range s.units {
		for _, v := range u.here() {
			r.take(v, -1)
		}
	}
	if !r.fits(s.spec) {
		return false
	}
	f.Key, f.Victims = None, nil
	for _, u := range s.units {
		leave, priority := u.stay(&r, s.spec)
		for _, v := range leave {
			f.add(v, priority)
		}
	}
	return true
}

// here are those of a unit that are on the node.
func (u *unit) here() []*orbit.Capsule {
	if u.gang != nil {
		return u.gang.here
	}
	return []*orbit.Capsule{u.capsule}
}

// stay puts a unit back as far as it fits, and returns who leaves, and of which priority that is. Of a gang all leave that are
// placed if some role would keep less than its minimum.
func (u *unit) stay(r *room, spec *orbit.Spec) (leave []*orbit.Capsule, priority int32) {
	var back []*orbit.Capsule
	for _, v := range u.here() {
		if r.take(v, 1); r.fits(spec) {
			back = append(back, v)
		} else {
			r.take(v, -1)
			leave = append(leave, v)
		}
	}
	if u.gang == nil || len(leave) == 0 {
		return leave, u.priority
	}
	for i := range u.gang.state.Gang.Roles {
		role := &u.gang.state.Gang.Roles[i]
		remain := u.gang.state.Placed[i]
		for _, v := range leave {
			remain -= btoi(slices.Contains(role.Members, v.ID))
		}
		if remain < least(role) {
			for _, v := range back {
				r.take(v, -1)
			}
			return u.gang.all, u.priority
		}
	}
	return leave, leave[0].Spec.Priority
}

// add adds a victim.
func (f *Found) add(v *orbit.Capsule, priority int32) {
	f.Victims = append(f.Victims, v)
	f.Sum += Weight(v.Spec.Priority)
	f.Count++
	switch at := int64(priority); {
	case at > f.Highest:
		f.Highest, f.Start = at, Start(v)
	case at == f.Highest:
		f.Start = min(f.Start, Start(v))
	}
}

// Settle asks the draft whether it lets the victims go, which a budget may forbid, and looks for others while it does not. It
// reports false if nobody else will do. The draft is as before.
func (s *Search) Settle(f *Found) (ok bool) {
	clear(s.kept)
	for {
		start := s.draft.Checkpoint()
		refused := s.evict(f.Victims)
		if refused == nil {
			n := s.draft.Node(f.Node.Index())
			if ok = n.Fits(s.spec); ok {
				f.Devices = s.pick(n)
			}
			s.draft.Rollback(start)
			return ok
		}
		s.draft.Rollback(start)
		if s.kept == nil {
			s.kept = map[orbit.CapsuleID]bool{}
		}
		s.kept[refused.ID] = true
		next, ok := s.on(f.Node)
		if !ok {
			return false
		}
		next.Volatile = true
		*f = next
	}
}

func (s *Search) pick(n *orbit.NodeState) orbit.DeviceSet {
	if s.Pick != nil {
		return s.Pick(n, s.spec)
	}
	set, _ := n.PickDevices(s.spec) // it fits
	return set
}

// evict evicts victims on the draft, the least important first, and returns the first that the draft does not let go.
func (s *Search) evict(victims []*orbit.Capsule) (refused *orbit.Capsule) {
	for _, v := range slices.Backward(victims) {
		if s.draft.Evict(s.Evict(v)) != nil {
			return v
		}
	}
	return nil
}

// room is what is free on a node beside what is nominated there for those that outrank the capsule.
type room struct {
	free    orbit.Resources
	devices [orbit.MaxDevices]int32
	healthy orbit.DeviceSet
}

// roomOf returns the room of a node.
func (s *Search) roomOf(n *orbit.NodeState, f *Found) (r room) {
	r.free = n.Free()
	if s.spec.Devices.Count > 0 {
		for i := range n.Node.Devices.Count {
			r.devices[i] = int32(n.DeviceFree(i))
		}
		r.healthy = orbit.DeviceSet(1<<n.Node.Devices.Count-1) &^ n.Node.Devices.Unhealthy
	}
	for of, part := range n.Nominated {
		f.Volatile = true
		if !of.OutranksPriority(s.spec.Priority) || s.own != nil && !of.Outranks(s.own) {
			continue
		}
		for d, x := range part.Room {
			r.free[d] -= x
		}
		for i := range r.devices {
			r.devices[i] -= int32(btoi(part.Devices.Has(i)) * part.Milli)
		}
	}
	return r
}

// take takes the room of a capsule, or gives it back with -1.
func (r *room) take(v *orbit.Capsule, sign int64) {
	for d, x := range v.Spec.Envelope.Reservation {
		r.free[d] -= sign * x
	}
	if v.Devices == 0 {
		return
	}
	for i := range r.devices {
		if v.Devices.Has(i) {
			r.devices[i] -= int32(sign) * int32(v.Spec.Devices.Milli)
		}
	}
}

// fits reports whether there is room for a spec.
func (r *room) fits(spec *orbit.Spec) bool {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 && want > r.free[d] {
			return false
		}
	}
	open := 0
	for i, free := range r.devices {
		open += btoi(r.healthy.Has(i) && int(free) >= spec.Devices.Milli)
	}
	return open >= spec.Devices.Count
}

// btoi makes a count of a condition.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
