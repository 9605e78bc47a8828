package race

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// judge checks whether a world has come to rest as it should. Began is the time at which the rest began.
func (w *livePlay) judge(state *orbit.State, began time.Duration) {
	b := newLiveBooks(state, w)
	for c := range state.Capsules() {
		if c.Pending() && c.Gang() == "" {
			b.judgeCapsule(c)
		}
	}
	for g := range state.Gangs() {
		b.judgeGang(g)
	}
	for h := range state.Holds() {
		w.fail("restless", "hold %s for %q on %s is still there %v after the last event", h.ID, h.For, h.Node, w.draft.within)
	}
	if sent := w.sent - began; sent > w.draft.within*3/4 {
		w.fail("restless", "a proposal was sent %v after the last event", sent)
	}
}

// liveBooks is a state at rest, whose free capacity has been counted again, capsule by capsule.
type liveBooks struct {
	*livePlay
	state *orbit.State
	rooms []room
	// tenants are the capsules on all nodes, for the rules of company.
	tenants []tenant
}

func newLiveBooks(state *orbit.State, w *livePlay) *liveBooks {
	b := &liveBooks{livePlay: w, state: state, rooms: roomsOf(state), tenants: tenantsOf(state)}
	for i := range b.rooms {
		if r := &b.rooms[i]; w.board != nil {
			r.report, r.heard = w.board.Latest(r.ID)
			r.report.Stale = time.Since(r.report.Received) >= staleLive
		}
	}
	return b
}

// owner returns the engine that places a capsule; nil: there is none.
func (b *liveBooks) owner(c *orbit.Capsule) *liveEngine {
	if c.Owner() != "" {
		return b.engine(c.Owner())
	}
	switch c.Spec.Class {
	case orbit.Batch:
		return b.engine("batch")
	case orbit.GangClass:
		return b.engine("gang")
	}
	return b.engine("services")
}

// judgeCapsule fails the world if a pending capsule fits on a node.
func (b *liveBooks) judgeCapsule(c *orbit.Capsule) {
	e := b.owner(c)
	if e == nil || e.kind == "gang" {
		return
	}
	defer b.leave(c.Nomination(), c.Spec.Priority)()
	for i := range b.rooms {
		r := &b.rooms[i]
		if !r.takes(c.Spec) || !b.company(e, c, r) || !b.allowed(e, c, r) || !b.admits(nil, tenant{c.Spec, r.Node}) {
			continue
		}
		b.fail("left", "capsule %s of engine %s (%s) is pending and fits on %v; the engine last said: %v",
			c.ID, e.name, wishes(c.Spec), r, b.why[c.ID])
		return
	}
	if e.preempting && len(c.Spec.Extras) == 0 {
		b.judgeEvictions(e, c)
	}
}

// judgeEvictions fails the world if a pending capsule fits on a node once capsules of lower priority there are evicted,
// which nothing forbids.
func (b *liveBooks) judgeEvictions(e *liveEngine, c *orbit.Capsule) {
	if c.Spec.Start.Template != "" || c.Spec.Start.Parent != "" || c.Begun || c.Remains() != nil {
		return
	}
	for i := range b.rooms {
		r := b.rooms[i]
		r.milli = slices.Clone(r.milli)
		var victims []*orbit.Capsule
		for v := range b.state.On(r.ID) {
			if b.mayEvict(v, c, r.Node) {
				victims = append(victims, v)
				r.give(v.Spec, v.Devices)
			}
		}
		if r.takes(c.Spec) && b.company(&liveEngine{}, c, &r) && b.allowed(e, c, &r) && b.admits(victims, tenant{c.Spec, r.Node}) { // nothing is evicted for the anchor of a group
			b.fail("left", "capsule %s of engine %s (%s) is pending and fits on %v if capsules of lower priority are evicted there; the engine last said: %v",
				c.ID, e.name, wishes(c.Spec), &b.rooms[i], b.why[c.ID])
			return
		}
	}
}

// mayEvict reports whether nothing forbids to evict a capsule for another one. It counts too few: none of a gang, none
// under a budget, none of another queue, and none of the group near which the other one must be.
func (b *liveBooks) mayEvict(v, c *orbit.Capsule, on *orbit.Node) bool {
	for range b.state.BudgetsOf(v.Spec) {
		return false
	}
	for near := range c.Spec.AllNear {
		if v.Spec.IsIn(near.Group) {
			return false
		}
	}
	if v.Spec.Queue != c.Spec.Queue && v.Spec.Queue != "" && c.Spec.Queue != "" {
		return false
	}
	return v.Spec.Priority < c.Spec.Priority && v.Gang() == "" && b.state.Protected(v.ID) == 0 && (!v.Begun || on.Confirms) && v.Borrows() == nil
}

// leave subtracts from the rooms what is nominated for work that outranks a pending capsule or gang. It returns a
// function that undoes this. Own is the nomination of the pending work itself, which may be nil or over.
func (b *liveBooks) leave(own *orbit.Nomination, priority int32) func() {
	all := b.rooms
	b.rooms = slices.Clone(all)
	for n := range b.state.Nominations() {
		first := n.Rank >= priority
		if own.Lives() {
			first = cmp.Or(cmp.Compare(own.Rank, n.Rank), cmp.Compare(n.First, own.First), cmp.Compare(n.Gang, own.Gang), cmp.Compare(n.Capsule, own.Capsule)) < 0
		}
		for i := range n.Parts {
			if r := b.room(n.Parts[i].Node); first && r != nil {
				part := &n.Parts[i]
				r.milli = slices.Clone(r.milli)
				r.take(&orbit.Spec{Envelope: orbit.Envelope{Reservation: part.Room}, Devices: orbit.DeviceRequest{Milli: part.Milli}}, part.Devices)
			}
		}
	}
	return func() { b.rooms = all }
}

// company reports whether a node is near the capsule's Near group, by the rule that its navigator documents.
func (b *liveBooks) company(e *liveEngine, c *orbit.Capsule, r *room) bool {
	near := c.Spec.Near
	for rule := range c.Spec.AllNear {
		if (rule != near || near.Level == orbit.NodeKey) && !keepsNear(rule, append(slices.Clip(b.tenants), tenant{c.Spec, r.Node}), tenant{c.Spec, r.Node}) {
			return false
		}
	}
	if near.Group == "" || near.Level == orbit.NodeKey {
		return true
	}
	domain := r.Labels[near.Level]
	if domain == "" {
		return false
	}
	runs := false
	for i := range b.rooms {
		other := &b.rooms[i]
		if slices.Contains(other.groups, near.Group) {
			runs = true
			if other.Labels[near.Level] == domain {
				return true
			}
		}
	}
	if runs || !e.anchored || near.Group != c.Spec.Group {
		return false
	}
	return !r.claimed || e.selfMatch && b.onlyItself(near.Group)
}

// onlyItself reports whether every pending capsule that is a member of a group or wants to be near it is both, and wants
// to be near no other.
func (b *liveBooks) onlyItself(group string) bool {
	for c := range b.state.Capsules() {
		waits, others := waitsFor(c.Spec, group)
		if c.Pending() && (c.Spec.IsIn(group) != waits || waits && others) {
			return false
		}
	}
	return true
}

// waitsFor reports whether a capsule of the spec has to be near a group, and whether near others.
func waitsFor(spec *orbit.Spec, group string) (waits, others bool) {
	for near := range spec.AllNear {
		waits, others = waits || near.Group == group, others || near.Group != group
	}
	return waits, others
}

// allowed reports whether the navigator of an engine may place a capsule on a node on which it fits.
func (b *liveBooks) allowed(e *liveEngine, c *orbit.Capsule, r *room) bool {
	if e.kind == "warm" {
		return b.starts(e, c, r)
	}
	return !e.filter || b.board == nil || !r.report.Stale && r.report.CPUPercent <= 90
}

// starts reports whether sandbox.Warm may start a capsule on a node, by the rule that it documents.
func (b *liveBooks) starts(e *liveEngine, c *orbit.Capsule, r *room) bool {
	start := c.Spec.Start
	if start.Parent != "" {
		parent := b.state.Capsule(start.Parent)
		gone := parent == nil || parent.Released()
		switch {
		case gone && c.PlacedAt == 0, !gone && parent.Node == "":
			return false
		case !gone && (parent.Node == r.ID) == start.CrossHost:
			return false
		}
	}
	if b.board == nil {
		return len(start.Volumes) == 0
	}
	if !r.heard || r.report.Stale && !e.allowStale || start.Template != "" && !slices.Contains(r.report.Templates, start.Template) {
		return false
	}
	for _, v := range start.Volumes {
		if !slices.Contains(r.report.Volumes, v) {
			return false
		}
	}
	return int64(r.report.FreeSlots) >= max(1, c.Spec.Envelope.Reservation[orbit.Slots])
}

// judgeGang fails the world if a pending gang fits at its minimum, or if one more member of a running gang fits.
func (b *liveBooks) judgeGang(g *orbit.GangState) {
	var waiting []*orbit.Capsule
	var running []*room
	ambiguous := false // the minimum of a role can be reached in several ways, because its members have other specs by now
	var least, others []*orbit.Spec
	for k := range g.Gang.Roles {
		role := &g.Gang.Roles[k]
		var specs []*orbit.Spec // of the members that wait
		left := 0               // members that are not done
		for _, id := range role.Members {
			switch c := b.state.Capsule(id); {
			case c == nil || c.Gang() != g.Gang.ID:
			case c.Placed():
				running = append(running, b.room(c.Node))
				left++
			case c.Pending():
				waiting, specs = append(waiting, c), append(specs, c.Spec)
				left++
			}
		}
		needed := min(cmp.Or(role.Min, left), left)
		if len(specs) == left { // else the gang runs
			order := slices.Clone(specs)
			slices.SortStableFunc(specs, func(a, b *orbit.Spec) int { return cmp.Compare(slices.Index(order, a), slices.Index(order, b)) })
			ambiguous = ambiguous || needed < left && len(slices.Compact(slices.Clone(specs))) > 1
			least, others = append(least, specs[:needed]...), append(others, specs[needed:]...)
		}
	}
	if len(waiting) == 0 || b.owner(waiting[0]) == nil || b.owner(waiting[0]).kind != "gang" {
		return
	}
	defer b.leave(g.Nomination, math.MinInt32)() // a gang without a nomination leaves all nominated room alone
	if len(running) == 0 {
		if ambiguous {
			return
		}
		for members := range enough(least, others, min(g.Gang.Min, len(waiting))) {
			if domain, where := seatGang(g.Gang, b.rooms, b.tenants, members); where != nil && b.admits(nil, b.seated(members, where)...) {
				b.fail("left", "gang %s is pending, and %d members, which are enough to start, fit in %q on %v; the engine last said: %v",
					g.Gang.ID, len(members), domain, where, b.why[waiting[0].ID])
			}
		}
		return
	}
	b.judgeRepair(g, waiting)
	for _, c := range waiting {
		for i := range b.rooms {
			if r := &b.rooms[i]; r.takes(c.Spec) && b.joins(g.Gang, running, r) && b.keeps(tenant{c.Spec, r.Node}) && b.admits(nil, tenant{c.Spec, r.Node}) {
				b.fail("left", "member %s (%s) of gang %s, which runs, is pending and fits on %v; the engine last said: %v",
					c.ID, wishes(c.Spec), g.Gang.ID, r, b.why[c.ID])
			}
		}
	}
}

// enough yields the ways to have at least so many members: those that are needed, and as many of the others as it takes.
// The others are grouped by spec.
func enough(needed, others []*orbit.Spec, least int) iter.Seq[[]*orbit.Spec] {
	return func(yield func([]*orbit.Spec) bool) {
		if len(needed) >= least {
			yield(needed)
			return
		}
		for i := range others {
			if i > 0 && others[i] == others[i-1] { // as good as the one before
				continue
			}
			for members := range enough(append(slices.Clip(needed), others[i]), others[i+1:], least) {
				if !yield(members) {
					return
				}
			}
		}
	}
}

// judgeRepair fails the world if a broken gang, of which nothing forbids to move a member, fits in a domain with all its
// members once those that run have left.
func (b *liveBooks) judgeRepair(g *orbit.GangState, waiting []*orbit.Capsule) {
	if b.owner(waiting[0]).repair == 0 || !g.Broken() {
		return
	}
	rooms, tenants := slices.Clone(b.rooms), slices.Clone(b.tenants)
	silent := slices.ContainsFunc(rooms, func(r room) bool { return !r.Confirms }) // takes no member that has to stop elsewhere first
	var all []*orbit.Spec
	var running []*orbit.Capsule
	for c := range b.state.Members(g.Gang.ID) {
		for range b.state.BudgetsOf(c.Spec) {
			return
		}
		if c.Released() {
			continue
		}
		if silent && (c.Begun || c.Remains() != nil) {
			return
		}
		if all = append(all, c.Spec); !c.Placed() {
			continue
		}
		running = append(running, c)
		at := slices.IndexFunc(rooms, func(r room) bool { return r.ID == c.Node })
		if len(c.Spec.Extras) > 0 || b.state.Protected(c.ID) > 0 {
			return
		}
		rooms[at].milli = slices.Clone(rooms[at].milli)
		rooms[at].give(c.Spec, c.Devices)
		tenants = slices.Delete(tenants, slices.Index(tenants, tenant{c.Spec, rooms[at].Node}), slices.Index(tenants, tenant{c.Spec, rooms[at].Node})+1)
	}
	if domain, where := seatGang(g.Gang, rooms, tenants, all); where != nil && b.admits(running, b.seated(all, where)...) {
		b.fail("left", "gang %s is broken, and all its %d members fit in %q on %v once they leave their nodes; the engine last said: %v",
			g.Gang.ID, len(all), domain, where, b.why[waiting[0].ID])
	}
}

// seated returns members on the nodes on which they fit.
func (b *liveBooks) seated(members []*orbit.Spec, where []orbit.NodeID) (out []tenant) {
	for i, spec := range members {
		out = append(out, tenant{spec, b.room(where[i]).Node})
	}
	return out
}

func (b *liveBooks) room(id orbit.NodeID) *room {
	for i := range b.rooms {
		if b.rooms[i].ID == id {
			return &b.rooms[i]
		}
	}
	return nil
}

// keeps reports whether a newcomer keeps all rules of company.
func (b *liveBooks) keeps(newcomer tenant) bool {
	return keepsApart(b.tenants, newcomer) && keepEven(b.rooms, b.tenants, []tenant{newcomer}) && keepNear(b.tenants, []tenant{newcomer})
}

// joins reports whether a member on a node would be in a domain of the gang with all running members.
func (b *liveBooks) joins(g *orbit.Gang, running []*room, r *room) bool {
	if anywhere(g) {
		return true
	}
	return slices.ContainsFunc(g.Levels, func(level string) bool {
		domain := r.Labels[level]
		apart := func(other *room) bool { return other.Labels[level] != domain }
		return domain != "" && !slices.ContainsFunc(running, apart)
	})
}
