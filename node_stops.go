package orbit

import (
	"cmp"
	"slices"
)

// This file has what of a node is still taken by capsules that have left it, or that wait to begin ([Remains]).

// Remains yields what [State.Remains] yields for the node. For a node of a [Draft] this includes the capsules that the
// plan takes off it.
func (n *NodeState) Remains(yield func(*Remains) bool) {
	if n.remains == nil {
		return
	}
	for _, r := range *n.remains {
		if !yield(r) {
			return
		}
	}
}

// leaving yields the remains on the node that are told to stop, and for which others wait. Those that surge are left out:
// they run on, and what they take is among what the node has given away.
func (n *NodeState) leaving(yield func(*Remains) bool) {
	if n.remains == nil {
		return
	}
	for _, r := range *n.remains {
		if !r.Surge && !yield(r) {
			return
		}
	}
}

// firstLeaving returns the first of leaving, nil if there is none.
func (n *NodeState) firstLeaving() *Remains {
	for r := range n.leaving {
		return r
	}
	return nil
}

// loses takes a placed capsule off n, as a plan sees the node after it has released or evicted the capsule at revision
// at. If the capsule has begun to run, its remains stay on the node, unless the node is lost; if it surges, they keep its room.
func (n *NodeState) loses(c *Capsule, at Revision, surges bool) {
	if !surges {
		n.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
	}
	n.borrow(c, -1)
	n.Capsules--
	if c.Begun && n.Node.State != Lost {
		list := n.withRemains(&Remains{Capsule: c.ID, Spec: c.Spec, Node: n.Node.ID, Devices: c.Devices, Since: c.PlacedAt, Left: at, Surge: surges})
		n.remains = &list
	}
}

// withRemains returns a new list of the remains on the node and r, in the order in which the capsules left.
func (n *NodeState) withRemains(r *Remains) (list []*Remains) {
	if n.remains != nil {
		list = slices.Clone(*n.remains)
	}
	list = append(list, r)
	slices.SortFunc(list, func(a, b *Remains) int { return cmp.Or(cmp.Compare(a.Left, b.Left), cmp.Compare(a.Capsule, b.Capsule)) })
	return list
}

// remainsWithout returns a new list of remains that lacks r, nil if it is empty.
func remainsWithout(remains *[]*Remains, r *Remains) *[]*Remains {
	list := slices.DeleteFunc(slices.Clone(*remains), func(o *Remains) bool { return o == r })
	if len(list) == 0 {
		return nil
	}
	return &list
}

// Waits reports whether a capsule of the spec that is placed on these device instances of the node now would have to wait
// until capsules have stopped that have left the node ([Remains]). The node must take the capsule.
func (n *NodeState) Waits(spec *Spec, devices DeviceSet) bool {
	if n.remains == nil || !n.Node.Confirms {
		return false
	}
	taken := *n
	taken.takes(spec, devices)
	return !taken.fitsBeside(&Capsule{Spec: spec, Devices: devices})
}

// mayBeOver reports whether the node may give more than it has of something that a placed capsule takes there, beside
// what has left it and still runs. It is false where a look at what is on the node would be in vain.
func (n *NodeState) mayBeOver(c *Capsule) bool {
	for d, want := range c.Spec.Envelope.Reservation {
		if want > 0 && n.used[d] > n.Node.Capacity[d] {
			return true
		}
	}
	if c.Devices != 0 {
		for i, used := range n.deviceUse() {
			if c.Devices.Has(i) && used > deviceMilli {
				return true
			}
		}
	}
	return len(c.Spec.Extras) > 0 || n.remains != nil && !n.fitsBeside(c)
}

// devicesBeside returns the instances that have at least this much free beside the capsules that have left the node and
// still run there.
func (n *NodeState) devicesBeside(milli int) (set DeviceSet) {
	for i := range n.Node.Devices.Count {
		free := n.DeviceFree(i)
		for r := range n.leaving {
			free -= btoi(r.Devices.Has(i)) * r.Spec.Devices.Milli
		}
		if free >= milli {
			set |= 1 << i
		}
	}
	return set
}

// Stopping yields the capsules that have left the node and still run there ([Remains]), in the order in which they left.
func (n *NodeState) Stopping(yield func(*Remains) bool) {
	if n.remains == nil {
		return
	}
	for _, r := range *n.remains {
		if !yield(r) {
			return
		}
	}
}

// lacksBeside returns the first dimension among those that are asked for in which the placements and the remains on the
// node do not fit together, and the first remains that do not fit; nil: all fit. The node's use must include the asked
// amount already.
func (n *NodeState) lacksBeside(asked *Resources) (d int, r *Remains) {
	if n.remains == nil {
		return 0, nil
	}
	for d, want := range asked {
		free := n.Node.Capacity[d] - n.used[d]
		for r := range n.leaving {
			x := r.Spec.Envelope.Reservation[d]
			if want > 0 && x > free {
				return d, r
			}
			free -= min(x, max(free, 0))
		}
	}
	return 0, nil
}

// fitsBeside reports whether a capsule that is placed on the node fits there beside all other placements and all
// remains. Only the resources and devices that the capsule asks for count.
func (n *NodeState) fitsBeside(c *Capsule) bool {
	if _, r := n.lacksBeside(&c.Spec.Envelope.Reservation); r != nil {
		return false
	}
	devices := n.deviceUse()
	for r := range n.leaving {
		devices.add(r.Devices, int32(r.Spec.Devices.Milli))
	}
	for i, used := range devices {
		if c.Devices.Has(i) && used > deviceMilli {
			return false
		}
	}
	return true
}
