package orbit

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"time"
)

// Nominate claims room on nodes for a pending capsule or gang, its nominee. A nomination takes no room: the nodes' free
// capacity stays as it is. It filters admission only: on a node with nominated room, a placement must leave free the
// room of all nominations that outrank it. Two nominations that want the same nodes therefore never wait for each
// other.
//
// A nomination may lend its room to short work that consents to leave ([Spec.Backfills]). On each node the claim
// shrinks by the room that is borrowed from it there, so that loans change nothing for other work. When the nominee is
// placed, it evicts its borrowers; budgets do not protect them.
//
// A nomination ends when its capsule, or the first member of its gang, is placed; when its capsule, or a member of its
// gang, is released for good; and when a Nominate without Parts ends it. Engines end nominations whose Ends has passed,
// nominations that they first saw [Limits.Nominate] ago, and nominations of their own work on a node that can no longer
// serve it. A new Nominate for the same capsule or gang replaces the previous nomination.
//
// A ledger refuses a nomination of more than its nominee asks for. A capsule is nominated on one node, a gang on at most
// as many nodes as it has members; on each node for no more than those of its capsules ask for that may be there, and
// in all for no more than all of them. A ledger also refuses a nomination if it and all nominations that outrank it
// would together exceed [Limits.NominatedShare]; the nomination that ranks first is exempt. [Draft.Nominate] ends
// nominations of lower rank to make way. In a proposal that makes a nomination, such an end is skipped if the
// nomination that its Since names has ended already.
type Nominate struct {
	// Capsule is the pending capsule that the room is for; empty if Gang is set.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang that the room is for, no member of which is placed; empty if Capsule is set.
	Gang GangID `json:"gang,omitempty"`
	// Since is the revision at which the nomination was made that this Nominate replaces or ends. 0: it may replace or
	// end any nomination, and there need be none to replace.
	Since Revision `json:"since,omitempty"`
	// Aged is how far the nomination ranks above the priority of its capsule; at most Limits.NominationAging.
	Aged int32 `json:"aged,omitempty"`
	// Parts is the claimed room, at most one part for each node. Without Parts, Nominate ends the nomination.
	Parts []NominatedRoom `json:"parts,omitempty"`
	// Ends is when engines end the nomination, at the latest Limits.Nominate after they first saw it; zero if there are
	// no Parts.
	Ends time.Time `json:"ends,omitzero"`
	// Lends is the longest running time of capsules that may borrow the room meanwhile ([Spec.Backfills]); they also
	// need a lower priority. Set it to the time that the nominee is expected to wait, and to less in each renewal. 0:
	// the room is not lent. Zero if there are no Parts.
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

// Nomination is the nomination of a capsule or a gang, as one revision of the state holds it. Read it, never write it.
type Nomination struct {
	// Capsule is the capsule that the room is for; empty if it is a gang.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang that the room is for; empty if it is a capsule.
	Gang GangID `json:"gang,omitempty"`
	// Rank is the priority of the capsule, or the lowest one of the gang's roles, plus Nominate.Aged.
	Rank int32 `json:"rank,omitempty"`
	// First is the revision of the first nomination since the nominee began to wait. Among equal ranks the lowest First
	// wins. First survives the end of a nomination. After Limits.Renewals renewals the next nomination gets a new
	// First.
	First Revision `json:"first"`
	// Made is the revision at which this nomination was made.
	Made Revision `json:"made"`
	// Renewals counts the nominations since First.
	Renewals int `json:"renewals,omitempty"`
	// Parts is the claimed room, by node. A nomination without Parts has ended; the record is kept for First alone.
	Parts []NominatedRoom `json:"parts,omitempty"`
	// Ends is when engines end the nomination.
	Ends time.Time `json:"ends,omitzero"`
	// Lends is Nominate.Lends.
	Lends time.Duration `json:"lends,omitempty"`

	// Only capsules of a priority below the ceiling may be evicted for the nominee, and so only they may borrow its
	// room.
	ceiling int32
	// A hash of Parts, once the nomination is in a state; 0 before.
	sum uint64
}

// Lives reports whether the nomination has not ended: whether it claims room. It is false for nil.
func (n *Nomination) Lives() bool { return n != nil && len(n.Parts) > 0 }

// Outranks reports whether the nomination comes before another one.
func (n *Nomination) Outranks(o *Nomination) bool { return n.compare(o) < 0 }

// OutranksPriority reports whether the nomination comes before a capsule of this priority that is not nominated. Equal
// rank is enough.
func (n *Nomination) OutranksPriority(priority int32) bool { return n.Rank >= priority }

// compare orders nominations by rank, highest first, then by First, earliest first. The ids break ties.
func (n *Nomination) compare(o *Nomination) int {
	return cmp.Or(cmp.Compare(o.Rank, n.Rank), cmp.Compare(n.First, o.First),
		cmp.Compare(n.Gang, o.Gang), cmp.Compare(n.Capsule, o.Capsule))
}

// ended returns the record that is kept of a nomination after its end.
func (n *Nomination) ended() *Nomination {
	if n == nil {
		return nil
	}
	return &Nomination{Capsule: n.Capsule, Gang: n.Gang, First: n.First, Made: n.Made, Renewals: n.Renewals}
}

// maxNominated is how many nominations may claim room on one node.
const maxNominated = 8

// nominated holds the nominations that claim room on a node. Nodes share it, so it is never written to: copy it first.
type nominated struct {
	parts []nominatedPart
	// In a draft: the nomination of the capsule that is planned now ([Draft.Ask]); nil: the capsule is not nominated.
	asker *Nomination
	// In a draft: room of holds that the proposal has ended. Placements of the same proposal may take it despite
	// nominations.
	spare        Resources
	spareDevices deviceUse
	// In a draft: no capsule borrows on this node until the next view. The plan has nominated room here, and whether
	// that nomination commits decides who lends afterwards.
	keeps bool
}

// nominatedPart is one part of a living nomination: of.Parts[at].
type nominatedPart struct {
	of *Nomination
	at int
}

func (p nominatedPart) room() *NominatedRoom { return &p.of.Parts[p.at] }

// copy returns a shallow copy that may be written to; its parts are still shared.
func (m *nominated) copy() *nominated {
	if m == nil {
		return &nominated{}
	}
	c := *m
	return &c
}

// with returns a copy to which one part of a nomination is added.
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

// outranks reports whether the nomination of a part outranks a capsule of this priority that has the asker's
// nomination.
func (m *nominated) outranks(p nominatedPart, priority int32) bool {
	return p.of.OutranksPriority(priority) && (m.asker == nil || p.of.Outranks(m.asker))
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

// ask is the room and the devices that one commitment (Place, Resize or Hold) asks for on a node.
type ask struct {
	room    *Resources
	devices DeviceSet
	milli   int
	// The commitment is a Hold. Every nomination outranks a hold.
	hold     bool
	priority int32
	// The living nomination of the capsule or its gang, as it was before the proposal; nil: there is none.
	nomination *Nomination
	// The spec of the capsule, nil for a hold; and the nominee from which the capsule borrows, nil if there is none.
	of     *Spec
	lender *Nominee
}

// ask returns the ask of a capsule of the spec on these devices. The nomination is that of the capsule or its gang, or
// nil.
func (s *Spec) ask(devices DeviceSet, nominated *Nomination) ask {
	return ask{room: &s.Envelope.Reservation, devices: devices, milli: s.Devices.Milli, priority: s.Priority, nomination: nominated, of: s}
}

// yieldsTo reports whether a nomination outranks the ask. The nomination from which the ask borrows does not.
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

// encroachment says which nomination would lose room to the asks of one proposal on one node.
type encroachment struct {
	// The first nomination whose room would be taken; nil: the asks take no nominated room.
	of *Nomination
	// Where room is short: a dimension, or, if device is set, a device instance.
	at     int
	device bool
	// The amount that is asked for, and the amount that the nominations leave.
	want, free int64
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

// judge judges one dimension or one device instance. Free is what the asks leave of it; ended is the amount that ended
// holds held; take and claim return the share of an ask and of a part in it. On a violation judge sets e.of.
func (e *encroachment) judge(parts []nominatedPart, asks []ask, free, ended int64, take func(*ask) int64, claim func(nominatedPart) int64) {
	held := false
	e.want = 0
	for i := range asks {
		want := take(&asks[i])
		e.want += want // cannot overflow: the asks are known to fit on the node
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

// lowers reports whether the description now offers less of some resource or fewer devices than n does. Nil: the node
// has left.
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

// misfit says why the claimed room on a node can serve none of the specs, whatever leaves the node; the text completes
// "nodes ...". Empty: the room can serve one of them. Only the description of the node is judged, not its use.
func (r *NominatedRoom) misfit(n *Node, specs []*Spec, names *dimensionNames) string {
	if !n.Schedulable() {
		return Misfit{kind: unschedulable}.text(nil, names)
	}
	for d, room := range r.Room {
		if room > n.Capacity[d] {
			return Misfit{kind: shortOfRoom, arg: d}.text(nil, names)
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

// amounts are sums of what capsules ask for, or of what parts of a nomination claim: resources, the number of device
// instances, and the milli of each instance. Capsules may share an instance, so their milli are summed; those of parts
// are not.
type amounts struct {
	room             [Dimensions]wide
	instances, milli int64
}

// addRole adds what all members of a role ask for.
func (a *amounts) addRole(r *Role) {
	n := len(r.Members)
	for d, x := range r.Spec.Envelope.Reservation {
		a.room[d] = a.room[d].add(wide{}.plus(x).times(n))
	}
	a.instances += int64(n) * int64(r.Spec.Devices.Count)
	a.milli += int64(n) * int64(r.Spec.Devices.Milli)
}

// addPart adds what a part claims.
func (a *amounts) addPart(r *NominatedRoom) {
	for d, x := range r.Room {
		a.room[d] = a.room[d].plus(x)
	}
	a.instances += int64(r.Devices.Len())
	a.milli = max(a.milli, int64(r.Milli))
}

// beyond returns the first amount that is above most, and that of most; empty: there is none.
func (a *amounts) beyond(most *amounts, names *dimensionNames) (over, of string) {
	for d := range a.room {
		if a.room[d].exceeds(most.room[d]) {
			return fmt.Sprintf("%v of %s", a.room[d], names.name(d)), most.room[d].String()
		}
	}
	switch {
	case a.instances > most.instances:
		return fmt.Sprintf("%d devices", a.instances), strconv.FormatInt(most.instances, 10)
	case a.milli > most.milli:
		return fmt.Sprintf("%d milli of each device", a.milli), strconv.FormatInt(most.milli, 10)
	}
	return "", ""
}

// exceeds returns what a part claims beyond what the capsules of the roles ask for that may be on the node, and what
// these ask for; empty: nothing.
func (r *NominatedRoom) exceeds(n *Node, roles []Role, names *dimensionNames) (over, of string) {
	var claims, asks amounts
	claims.addPart(r)
	for i := range roles {
		if !(&NodeState{Node: n}).meets(roles[i].Spec) || roles[i].Spec.Devices.Count > 0 && !roles[i].Spec.Devices.Accepts(n.Devices.Model) {
			continue
		}
		asks.addRole(&roles[i])
		if more, _ := claims.beyond(&asks, names); more == "" {
			return "", "" // most often after the first role
		}
	}
	return claims.beyond(&asks, names)
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

// claims reports whether the nomination claims room on a node.
func (n *Nomination) claims(id NodeID) bool {
	return slices.ContainsFunc(n.Parts, func(r NominatedRoom) bool { return r.Node == id })
}

// shares reports whether both nominations claim some of the same resource, or both claim devices.
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

// The rest of this file is about loans of nominated room, about the sums of nominated room and capacity that
// Limits.NominatedShare compares, and about nodes that capsules leave.

// Nominee names a capsule or a gang that is nominated, or was. Exactly one field is set.
type Nominee struct {
	// Capsule is the capsule; empty if it is a gang.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang; empty if it is a capsule.
	Gang GangID `json:"gang,omitempty"`
}

// String returns "capsule" or "gang" and the id, as error texts have it.
func (w Nominee) String() string {
	if w.Gang != "" {
		return "gang " + quoteWord(string(w.Gang))
	}
	return "capsule " + quoteWord(string(w.Capsule))
}

// is reports whether the nomination n is for the nominee.
func (w *Nominee) is(n *Nomination) bool { return w.Capsule == n.Capsule && w.Gang == n.Gang }

// lends reports whether capsules of the spec may borrow the nominated room. It is false for nil, the spec of a hold.
func (n *Nomination) lends(spec *Spec) bool {
	return spec != nil && spec.Backfills && spec.RunsAtMost <= n.Lends && spec.Priority < n.ceiling
}

// lenderOf returns the first nomination of the parts that lends to capsules of the spec; nil if none does. The spec of
// a hold is nil.
func lenderOf(parts []nominatedPart, spec *Spec) *Nomination {
	for _, p := range parts {
		if p.of.lends(spec) {
			return p.of
		}
	}
	return nil
}

// ceiling returns the lowest priority that is safe from eviction for work of the given priority. The truce (TruceFrom,
// TruceTo) lowers it.
func (l *Limits) ceiling(priority int32) int32 {
	if priority <= l.TruceTo {
		return min(priority, l.TruceFrom)
	}
	return priority
}

// recalls reports whether the eviction of c is a recall of a loan: it makes way for the nominee from which c borrows.
func (e *Evict) recalls(c *Capsule) bool {
	return c.Borrows() != nil && *c.Borrows() == Nominee{e.For, e.ForGang}
}

// load is an amount of a node's resources and of its devices.
type load struct {
	room    Resources
	devices deviceUse
}

// add adds the load of one capsule of the spec on these devices; with sign -1 it subtracts the load.
func (l *load) add(spec *Spec, set DeviceSet, sign int32) {
	for d, x := range spec.Envelope.Reservation {
		l.room[d] += int64(sign) * x
	}
	l.devices.add(set, sign*int32(spec.Devices.Milli))
}

// loan is the load of all capsules on a node that borrow from one nominee, and the number of these capsules.
type loan struct {
	from Nominee
	load
	capsules int
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

var noLoad load

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

// wide is a sum of quantities: 128 bits, because the capacity of all nodes may not fit in 64.
type wide struct {
	hi int64
	lo uint64
}

// plus returns w + x; x may be negative.
func (w wide) plus(x int64) wide {
	lo, carry := bits.Add64(w.lo, uint64(x), 0)
	return wide{w.hi + x>>63 + int64(carry), lo}
}

// add returns w + x. Neither may be negative.
func (w wide) add(x wide) wide {
	lo, carry := bits.Add64(w.lo, x.lo, 0)
	return wide{w.hi + x.hi + int64(carry), lo}
}

// String returns the sum as a decimal number.
func (w wide) String() string {
	sum := new(big.Int).Lsh(big.NewInt(w.hi), 64)
	return sum.Add(sum, new(big.Int).SetUint64(w.lo)).String()
}

// times returns w * n. Neither may be negative, and n must be small enough that the product fits in 128 bits.
func (w wide) times(n int) wide {
	hi, lo := bits.Mul64(w.lo, uint64(n))
	return wide{w.hi*int64(n) + int64(hi), lo}
}

// exceeds reports whether w is more than o.
func (w wide) exceeds(o wide) bool { return w.hi > o.hi || w.hi == o.hi && w.lo > o.lo }

// totals are sums of each resource over many nodes. The last element is the sum of device instances in milli.
type totals [Dimensions + 1]wide

// addNode adds the capacity of a node; with sign -1 it subtracts the capacity.
func (t *totals) addNode(n *Node, sign int64) {
	for d, c := range n.Capacity {
		t[d] = t[d].plus(sign * c)
	}
	t[Dimensions] = t[Dimensions].plus(sign * int64(n.Devices.Count) * deviceMilli)
}

// addRooms adds the claims of a nomination on all its nodes; with sign -1 it subtracts them.
func (t *totals) addRooms(n *Nomination, sign int64) {
	for i := range n.Parts {
		r := &n.Parts[i]
		for d, c := range r.Room {
			t[d] = t[d].plus(sign * c)
		}
		t[Dimensions] = t[Dimensions].plus(sign * int64(r.Devices.Len()) * int64(r.Milli))
	}
}

// within reports whether the sum of takes is at most free. No quantity may be negative. It cannot overflow.
func within(free int64, takes ...int64) bool {
	for _, x := range takes {
		if x > free {
			return false
		}
		free -= x
	}
	return true
}

// loses takes a placed capsule off n, as a plan sees the node after it has released or evicted the capsule at revision
// at. If the capsule has begun to run, its remains stay on the node, unless the node is lost.
func (n *NodeState) loses(c *Capsule, at Revision) {
	n.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
	n.borrow(c, -1)
	n.Capsules--
	if c.Begun && n.Node.State != Lost {
		list := n.withRemains(&Remains{Capsule: c.ID, Spec: c.Spec, Node: n.Node.ID, Devices: c.Devices, Since: c.PlacedAt, Left: at})
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
