package orbit

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// Nominate claims room on nodes for a capsule or a gang that waits. The claim is no use: it takes nothing, and room that is free is given
// away until it is claimed by what outranks the one who asks. It filters admission only: on a node with nominated room, a placement must
// leave free what is nominated there for those that outrank it. So two nominations that want the same nodes never wait for each other.
//
// A nomination may lend its room to work that is known to be short and consents to leave ([Spec.Backfills]). On each node it then
// claims what it did less what is borrowed from it there, so all others find what they would have found. To be placed the nominee evicts
// what borrows from it, whatever budgets say.
//
// A nomination ends when its capsule is placed, or the first member of its gang; when that is released for good; and
// when a Nominate without Parts says so. Engines end those whose end has passed, and those of their own work with a node that
// can no longer serve. A new Nominate for the same capsule or gang takes the place of the one before. A ledger refuses it where it
// and all that outrank it would exceed [Limits.NominatedShare], unless none does. [Draft.Nominate] ends those that it outranks
// to make way: in a proposal that nominates, such an end is skipped if what it names by Since has ended already.
type Nominate struct {
	// Capsule is the pending capsule that the room is for; empty if Gang is set.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang that the room is for, no member of which is placed; empty if Capsule is set.
	Gang GangID `json:"gang,omitempty"`
	// Since is the revision at which the nomination was made that this one replaces or ends; 0: any, or none.
	Since Revision `json:"since,omitempty"`
	// Aged is how far the nomination ranks above the priority of its capsule; at most Limits.NominationAging.
	Aged int32 `json:"aged,omitempty"`
	// Parts are the rooms that are claimed, at most one on each node; none: the nomination ends.
	Parts []NominatedRoom `json:"parts,omitempty"`
	// Ends is when engines end the nomination; zero if there are no Parts.
	Ends time.Time `json:"ends,omitzero"`
	// Lends is for how long others may use the room meanwhile ([Spec.Backfills]): those of lower priority that run no longer. State how
	// long the nominee is expected to wait, and less in each renewal. 0: nobody may; zero if there are no Parts.
	Lends time.Duration `json:"lends,omitempty"`
}

func (Nominate) commitment() {}

// NominatedRoom is the room that a nomination claims on one node.
type NominatedRoom struct {
	// Node is the node on which the room is.
	Node NodeID `json:"node"`
	// Room is the amount of each resource that is claimed.
	Room Resources `json:"room"`
	// Devices are the device instances of which Milli is claimed.
	Devices DeviceSet `json:"devices,omitempty"`
	// Milli is how much is claimed of each of Devices, in thousandths.
	Milli int `json:"milli,omitempty"`
}

// Nomination is what a capsule or a gang is nominated for, at one revision. Read it, never write it.
type Nomination struct {
	// Capsule is the capsule that the room is for; empty if it is a gang.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang that the room is for; empty if it is a capsule.
	Gang GangID `json:"gang,omitempty"`
	// Rank is the priority of the capsule, or the lowest one of the gang's roles, plus Nominate.Aged.
	Rank int32 `json:"rank,omitempty"`
	// First is the revision at which it was first nominated since it last waited; among equal ranks the earliest wins.
	// It survives the end of a nomination, but is drawn anew after Limits.Renewals more of them.
	First Revision `json:"first"`
	// Made is the revision at which this nomination was made.
	Made Revision `json:"made"`
	// Renewals counts the nominations since First.
	Renewals int `json:"renewals,omitempty"`
	// Parts are the rooms that are claimed. A nomination without any has ended, and is kept for First alone.
	Parts []NominatedRoom `json:"parts,omitempty"`
	// Ends is when engines end the nomination.
	Ends time.Time `json:"ends,omitzero"`
	// Lends is Nominate.Lends.
	Lends time.Duration `json:"lends,omitempty"`

	// Only capsules of lower priority than this may be evicted for it, and so borrow its room.
	ceiling int32
}

// Lives reports whether the nomination claims room. It is false for nil.
func (n *Nomination) Lives() bool { return n != nil && len(n.Parts) > 0 }

// Outranks reports whether the nomination comes before another one.
func (n *Nomination) Outranks(o *Nomination) bool { return n.compare(o) < 0 }

// OutranksPriority reports whether the nomination comes before a capsule of this priority that has none.
func (n *Nomination) OutranksPriority(priority int32) bool { return n.Rank >= priority }

// compare orders nominations by rank, highest first.
func (n *Nomination) compare(o *Nomination) int {
	return cmp.Or(cmp.Compare(o.Rank, n.Rank), cmp.Compare(n.First, o.First),
		cmp.Compare(n.Gang, o.Gang), cmp.Compare(n.Capsule, o.Capsule))
}

// ended returns what is kept of a nomination that has ended.
func (n *Nomination) ended() *Nomination {
	return &Nomination{Capsule: n.Capsule, Gang: n.Gang, First: n.First, Made: n.Made, Renewals: n.Renewals}
}

// maxNominated is how many nominations may claim room on one node.
const maxNominated = 8

// nominated is what is claimed on a node. It is never written to.
type nominated struct {
	parts []nominatedPart
	// The nomination of the capsule that a draft plans for now; nil: it has none.
	asker *Nomination
	// Of a draft: what ended holds leave to the placements of the same proposal, whatever is nominated.
	spare        Resources
	spareDevices deviceUse
	// Of a draft: nobody borrows there until the next view. The plan has nominated room there, and who lends after that depends on whether that commits.
	keeps bool
}

// nominatedPart is a part of a living nomination.
type nominatedPart struct {
	of *Nomination
	at int
}

func (p nominatedPart) room() *NominatedRoom { return &p.of.Parts[p.at] }

// copy returns one that may be written to.
func (m *nominated) copy() *nominated {
	if m == nil {
		return &nominated{}
	}
	c := *m
	return &c
}

// with returns a copy with one part of a nomination more.
func (m *nominated) with(of *Nomination, part int) *nominated {
	c := m.copy()
	c.parts = append(slices.Clone(c.parts), nominatedPart{of, part})
	return c
}

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

// outranks reports whether a part comes before a capsule of this priority, with the nomination of the draft's asker.
func (m *nominated) outranks(p nominatedPart, priority int32) bool {
	return p.of.OutranksPriority(priority) && (m.asker == nil || p.of.Outranks(m.asker))
}

// leavesRoom reports whether a capsule of the spec leaves free what is nominated for those that outrank it, but for that from
// which it borrows. It requires that the node has room for the capsule otherwise.
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

// DevicesFor returns the instances that are healthy and have enough free for a capsule of the spec, beside what is
// nominated for those that outrank it and do not lend to it.
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

// ask is what one commitment asks for on a node.
type ask struct {
	room    *Resources
	devices DeviceSet
	milli   int
	// It is a hold, which every nomination outranks.
	hold     bool
	priority int32
	// That of the capsule or its gang, before the proposal; nil: none lives.
	nomination *Nomination
	// The spec of a capsule, and from whom it borrows; nil: it is a hold, or borrows from nobody.
	of     *Spec
	lender *Nominee
}

// ask returns what a capsule of the spec asks for on these devices, with the nomination of it or its gang.
func (s *Spec) ask(devices DeviceSet, nominated *Nomination) ask {
	return ask{room: &s.Envelope.Reservation, devices: devices, milli: s.Devices.Milli, priority: s.Priority, nomination: nominated, of: s}
}

// yieldsTo reports whether a nomination outranks the ask.
func (a *ask) yieldsTo(n *Nomination) bool {
	switch {
	case a.hold:
		return true
	case a.lender != nil && a.lender.is(n):
		return false
	case a.nomination != nil:
		return n.Outranks(a.nomination)
	}
	return n.OutranksPriority(a.priority)
}

// encroachment is the room of nominations that the asks of one proposal on one node would take.
type encroachment struct {
	// One whose room would be taken; nil: they take none.
	of *Nomination
	// What is short: a dimension, or with device a device instance.
	at     int
	device bool
	// How much of it is asked for, and how much there would be beside what is nominated.
	want, free int64
}

// encroaches judges what a proposal asks for on a node, which is as the proposal leaves it, beside the living parts of
// nominations there. In each dimension that is asked for, all of use must fit beside what is nominated for those that
// outrank the lowest ranked of the asks; what the proposal releases earns nothing. Only what ended holds have held
// serves placements as it served the holds. It requires that the asks fit without nominations.
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

// judge judges one dimension, or one device instance, of which so much is free, and was held by what has ended.
func (e *encroachment) judge(parts []nominatedPart, asks []ask, free, ended int64, take func(*ask) int64, claim func(nominatedPart) int64) {
	held := false
	e.want = 0
	for i := range asks {
		want := take(&asks[i])
		e.want += want // sums of what is asked for have been counted before
		held = held || asks[i].hold && want > 0
	}
	if e.want == 0 || !held && e.want <= ended {
		return
	}
	for _, p := range parts {
		claimed := claim(p)
		counts := claimed > 0 && slices.ContainsFunc(asks, func(a ask) bool { return take(&a) > 0 && a.yieldsTo(p.of) })
		if !counts {
			continue
		}
		if free < claimed {
			e.of, e.free = p.of, max(0, e.want+free-claimed)
			return
		}
		free -= claimed
	}
}

// lowers reports whether a node that was described as n offers less of anything as now; nil: it has left.
func (n *Node) lowers(now *Node) bool {
	if now == nil || now.Devices.Count < n.Devices.Count {
		return true
	}
	for d := range n.Capacity {
		if now.Capacity[d] < n.Capacity[d] {
			return true
		}
	}
	return false
}

// misfit says why a node can never serve one of the specs with the part of it that is claimed, completing "nodes ...";
// empty: it can, as far as its description says.
func (r *NominatedRoom) misfit(n *Node, specs []*Spec, names *dimensionNames) string {
	if !n.Schedulable() {
		return "are unschedulable"
	}
	for d, room := range r.Room {
		if room > n.Capacity[d] {
			return "lack " + names.name(d)
		}
	}
	if r.Devices>>n.Devices.Count != 0 || r.Devices&n.Devices.Unhealthy != 0 {
		return "lack the devices"
	}
	why := ""
	for _, s := range specs {
		state := NodeState{Node: n}
		switch {
		case !state.meets(s):
			why = "do not meet its requirements"
		case r.Devices != 0 && !s.Devices.Accepts(n.Devices.Model):
			why = "have other devices"
		default:
			return ""
		}
	}
	return why
}

// spend takes what is asked for off what ended holds have left; a hold leaves nothing of it.
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

// claims reports whether one of the parts is on a node.
func (n *Nomination) claims(id NodeID) bool {
	return slices.ContainsFunc(n.Parts, func(r NominatedRoom) bool { return r.Node == id })
}

// shares reports whether both claim something of the same kind.
func (n *Nomination) shares(o *Nomination) bool {
	var a, b totals
	a.addRooms(n, 1)
	b.addRooms(o, 1)
	for d := range a {
		if a[d] != (wide{}) && b[d] != (wide{}) {
			return true
		}
	}
	return false
}

// spares notes what a hold that has ended leaves to placements, on a node that is a draft's own copy.
func (n *NodeState) spares(h *Hold) {
	if n.nominated == nil {
		return
	}
	m := n.nominated.copy()
	m.spare = m.spare.plus(h.Room)
	m.spareDevices.add(h.Devices, int32(h.Milli))
	n.nominated = m
}

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
