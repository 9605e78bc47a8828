package nav

import (
	"math/bits"

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
	node    *orbit.NodeState
	free    orbit.Resources
	devices [orbit.MaxDevices]int32
	claim   anchorClaim
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
		room.free = n.Free()
		for d := range n.Node.Devices.Count {
			room.devices[d] = int32(n.DeviceFree(d))
		}
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
		if d := l.of(i); d != nil {
			d.stale = true
		}
	}
	return &r.nodes[i]
}

// anchorAccepts reports whether a node is one that the spec allows, whatever is free on it.
func anchorAccepts(node *orbit.Node, spec *orbit.Spec) bool {
	for i := range spec.Require {
		if !spec.Require[i].Matches(node.Labels) {
			return false
		}
	}
	return !node.Unschedulable && (spec.Devices.Count == 0 || acceptsModel(node, &spec.Devices))
}

// acceptsModel reports whether the node has devices of a model that the request accepts.
func acceptsModel(node *orbit.Node, r *orbit.DeviceRequest) bool {
	if node.Devices.Count == 0 {
		return false
	}
	for _, model := range r.Models {
		if model == node.Devices.Model {
			return true
		}
	}
	return len(r.Models) == 0
}

// short returns the first dimension that has not enough free for the request, -1 if none.
func (r *anchorRoom) short(want *orbit.Resources) int {
	for d := range want {
		if want[d] > 0 && want[d] > r.free[d] {
			return d
		}
	}
	return -1
}

// pick chooses device instances as a node does: those that fit best, the lowest among equals. It reports false if
// there are not enough.
func (r *anchorRoom) pick(want *orbit.DeviceRequest) (set orbit.DeviceSet, ok bool) {
	for range want.Count {
		best := -1
		for i, free := range r.devices {
			if !set.Has(i) && int(free) >= want.Milli && (best < 0 || free < r.devices[best]) {
				best = i
			}
		}
		if best < 0 {
			return 0, false
		}
		set |= 1 << best
	}
	return set, true
}

// fits returns the devices that a capsule of the spec would get, and whether there is room for it.
func (r *anchorRoom) fits(spec *orbit.Spec) (orbit.DeviceSet, bool) {
	if r.short(&spec.Envelope.Reservation) >= 0 {
		return 0, false
	}
	return r.pick(&spec.Devices)
}

// take gives room away, or takes it back if by is -1. What cannot be counted is left as it is.
func (r *anchorRoom) take(room orbit.Resources, devices orbit.DeviceSet, milli, by int) {
	free, ok := r.free.Sub(room)
	if by < 0 {
		free, ok = r.free.Add(room)
	}
	if ok {
		r.free = free
	}
	for s := uint16(devices); s != 0; s &= s - 1 {
		r.devices[bits.TrailingZeros16(s)] -= int32(by * milli)
	}
}

// measure returns what is free, nothing below zero.
func (r *anchorRoom) measure() (free [anchorDims]int64) {
	for d := range r.free {
		free[d] = max(r.free[d], 0)
	}
	for _, milli := range r.devices[:r.node.Node.Devices.Count] {
		free[orbit.Dimensions] += max(int64(milli), 0)
	}
	return free
}
