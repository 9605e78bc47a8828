package orbit

import "math"

// A node is never over its capacity in a dimension that a proposal takes from.

// judgeCapacity compares the use of each node with its capacity in each dimension that this proposal takes from. A
// dimension that it does not take from may be over a capacity that has shrunk; a dimension that it takes from may not,
// whatever the proposal releases there.
func (t *tx) judgeCapacity() error {
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.asked == (Resources{}) {
			continue
		}
		if err := t.fits(n); err != nil {
			return err
		}
	}
	return nil
}

// fits judges the capacity of one node.
func (t *tx) fits(n *txNode) error {
	node, over := n.now.Node, false
	for d := range n.asked {
		over = over || n.asked[d] > 0 && n.now.used[d] > node.Capacity[d]
	}
	if !over {
		return nil
	}
	t.at = n.asker
	r := Rejection{Node: node.ID}
	t.short(&r, &n.asked, node.Capacity.minus(n.now.used.minus(n.asked)))
	return t.refuse(r, max(n.newest(), n.asks), "node %q is short", r.Node)
}

// take adds room and devices to the use of a node, and to the sum that the proposal asks for there. Whether they fit is
// judged when all commitments are known; only a sum that overflows is refused at once.
func (t *tx) take(n *txNode, want *Resources, set DeviceSet, milli int) error {
	for d, w := range want {
		if w == 0 {
			continue
		}
		if w > math.MaxInt64-max(n.asked[d], n.now.used[d]) { // neither is negative
			r := Rejection{Node: n.now.Node.ID}
			t.short(&r, want, n.now.Free())
			return t.refuse(r, max(n.newest(), n.asks), "node %q is short, by more than can be counted", r.Node)
		}
		n.asked[d] += w
		n.now.used[d] += w
	}
	n.asker = t.at
	n.askedDevices |= set
	n.now.useDevices(set, milli)
	n.now.Usage, n.dirty = t.rev, true
	return nil
}

// hedgeRoom keeps what a proposal frees on a node beyond what it takes there in use.
func (p *planSum) hedgeRoom() {
	for i := range p.nodes {
		n := &p.nodes[i]
		for d, used := range n.was.used {
			if used > n.now.used[d] {
				p.keep(n).used[d] = used
			}
		}
	}
}

// countCapacity updates the summed capacity of all nodes for a changed node.
func (s *State) countCapacity(e *txNode) {
	if e.was != nil {
		s.capacity.addNode(e.was.Node, -1)
	}
	if !e.gone {
		s.capacity.addNode(e.now.Node, 1)
	}
}

// compareCapacity reports a node that is over its capacity, with two exceptions: nothing was admitted there since the
// capacity last changed, or the newest claim is that of an adopted capsule.
func (v *verifier) compareCapacity(n *NodeState, r *recount) {
	for d := range n.used {
		if n.used[d] > n.Node.Capacity[d] && r.newest[d] > max(n.Specification, r.newestAdopted[d]) {
			v.fail("node %q is oversubscribed: uses %d of %d %s, and admitted more at revision %d, after its capacity was set at %d",
				n.Node.ID, n.used[d], n.Node.Capacity[d], v.s.names.name(d), r.newest[d], n.Specification)
		}
		if r.runs[d] > uint64(n.Node.Capacity[d]) && r.started[d] > max(n.Specification, r.startedAdopted[d]) {
			v.fail("node %q: %d of %d %s runs there, what has left it included; the newest was placed at revision %d, after its capacity was set at %d",
				n.Node.ID, r.runs[d], n.Node.Capacity[d], v.s.names.name(d), r.started[d], n.Specification)
		}
	}
	for i, used := range n.deviceUse() {
		room := int32(deviceMilli)
		if i >= n.Node.Devices.Count || n.Node.Devices.Unhealthy.Has(i) {
			room = 0
		}
		since := r.claimedAdopted[i]
		if used <= deviceMilli { // more than deviceMilli never fits, so a change of capacity does not excuse it
			since = max(since, n.Specification)
		}
		if used > room && r.claimed[i] > since {
			v.fail("node %q: device %d is oversubscribed: uses %d of %d milli", n.Node.ID, i, used, room)
		}
	}
}

// claimedAt returns the revision at which a placed capsule got what it takes: that of its placement, or an upper bound if
// it may have grown by a fact ([Respec.Applied]) since.
func (c *Capsule) claimedAt() Revision {
	if c.Adopted && c.Respecified {
		return c.Changed
	}
	return c.PlacedAt
}

// claim adds what a placement or a hold takes, and the revision at which it was admitted, or adopted.
func (r *recount) claim(room Resources, set DeviceSet, milli int, at Revision, adopted bool) {
	newest, claimed := &r.newest, &r.claimed
	if adopted {
		newest, claimed = &r.newestAdopted, &r.claimedAdopted
	}
	used, ok := r.used.Add(room)
	r.used, r.overflow = used, r.overflow || !ok
	r.devices.add(set, int32(milli))
	for d := range room {
		if room[d] > 0 {
			newest[d] = max(newest[d], at)
		}
	}
	for i := range claimed {
		if set.Has(i) {
			claimed[i] = max(claimed[i], at)
		}
	}
}
