package nav

import (
	"fmt"
	"math"

	"github.com/orbitsched/orbit"
)

// anchorRooms is every node as the plan sees it: as the view shows it, less what the plan has given away. It
// follows the view by what has changed, and only in plans that start a group.
type anchorRooms struct {
	view   *orbit.View
	cursor uint64
	nodes  []anchorRoom
	levels map[string]*anchorLevel
	// Rises with every look at a level.
	clock uint64
	// Nodes of which this plan has given something away; to be loaded again.
	touched []int
}

// anchorRoom is one node.
type anchorRoom struct {
	// Nil: no such node.
	node *orbit.NodeState
	nodeRoom
	claim anchorClaim
}

// anchorClaim says whether a group has a part in a node. It is looked up when it is asked for.
type anchorClaim uint8

const (
	claimUnknown anchorClaim = iota
	unclaimed
	// Hosts a member of some group, or will by this plan.
	claimHosted
	// Has room held for one, or will by this plan.
	claimHeld
)

// sync follows the view.
func (r *anchorRooms) sync(view *orbit.View) {
	if view != r.view {
		*r = anchorRooms{view: view}
	}
	changed, next, all := view.Changed(r.cursor)
	r.cursor = next
	for bound := view.State().NodeBound(); len(r.nodes) < bound; {
		r.nodes = append(r.nodes, anchorRoom{})
	}
	if all {
		for i := range r.nodes {
			r.load(i)
		}
	}
	for _, i := range changed {
		r.load(int(i))
	}
	for _, i := range r.touched {
		r.load(i)
	}
	r.touched = r.touched[:0]
}

// load takes over a node as the view shows it.
func (r *anchorRooms) load(i int) {
	n := r.view.State().NodeByIndex(i)
	room := anchorRoom{node: n}
	if n != nil {
		room.nodeRoom = freeRoom(n)
	}
	r.nodes[i] = room
	for _, l := range r.levels { // in any order
		l.move(r, i)
	}
}

// own returns a node for the plan to give something of it away.
func (r *anchorRooms) own(i int) *anchorRoom {
	r.touched = append(r.touched, i)
	for _, l := range r.levels { // in any order
		l.spoil(i)
	}
	return &r.nodes[i]
}

// anchorLevel is the domains of one level and what is free of them, kept for levels that groups have asked for. It may
// be several levels together: then nodes are in one domain if they are in the same one at each.
type anchorLevel struct {
	domainTable
	keys []string
	// By domain number.
	sums []domainSum
}

// domainSum is what is free on all nodes of a domain that take new work, if it is known.
type domainSum struct {
	free  quantities
	known bool
}

// maxLevels is how many levels are kept; the one not used longest goes first.
const maxLevels = 16

// level returns a level, or several together, as it is now. It costs a look at all nodes when it is new.
func (r *anchorRooms) level(keys ...string) *anchorLevel {
	key := fmt.Sprintf("%q", keys)
	r.clock++
	l := r.levels[key]
	if l != nil && !l.sparse() {
		l.used = r.clock
		return l
	}
	if r.levels == nil {
		r.levels = map[string]*anchorLevel{}
	}
	if l == nil && len(r.levels) >= maxLevels {
		delete(r.levels, r.oldest())
	}
	l = &anchorLevel{domainTable: domainTable{level: key, used: r.clock}, keys: keys}
	r.levels[key] = l
	for i := range r.nodes {
		l.move(r, i)
	}
	return l
}

// oldest returns the level not used longest.
func (r *anchorRooms) oldest() (key string) {
	at := uint64(math.MaxUint64)
	for k, l := range r.levels {
		if l.used < at { // no two are used at once
			key, at = k, l.used
		}
	}
	return key
}

// move puts a node into the domain that it is in now. Either way the domain's sum is not known any more.
func (l *anchorLevel) move(r *anchorRooms, i int) {
	name, in := "", false
	if n := r.nodes[i].node; n != nil {
		name, in = l.domainOf(r.view.State(), n.Node)
	}
	l.spoil(i)
	l.put(int32(i), name, in)
	l.spoil(i)
}

// domainOf names the domain that a node is in, and reports whether it is in one, at one of several levels at least.
func (l *anchorLevel) domainOf(state *orbit.State, n *orbit.Node) (name string, in bool) {
	if len(l.keys) == 1 {
		name = anchorDomainOf(state, n, l.keys[0])
		return name, name != ""
	}
	names := make([]string, len(l.keys))
	for i, key := range l.keys {
		names[i] = anchorDomainOf(state, n, key)
		in = in || names[i] != ""
	}
	return fmt.Sprintf("%q", names), in
}

// spoil forgets the sum of the domain that a node is in.
func (l *anchorLevel) spoil(i int) {
	if i < len(l.of) && l.of[i] >= 0 && int(l.of[i]) < len(l.sums) {
		l.sums[l.of[i]].known = false
	}
}

// sum returns what is free in a domain, until the next call.
func (l *anchorLevel) sum(r *anchorRooms, d int) *quantities {
	for len(l.sums) < len(l.domains) {
		l.sums = append(l.sums, domainSum{})
	}
	s := &l.sums[d]
	if s.known {
		return &s.free
	}
	s.free, s.known = quantities{}, true
	for _, i := range l.domains[d].nodes {
		room := &r.nodes[i]
		if room.node.Node.Unschedulable {
			continue
		}
		for k, free := range room.measure(room.node.Node) {
			s.free[k] = addFree(s.free[k], free)
		}
	}
	return &s.free
}

// claimed returns which part groups have in a node.
func (p *anchorPass) claimed(i int) anchorClaim {
	room := &p.rooms.nodes[i]
	if room.claim != claimUnknown {
		return room.claim
	}
	room.claim = unclaimed
	if p.holds.on[room.node.Node.ID] > 0 {
		room.claim = claimHeld
	}
	for c := range p.state.On(room.node.Node.ID) {
		if c.Spec.Group != "" {
			room.claim = claimHosted
			break
		}
	}
	return room.claim
}
