package race

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file judges nominations ([orbit.Nominate]) by books of its own: which work may take nominated room, and how long
// nominated work waits.

// nominee is a capsule or a gang that may be nominated.
type nominee struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
}

// nominees returns the nominees whose nomination a capsule can use, in the order in which they count: the capsule
// itself, and its gang. A member that a running gang lacks is nominated as a capsule.
func (m *auditCapsule) nominees() []nominee {
	if m.gang != nil {
		return []nominee{{capsule: m.id}, {gang: m.gang.ID}}
	}
	return []nominee{{capsule: m.id}}
}

// before orders nominations: by rank, then by when they were first made.
func before(a, b *orbit.Nomination) int {
	return cmp.Or(cmp.Compare(b.Rank, a.Rank), cmp.Compare(a.First, b.First), cmp.Compare(a.Gang, b.Gang), cmp.Compare(a.Capsule, b.Capsule))
}

// nominate enters a nomination, or the end of one.
func (a *audit) nominate(do *orbit.Nominate, rev orbit.Revision) {
	id := nominee{do.Capsule, do.Gang}
	was := a.nominations[id]
	if len(do.Parts) == 0 {
		if was != nil && (do.Since == 0 || do.Since == was.Made) { // otherwise the nomination that it names has ended already
			a.endParts(id)
		}
		return
	}
	n := &orbit.Nomination{Capsule: do.Capsule, Gang: do.Gang, First: rev, Made: rev, Parts: do.Parts, Ends: do.Ends, Lends: do.Lends}
	if was != nil && was.Renewals < a.state.Limits().Renewals {
		n.First, n.Renewals = was.First, was.Renewals+1
	}
	if m := a.capsules[do.Capsule]; m != nil {
		n.Rank = m.spec.Priority + do.Aged
	}
	if g := a.gangs[do.Gang]; g != nil {
		lowest, _ := g.priorities()
		n.Rank = lowest + do.Aged
	}
	a.nominations[id] = n
}

// endParts ends a nomination, and keeps when it was first made.
func (a *audit) endParts(id nominee) {
	if was := a.nominations[id]; was != nil {
		now := *was
		now.Parts = nil
		a.nominations[id] = &now
	}
}

// endNomination ends the nominations of a capsule that has ended, and of its gang.
func (a *audit) endNomination(m *auditCapsule) {
	for _, id := range m.nominees() {
		if id.gang != "" {
			a.endParts(id)
		} else {
			delete(a.nominations, id)
		}
	}
}

// nodeAsk is the demand of one commitment on a node.
type nodeAsk struct {
	node    orbit.NodeID
	who     string
	room    orbit.Resources
	devices orbit.DeviceSet
	milli   int
	// hold says that the demand is that of a hold, which every nomination outranks. For a capsule, priority is its
	// priority and nominated is its nomination before the commit.
	hold      bool
	priority  int32
	nominated *orbit.Nomination
	// of is the capsule; borrows is the nominee from which it borrows.
	of      *auditCapsule
	borrows nominee
	// ends says that this is no demand but the room of a hold that the commit ends.
	ends bool
}

// asksOf returns the demands of a commit, before it is entered; nil if there are no nominations.
func (a *audit) asksOf(changes []orbit.Change) (asks []nodeAsk) {
	if len(a.nominations) == 0 {
		return nil
	}
	for i := range changes {
		switch do := changes[i].Do.(type) {
		case orbit.Place:
			if m := a.capsules[do.Capsule]; m != nil {
				ask := nodeAsk{node: do.Node, who: string(do.Capsule), room: m.spec.Envelope.Reservation, devices: do.Devices, milli: m.spec.Devices.Milli, priority: m.spec.Priority, of: m}
				for _, id := range m.nominees() {
					if n := a.nominations[id]; n.Lives() && ask.nominated == nil {
						ask.nominated = n
					}
				}
				asks = append(asks, ask)
			}
		case orbit.Hold:
			asks = append(asks, nodeAsk{node: do.Node, who: "hold " + string(do.ID), room: do.Room, devices: do.Devices, milli: do.Milli, hold: true})
		case orbit.Release:
			if h, ok := a.holds[do.Hold]; ok {
				asks = append(asks, nodeAsk{node: h.Node, room: h.Room, devices: h.Devices, milli: h.Milli, ends: true})
			}
		}
	}
	return asks
}

// lend finds the nominee from which each capsule that a commit has placed borrows. It is the first in rank that lends
// to the capsule, of the nominations on the node that were made before the commit and live after it.
func (a *audit) lend(asks []nodeAsk, rev orbit.Revision) {
	for i := range asks {
		k := &asks[i]
		if k.of == nil {
			continue
		}
		for _, n := range slices.SortedFunc(maps.Values(a.nominations), before) {
			on := func(r orbit.NominatedRoom) bool { return r.Node == k.node }
			if n.Made < rev && k.of.spec.Backfills && k.of.spec.RunsAtMost <= n.Lends && k.of.spec.Priority < a.evictsAt(n) && slices.ContainsFunc(n.Parts, on) {
				k.borrows = nominee{n.Capsule, n.Gang}
				break
			}
		}
		k.of.borrows = k.borrows
	}
}

// evictsAt returns the lowest priority that a nominee may ever have when it evicts others: that of all roles of a gang.
func (a *audit) evictsAt(n *orbit.Nomination) int32 {
	least, gang := int32(math.MaxInt32), a.gangs[n.Gang]
	if m := a.capsules[n.Capsule]; m != nil {
		least, gang = m.spec.Priority, m.gang
	}
	for i := 0; gang != nil && i < len(gang.Roles); i++ {
		least = min(least, gang.Roles[i].Spec.Priority)
	}
	return least
}

// borrowed returns how much is borrowed from a nominee on a node; of selects one resource or device.
func (a *audit) borrowed(from nominee, on orbit.NodeID, of func(orbit.Resources, orbit.DeviceSet, int) int64) (sum int64) {
	for _, m := range a.capsules {
		if m.node == on && m.borrows == from {
			sum += of(m.spec.Envelope.Reservation, m.devices, m.spec.Devices.Milli)
		}
	}
	return sum
}

// yields reports whether a nomination outranks the ask.
func (k *nodeAsk) yields(to *orbit.Nomination) bool {
	if k.borrows != (nominee{}) && k.borrows == (nominee{to.Capsule, to.Gang}) {
		return false
	}
	if k.nominated != nil {
		return before(to, k.nominated) < 0
	}
	return k.hold || to.Rank >= k.priority
}

// judgeAsks checks that a commit has not taken room that is nominated for work that outranks it. For each resource and
// device that the commit asks for on a node, the usage and the room nominated for such work must fit together.
func (a *audit) judgeAsks(asks []nodeAsk, rev orbit.Revision) {
	a.lend(asks, rev)
	for i := range asks {
		n := a.nodes[asks[i].node]
		if n == nil || asks[i].ends {
			continue
		}
		for d := range n.used {
			a.judgeAsk(asks, i, rev, n.Capacity[d]-n.used[d], func(r orbit.Resources, _ orbit.DeviceSet, _ int) int64 { return r[d] })
		}
		for k := range n.Devices.Count {
			a.judgeAsk(asks, i, rev, 1000-n.devices[k], func(_ orbit.Resources, set orbit.DeviceSet, milli int) int64 {
				if set.Has(k) {
					return int64(milli)
				}
				return 0
			})
		}
	}
}

// judgeAsk judges one of the demands by one resource or device, which of selects. Free is how much of it is free after
// the commit.
func (a *audit) judgeAsk(asks []nodeAsk, i int, rev orbit.Revision, free int64, of func(orbit.Resources, orbit.DeviceSet, int) int64) {
	k := &asks[i]
	if of(k.room, k.devices, k.milli) == 0 {
		return
	}
	sum, ended, held := int64(0), int64(0), false
	for j := range asks {
		switch other := &asks[j]; {
		case other.node != k.node:
		case other.ends:
			ended += of(other.room, other.devices, other.milli)
		default:
			want := of(other.room, other.devices, other.milli)
			sum, held = sum+want, held || other.hold && want > 0
		}
	}
	if !held && sum <= ended {
		return // it takes no more than the room of a hold that the commit ends
	}
	for _, n := range slices.SortedFunc(maps.Values(a.nominations), before) {
		for _, part := range n.Parts {
			if part.Node != k.node {
				continue
			}
			claimed := max(0, of(part.Room, part.Devices, part.Milli)-a.borrowed(nominee{n.Capsule, n.Gang}, k.node, of))
			if claimed == 0 || !k.yields(n) {
				continue
			}
			if free -= claimed; free < 0 {
				a.fail("overtaken", "%s takes room on %s at revision %d that is nominated for %s%s, of rank %d, which outranks it", k.who, k.node, rev, n.Gang, n.Capsule, n.Rank)
				return
			}
		}
	}
}

// firstNominee is the nomination that no other outranks.
type firstNominee struct {
	id nominee
	// since is the time since when it is first and its room is free.
	since time.Duration
}

// atRest reports whether some engine has run without faults for longer than Serve.
func (c *course) atRest() bool {
	return slices.ContainsFunc(c.actors, func(a *actor) bool { return !a.gone && c.now-max(a.began, c.Faults.Until) > c.Serve })
}

// checkWaits checks the bounds Job.Within and Serve.
func (c *course) checkWaits() {
	if slices.ContainsFunc(c.actors, func(a *actor) bool { return a.gone }) {
		c.calm = c.now
	}
	for _, t := range c.jobs {
		if since := max(t.At, c.calm); t.Within > 0 && t.submitted && !t.served && c.now-since > t.Within && c.audit.could(t) {
			c.fail("waits too long", "job %d was submitted at %v, nothing has gone wrong since %v, and at %v %d of its %d tasks have been placed", t.number, t.At, c.calm, c.now, t.placed, t.Tasks)
		}
	}
	if c.Serve == 0 || len(c.audit.nominations) == 0 {
		return
	}
	a := c.audit
	var first *orbit.Nomination
	for _, n := range a.nominations {
		if n.Lives() && (first == nil || before(n, first) < 0) {
			first = n
		}
		if late := c.now - n.Ends.Sub(c.start); n.Lives() && late > c.Serve && c.atRest() {
			c.fail("never lapses", "what is nominated for %s%s should have ended %v ago", n.Gang, n.Capsule, late)
		}
	}
	if first == nil || !a.isFree(first) || (nominee{first.Capsule, first.Gang}) != a.first.id {
		a.first = firstNominee{since: c.now}
	}
	if first == nil {
		return
	}
	a.first.id = nominee{first.Capsule, first.Gang}
	if since := max(a.first.since, c.calm); c.now-since > c.Serve {
		c.fail("not served", "%s%s, of rank %d, is nominated since revision %d, nothing outranks it, all its room is free since %v, and it is not placed", first.Gang, first.Capsule, first.Rank, first.Made, since)
	}
}

// could reports whether a job would fit on the empty nodes. If others have to make way for it (Victims), it must fit
// beside all other jobs with victims.
func (a *audit) could(t *task) bool {
	var rooms []room
	for _, id := range slices.Sorted(maps.Keys(a.nodes)) {
		rooms = append(rooms, emptyRoom(&a.nodes[id].Node))
	}
	if t.Gang {
		return seatAll(a.gangs[t.gang()].Gang, a.gangs[t.gang()].left, rooms, nil)
	}
	for _, other := range a.jobs {
		if other == t && t.Victims == 0 || t.Victims > 0 && other.Victims > 0 {
			for range other.Tasks {
				i := slices.IndexFunc(rooms, func(r room) bool { return r.takes(other.Spec) })
				if i < 0 {
					return false
				}
				if t.Victims == 0 {
					break // its tasks may end before the next
				}
				rooms[i].take(other.Spec, 0)
			}
		}
	}
	return true
}

// nominatedOn reports whether room on a node is nominated.
func (a *audit) nominatedOn(id orbit.NodeID) bool {
	for _, n := range a.nominations {
		if slices.ContainsFunc(n.Parts, func(r orbit.NominatedRoom) bool { return r.Node == id }) {
			return true
		}
	}
	return false
}

// isFree reports whether all room of a nomination is free. Room that is only borrowed from the nomination counts as
// free.
func (a *audit) isFree(n *orbit.Nomination) bool {
	for _, part := range n.Parts {
		on := a.nodes[part.Node]
		if on == nil || !on.Schedulable() {
			return false
		}
		for d := range part.Room {
			lent := a.borrowed(nominee{n.Capsule, n.Gang}, part.Node, func(r orbit.Resources, _ orbit.DeviceSet, _ int) int64 { return r[d] })
			if part.Room[d] > 0 && on.Capacity[d]-on.used[d]+lent < part.Room[d] {
				return false
			}
		}
		for i, used := range on.devices {
			if part.Devices.Has(i) && used+int64(part.Milli) > 1000 {
				return false
			}
		}
	}
	return true
}
