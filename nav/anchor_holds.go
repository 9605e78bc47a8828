package nav

import (
	"cmp"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// anchorHolds are the live holds of all Anchors on the ledger, read again when its revision has changed. They are
// told by their ids, so that an Anchor uses and clears away what others have left.
type anchorHolds struct {
	at orbit.Revision
	// By group, those of a group by the shape of whom they are for, ordered by id.
	of map[string]*heldRoom
	// Groups that have any, in order of their first.
	groups []string
	// On each node.
	on map[orbit.NodeID]int
}

// heldRoom is what is held for one group, ordered by id.
type heldRoom struct {
	all     []*anchorHold
	byShape map[holdShape]*heldAlike
}

// heldAlike are the holds of one shape, of which this plan has used those before next.
type heldAlike struct {
	holds []*anchorHold
	next  int
}

// anchorHold is one hold, for one member.
type anchorHold struct {
	orbit.Hold
	// What this plan has placed in its stead; nil: nothing.
	used *orbit.Spec
}

// holdShape is what a member takes.
type holdShape struct {
	room           orbit.Resources
	devices, milli int
}

// shapeOf returns the shape of a spec's capsules.
func shapeOf(spec *orbit.Spec) holdShape {
	return holdShape{spec.Envelope.Reservation, spec.Devices.Count, spec.Devices.Milli}
}

// read takes over the holds of a state, unless it has.
func (h *anchorHolds) read(state *orbit.State) {
	if h.of != nil && h.at == state.Revision() {
		h.reset()
		return
	}
	*h = anchorHolds{at: state.Revision(), of: map[string]*heldRoom{}, on: map[orbit.NodeID]int{}}
	for hold := range state.HoldsWith(anchorPrefix) {
		if hold.For != "" {
			h.add(&anchorHold{Hold: hold})
		}
	}
}

// reset forgets what the last plan has used: its proposals have not been committed.
func (h *anchorHolds) reset() {
	for _, group := range h.groups {
		for _, hold := range h.of[group].all {
			hold.used = nil
		}
		for _, alike := range h.of[group].byShape { // in any order
			alike.next = 0
		}
	}
}

// add files a hold.
func (h *anchorHolds) add(hold *anchorHold) {
	room := h.of[hold.For]
	if room == nil {
		room = &heldRoom{byShape: map[holdShape]*heldAlike{}}
		h.of[hold.For] = room
		h.groups = append(h.groups, hold.For)
	}
	alike := room.byShape[hold.shape()]
	if alike == nil {
		alike = &heldAlike{}
		room.byShape[hold.shape()] = alike
	}
	alike.holds = append(alike.holds, hold)
	room.all = append(room.all, hold)
	h.on[hold.Node]++
}

// shape returns the shape of whom a hold is for.
func (h *anchorHold) shape() holdShape { return holdShape{h.Room, h.Devices.Len(), h.Milli} }

// live reports whether a hold is still there when the plan is proposed: none of this plan's members has it, and
// the engine does not release it in this pass for its end.
func (p *anchorPass) live(h *anchorHold) bool { return h.used == nil && h.Ends.After(p.view.Now()) }

// serves reports whether a capsule of the spec could be placed in the stead of a hold of its shape: the group
// runs in the domain, the node is still what the spec requires, and still has what the hold takes: its capacity may
// have shrunk since, or its devices become unhealthy.
func (p *anchorPass) serves(g *anchorGroup, h *anchorHold, spec *orbit.Spec) bool {
	n := p.state.Node(h.Node) // is a member: nodes with holds cannot leave
	room := freeRoom(n)
	room.give(&h.Hold, n.Node)
	return room.short(&h.Room) < 0 && room.covers(h.Devices, h.Milli) && p.accepts(n, spec) &&
		p.runsIn(g, spec.Near.Level, anchorDomainOf(p.state, n.Node, spec.Near.Level))
}

// placeFromHold places a member of a group that runs where room is held for it, if it is.
func (p *anchorPass) placeFromHold(g *anchorGroup, c *orbit.Capsule) bool {
	room := p.holds.of[g.name]
	if room == nil || room.byShape[shapeOf(c.Spec)] == nil {
		return false
	}
	alike := room.byShape[shapeOf(c.Spec)]
	for i, h := range alike.holds[alike.next:] {
		if p.live(h) && p.serves(g, h, c.Spec) {
			h.used = c.Spec
			p.members = append(p.members, p.replace(h, c))
			alike.next += btoi(i == 0)
			return true
		}
	}
	return false
}

// replace proposes to place a member in the stead of a hold, in one, so that nobody comes in between.
func (p *anchorPass) replace(h *anchorHold, c *orbit.Capsule) orbit.Proposal {
	domain := p.state.Node(h.Node).Node.Labels[c.Spec.Near.Level]
	return orbit.Proposal{
		View: p.view.Revision(),
		Do: []orbit.Commitment{
			orbit.Release{Hold: h.ID},
			orbit.Place{Capsule: c.ID, Node: h.Node, Devices: h.Devices},
		},
		If: []orbit.Precondition{orbit.GroupIn{Group: c.Spec.Near.Group, Level: c.Spec.Near.Level, Domain: domain}},
	}
}

// releaseLeftovers releases holds that nobody will come for: there are no such members left, wherever they have
// gone, the node has changed, or the group has stopped.
func (p *anchorPass) releaseLeftovers() {
	for _, name := range p.holds.groups {
		g := p.group(name)
		waiting := p.party(g)
		for _, h := range p.holds.of[name].all {
			if p.live(h) && !p.wanted(g, h, waiting) {
				p.releases = append(p.releases, orbit.Proposal{
					View: p.view.Revision(), Do: []orbit.Commitment{orbit.Release{Hold: h.ID}},
				})
			}
		}
	}
}

// wanted reports whether a member still waits that the hold can serve, and counts it as served. It requires that
// those whom this plan has placed are not counted.
func (p *anchorPass) wanted(g *anchorGroup, h *anchorHold, waiting []anchorRole) bool {
	for i := range waiting {
		if w := &waiting[i]; w.count > 0 && w.shape == h.shape() && p.serves(g, h, w.spec) {
			w.count--
			return true
		}
	}
	return false
}

// hold returns the hold for the member at a seat, and whether there can be one: nothing is not held.
func (p *anchorPass) hold(i int, g *anchorGroup, at *anchorSeat) (orbit.Hold, bool) {
	id := fmt.Sprintf("%s%s/%d-%d", anchorPrefix, anchorHash(g.name), p.view.Revision(), i)
	h := orbit.Hold{
		ID: orbit.HoldID(id), Node: at.node.ID, Room: at.spec.Envelope.Reservation, Devices: at.devices,
		Milli: at.spec.Devices.Milli, For: g.name, Ends: p.view.Now().Add(p.holdFor()),
	}
	return h, len(id) <= p.state.Limits().IDBytes && (h.Room != orbit.Resources{} || h.Devices != 0)
}

// holdFor is how long room is held; not at all if negative.
func (a *Anchor) holdFor() time.Duration { return cmp.Or(a.HoldFor, 30*time.Second) }

// btoi makes a count of a condition.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
