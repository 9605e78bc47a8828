package orbit

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/wide"
)

// A nomination claims room for work that waits: nothing of lower rank takes it meanwhile, except as a loan.

// check implements [Commitment]. The Ends of a nomination is kept in the same form as that of a hold.
func (c Nominate) check(v *validator) Commitment {
	if (c.Capsule == "") == (c.Gang == "") {
		v.fail("nomination names capsule %q and gang %q; it needs exactly one", c.Capsule, c.Gang)
	}
	v.text("capsule id", string(c.Capsule), v.limits.IDBytes)
	v.text("gang id", string(c.Gang), v.limits.IDBytes)
	if len(c.Parts) == 0 {
		if c.Aged != 0 || !c.Ends.IsZero() || c.Lends != 0 {
			v.fail("nomination of no room takes no Aged, Ends or Lends")
		}
		return nil
	}
	if c.Lends < 0 {
		v.fail("nomination lends its room for %v; it must not be negative, and 0 lends it to nobody", c.Lends)
	}
	if c.Aged < 0 || int64(c.Aged) > int64(v.limits.NominationAging) {
		v.fail("nomination is aged by %d; this ledger takes 0 to %d", c.Aged, v.limits.NominationAging)
	}
	if len(c.Parts) > v.limits.Commitments {
		v.fail("nomination of %d rooms; this ledger takes %d", len(c.Parts), v.limits.Commitments)
		return nil
	}
	seen := make(map[NodeID]bool, len(c.Parts))
	for i := range c.Parts {
		r := &c.Parts[i]
		v.id("node id", string(r.Node))
		v.room("nomination", &r.Room, r.Devices, r.Milli)
		if seen[r.Node] {
			v.fail("nomination names node %q twice", r.Node)
		}
		seen[r.Node] = true
	}
	c.Ends = v.ends("nomination", c.Ends)
	return c
}

// execute implements [Commitment].
func (c Nominate) execute(t *tx) (NodeID, error) {
	return "", t.nominate(&c)
}

func (c Nominate) subject() CapsuleID { return c.Capsule }

// skippable implements [mayBeSkipped]: the end of a nomination that has ended is skipped.
func (c Nominate) skippable() bool { return len(c.Parts) == 0 }

func (c Nominate) effect() effect {
	return effect{nominee: Nominee{c.Capsule, c.Gang}, gives: true}
}

// offence implements [planCheck.offence]. A plan may end a nomination of other work only in a proposal that also makes a
// nomination of higher rank, on one of the same nodes or of a resource that the ended one claims (makesWay).
func (c Nominate) offence(t *planCheck) (id CapsuleID, why string) {
	switch {
	case len(c.Parts) == 0 && t.s.makesWay(&c, t.do):
		return "", ""
	case c.Gang == "":
		return c.Capsule, t.foreign(c.Capsule, "nominates")
	case t.s.Gang(c.Gang) == nil:
		return "", fmt.Sprintf("nominates gang %q, which is not in its view", c.Gang)
	}
	for member := range t.s.Members(c.Gang) {
		if why := t.foreign(member.ID, "nominates"); why != "" {
			return member.ID, why
		}
	}
	return "", ""
}

// own implements [cloner.own].
func (c Nominate) own(*cloner) Commitment {
	c.Parts = cloned(c.Parts)
	return c
}

// inUTC implements [inUTC].
func (c Nominate) inUTC() Commitment {
	c.Ends = c.Ends.UTC()
	return c
}

// ending returns when the ledger would have the nomination end, if its own end is later.
func (c Nominate) ending(made Revision, _, latest time.Time) (end roomEnd, ok bool) {
	return roomEnd{latest, Nominate{Capsule: c.Capsule, Gang: c.Gang, Since: made}}, len(c.Parts) > 0 && c.Ends.After(latest)
}

// lives reports whether the nomination that c ends still exists.
func (c Nominate) lives(s *State, _ time.Time) bool {
	n := s.nominationOf(c.Capsule, c.Gang)
	return n.Lives() && n.Made == c.Since
}

// nominate makes, replaces or ends a nomination. An end that makes way for a nomination of the same proposal is skipped
// if its target has ended already: nominations of small work come and go faster than a proposal is made.
func (t *tx) nominate(c *Nominate) error {
	if c.Since != 0 && len(c.Parts) == 0 && t.makes() && t.hasEnded(c) {
		return nil
	}
	if c.Gang != "" {
		return t.nominateGang(c)
	}
	e, err := t.meant(c.Capsule)
	if err != nil {
		return err
	}
	if !e.now.Pending() || e.evicted || e.ends {
		return t.refuse(Rejection{Capsule: c.Capsule}, e.newest(), "capsule %q is not pending", c.Capsule)
	}
	evicts := e.now.Spec.Priority
	if g := t.gang(e.now.Gang()); g != nil {
		evicts = min(evicts, g.now.Gang.lowest())
	}
	one := []Role{{Spec: e.now.Spec, Members: []CapsuleID{c.Capsule}}}
	n, err := t.nomination(c, e.now.Nomination(), e.newest(), one, evicts)
	if err != nil {
		return err
	}
	e = t.capsule(c.Capsule)
	e.now.setNomination(n)
	e.now.Changed, e.dirty = t.rev, true
	return nil
}

// nominateGang is nominate for a gang. No member may be placed, and at least one must be pending.
func (t *tx) nominateGang(c *Nominate) error {
	g := t.gang(c.Gang)
	if g == nil {
		return t.refuse(Rejection{}, t.s.left.Gangs, "there is no gang %q", c.Gang)
	}
	if t.breaks(g.evicts) {
		return t.refuse(Rejection{}, 0, "members of gang %q are evicted by this proposal", c.Gang)
	}
	if n := g.now.Total(); t.breaks(n > 0) {
		return t.refuse(Rejection{}, g.newest(), "gang %q has %d members placed", c.Gang, n)
	}
	if t.breaks(len(c.Parts) > 0 && g.now.ended()) { // the gang's record may go, with that of its last member
		return t.refuse(Rejection{}, g.newest(), "no member of gang %q waits", c.Gang)
	}
	var roles []Role
	for i, role := range g.now.Gang.Roles {
		if left := g.now.Left(i); left > 0 && g.now.Total() == 0 {
			role.Members = role.Members[:left] // asksFor counts them
			roles = append(roles, role)
		}
	}
	n, err := t.nomination(c, g.now.Nomination, g.newest(), t.ownSpecs(g, roles), g.now.Gang.lowest())
	if err != nil {
		return err
	}
	own := t.ownGang(g)
	own.Nomination, own.Changed = n, t.rev
	return nil
}

// ownSpecs returns roles as they are or, if members of the gang may have got specs of their own, a role for each member
// that is not done, with the spec of that member.
func (t *tx) ownSpecs(g *txGang, roles []Role) []Role {
	if !g.now.varies || len(roles) == 0 {
		return roles
	}
	var own []Role
	for _, role := range g.now.Gang.Roles {
		for i, id := range role.Members {
			if e := t.capsule(id); e != nil && !e.now.released && e.now.Gang() == g.now.Gang.ID {
				own = append(own, Role{Spec: e.now.Spec, Members: role.Members[i : i+1]})
			}
		}
	}
	return own
}

// nomination returns the record that replaces the nomination before, which may be nil. Roles are the nominee's capsules
// by spec (of a single capsule one role of one member), newest is the revision of the last change of the nominee's
// record, and evicts is the lowest priority at which it may come to evict others.
func (t *tx) nomination(c *Nominate, before *Nomination, newest Revision, roles []Role, evicts int32) (*Nomination, error) {
	if t.breaks(!before.Lives() && (c.Since != 0 || len(c.Parts) == 0)) {
		return nil, t.refuse(Rejection{Capsule: c.Capsule}, newest, "%s is not nominated", c.nominee())
	}
	if t.breaks(c.Since != 0) && !t.madeAt(before.Made, c.Since) {
		return nil, t.refuse(Rejection{Capsule: c.Capsule}, newest, "%s is nominated since revision %d, not %d", c.nominee(), before.Made, c.Since)
	}
	if before.Lives() && before.sum != 0 && before.sum != digestList(0, before.Parts) {
		return nil, t.invalid(Rejection{Capsule: c.Capsule}, "the parts of the nomination of %s in this ledger's state were changed through a plain copy of them; "+
			"the ledger has to be opened anew; change a copy of the list", c.nominee())
	}
	t.nominates = true
	if len(c.Parts) == 0 || t.replays && len(roles) == 0 { // no capsule waits for the room
		return before.ended(), nil
	}
	priority, specs := int32(math.MaxInt32), make([]*Spec, len(roles))
	for i := range roles {
		specs[i] = roles[i].Spec
		priority = min(priority, specs[i].Priority)
	}
	if c.Gang != "" { // a gang ranks by its roles, whatever other specs its members have
		priority, _ = t.gang(c.Gang).now.Priorities()
	}
	for i := range c.Parts {
		if err := t.mayNominate(c, &c.Parts[i], specs); err != nil {
			return nil, err
		}
	}
	if err := t.asksFor(c, roles, newest); err != nil {
		return nil, err
	}
	n := &Nomination{
		Capsule: c.Capsule, Gang: c.Gang, Rank: int32(min(int64(priority)+int64(c.Aged), math.MaxInt32)),
		First: t.rev, Made: t.rev, Parts: c.Parts, Ends: c.Ends, Lends: c.Lends, ceiling: t.s.limits.ceiling(evicts),
	}
	if before != nil && before.Renewals < t.s.limits.Renewals {
		n.First, n.Renewals = before.First, before.Renewals+1
	}
	t.nominations = append(t.nominations, n)
	return n, nil
}

// mayNominate checks that a node could serve one of the specs with the part of it that is claimed.
func (t *tx) mayNominate(c *Nominate, part *NominatedRoom, specs []*Spec) error {
	at := Rejection{Capsule: c.Capsule, Node: part.Node}
	n := t.node(part.Node)
	if n == nil {
		return t.refuse(at, t.s.left.Nodes, "node %q is not a member", part.Node)
	}
	n.claimed = true
	if why := part.misfit(n.now.Node, specs, &t.s.names); t.breaks(why != "") {
		return t.refuse(at, n.newestSpec(), "node %q cannot be nominated for %s: such nodes %s", part.Node, c.nominee(), why)
	}
	return nil
}

// asksFor checks that a nomination claims no more than its nominee asks for: on each node no more than the capsules that
// may be there, in all no more than all of them, and on no more nodes than there are capsules. Otherwise one small
// capsule could keep all nodes free. A nomination that is applied again has been judged, perhaps by older rules.
func (t *tx) asksFor(c *Nominate, roles []Role, newest Revision) error {
	if t.replays {
		return nil
	}
	at := Rejection{Capsule: c.Capsule, advice: "nominate no more than the nominee needs"}
	var claims, asks amounts
	capsules := 0
	for i := range roles {
		capsules += len(roles[i].Members)
		asks.addRole(&roles[i])
	}
	if len(c.Parts) > capsules {
		return t.refuse(at, newest, "%s is nominated on %d nodes; it can be placed on %d", c.nominee(), len(c.Parts), capsules)
	}
	for i := range c.Parts {
		part, n := &c.Parts[i], t.node(c.Parts[i].Node) // is a member: mayNominate has found it
		if over, most := part.exceeds(n.now.Node, roles, &t.s.names); over != "" {
			at.Node = part.Node
			return t.refuse(at, max(newest, n.newestSpec()), "nomination claims %s on node %q; %s asks for %s", over, part.Node, c.nominee(), most)
		}
		claims.addPart(part)
	}
	if over, most := claims.beyond(&asks, &t.s.names); over != "" {
		return t.refuse(at, newest, "nomination claims %s in all; %s asks for %s", over, c.nominee(), most)
	}
	return nil
}

// current returns the nomination that the nominee of n has in the write-set: n itself if the proposal has not changed
// it so far; else its replacement, or nil.
func (t *tx) current(n *Nomination) *Nomination {
	if n.Gang != "" {
		if e := t.gangs.find(n.Gang); e != nil && e.now != nil {
			return e.now.Nomination
		}
		return n
	}
	if e := t.capsules.find(n.Capsule); e != nil {
		return e.now.Nomination()
	}
	return n
}

// nominatedOn returns the parts of nominations that claim room on a node after the commitments executed so far, and in
// a draft also those of t.beside.
func (t *tx) nominatedOn(n *txNode) (parts []nominatedPart) {
	if n.now.nominated != nil {
		for _, p := range n.now.nominated.parts {
			if t.current(p.of) == p.of {
				parts = append(parts, p)
			}
		}
	}
	for _, made := range t.nominations {
		if t.current(made) == made {
			parts = made.partsOn(n.now.Node.ID, parts)
		}
	}
	for _, other := range t.beside {
		parts = other.partsOn(n.now.Node.ID, parts)
	}
	return parts
}

// asker is a commitment that asks for room on a node. Asks adds that to the asks on the node, if these are judged; at is the
// position of the commitment.
type asker interface {
	asks(t *tx, asked map[uint32]*nodeAsks, at int)
}

// judgeNominations judges the asks of the proposal against nominated room, and the nominations that the proposal makes:
// their number on each node and their share.
func (t *tx) judgeNominations() error {
	asked := t.asksOnNominated()
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.gone || !n.claimed && asked[n.now.index] == nil {
			continue
		}
		parts := t.nominatedOn(n)
		if n.claimed && len(parts) > maxNominated {
			t.at = -1
			return t.refuse(Rejection{Node: n.now.Node.ID}, t.s.left.Nominations,
				"node %q would be nominated for %d at once; there can be %d", n.now.Node.ID, len(parts), maxNominated)
		}
		if a := asked[n.now.index]; a != nil {
			if err := t.judgeAsks(n, a, parts); err != nil {
				return err
			}
		}
	}
	return t.judgeShare()
}

// judgeAsks judges the asks on one node against the parts that claim room there.
func (t *tx) judgeAsks(n *txNode, a *nodeAsks, parts []nominatedPart) error {
	e := n.now.encroaches(parts, a.asks, &a.ended, &a.endedDevices)
	if e.of == nil {
		return nil
	}
	t.at = a.at
	what := fmt.Sprintf("device %d", e.at)
	if !e.device {
		what = t.s.names.name(e.at)
	}
	newest := max(a.newest, n.newest())
	for _, p := range parts {
		if p.of.Made < t.rev && slices.ContainsFunc(a.asks, func(a ask) bool { return a.yieldsTo(p.of) }) {
			newest = max(newest, p.of.Made)
		}
	}
	return t.refuse(Rejection{Node: n.now.Node.ID, Dimension: what, Want: e.want, Free: e.free}, newest,
		"node %q is nominated for %s", n.now.Node.ID, e.of.nominee())
}

// asksOnNominated returns the asks of the proposal on each node with nominated room, by the node's index. Nil: there
// are none.
func (t *tx) asksOnNominated() map[uint32]*nodeAsks {
	var asked map[uint32]*nodeAsks
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if !n.gone && (n.askedDevices != 0 || n.asked != Resources{}) && (n.claimed || n.now.nominated != nil) {
			if asked == nil {
				asked = map[uint32]*nodeAsks{}
			}
			asked[n.now.index] = &nodeAsks{}
		}
	}
	if asked == nil {
		return nil
	}
	for i, c := range t.p.Do {
		if a, ok := c.(asker); ok {
			a.asks(t, asked, i)
		}
	}
	for i := range t.holds.entries {
		h := &t.holds.entries[i]
		if h.was == nil || h.now == h.was {
			continue
		}
		if n := t.nodes.find(h.was.Node); n != nil && asked[n.now.index] != nil && n.joined == 0 {
			a := asked[n.now.index]
			a.ended = a.ended.plus(h.was.Room)
			a.endedDevices.add(h.was.Devices, int32(h.was.Milli))
		}
	}
	return asked
}

// asks adds the ask of a placement. A nomination that the same proposal makes does not raise its rank.
func (c Place) asks(t *tx, asked map[uint32]*nodeAsks, at int) {
	n, e := t.nodes.find(c.Node), t.capsules.find(c.Capsule)
	if n == nil || e == nil || asked[n.now.index] == nil || at < n.joined {
		return
	}
	a := asked[n.now.index]
	a.newest = max(a.newest, e.newest())
	if g := t.gangs.find(e.now.Gang()); g != nil {
		a.newest = max(a.newest, g.newest())
	}
	a.asks, a.at = append(a.asks, t.askOf(e, c.Devices)), at
}

// askOf returns the ask of a capsule that is placed on these devices, with its nomination or its gang's from before the
// proposal.
func (t *tx) askOf(e *txCapsule, devices DeviceSet) ask {
	own := e.now.Spec.ask(devices, nil)
	own.lender = e.now.Borrows()
	if g := t.gangs.find(e.now.Gang()); g != nil && g.was != nil && g.was.Nomination.Lives() {
		own.nomination = g.was.Nomination
	}
	if e.was != nil && !e.anew && e.was.Nomination().Lives() {
		own.nomination = e.was.Nomination()
	}
	return own
}

// lend sets Borrows of each backfilling capsule that the proposal places. The lender is the first in rank among the
// nominations on its node that lend to the capsule and that the proposal leaves unchanged.
func (t *tx) lend() {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.arrives || !e.now.Placed() || !e.now.Spec.Backfills {
			continue
		}
		n := t.nodes.find(e.now.Node)
		if n.now.nominated == nil {
			continue
		}
		stand := slices.DeleteFunc(slices.Clone(n.now.nominated.parts), func(p nominatedPart) bool { return t.current(p.of) != p.of })
		if from := lenderOf(stand, e.now.Spec); from != nil {
			rare := *e.now.rare()
			rare.borrows = &Nominee{from.Capsule, from.Gang}
			e.now.setRare(rare)
			n.now.borrow(&e.now, 1)
		}
	}
}

// shares reports whether the proposal makes a nomination, or lowers a capacity: then shares may be exceeded that were
// not before.
func (t *tx) shares() bool { return len(t.nominations) > 0 || t.lowers }

// judgeShare judges each nomination that this proposal makes, together with all nominations that outrank it, against
// Limits.NominatedShare. Nominations of lower rank have to make way and do not count: otherwise small work, which is
// nominated all the time, would keep large work from being nominated. Only sums are compared, and these fall when a
// nomination ends. A nomination that is accepted now would therefore be accepted after others have ended, too.
func (t *tx) judgeShare() error {
	for _, made := range t.nominations {
		if t.current(made) != made {
			continue
		}
		if err := t.shortOf(made, made.Outranks); err != nil {
			return err
		}
	}
	return nil
}

// shortOf returns an error if a nomination and all others, except those for which leave is true, exceed the share of
// some resource. Leave must hold for no nomination, or for all from some rank downwards. The others are added up one by
// one only if the nomination does not fit beside the known sum of all.
func (t *tx) shortOf(made *Nomination, leave func(*Nomination) bool) error {
	others := t.s.nominated
	for n := range t.endedNominations {
		others.addRooms(n, -1)
	}
	t.addMade(&others, made, func(*Nomination) bool { return false })
	if t.overShare(made, &others) < 0 {
		return nil
	}
	others = totals{}
	t.s.nominations.Ascend(func(n *Nomination) bool {
		if t.current(n) == n && !leave(n) {
			others.addRooms(n, 1)
		}
		return !leave(n)
	})
	t.addMade(&others, made, leave)
	d := t.overShare(made, &others)
	if d < 0 {
		return nil
	}
	t.at = -1
	return t.refuse(Rejection{}, t.s.left.Nominations, "those that outrank it and %s would claim more than %d percent of %s",
		made.nominee(), t.s.limits.NominatedShare, t.dimension(d))
}

// addMade adds the nominations that are not in the state: those that the proposal makes, except one and those for which
// leave is true, and those of earlier proposals of a draft.
func (t *tx) addMade(others *totals, but *Nomination, leave func(*Nomination) bool) {
	for _, n := range t.nominations {
		if n != but && t.current(n) == n && !leave(n) {
			others.addRooms(n, 1)
		}
	}
	for _, other := range t.beside {
		others.addRooms(other, 1)
	}
}

// overShare returns the first of the totals of which a nomination and the others claim more than the share, -1 if there
// is none. In a dimension that no other nomination claims, it may claim any amount.
func (t *tx) overShare(made *Nomination, others *totals) int {
	var mine totals
	mine.addRooms(made, 1)
	capacity := t.capacity()
	for d := range mine {
		sum := others[d].Add(mine[d])
		if mine[d] != (wide.Int{}) && others[d] != (wide.Int{}) && sum.Times(100).Exceeds(capacity[d].Times(t.s.limits.NominatedShare)) {
			return d
		}
	}
	return -1
}

// endedNominations yields the nominations of the state that the proposal ends or replaces.
func (t *tx) endedNominations(yield func(*Nomination) bool) {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.was != nil && e.was.Nomination().Lives() && e.now.Nomination() != e.was.Nomination() && !yield(e.was.Nomination()) {
			return
		}
	}
	for i := range t.gangs.entries {
		if e := &t.gangs.entries[i]; e.was != nil && e.was.Nomination.Lives() && t.current(e.was.Nomination) != e.was.Nomination && !yield(e.was.Nomination) {
			return
		}
	}
}

// capacity returns the summed capacity of all nodes after this proposal.
func (t *tx) capacity() totals {
	capacity := t.s.capacity
	for i := range t.nodes.entries {
		if n := &t.nodes.entries[i]; n.dirty {
			if n.was != nil {
				capacity.addNode(n.was.Node, -1)
			}
			if !n.gone {
				capacity.addNode(n.now.Node, 1)
			}
		}
	}
	return capacity
}

// crowded returns a node of the nomination on which more than maxNominated nominations claim room; empty: there is
// none.
func (t *tx) crowded(made *Nomination) NodeID {
	for i := range made.Parts {
		if n := t.node(made.Parts[i].Node); n != nil && len(t.nominatedOn(n)) > maxNominated {
			return n.now.Node.ID
		}
	}
	return ""
}

// dimension names one of the totals.
func (t *tx) dimension(d int) string {
	if d == Dimensions {
		return "devices"
	}
	return t.s.names.name(d)
}

// makes reports whether the proposal makes a nomination.
func (t *tx) makes() bool {
	return slices.ContainsFunc(t.p.Do, func(do Commitment) bool {
		c, ok := do.(Nominate)
		return ok && len(c.Parts) > 0
	})
}

// hasEnded reports whether the nomination that c ends has ended already: none lives that was made at c.Since.
func (t *tx) hasEnded(c *Nominate) bool {
	var n *Nomination
	if e := t.capsule(c.Capsule); c.Capsule != "" && e != nil {
		n = e.now.Nomination()
	}
	if g := t.gang(c.Gang); c.Gang != "" && g != nil {
		n = g.now.Nomination
	}
	return !n.Lives() || !t.madeAt(n.Made, c.Since)
}

// endsWhen says who ends a nomination that keeps a node from leaving, when, and what else can be done.
func (t *tx) endsWhen(n *txNode, of *Nomination) string {
	engine := "cordon the node; then the engine of " + of.nominee() + " ends the nomination"
	if !n.now.Node.Schedulable() {
		engine = "wait until the engine of " + of.nominee() + " ends the nomination, because the node can no longer serve it"
	}
	return fmt.Sprintf("%s, or any engine does after %s; or end it before the node leaves, by a Nominate of %s without Parts",
		engine, of.Ends.Format(time.RFC3339), of.nominee())
}

// makeWay returns the commitments that end nominations of lower rank than the newest nomination of t, lowest first,
// until that one keeps the limits; none if it already does. Nominations for which may is false are not ended.
func (t *tx) makeWay(c *Nominate, may func(*Nomination) bool) (ends []Commitment, err error) {
	if len(c.Parts) == 0 {
		return nil, nil
	}
	made := t.nominations[len(t.nominations)-1]
	if t.crowded(made) == "" && t.shortOf(made, func(*Nomination) bool { return false }) == nil {
		return nil, nil
	}
	var lower []*Nomination
	consider := func(o *Nomination) bool {
		if t.current(o) == o && made.Outranks(o) && may(o) {
			lower = append(lower, o)
		}
		return true
	}
	t.s.nominations.Ascend(consider)
	for _, o := range t.nominations {
		consider(o)
	}
	slices.SortFunc(lower, (*Nomination).compare)
	for ; ; lower = lower[:len(lower)-1] {
		over, short := t.crowded(made), t.shortOf(made, func(*Nomination) bool { return false })
		if over == "" && short == nil {
			return ends, nil
		}
		if len(lower) == 0 {
			if over != "" {
				return nil, t.refuse(Rejection{Node: over}, t.s.left.Nominations, "node %q is nominated for %d of higher rank", over, maxNominated)
			}
			return ends, t.judgeShare() // the ledger does not count nominations of lower rank
		}
		o := lower[len(lower)-1]
		if short == nil && !o.claims(over) || over == "" && !o.shares(made) {
			continue
		}
		end := Nominate{Capsule: o.Capsule, Gang: o.Gang}
		if err := t.nominate(&end); err != nil {
			return nil, err
		}
		if end.Since = o.Made; o.Made == t.rev {
			end.Since = 0 // the plan has made it, and its revision is not known before the commit
		}
		ends = append(ends, end)
	}
}

// nodeAsks collects the asks of a proposal on a node with nominated room, and the room of holds that the proposal ends
// there.
type nodeAsks struct {
	asks         []ask
	ended        Resources
	endedDevices deviceUse
	// The position of the last commitment that asks, and the revision of the newest change of the capsules and gangs
	// that ask.
	at     int
	newest Revision
}

// hedgeLoans lets nominations claim all their room on a node on which a proposal frees any, or borrows some while it frees others: which
// loans come to be there depends on what commits. The room of holds that the proposal ends was to spare for its own steps alone.
func (p *planSum) hedgeLoans() {
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.kept == nil && n.was.loans == n.now.loans {
			continue
		}
		if p.keep(n).loans = nil; n.now.nominated != nil {
			n.kept.nominated = &nominated{parts: n.now.nominated.parts, keeps: n.now.nominated.keeps}
		}
	}
}

// publishNominations takes ended nominations off their nodes, and puts new ones there.
func (s *State) publishNominations(t *tx) {
	if t.shares() {
		s.left.Nominations = s.rev
	}
	if !t.nominates {
		return
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		var was *Nomination
		if e.was != nil {
			was = e.was.Nomination()
		}
		s.renominate(was, e.now.Nomination())
	}
	for i := range t.gangs.entries {
		e := &t.gangs.entries[i]
		var was *Nomination
		if e.was != nil {
			was = e.was.Nomination
		}
		s.renominate(was, e.now.Nomination)
	}
}

// renominate replaces one nomination by another in all tables of the state. Either may be nil or have ended.
func (s *State) renominate(was, now *Nomination) {
	if was == now {
		return
	}
	if was.Lives() {
		s.nominations.Delete(was)
		s.lapses.Delete(was)
		s.nominated.addRooms(was, -1)
		for i := range was.Parts {
			s.claim(was, i, false)
		}
	}
	if now.Lives() {
		now.sum = digestList(0, now.Parts)
		s.nominations.ReplaceOrInsert(now)
		s.lapses.ReplaceOrInsert(now)
		s.nominated.addRooms(now, 1)
		for i := range now.Parts {
			s.claim(now, i, true)
		}
	}
}

// claim puts a part of a nomination on its node, or takes it off.
func (s *State) claim(of *Nomination, at int, made bool) {
	n := s.Node(of.Parts[at].Node)
	if n == nil {
		return // it has left, after the nomination ended
	}
	n = &s.nodes.Own(n.index, s.owner).node
	var parts []nominatedPart
	if n.nominated != nil {
		parts = slices.DeleteFunc(slices.Clone(n.nominated.parts), func(p nominatedPart) bool { return p.of == of })
	}
	if made {
		parts = append(parts, nominatedPart{of, at})
		slices.SortFunc(parts, func(a, b nominatedPart) int { return a.of.compare(b.of) })
	}
	if n.nominated = nil; len(parts) > 0 {
		n.nominated = &nominated{parts: parts}
	}
}

// nominations compares the nominations, and the sums by which the ledger judges them, with the records of capsules,
// gangs and nodes.
func (v *verifier) nominations() {
	claimed, living, nominated := map[nominatedPart]bool{}, 0, totals{}
	count := func(n *Nomination, waits bool) {
		if n == nil {
			return
		}
		if !waits || n.First == 0 || n.First > n.Made || n.Made > v.s.rev {
			v.fail("%s is nominated at revision %d, first at %d: it does not wait, or that cannot be", n.nominee(), n.Made, n.First)
		}
		if !n.Lives() {
			return
		}
		living++
		if n.sum != digestList(0, n.Parts) {
			v.fail("%s: the parts of the nomination are not those that were made", n.nominee())
		}
		nominated.addRooms(n, 1)
		ranked, _ := v.s.nominations.Get(n)
		if ends, _ := v.s.lapses.Get(n); ranked != n || ends != n {
			v.fail("%s is not found among those nominated", n.nominee())
		}
		for i := range n.Parts {
			claimed[nominatedPart{n, i}] = true
			if v.s.Node(n.Parts[i].Node) == nil {
				v.fail("%s is nominated for node %q, which is not a member", n.nominee(), n.Parts[i].Node)
			}
		}
	}
	for c := range v.s.Capsules() {
		count(c.Nomination(), c.Pending())
	}
	for g := range v.s.Gangs() {
		count(g.Nomination, g.Total() == 0 && (!g.ended() || !g.Nomination.Lives()))
	}
	var capacity totals
	for n := range v.s.Nodes() {
		capacity.addNode(n.Node, 1)
		if n.nominated == nil {
			continue
		}
		if k := len(n.nominated.parts); k == 0 || k > maxNominated {
			v.fail("node %q counts %d nominations; there can be %d", n.Node.ID, k, maxNominated)
		}
		for _, p := range n.nominated.parts {
			if !claimed[p] || p.room().Node != n.Node.ID {
				v.fail("node %q counts a nomination of %s, which there is not", n.Node.ID, p.of.nominee())
			}
			delete(claimed, p)
		}
	}
	for p := range claimed {
		v.fail("%s is nominated for node %q, which does not count it", p.of.nominee(), p.room().Node)
	}
	if living != v.s.nominations.Len() || living != v.s.lapses.Len() || nominated != v.s.nominated || capacity != v.s.capacity {
		v.fail("counts %d nominations of %v and a capacity of %v; there are %d of %v and %v",
			v.s.nominations.Len(), v.s.nominated, v.s.capacity, living, nominated, capacity)
	}
}

// loans compares the loans that a node records with the recount.
func (v *verifier) loans(n *NodeState, counted *[]loan) {
	equal := (counted == nil) == (n.loans == nil)
	for i := 0; equal && n.loans != nil && i < len(*n.loans); i++ {
		equal = len(*n.loans) == len(*counted) && slices.Contains(*counted, (*n.loans)[i])
	}
	if !equal {
		v.fail("node %q counts loans that are not those of the capsules there", n.Node.ID)
	}
}
