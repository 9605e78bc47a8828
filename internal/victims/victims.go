// Package victims finds out which capsules have to leave one node so that another capsule, which fits nowhere, can be placed
// there.
//
//	suppose that all capsules of lower priority leave ─► does the capsule fit now?
//	    ─► put each of them back that fits beside it, the most important first ─► those left over are the victims
//
// The ledger spares victims in the same order, so the victims found here are the ones that it evicts.
package victims

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Search finds the victims for one capsule, on one node after another. Call Begin first, for each capsule.
type Search struct {
	// Gentle says that no gang may be evicted whole.
	Gentle bool
	// Pick chooses the devices for the capsule on a node that has room for it; nil: [orbit.NodeState.PickDevices] does.
	Pick func(*orbit.NodeState, *orbit.Spec) orbit.DeviceSet

	draft *orbit.Draft
	state *orbit.State
	of    *orbit.Capsule
	spec  *orbit.Spec
	// The living nomination of the capsule or of its gang; nil: neither has one.
	own *orbit.Nomination
	// Only capsules of lower priority than this may be evicted.
	ceiling int32
	// The capsules that the draft does not let go from the node that is searched.
	kept map[orbit.CapsuleID]bool
	// Buffers for the node that is searched: capsules without a gang, units, and gangs.
	found []*orbit.Capsule
	units []unit
	gangs []gangHere
}

// Key says how good the victims on a node are: the lowest key is the best.
type Key struct {
	// Refused counts the capsules that would have been victims, but that the draft does not let go; others are victims instead.
	Refused int
	// Highest is the highest priority of a victim; math.MinInt64 if there is no victim. The members of a gang that is evicted
	// whole all count with the priority of its highest role.
	Highest int64
	// Sum is the sum of the victims' priorities, each counted from the lowest one that an int32 holds.
	Sum int64
	// Count is how many victims there are.
	Count int
	// Start is the earliest start of a victim of the highest priority.
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

// Priority returns the highest priority of a victim, math.MinInt32 if there is no victim.
func (k *Key) Priority() int32 { return int32(max(k.Highest, math.MinInt32)) }

// None is the key of a node that has room for the capsule as it is.
var None = Key{Highest: math.MinInt64, Start: math.MaxInt64}

// Weight returns what a victim of this priority adds to Key.Sum.
func Weight(priority int32) int64 { return int64(priority) - math.MinInt32 }

// Start returns when a capsule was placed, as a number to compare. If the placement has no time, it is the revision, which is
// lower than any time in nanoseconds: such a capsule counts as an old one.
func Start(c *orbit.Capsule) int64 { return cmp.Or(int64(c.PlaceTime), int64(c.PlacedAt)) }

// Found is what was found on a node: its victims, and how good they are.
type Found struct {
	Key
	// Node is the node as the draft showed it, with the victims on it.
	Node *orbit.NodeState
	// Devices are the device instances that the capsule takes once the victims have left. Settle sets them.
	Devices orbit.DeviceSet
	// Victims are the capsules that leave, the most important first.
	Victims []*orbit.Capsule
	// Volatile says that the find depends on more than the node, such as a gang's members elsewhere, a nomination, or a budget.
	Volatile bool
}

// Before reports whether f is better than o: by its key, and among equals by the lower node id.
func (f *Found) Before(o *Found) bool {
	c := f.Compare(&o.Key)
	return c < 0 || c == 0 && f.Node.Node.ID < o.Node.Node.ID
}

// unit is what leaves or stays together: one capsule, or a whole gang.
type unit struct {
	priority int32
	start    int64
	// Nil: it is one capsule.
	gang *gangHere
	// The capsule, or one member of the gang.
	capsule *orbit.Capsule
}

// gangHere is a gang with members on the node that is searched.
type gangHere struct {
	state *orbit.GangState
	// How many members of each role may leave without breaking the role's minimum.
	surplus []int
	// The members on the node that may leave.
	here []*orbit.Capsule
	// All placed members, on any node; nil: the gang may not be evicted whole.
	all []*orbit.Capsule
	// The priority of its highest role.
	highest int32
}

// Begin begins the search for victims of a capsule. The draft must have been synced with a view.
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

// Ceiling returns the lowest priority that is safe from eviction for this capsule: only capsules below it may be victims. It is
// the capsule's own priority, or the lowest of its gang's roles, or TruceFrom of the ledger's limits if the truce covers that.
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

// Evict returns the commitment that evicts a victim for the capsule, or for its gang.
func (s *Search) Evict(victim *orbit.Capsule) orbit.Evict {
	e := orbit.Evict{Capsule: victim.ID, From: victim.Node, Since: victim.PlacedAt}
	if s.of.Gang == "" {
		e.For = s.of.ID
	} else {
		e.ForGang = s.of.Gang
	}
	return e
}

// On finds the victims on a node; false: no evictions make the capsule fit there. On does not ask the draft whether it lets the
// victims go; Settle does.
func (s *Search) On(n *orbit.NodeState) (f Found, ok bool) {
	clear(s.kept)
	return s.on(n)
}

// on is On, without the capsules in kept as victims.
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

// gather lists the capsules that may leave the node. It reports whether the list depends on more than the node.
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

// gang returns what is known of a gang with members on the node. The first call for a gang looks at all of its members.
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
	if slices.Min(g.surplus) < 0 { // a gang below a minimum already can only be evicted whole
		clear(g.surplus)
	}
	s.gangs = append(s.gangs, g)
	return &s.gangs[len(s.gangs)-1]
}

// least returns the minimum of a role: how many members have to run if any does.
func least(r *orbit.Role) int { return cmp.Or(r.Min, len(r.Members)) }

// single makes a unit of each capsule that may leave alone. Of a gang these are the members beyond the minimum of their role.
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

// beyond adds a unit for each member on the node that its gang can do without. Of each role the newest members are taken.
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

// wholeGangs makes the units anew: a gang that may be evicted whole is one unit, all else is as single makes it. It reports
// whether there is such a gang.
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

// compare puts the more important unit first: the higher priority, then a gang before a capsule, a larger gang before a smaller
// one, and the one that started earlier.
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

// tryUnits takes all units off the node, puts back those beside which the capsule still fits, and enters the others into f as
// victims. It reports false if the capsule does not fit even without all units.
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

// here returns the capsules of a unit that are on the node.
func (u *unit) here() []*orbit.Capsule {
	if u.gang != nil {
		return u.gang.here
	}
	return []*orbit.Capsule{u.capsule}
}

// stay puts back the capsules of a unit that fit, and returns those that leave, and the priority with which they count as victims.
// If a role of a gang would be left with less than its minimum, all placed members leave.
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

// add adds a victim that counts with this priority.
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

// Settle asks the draft whether it lets the victims go, which a budget may forbid. While the draft refuses one, Settle searches
// victims without that one, and enters them into f. It reports false if no victims are left that would do. The draft stays as it
// was.
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

// pick chooses the devices that the capsule takes on a node with room for it.
func (s *Search) pick(n *orbit.NodeState) orbit.DeviceSet {
	if s.Pick != nil {
		return s.Pick(n, s.spec)
	}
	set, _ := n.PickDevices(s.spec) // no error: the node has room
	return set
}

// evict evicts the victims on the draft, the least important first, and returns the first one that the draft does not let go;
// nil: it lets all go.
func (s *Search) evict(victims []*orbit.Capsule) (refused *orbit.Capsule) {
	for _, v := range slices.Backward(victims) {
		if s.draft.Evict(s.Evict(v)) != nil {
			return v
		}
	}
	return nil
}

// room is what the capsule may use on a node: what is free, less the room nominated there for others that outrank it.
type room struct {
	free    orbit.Resources
	devices [orbit.MaxDevices]int32
	healthy orbit.DeviceSet
}

// roomOf returns the room of a node, and marks the find as volatile if there are nominations.
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

// take subtracts what a capsule takes; with the sign -1 it gives that back.
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

// btoi returns 1 for true and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
