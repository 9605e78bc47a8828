package nav

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// How a Preempting serves broken gangs ([orbit.GangState.Broken]): it evicts others for the members that they lack, in
// the domain in which they run.

// waiterOf returns what waits as a whole: besides the waiters of a Patient, a broken gang for the members that it lacks.
func (r *preemptPass) waiterOf(c *orbit.Capsule) waiter {
	if r.isBroken(c.Gang()) {
		return waiter{gang: c.Gang()}
	}
	return waiterOf(r.state, c)
}

// stillWaits reports whether a waiter still waits.
func (r *preemptPass) stillWaits(w waiter) bool { return r.isBroken(w.gang) || w.waits(r.state) }

func (r *preemptPass) isBroken(id orbit.GangID) bool { return isBroken(r.state, id) }

// isBroken reports whether there is a broken gang with this id.
func isBroken(state *orbit.State, id orbit.GangID) bool {
	g := state.Gang(id)
	return id != "" && g != nil && g.Broken()
}

// wanted returns the capsules to seat together for a member of a gang, and the levels in one domain of which they must
// be: the minimum of a gang that does not run, or what a broken gang lacks. After a lost proposal it is one member of a
// broken gang at a time, because room can be nominated for one, and perhaps not for all. It sets home to a broken gang.
func (r *preemptPass) wanted(c *orbit.Capsule) (members []*orbit.Capsule, levels [][]string) {
	if r.home, r.search.Lower = nil, false; !r.isBroken(c.Gang()) {
		return wantedOf(r.state, c, c.Gang())
	}
	m := loadGang(r.state, c.Gang())
	if m.owner = c.Owner(); m.inspect() != nil {
		return nil, nil
	}
	r.home = m
	unused := make([][]*orbit.Capsule, len(m.waiting))
	for role, waiting := range m.waiting {
		unused[role] = slices.DeleteFunc(slices.Clone(waiting), func(c *orbit.Capsule) bool { return r.draft.Uses(c.ID) })
	}
	needs := seats.NeedsOf(m.state, unused)
	members = needs.Members()
	if w := r.waiterOf(c); len(members) > 1 && (r.wait(w).lost > 0 || r.withheld[w] || members[0].Nomination().Lives()) {
		members, r.search.Lower = members[:1], true
	}
	_, levels = wantedOf(r.state, c, "")
	return members, levels
}

// mayBeIn reports whether the members that are served may be in a domain: any, or for a broken gang the one in which it
// runs.
func (r *preemptPass) mayBeIn(t *seats.Table, d int) bool {
	return r.home == nil || r.home.domain(t, r.state) == int32(d)
}

// nominateMember nominates room for a member that a broken gang lacks, as for a capsule: a gang that runs is not
// nominated. It reports false if the member is nominated there already, or the draft refuses.
func (r *preemptPass) nominateMember(w waiter, room seats.MemberRoom) bool {
	if isNominated(room.Of.Nomination(), room.NominatedRoom) || !r.nominate(waiter{capsule: room.Of.ID}, []orbit.NominatedRoom{room.NominatedRoom}) {
		return false
	}
	r.wait(w).lost = 0
	r.withholdAgain(w)
	return true
}

// mustSeat reports whether a seating that needs no victims has to be proposed nevertheless, because it uses room that is
// nominated for a member: a [Gang] uses only room that is nominated for a gang.
func (r *preemptPass) mustSeat(s *seats.Eviction) bool {
	return r.home != nil && slices.ContainsFunc(s.Rooms, func(room seats.MemberRoom) bool { return room.Of.Nomination().Lives() })
}

// urgentFirst orders work that was left out: the highest turn first ([orbit.View.Turn]), then members of broken gangs.
func (r *preemptPass) urgentFirst(a, b orbit.Unplaced) int {
	return cmp.Or(cmp.Compare(r.view.Turn(b.Capsule), r.view.Turn(a.Capsule)),
		btoi(r.isBroken(b.Capsule.Gang()))-btoi(r.isBroken(a.Capsule.Gang())))
}
