package nav

import "github.com/orbitsched/orbit"

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
