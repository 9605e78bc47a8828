package orbit

import (
	"cmp"
	"slices"
	"time"
)

// The steps of a plan that evict or move capsules, with their budgets; and the steps that nominate.

// Evict takes a capsule of the view off its node, as a commitment of the next proposal. With For or ForGang, another
// step of the same proposal, earlier or later, must place the capsule or the gang that it makes way for. Without them
// the eviction is a move: a later step places the capsule again. Evict fills in From and Since if they are empty. The
// freed room serves later steps of the same proposal; what they leave of it is unavailable until the next Sync. The
// ledger judges the eviction with the whole proposal; Evict itself checks only what the view shows of the victim and of
// its evictor. Errors are those of Place.
func (d *Draft) Evict(e Evict) error {
	if d.view == nil {
		return d.refuse(e.Capsule, nil, "the draft is empty; call Sync first")
	}
	c := d.view.state.Capsule(e.Capsule)
	if c == nil {
		return d.refuse(e.Capsule, nil, "there is no capsule %q in the view", e.Capsule)
	}
	e.From, e.Since = cmp.Or(e.From, c.Node), cmp.Or(e.Since, c.PlacedAt)
	switch use := d.capsules[e.Capsule]; {
	case use.what != draftUntouched:
		return d.refuse(e.Capsule, nil, "capsule %q is %s by this plan already", e.Capsule, use.what)
	case !c.Placed() || e.From != c.Node || e.Since != c.PlacedAt:
		return d.refuse(e.Capsule, nil, "capsule %q is not on node %q since revision %d", e.Capsule, e.From, e.Since)
	case c.surging() != nil:
		return d.refuse(e.Capsule, nil, "capsule %q surges from node %q; wait until it is ready", e.Capsule, c.Surge().Node)
	case e.Surge && (e.For != "" || e.ForGang != ""):
		return d.refuse(e.Capsule, nil, "capsule %q makes way for %s, so it cannot surge", e.Capsule, e.cause())
	case e.surges(c, d.view.state.Node(c.Node).Node) && c.noSurge() != "":
		return d.refuse(e.Capsule, nil, "capsule %q cannot surge: %s", e.Capsule, c.noSurge())
	case e.For != "" || e.ForGang != "":
		if why := d.view.state.outranked(&e, c); why != "" {
			return d.refuse(e.Capsule, nil, "capsule %q of priority %d does not make way for %s: %s", e.Capsule, c.Spec.Priority, e.cause(), why)
		}
		return d.leave(c, draftEvicted, e)
	case !d.view.state.mayMove(c, d.view.state.Node(c.Node)):
		return d.refuse(e.Capsule, nil, "capsule %q is not movable and does not wait to begin, and node %q is ready", e.Capsule, c.Node)
	}
	return d.leave(c, draftReleased, e)
}

// Protect protects a capsule that the next proposal places from eviction for the time lasts ([Protect]), as a
// commitment of that proposal. Errors are those of Place.
func (d *Draft) Protect(id CapsuleID, lasts time.Duration) error {
	use := d.capsules[id]
	if use.what != draftTaken || use.at < d.open || slices.ContainsFunc(d.log[d.open:], func(c Commitment) bool { p, is := c.(Protect); return is && p.Capsule == id }) {
		return d.refuse(id, nil, "capsule %q is not placed by the proposal in the making, or protected by it already", id)
	}
	if d.steps[d.placement(use.at)].spec.Backfills {
		return d.refuse(id, nil, "capsule %q backfills, so it cannot be protected", id)
	}
	if most := d.view.state.limits.longestProtection(); lasts <= 0 || lasts > most {
		return d.refuse(id, nil, "capsule %q cannot be protected for %v; this ledger takes up to %v", id, lasts, most)
	}
	d.step(draftStep{}, nil, Protect{Capsule: id, For: lasts})
	return nil
}

// keepsBudgets judges whether the disruption budgets on the groups and the module of a capsule allow that step s takes it off its node,
// and counts the step. Only budgets that a wish of the proposal in the making must keep are judged. What earlier proposals take
// off their nodes counts as missing ([planSum.hedgeHealth]). If a budget refuses, keepsBudgets counts nothing.
func (d *Draft) keepsBudgets(s *draftStep, c *Capsule, do Commitment) error {
	if d.view.state.covered.Len() == 0 {
		return nil
	}
	evictor, wish := d.view.state.wishes(c, do)
	before := d.view.state.health(c)
	for of := range c.Spec.memberships {
		covers := d.view.state.coverage(of)
		if covers == nil {
			continue
		}
		m := d.counted[of]
		if m == nil {
			m = new(plannedMembers)
			d.counted[of] = m
		}
		d.count(s, m)
		m.leave = m.leave.plus(before, 1)
		for _, b := range covers.budgets {
			if wish && b.binds(evictor, before) && !slices.Contains(m.wished, b) {
				m.wished = append(m.wished, b)
			}
		}
		healthy := covers.healthy.plus(m.missing, -1).plus(m.leave, -1)
		for _, b := range m.wished {
			if left := b.counts(healthy); left < b.needed() {
				d.uncount(s)
				r := b.rejection(c.ID, left)
				return d.refused(&r)
			}
		}
	}
	return nil
}

// returns counts that step s places a capsule of the view again, which an earlier step of the proposal has taken off its node.
func (d *Draft) returns(s *draftStep, left *Capsule, to *NodeState) {
	if len(d.counted) == 0 || to.lender(left.Spec) != nil {
		return
	}
	healthy := worst(d.view.state.health(left), to.Node.health(&Capsule{}))
	for of := range left.Spec.memberships {
		if m := d.counted[of]; m != nil {
			d.count(s, m)
			m.again = m.again.plus(healthy, 1)
		}
	}
}

// count notes that step s changes a count.
func (d *Draft) count(s *draftStep, m *plannedMembers) {
	d.counts = append(d.counts, memberCount{m, *m})
	s.counts++
}

// uncount undoes what step s, the last one, has counted.
func (d *Draft) uncount(s *draftStep) {
	from := len(d.counts) - s.counts
	for _, c := range slices.Backward(d.counts[from:]) {
		*c.of = c.was
	}
	clear(d.counts[from:])
	d.counts = d.counts[:from]
}

// memberCount is a count, and its value before a step.
type memberCount struct {
	of  *plannedMembers
	was plannedMembers
}

// leave notes a step that takes a capsule of the view off its node, after it has judged protections, budgets and the
// rules of company. A capsule that is not placed changes no node.
func (d *Draft) leave(c *Capsule, act draftAct, do Commitment) error {
	if d.view.state.protected.Len() > 0 {
		if _, wish := d.view.state.wishes(c, do); wish || d.leaver(do) == nil {
			if r := d.view.state.shielded(c); r != nil {
				return d.refused(r)
			}
		}
	}
	s := draftStep{use: d.capsules[c.ID], frees: true}
	if r, ok := do.(Release); !ok || r.Final || c.surging() == nil { // else it stays placed
		after := charged{queue: c.Spec.Queue, spec: c.Spec, waiting: true}
		if act == draftEnded {
			after = charged{}
		}
		s.charge = d.changedCharge(c, after)
	}
	if d.leaver(do) != nil {
		if err := d.keepsBudgets(&s, c, do); err != nil {
			return err
		}
	}
	var left *NodeState
	if c.Placed() {
		n := d.nodes[d.view.state.Node(c.Node).index]
		s.node, left = n, d.copies.New(*n)
		e, _ := do.(Evict)
		left.loses(c, d.view.state.rev+1, e.surges(c, n.Node))
		if err := d.moved(&s, c.ID, c.leaving(n.Node)...); err != nil {
			d.uncount(&s)
			return err
		}
	}
	d.use(c.ID, act)
	d.chargeStep(s.charge, false)
	d.step(s, left, do)
	return nil
}

// leaver returns the capsule of the view that a step takes off its node; nil: the step takes none off, or the capsule runs
// on until it is ready elsewhere (Evict.Surge).
func (d *Draft) leaver(do Commitment) *Capsule {
	c := d.view.state.Capsule(do.effect().leaves)
	if e, evicts := do.(Evict); evicts && c != nil && e.surges(c, d.view.state.Node(c.Node).Node) {
		return nil
	}
	return c
}

// LookAs makes the draft show its nodes from the point of view of one capsule, until the next LookAs, Propose or Sync. If the
// capsule or its gang is nominated, the nodes show as free the room of its own nomination and of all nominations that
// it outranks. For nil, and for a capsule without a nomination, the room of every nomination that outranks a capsule's
// priority is taken. Nodes on which starts of the capsule have failed lately are the last resort ([Draft.Avoid]).
// PlaceBest calls LookAs by itself. Callers of [PlacementEngine.Best] or [NodeState.Fits] that plan for a capsule that may
// be nominated, or has failed, call LookAs first. Place and Hold judge by rank in any case.
func (d *Draft) LookAs(c *Capsule) {
	d.Avoid(c)
	d.asking = nil
	for _, i := range d.askedNodes {
		if n := d.Node(int(i)); n != nil && n.nominated != nil && n.nominated.asker != nil {
			d.show(n, nil)
		}
	}
	if c == nil || c.Spec == nil || d.view == nil {
		return
	}
	asker := d.nominationOf(c.ID)
	if d.asking = asker; asker == nil {
		return
	}
	d.view.state.nominations.AscendGreaterOrEqual(asker, func(of *Nomination) bool {
		for i := range of.Parts {
			if n := d.view.state.Node(of.Parts[i].Node); n != nil && d.Node(int(n.index)).nominated != nil {
				d.show(d.Node(int(n.index)), asker)
			}
		}
		return of.OutranksPriority(c.Spec.Priority)
	})
}

// nominationOf returns the living nomination of a capsule or of its gang, as the view shows it. Nil: there is none, the
// plan has replaced or ended it, or an earlier proposal of the plan ends it by placing the capsule or a member, or by
// releasing one for good.
func (d *Draft) nominationOf(id CapsuleID) *Nomination {
	if d.view.state.nominations.Len() == 0 {
		return nil
	}
	c := d.view.state.Capsule(id)
	if c == nil {
		return nil
	}
	of := c.Nomination()
	if g := d.view.state.Gang(c.Gang()); g != nil && !of.Lives() {
		of = g.Nomination
	}
	if !of.Lives() || d.changes(of) {
		return nil
	}
	return of
}

// changes reports whether the plan replaces or ends the nomination. A placement or release ends it only if an earlier
// proposal makes it.
func (d *Draft) changes(of *Nomination) bool {
	for i, c := range d.log {
		if c, ok := c.(Nominate); ok {
			if c.Capsule == of.Capsule && c.Gang == of.Gang {
				return true
			}
			continue
		}
		ends := c.effect().nominee.Capsule
		if ends == "" || i >= d.open {
			continue // the ledger judges all asks of one proposal by the nominations before it
		}
		if known := d.view.state.Capsule(ends); ends == of.Capsule || known != nil && of.Gang != "" && known.Gang() == of.Gang {
			return true
		}
	}
	return false
}

// yields judges all asks of the proposal in the making on a node, with its own ask, which may be nil, against the
// nominations there. Node n is the draft's copy as this step leaves it. If the asks leave the nominated room free,
// yields takes the own ask off the node's spare room; otherwise it returns an error.
func (d *Draft) yields(id CapsuleID, n *NodeState, own *ask) error {
	var asks []ask
	var served []*Nomination
	ended, endedDevices := Resources{}, deviceUse{}
	if own != nil {
		asks, served = append(asks, *own), append(served, own.nomination)
	}
	for _, c := range d.log[d.open:] {
		switch c := c.(type) {
		case Hold:
			if c.Node == n.Node.ID {
				asks = append(asks, ask{room: &c.Room, devices: c.Devices, milli: c.Milli, hold: true})
			}
		case Respec:
			if k := d.view.state.Capsule(c.Capsule); k.Node == n.Node.ID {
				asks = append(asks, k.grown(c.Spec).growth(k))
			}
		case Release:
			if h, ok := d.view.state.Hold(c.Hold); ok && h.Node == n.Node.ID {
				ended = ended.plus(h.Room)
				endedDevices.add(h.Devices, int32(h.Milli))
			}
		}
	}
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].open == d.open; i-- {
		s := &d.steps[i]
		if s.spec == nil {
			continue // it places nothing
		}
		c, _ := d.log[s.log].(Place)
		at := s.spec.ask(c.Devices, d.nominationOf(c.Capsule))
		served = append(served, at.nomination)
		if c.Node == n.Node.ID {
			asks = append(asks, at)
		}
	}
	parts := slices.DeleteFunc(slices.Clone(n.nominated.parts), func(p nominatedPart) bool {
		return slices.Contains(served, p.of) || p.of.Made <= d.view.Revision() && slices.ContainsFunc(d.log[d.open:], func(c Commitment) bool {
			other, ok := c.(Nominate) // replaces the nomination, or ends it
			return ok && other.Capsule == p.of.Capsule && other.Gang == p.of.Gang
		})
	})
	for i := range asks {
		if from := lenderOf(parts, asks[i].of); from != nil && !n.nominated.keeps {
			asks[i].lender = &Nominee{from.Capsule, from.Gang}
		}
	}
	if own != nil && own.of != nil && asks[0].lender != nil {
		n.lend(asks[0].lender, own.of, own.devices, 1)
	}
	if e := n.encroaches(parts, asks, &ended, &endedDevices); e.of != nil {
		return d.refuse(id, n, "node %q is nominated for %s", n.Node.ID, e.of.nominee())
	}
	if own != nil {
		n.spend(own)
	}
	return nil
}

// Nominate claims room for a capsule or a gang, as a commitment of the next proposal ([Nominate]). To make way it ends
// nominations of lower rank, lowest first, as far as the limits demand. The new nomination keeps its room from later
// steps of lower rank. The room of the ended nominations stays out of reach until the next Sync. A plan nominates each
// capsule or gang at most once, and not after it has ended its nomination. Errors are those of Place.
func (d *Draft) Nominate(c Nominate) error {
	if d.view == nil {
		return d.refuse(c.Capsule, nil, "the draft is empty; call Sync first")
	}
	for id := range d.view.state.capsulesOf(c.Capsule, c.Gang) {
		if use := d.capsules[id]; use.what != draftUntouched {
			return d.refuse(id, nil, "capsule %q is %s by this plan already", id, use.what)
		}
	}
	if d.changes(&Nomination{Capsule: c.Capsule, Gang: c.Gang}) {
		return d.refuse(c.Capsule, nil, "%s is nominated by this plan already, or its nomination is ended", c.nominee())
	}
	borrows := func(s draftStep) bool { return s.open == d.open && s.spec != nil && s.node.lender(s.spec) != nil }
	if len(c.Parts) > 0 && slices.ContainsFunc(d.steps, borrows) { // the new nomination may change from whom the step borrows
		return d.refuse(c.Capsule, nil, "an earlier step of the same proposal borrows nominated room; propose that first")
	}
	p := Proposal{View: d.view.Revision(), Do: []Commitment{c}}.Clone()
	if err := p.check(&d.view.state.limits); err != nil {
		return err
	}
	var t tx
	t.begin(d.view.state, d.view.Revision()+1, &p)
	for i, earlier := range d.log {
		switch n, ok := earlier.(Nominate); {
		case !ok:
		case i >= d.open:
			_ = t.nominate(&n) // cannot fail: it succeeded when the step was planned
		default: // an earlier proposal may or may not commit: count the nominations that it makes, and also those that it ends
			t.beside = append(t.beside, &Nomination{Capsule: n.Capsule, Gang: n.Gang, Parts: n.Parts})
		}
	}
	c, _ = p.Do[0].(Nominate)
	if err := t.nominate(&c); err != nil {
		return err
	}
	ends, err := t.makeWay(&c, func(o *Nomination) bool { return !d.settles(o) })
	if err != nil {
		return err
	}
	start := d.Checkpoint()
	for _, do := range append(ends, c) {
		d.step(draftStep{}, nil, do)
	}
	if len(c.Parts) > 0 {
		return d.claim(t.nominations[len(t.nominations)-1], start)
	}
	return nil
}

// claim puts the parts of a new nomination on the draft's nodes. If an earlier step of the proposal is in the way, it
// rolls the plan back to the checkpoint start and returns an error.
func (d *Draft) claim(made *Nomination, start int) error {
	made.Lends = 0 // nothing borrows from it until the next view: earlier steps have been judged without this lender
	for i := range made.Parts {
		n := d.nodes[d.view.state.Node(made.Parts[i].Node).index]
		claimed := d.copies.New(*n)
		claimed.nominated = n.nominated.with(made, i)
		claimed.nominated.keeps = true
		d.replace(n, claimed)
		if err := d.yields("", claimed, nil); err != nil {
			d.Rollback(start)
			return err
		}
	}
	return nil
}
