package orbit

import (
	"cmp"
	"math/bits"
	"slices"
)

// Who uses nominated room until it is needed, and what is borrowed from whom on a node. At last what leaves a node, and the sums of what is nominated, and of
// what there is.

// Nominee names a capsule or a gang that is nominated, or was: one of the two is set.
type Nominee struct {
	// Capsule is the capsule; empty if it is a gang.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang; empty if it is a capsule.
	Gang GangID `json:"gang,omitempty"`
}

// String says which capsule or gang it is.
func (w Nominee) String() string {
	if w.Gang != "" {
		return "gang " + quoteWord(string(w.Gang))
	}
	return "capsule " + quoteWord(string(w.Capsule))
}

// is reports whether a nomination is that of the nominee.
func (w *Nominee) is(n *Nomination) bool { return w.Capsule == n.Capsule && w.Gang == n.Gang }

// lends reports whether capsules of the spec may borrow the room.
func (n *Nomination) lends(spec *Spec) bool {
	return spec != nil && spec.Backfills && spec.RunsAtMost <= n.Lends && spec.Priority < n.ceiling
}

// lenderOf returns the first of parts, which are in order of rank, that lends to capsules of the spec; nil: none. A hold's spec is nil.
func lenderOf(parts []nominatedPart, spec *Spec) *Nomination {
	for _, p := range parts {
		if p.of.lends(spec) {
			return p.of
		}
	}
	return nil
}

// ceiling returns the lowest priority that keeps a capsule from being evicted for work of one priority.
func (l *Limits) ceiling(priority int32) int32 {
	if priority <= l.TruceTo {
		return min(priority, l.TruceFrom)
	}
	return priority
}

// recalls reports whether a capsule is evicted by the one whose room it borrows.
func (e *Evict) recalls(c *Capsule) bool {
	return c.Borrows != nil && *c.Borrows == Nominee{e.For, e.ForGang}
}

// load is how much is taken of a node's resources and devices.
type load struct {
	room    Resources
	devices deviceUse
}

// add adds what a capsule takes; with the sign -1 it subtracts that.
func (l *load) add(spec *Spec, set DeviceSet, sign int32) {
	for d, x := range spec.Envelope.Reservation {
		l.room[d] += int64(sign) * x
	}
	l.devices.add(set, sign*int32(spec.Devices.Milli))
}

// loan is what capsules on a node take that borrow from one nominee, and how many these are.
type loan struct {
	from Nominee
	load
	capsules int
}

// borrow adds what a capsule takes to the loans on the node, if it borrows there; with the sign -1 it takes that off.
func (n *NodeState) borrow(c *Capsule, sign int32) {
	if c.Borrows == nil {
		return
	}
	var loans []loan
	if n.loans != nil {
		loans = slices.Clone(*n.loans)
	}
	i := slices.IndexFunc(loans, func(l loan) bool { return l.from == *c.Borrows })
	if i < 0 {
		i, loans = len(loans), append(loans, loan{from: *c.Borrows})
	}
	loans[i].add(c.Spec, c.Devices, sign)
	if loans[i].capsules += int(sign); loans[i].capsules == 0 {
		loans = slices.Delete(loans, i, i+1)
	}
	if n.loans = nil; len(loans) > 0 {
		n.loans = &loans
	}
}

// reborrow does so for a capsule on the node that gets another spec.
func (n *NodeState) reborrow(c *Capsule, to *Spec) {
	n.borrow(c, -1)
	n.borrow(&Capsule{Spec: to, Devices: c.Devices, Borrows: c.Borrows}, 1)
}

// lender returns the nomination from which a capsule of the spec borrows on the node; nil: it would borrow from none.
func (n *NodeState) lender(spec *Spec) *Nomination {
	if n.nominated == nil || n.nominated.keeps {
		return nil
	}
	return lenderOf(n.nominated.parts, spec)
}

var noLoad load

// lent returns what is borrowed from a nominee on the node.
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

// claimed returns how much of a dimension is still claimed by a part that is on the node: less what is borrowed from the nominee there.
func (n *NodeState) claimed(p nominatedPart, d int) int64 {
	return max(0, p.room().Room[d]-n.lent(p.of).room[d])
}

// claimedDevice is claimed for a device instance, in milli.
func (n *NodeState) claimedDevice(p nominatedPart, i int) int {
	return max(0, btoi(p.room().Devices.Has(i))*p.room().Milli-int(n.lent(p.of).devices[i]))
}

// Claimed returns how much of each resource, and in milli of each device instance, a nomination that claims room on the node still
// keeps from capsules of the spec that it outranks: nothing if it lends to them, and else what it claims less what is borrowed from it there. Nil
// stands for any spec that does not backfill.
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

// without returns the node without what those take that have borrowed from nominees for which a predicate holds.
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

// wide is a sum of quantities: 128 bits, because the capacity of all nodes may not fit in 64.
type wide struct {
	hi int64
	lo uint64
}

// plus returns the sum with a number of either sign.
func (w wide) plus(x int64) wide {
	lo, carry := bits.Add64(w.lo, uint64(x), 0)
	return wide{w.hi + x>>63 + int64(carry), lo}
}

// times returns the product with a small number. It requires that neither is negative.
func (w wide) times(n int) wide {
	hi, lo := bits.Mul64(w.lo, uint64(n))
	return wide{w.hi*int64(n) + int64(hi), lo}
}

// exceeds reports whether w is more than o.
func (w wide) exceeds(o wide) bool { return w.hi > o.hi || w.hi == o.hi && w.lo > o.lo }

// totals are sums of each resource, and at last of device instances in milli.
type totals [Dimensions + 1]wide

// addNode adds the capacity of a node, or takes it away with -1.
func (t *totals) addNode(n *Node, sign int64) {
	for d, c := range n.Capacity {
		t[d] = t[d].plus(sign * c)
	}
	t[Dimensions] = t[Dimensions].plus(sign * int64(n.Devices.Count) * deviceMilli)
}

// addRooms adds what a nomination claims, or takes it away with -1.
func (t *totals) addRooms(n *Nomination, sign int64) {
	for i := range n.Parts {
		r := &n.Parts[i]
		for d, c := range r.Room {
			t[d] = t[d].plus(sign * c)
		}
		t[Dimensions] = t[Dimensions].plus(sign * int64(r.Devices.Len()) * int64(r.Milli))
	}
}

// within reports whether quantities, none of them negative, fit together into what is free. It cannot overflow.
func within(free int64, takes ...int64) bool {
	for _, x := range takes {
		if x > free {
			return false
		}
		free -= x
	}
	return true
}

// loses takes a placed capsule off n: what a plan sees after it has released or evicted it.
func (n *NodeState) loses(c *Capsule, at Revision) {
	n.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
	n.borrow(c, -1)
	n.Capsules--
	if c.Begun && n.Node.State != Lost {
		list := n.withRemains(&Remains{Capsule: c.ID, Spec: c.Spec, Node: n.Node.ID, Devices: c.Devices, Since: c.PlacedAt, Left: at})
		n.remains = &list
	}
}

// withRemains returns the remains on a node together with r, those that left first in front.
func (n *NodeState) withRemains(r *Remains) (list []*Remains) {
	if n.remains != nil {
		list = slices.Clone(*n.remains)
	}
	list = append(list, r)
	slices.SortFunc(list, func(a, b *Remains) int { return cmp.Or(cmp.Compare(a.Left, b.Left), cmp.Compare(a.Capsule, b.Capsule)) })
	return list
}
