package orbit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/orbitsched/orbit/internal/wide"
)

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
	// In a draft: the nomination of the capsule that is planned now ([Draft.LookAs]); nil: the capsule is not nominated.
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

// outranks reports whether the nomination of a part outranks a capsule of this priority that has the asker's
// nomination.
func (m *nominated) outranks(p nominatedPart, priority int32) bool {
	return p.of.OutranksPriority(priority) && (m.asker == nil || p.of.Outranks(m.asker))
}

// ask is the room and the devices that one commitment (Place, Respec or Hold) asks for on a node.
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

// amounts are sums of what capsules ask for, or of what parts of a nomination claim: resources, the number of device
// instances, and the milli of each instance. Capsules may share an instance, so their milli are summed; those of parts
// are not.
type amounts struct {
	room             [Dimensions]wide.Int
	instances, milli int64
}

// addRole adds what all members of a role ask for.
func (a *amounts) addRole(r *Role) {
	n := len(r.Members)
	for d, x := range r.Spec.Envelope.Reservation {
		a.room[d] = a.room[d].Add(wide.Int{}.Plus(x).Times(n))
	}
	a.instances += int64(n) * int64(r.Spec.Devices.Count)
	a.milli += int64(n) * int64(r.Spec.Devices.Milli)
}

// addPart adds what a part claims.
func (a *amounts) addPart(r *NominatedRoom) {
	for d, x := range r.Room {
		a.room[d] = a.room[d].Plus(x)
	}
	a.instances += int64(r.Devices.Len())
	a.milli = max(a.milli, int64(r.Milli))
}

// beyond returns the first amount that is above most, and that of most; empty: there is none.
func (a *amounts) beyond(most *amounts, names *dimensionNames) (over, of string) {
	for d := range a.room {
		if a.room[d].Exceeds(most.room[d]) {
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
		if a[d] != (wide.Int{}) && b[d] != (wide.Int{}) {
			return true
		}
	}
	return false
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

// ending returns a proposal that ends the nomination.
func (n *Nomination) ending() Proposal {
	return Proposal{Do: []Commitment{Nominate{Capsule: n.Capsule, Gang: n.Gang, Since: n.Made}}}
}

// endsBefore orders nominations by when engines end them.
func (n *Nomination) endsBefore(o *Nomination) bool {
	return cmp.Or(n.Ends.Compare(o.Ends), n.compare(o)) < 0
}

func (n *Nomination) nominee() string { return Nominee{n.Capsule, n.Gang}.String() }

// partsOn appends the nomination's part on a node, if it has one.
func (n *Nomination) partsOn(id NodeID, parts []nominatedPart) []nominatedPart {
	for i := range n.Parts {
		if n.Parts[i].Node == id {
			parts = append(parts, nominatedPart{n, i})
		}
	}
	return parts
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

var noLoad load

// totals are sums of each resource over many nodes. The last element is the sum of device instances in milli.
type totals [Dimensions + 1]wide.Int

// addNode adds the capacity of a node; with sign -1 it subtracts the capacity.
func (t *totals) addNode(n *Node, sign int64) {
	for d, c := range n.Capacity {
		t[d] = t[d].Plus(sign * c)
	}
	t[Dimensions] = t[Dimensions].Plus(sign * int64(n.Devices.Count) * deviceMilli)
}

// addRooms adds the claims of a nomination on all its nodes; with sign -1 it subtracts them.
func (t *totals) addRooms(n *Nomination, sign int64) {
	for i := range n.Parts {
		r := &n.Parts[i]
		for d, c := range r.Room {
			t[d] = t[d].Plus(sign * c)
		}
		t[Dimensions] = t[Dimensions].Plus(sign * int64(r.Devices.Len()) * int64(r.Milli))
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
