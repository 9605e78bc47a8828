package orbit

import (
	"cmp"
	"fmt"
	"slices"
)

// A gang starts with the minimum of every role, and its own, at once, and a voluntary disruption leaves it these or
// nothing. Members may join it as long as some are not done.

// judgeGangs judges every gang of which the proposal places, takes or changes members.
func (t *tx) judgeGangs() error {
	for i := range t.gangs.entries {
		if err := t.judgeGang(&t.gangs.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// judgeGang judges wishes, and the gang's first placement: every role needs its minimum at once. After that a gang may
// fall short of its minimums, for example when members stop, and place them one by one.
func (t *tx) judgeGang(g *txGang) error {
	if err := t.judgeWishes(g); err != nil {
		return err
	}
	if g.now.Total() == 0 || g.adopts || g.was != nil && g.was.Total() > 0 && !g.restarts {
		return nil
	}
	if !g.now.wanting() {
		return nil
	}
	t.at = -1 // all together
	whose, placed, least := g.now.below()
	return t.refuse(Rejection{}, g.newest(), "gang %q: %s would have %d members placed, at least %d must be at first",
		g.now.Gang.ID, whose, placed, least)
}

// judgeWishes judges a gang from which wishes take members. Afterwards each role must have as many members placed as
// before, or every role and the gang their minimums, or no member of the gang may be placed.
func (t *tx) judgeWishes(g *txGang) error {
	if !g.wished || g.was == nil {
		return nil
	}
	if g.displaced != nil && (!g.drains || !g.restarts) && !t.rebuilds(g) {
		return g.displaced
	}
	if g.now.Total() == 0 || !g.now.wanting() {
		return nil
	}
	for r, before := range g.was.Placed {
		if g.now.Placed[r] < before {
			newest := g.newest()
			for k := range t.capsules.entries { // a member may have begun since the view, and have been free to leave before
				if e := &t.capsules.entries[k]; e.wished && e.was != nil && e.was.Gang() == g.now.Gang.ID {
					newest = max(newest, e.newest())
				}
			}
			t.at = -1
			whose, placed, least := g.now.below()
			return t.refuse(Rejection{}, newest, "gang %q: %s would have %d members placed; a wish leaves at least %d, or none of the gang",
				g.now.Gang.ID, whose, placed, least)
		}
	}
	return nil
}

// rebuilds reports whether the proposal takes a broken gang off its nodes as a whole, and leaves it without placed
// members or with every minimum.
func (t *tx) rebuilds(g *txGang) bool {
	if g.was == nil || !g.was.Broken() || g.now.Total() > 0 && g.now.wanting() {
		return false
	}
	left := 0
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.was != nil && e.was.Gang() == g.was.Gang.ID && e.was.Placed() && (!e.now.Placed() || e.now.PlacedAt != e.was.PlacedAt) {
			left++
		}
	}
	return left == g.was.Total()
}

// replaces reports whether a gang that was broken before the proposal and is not broken after it precedes another one,
// by the state before.
func (t *tx) replaces(gang, other GangID) bool {
	g := t.gangs.find(gang)
	return g != nil && !g.now.wanting() && t.s.Precedes(gang, other)
}

// submitGang adds a gang and all its members. The gang's record lives as long as the record of any member. While it
// lives, only a gang that includes all recorded members may use its id again, after these have been released for good.
func (t *tx) submitGang(c *Submit) error {
	g := t.gang(c.Gang.ID)
	if g == nil {
		g = t.gangs.add(c.Gang.ID)
	} else {
		if id, newest := t.outlives(g.now.Gang, c.Gang); id != "" {
			return t.refuse(Rejection{Capsule: id, advice: anotherID + ", set Join to add members, or release its members for good and name them all again"}, max(g.newest(), newest),
				"there is a gang %q already, with capsule %q", c.Gang.ID, id)
		}
		t.nominates = t.nominates || g.now.Nomination != nil
		g.anew, g.wished, g.drains, g.adopts, g.displaced = true, false, false, false, nil
	}
	g.now = newGangState(c.Gang, t.rev)
	for i := range c.Gang.Roles {
		if err := t.submitMembers(c, g.now, i, &c.Gang.Roles[i]); err != nil {
			return err
		}
	}
	return nil
}

// submitMembers adds the members of a role of a Submit to the role of the gang with this index.
func (t *tx) submitMembers(c *Submit, to *GangState, index int, r *Role) error {
	to.records += len(r.Members)
	return t.submit(c, r.Members, Capsule{Spec: r.Spec, common: t.share(common{c.Owner, c.Gang.ID, c.Labels, c.At, uint16(index)})})
}

// joinGang adds members to a gang that has members left.
func (t *tx) joinGang(c *Submit) error {
	g := t.gang(c.Gang.ID)
	if g == nil {
		return t.refuse(Rejection{advice: "submit it without Join"}, t.s.left.Gangs, "there is no gang %q to join", c.Gang.ID)
	}
	if err := t.mayJoin(g, c.Gang); err != nil {
		return err
	}
	now, as := t.ownGang(g), *c
	as.Owner = cmp.Or(c.Owner, t.ownerOf(g.now.Gang))
	t.forgetDone(now, c.Gang)
	for i := range c.Gang.Roles {
		r := &c.Gang.Roles[i]
		at := now.Gang.role(r)
		if at < 0 {
			at = len(now.Gang.Roles)
			now.Gang.Roles = append(now.Gang.Roles, Role{Name: r.Name, Spec: r.Spec, Min: r.Min})
			now.Placed, now.Done = append(now.Placed, 0), append(now.Done, 0)
		}
		role := &now.Gang.Roles[at]
		role.Members = append(role.Members, r.Members...)
		if err := t.submitMembers(&as, now, at, r); err != nil {
			return err
		}
	}
	if now.Changed = t.rev; now.Nomination.Lives() { // it was made for fewer members
		now.Nomination, t.nominates = now.Nomination.ended(), true
	}
	return nil
}

// ownerOf returns the owner of the first member of a gang that is not done.
func (t *tx) ownerOf(g *Gang) string {
	for i := range g.Roles {
		for _, id := range g.Roles[i].Members {
			if e := t.capsule(id); e != nil && e.now.Gang() == g.ID && !e.now.released {
				return e.now.Owner()
			}
		}
	}
	return ""
}

// mayJoin checks that a gang is the one that the proposer means, has members left, and takes the members and roles of
// another description of it.
func (t *tx) mayJoin(g *txGang, by *Gang) error {
	refuse := func(newest Revision, advice, why string, args ...any) error {
		return t.refuse(Rejection{advice: advice}, newest, "gang %q %s", by.ID, fmt.Sprintf(why, args...))
	}
	if began := t.began(g); t.breaks(t.p.View != 0 && began > t.p.View) {
		return refuse(began, "", "was submitted after the view")
	}
	if t.breaks(g.now.ended()) {
		return refuse(g.newest(), "submit it anew, without Join", "has no members that are not done")
	}
	if why := g.now.Gang.differs(by); t.breaks(why != "") {
		return refuse(g.newest(), "leave out what the gang has already", "has %s", why)
	}
	members, roles := 0, len(g.now.Gang.Roles)
	for i := range g.now.Gang.Roles {
		members += g.now.Left(i)
	}
	for i := range by.Roles {
		r := &by.Roles[i]
		members += len(r.Members)
		if g.now.Gang.role(r) >= 0 {
			continue
		}
		if roles++; t.breaks(r.Min > len(r.Members)) {
			return refuse(g.newest(), "", "has no role %q yet, and its minimum is %d of %d members", r.Name, r.Min, len(r.Members))
		}
		if lowest := g.now.Gang.lowest(); t.breaks(r.Spec.Priority < lowest) { // what borrows from its nomination must be due to it
			return refuse(g.newest(), "give the role at least that priority", "has no role below priority %d, and role %q has %d", lowest, r.Name, r.Spec.Priority)
		}
	}
	if most := t.s.limits.GangMembers; t.breaks(members > most) || roles > maxRoles {
		return refuse(g.newest(), "release some for good", "would have %d members that are not done, and %d roles; this ledger takes %d and %d", members, roles, most, maxRoles)
	}
	return nil
}

// began returns the revision at which the oldest member of a gang was submitted of which there is a record; 0: this
// proposal has submitted the gang.
func (t *tx) began(g *txGang) Revision {
	if g.was == nil || g.anew {
		return 0
	}
	began := t.s.rev
	for c := range t.s.Members(g.was.Gang.ID) {
		began = min(began, c.SubmittedAt())
	}
	return began
}

// forgetDone takes those members off the lists of a gang that are done and of which it has no record, and those that
// another description of it names again. So the lists stay short however often members are replaced.
func (t *tx) forgetDone(now *GangState, by *Gang) {
	again := map[CapsuleID]bool{}
	for i := range by.Roles {
		for _, id := range by.Roles[i].Members {
			again[id] = true
		}
	}
	own := *now.Gang
	own.Roles = slices.Clone(own.Roles)
	for i := range own.Roles {
		r := &own.Roles[i]
		members := make([]CapsuleID, 0, len(r.Members)+len(again))
		now.Done[i] = 0
		for _, id := range r.Members {
			if e := t.capsule(id); e != nil && e.now.Gang() == own.ID && (!again[id] || !e.now.released) {
				members = append(members, id)
				now.Done[i] += btoi(e.now.released)
			}
		}
		r.Members = members
	}
	now.Gang = &own
}

// outlives returns a member of g that prevents the other gang from using g's id, and the revision at which the member
// last changed. Such a member has not been released for good, or its record is kept and the other gang does not name
// it. Empty: there is none.
func (t *tx) outlives(g, other *Gang) (id CapsuleID, newest Revision) {
	members := map[CapsuleID]bool{}
	for i := range other.Roles {
		for _, member := range other.Roles[i].Members {
			members[member] = true
		}
	}
	for i := range g.Roles {
		for _, member := range g.Roles[i].Members {
			if e := t.capsule(member); e != nil && e.now.Gang() == g.ID && (!e.now.released || !members[member]) {
				return member, e.newest()
			}
		}
	}
	return "", 0
}

// countGang adds by to a gang's count of placed members. The first placement of a member ends the gang's nomination.
func (t *tx) countGang(c *Capsule, by int) {
	if c.Gang() == "" {
		return
	}
	g := t.gang(c.Gang())
	now := t.ownGang(g)
	now.Placed[c.inCommon().role] += by
	now.Changed = t.rev
	if by > 0 && now.Nomination != nil {
		now.Nomination, t.nominates = nil, true
	}
	g.restarts = g.restarts || g.now.Total() == 0
}

// ownGang returns the gang's record for writing: a copy, which it makes on the first call.
func (t *tx) ownGang(g *txGang) *GangState {
	if g.now == g.was {
		now := *g.was
		now.Placed, now.Done = slices.Clone(g.was.Placed), slices.Clone(g.was.Done)
		g.now = &now
	}
	return g.now
}

// countGang counts a member's record, and whether it is placed, for its gang.
func (v *verifier) countGang(c *Capsule) {
	if c.Gang() == "" {
		return
	}
	g := v.gangs[c.Gang()]
	if g == nil {
		g = &GangState{}
		v.gangs[c.Gang()] = g
	}
	for len(g.Placed) <= int(c.inCommon().role) {
		g.Placed, g.Done = append(g.Placed, 0), append(g.Done, 0)
	}
	g.records++
	g.Placed[c.inCommon().role] += btoi(c.Placed())
	g.Done[c.inCommon().role] -= btoi(!c.released) // compareGangs adds the number of members
}

// compareGangs compares the counts of the gangs with the recount, in both directions: no gang without members and no
// member without a gang.
func (v *verifier) compareGangs() {
	for g := range v.s.Gangs() {
		r := v.gangs[g.Gang.ID]
		delete(v.gangs, g.Gang.ID)
		if g.sum != g.Gang.digest() {
			v.fail("gang %q: its levels or roles are not those that were submitted", g.Gang.ID)
		}
		if r == nil {
			r = &GangState{}
		}
		if r.records == 0 || r.records != g.records || r.Total() != g.Total() || len(r.Placed) > len(g.Gang.Roles) {
			v.fail("gang %q of %d roles counts %d records and %v placed; there are %d and %v", g.Gang.ID, len(g.Gang.Roles), g.records, g.Placed, r.records, r.Placed)
			continue
		}
		for i := range g.Gang.Roles {
			v.spec(g.Gang.Roles[i].Spec)
		}
		for i, role := range g.Gang.Roles {
			placed, done := 0, len(role.Members)
			if i < len(r.Placed) {
				placed, done = r.Placed[i], done+r.Done[i]
			}
			if placed != g.Placed[i] || done != g.Done[i] || placed+done > len(role.Members) {
				v.fail("gang %q counts %d of role %d placed and %d done; there are %d and %d", g.Gang.ID, g.Placed[i], i, g.Done[i], placed, done)
			}
		}
	}
	for id := range v.gangs {
		v.fail("capsules belong to gang %q, of which there is no record", id)
	}
}
