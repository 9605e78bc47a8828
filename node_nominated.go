package orbit

import "slices"

// This file has what of a node is claimed by nominations, what they lend, and to whom it counts as free.

// Nominated yields the living nominations that claim room on the node, with what they claim there.
func (n *NodeState) Nominated(yield func(*Nomination, *NominatedRoom) bool) {
	if n.nominated == nil {
		return
	}
	for _, p := range n.nominated.parts {
		if !yield(p.of, p.room()) {
			return
		}
	}
}

// leavesRoom reports whether a capsule of the spec, placed on the node, leaves free the room of all nominations that
// outrank it. The nomination from which it borrows does not count. The node must have the free capacity for the capsule
// if nominations are ignored.
func (n *NodeState) leavesRoom(spec *Spec) bool {
	m, want, lender := n.nominated, &spec.Envelope.Reservation, n.lender(spec)
	if m == nil {
		return true
	}
	for d := range want {
		if want[d] == 0 || want[d] <= m.spare[d] {
			continue
		}
		free := n.Node.Capacity[d] - n.used[d] - want[d]
		for _, p := range m.parts {
			if claimed := n.claimed(p, d); claimed > 0 && p.of != lender && m.outranks(p, spec.Priority) {
				if free -= claimed; free < 0 {
					return false
				}
			}
		}
	}
	return spec.Devices.Count == 0 || n.DevicesFor(spec).Len() >= spec.Devices.Count
}

// DevicesFor returns the healthy device instances with enough free for a capsule of the spec. Nominations that outrank
// the capsule count as taken, unless they lend to it.
func (n *NodeState) DevicesFor(spec *Spec) DeviceSet {
	set, m, lender := n.devicesWith(spec.Devices.Milli), n.nominated, n.lender(spec)
	if m == nil {
		return set
	}
	for i := range n.Node.Devices.Count {
		free := n.DeviceFree(i) - spec.Devices.Milli
		if !set.Has(i) || spec.Devices.Milli <= int(m.spareDevices[i]) {
			continue
		}
		for _, p := range m.parts {
			if p.of != lender && m.outranks(p, spec.Priority) {
				free -= n.claimedDevice(p, i)
			}
		}
		if free < 0 {
			set &^= 1 << i
		}
	}
	return set
}

// encroaches judges the asks of a proposal on a node against the nominations that claim room there. The receiver is the
// node as the proposal leaves it. In each dimension that an ask takes from, the node's total use and the claims that
// outrank an ask with a share in that dimension must fit together. Releasing room in the same proposal is no excuse,
// with one exception: placements may take the room of holds that the proposal ends, because that room was not free
// before. The asks must fit if nominations are ignored.
func (n *NodeState) encroaches(parts []nominatedPart, asks []ask, ended *Resources, endedDevices *deviceUse) (e encroachment) {
	for d := range n.used {
		free := n.Node.Capacity[d] - n.used[d]
		take := func(a *ask) int64 { return a.room[d] }
		claim := func(p nominatedPart) int64 { return n.claimed(p, d) }
		if e.judge(parts, asks, free, ended[d], take, claim); e.of != nil {
			e.at = d
			return e
		}
	}
	for i := range n.Node.Devices.Count {
		take := func(a *ask) int64 { return int64(btoi(a.devices.Has(i)) * a.milli) }
		claim := func(p nominatedPart) int64 { return int64(n.claimedDevice(p, i)) }
		if e.judge(parts, asks, int64(n.DeviceFree(i)), int64(endedDevices[i]), take, claim); e.of != nil {
			e.at, e.device = i, true
			return e
		}
	}
	return e
}

// spend takes an ask off the spare room that ended holds have left. A hold uses up all spare room in each dimension
// that it asks for.
func (n *NodeState) spend(a *ask) {
	m := n.nominated.copy()
	for d, want := range a.room {
		if m.spare[d] = max(0, m.spare[d]-want); a.hold && want > 0 {
			m.spare[d] = 0
		}
	}
	for i := range m.spareDevices {
		if !a.devices.Has(i) {
			continue
		}
		if m.spareDevices[i] = max(0, m.spareDevices[i]-int32(a.milli)); a.hold {
			m.spareDevices[i] = 0
		}
	}
	n.nominated = m
}

// spares adds the room of an ended hold to the node's spare room. The node must be the draft's own copy.
func (n *NodeState) spares(h *Hold) {
	if n.nominated == nil {
		return
	}
	m := n.nominated.copy()
	m.spare = m.spare.plus(h.Room)
	m.spareDevices.add(h.Devices, int32(h.Milli))
	n.nominated = m
}

// borrow adds the load of a capsule to the node's loan from its nominee; with sign -1 it takes the load off. A capsule
// that does not borrow changes nothing. Nodes share the slice of loans, so borrow writes to a copy.
func (n *NodeState) borrow(c *Capsule, sign int32) {
	n.lend(c.Borrows(), c.Spec, c.Devices, sign)
}

// lend is borrow for a load that is not in a record; from nil: it does not borrow.
func (n *NodeState) lend(from *Nominee, spec *Spec, devices DeviceSet, sign int32) {
	if from == nil {
		return
	}
	var loans []loan
	if n.loans != nil {
		loans = slices.Clone(*n.loans)
	}
	i := slices.IndexFunc(loans, func(l loan) bool { return l.from == *from })
	if i < 0 {
		i, loans = len(loans), append(loans, loan{from: *from})
	}
	loans[i].add(spec, devices, sign)
	if loans[i].capsules += int(sign); loans[i].capsules == 0 {
		loans = slices.Delete(loans, i, i+1)
	}
	if n.loans = nil; len(loans) > 0 {
		n.loans = &loans
	}
}

// reborrow updates the node's loans for a capsule on it whose spec is replaced by another.
func (n *NodeState) reborrow(c *Capsule, to *Spec) {
	n.borrow(c, -1)
	n.lend(c.Borrows(), to, c.Devices, 1)
}

// lender returns the nomination from which a capsule of the spec would borrow if it were placed on the node; nil: from
// none.
func (n *NodeState) lender(spec *Spec) *Nomination {
	if n.nominated == nil || n.nominated.keeps {
		return nil
	}
	return lenderOf(n.nominated.parts, spec)
}

// lent returns the load that is borrowed from a nomination on the node. It is shared: do not write to it.
func (n *NodeState) lent(of *Nomination) *load {
	if n.loans != nil {
		for i := range *n.loans {
			if l := &(*n.loans)[i]; l.from.is(of) {
				return &l.load
			}
		}
	}
	return &noLoad
}

// claimed returns how much of a dimension a part still claims on the node: its room, less the loans from its nominee
// there.
func (n *NodeState) claimed(p nominatedPart, d int) int64 {
	return max(0, p.room().Room[d]-n.lent(p.of).room[d])
}

// claimedDevice is claimed for a device instance, in milli.
func (n *NodeState) claimedDevice(p nominatedPart, i int) int {
	return max(0, btoi(p.room().Devices.Has(i))*p.room().Milli-int(n.lent(p.of).devices[i]))
}

// Claimed returns how much of each resource, and of each device instance in milli, a nomination keeps from capsules of
// the spec that it outranks on this node. That is its claim less the loans from it on this node, or nothing if it lends
// to the spec. A nil spec stands for any spec that does not backfill.
func (n *NodeState) Claimed(of *Nomination, spec *Spec) (room Resources, devices [MaxDevices]int) {
	if n.nominated == nil || n.lender(spec) == of {
		return room, devices
	}
	for _, p := range n.nominated.parts {
		for d := 0; p.of == of && d < len(room); d++ {
			room[d] = n.claimed(p, d)
		}
		for i := 0; p.of == of && i < len(devices); i++ {
			devices[i] = n.claimedDevice(p, i)
		}
	}
	return room, devices
}

// without returns the node with the loans taken off for which leaves is true, as if these borrowers had left. It
// returns n itself if there are no loans on the node.
func (n *NodeState) without(leaves func(*loan) bool) *NodeState {
	if n.loans == nil {
		return n
	}
	bare, use := *n, n.deviceUse()
	for i := range *n.loans {
		if l := &(*n.loans)[i]; leaves(l) {
			bare.used = bare.used.minus(l.room)
			for k, milli := range l.devices {
				use[k] -= milli
			}
		}
	}
	bare.devices = &use
	return &bare
}
