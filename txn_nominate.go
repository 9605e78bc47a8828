package orbit

import (
	"fmt"
	"math"
	"slices"
)

// Nominations in the write-set: how they are made and ended, and how they are judged.

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
	if !e.now.Pending() || e.evicted {
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
	n, err := t.nomination(c, g.now.Nomination, g.newest(), roles, g.now.Gang.lowest())
	if err != nil {
		return err
	}
	own := t.ownGang(g)
	own.Nomination, own.Changed = n, t.rev
	return nil
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
		switch c := c.(type) {
		case Place:
			t.addPlace(asked, i, &c)
		case Resize:
			t.addGrowth(asked, i, t.capsules.find(c.Capsule))
		case Hold:
			if n := t.nodes.find(c.Node); n != nil && asked[n.now.index] != nil && i >= n.joined {
				a := asked[n.now.index]
				a.asks, a.at = append(a.asks, ask{room: &c.Room, devices: c.Devices, milli: c.Milli, hold: true}), i
			}
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

// addPlace adds the ask of a placement. A nomination that the same proposal makes does not raise its rank.
func (t *tx) addPlace(asked map[uint32]*nodeAsks, at int, c *Place) {
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
