package orbit

import (
	"cmp"
	"slices"
)

// Propose returns the steps since the last call as one proposal. Its preconditions are the given ones and the bets that
// the steps rest on:
//
//   - [NodeFreeOf] for each node on which the proposal takes more than it releases itself; not if a given [NodeAt] with a
//     Usage bets already that nothing has come to the node or left it;
//   - [GroupIn] for each domain in which a placed capsule finds the group that it is a member of and asks to be near.
//
// Without steps the proposal is empty, and no ledger takes it.
func (d *Draft) Propose(more ...Precondition) Proposal {
	from := d.open
	if len(d.log) == from {
		return Proposal{If: more}
	}
	d.LookAs(nil)
	p := Proposal{View: d.view.Revision(), Do: d.commitments.Slice(len(d.log) - from)}
	copy(p.Do, d.log[from:])
	if len(more) > 0 {
		p.If = append(p.If, more...)
	} else {
		p.If = d.bets.Slice(1)[:0]
	}
	first := len(d.steps)
	for first > 0 && d.steps[first-1].log >= from && d.steps[first-1].open == from && !d.steps[first-1].withdraws {
		first--
	}
	own := d.steps[first:]
	sum := d.sum(own)
	for i := range sum.nodes {
		p.If = d.betOnRoom(p.If, &sum.nodes[i])
	}
	for _, bet := range more {
		if at, ok := bet.(NodeAt); ok && at.Usage != 0 {
			p.If = slices.DeleteFunc(p.If, func(bet Precondition) bool {
				free, ok := bet.(NodeFreeOf)
				return ok && free.Node == at.Node
			})
		}
	}
	p.If = d.betOnCompany(p.If, own)
	s := draftStep{log: len(d.log), open: from}
	d.hedge(&s, sum)
	d.push(s, nil)
	d.open = len(d.log)
	d.forgetCompany(p.Do)
	return p
}

// Respec gives a placed capsule of the view another envelope, as a commitment of the next proposal. It fills in Since if
// that is 0. A plan can change nothing else of a spec, and cannot set Applied or Stopping. For a growth that lacks room, the plan
// first evicts others from the node, with For naming the capsule ([Draft.Evict]); on a node that confirms, only capsules
// that have not begun can make way, because a growth cannot wait until the others have stopped. Errors are those of Place.
func (d *Draft) Respec(r Respec) error {
	if d.view == nil {
		return d.refuse(r.Capsule, nil, "the draft is empty; call Sync first")
	}
	c, use := d.view.state.Capsule(r.Capsule), d.capsules[r.Capsule]
	if c == nil || !c.Placed() || use.what != draftUntouched {
		return d.refuse(r.Capsule, nil, "capsule %q is not placed in the view, or is %s by this plan already", r.Capsule, use.what)
	}
	if r.Applied || r.Stopping {
		return d.refuse(r.Capsule, nil, "the plan says what capsule %q takes already, or that it stops, which is not for a plan", r.Capsule)
	}
	r.Since = cmp.Or(r.Since, c.PlacedAt)
	r, err := d.view.state.sizes(r, d.view.Revision())
	if err != nil {
		return err
	}
	if !c.Spec.resizes(r.Spec) {
		return d.refuse(r.Capsule, nil, "the plan changes more of capsule %q than its envelope", r.Capsule)
	}
	n := d.nodes[d.view.state.Node(c.Node).index]
	now, own := d.copies.New(*n), c.grown(r.Spec).growth(c)
	now.used = n.used.minus(c.Spec.Envelope.Reservation).plus(r.Spec.Envelope.Reservation)
	now.reborrow(c, r.Spec)
	switch _, stops := now.lacksBeside(own.room); {
	case !n.hasRoom(own.room):
		return d.refuse(c.ID, n, "capsule %q cannot grow on node %q by %v; %v is free", c.ID, c.Node, *own.room, n.Free())
	case stops != nil:
		return d.refuse(c.ID, n, "capsule %q cannot grow on node %q while capsule %q, which leaves it, has not stopped: a growth is used at once and cannot wait", c.ID, c.Node, stops.Capsule)
	}
	if n.nominated != nil && *own.room != (Resources{}) {
		if err := d.yields(c.ID, now, &own); err != nil {
			return err
		}
	}
	s := draftStep{node: n, use: use, frees: true}
	s.charge = d.changedCharge(c, charged{queue: c.Spec.Queue, spec: r.Spec, model: r.Spec.modelOn(n.Node), placed: true})
	if err := d.chargeIfAllowed(c, n, s.charge); err != nil {
		return err
	}
	if c.Spec.spreadsItself() { // each size is a spec with a spread of its own; no other count changes
		_ = d.moved(&s, c.ID, companyMove{c.Spec, n.Node, 0, -1}, companyMove{r.Spec, n.Node, 0, 1})
	}
	d.use(c.ID, draftRespecified)
	d.step(s, now, r)
	return nil
}

// betOnRoom appends the bet on a node if the proposal takes more there than it releases.
func (d *Draft) betOnRoom(bets []Precondition, n *planNode) []Precondition {
	var need Resources
	for i := range need {
		need[i] = max(0, n.now.used[i]-n.was.used[i])
	}
	if need != (Resources{}) {
		bets = append(bets, d.freeBoxes.New(NodeFreeOf{Node: n.now.Node.ID, AtLeast: need}))
	}
	return bets
}

// sum returns what the steps of a proposal do, for the rules. It is good until the next call.
func (d *Draft) sum(own []draftStep) *planSum {
	p := &d.made
	p.nodes, p.moves, p.charges, p.members, p.frees, p.copies = p.nodes[:0], p.moves[:0], p.charges[:0], p.members[:0], false, &d.copies
	counts := len(d.counts)
	d.touched.Clear(len(d.nodes))
	for i := range own {
		s := &own[i]
		if s.node != nil && d.touched.Add(int32(s.node.index)) {
			p.nodes = append(p.nodes, planNode{was: s.node, now: d.nodes[s.node.index]})
		}
		p.moves = append(p.moves, s.moves...)
		if s.charge != nil {
			p.charges = append(p.charges, s.charge)
		}
		counts -= s.counts
		p.frees = p.frees || s.frees
	}
	for _, c := range d.counts[counts:] {
		p.members = append(p.members, c.of)
	}
	return p
}

// hedge lets later steps of the plan hold whether a proposal commits or not. Step s is the last of the proposal. One that frees
// nothing has its worst case if it commits, as the draft counts it already.
func (d *Draft) hedge(s *draftStep, p *planSum) {
	if !p.frees {
		return
	}
	for _, m := range p.members {
		d.count(s, m)
	}
	moves, charges := len(p.moves), len(p.charges)
	for _, hedge := range hedges {
		hedge(p)
	}
	for i := range p.nodes {
		if n := &p.nodes[i]; n.kept != nil {
			d.replace(n.now, n.kept)
		}
	}
	for _, m := range p.moves[moves:] {
		n := d.nodes[d.view.state.Node(m.node.ID).index]
		kept := d.moves.Slice(1)
		kept[0] = m
		d.countMove(&kept[0], 1)
		d.push(draftStep{node: n, log: len(d.log), open: d.open, moves: kept}, d.copies.New(*n))
	}
	for _, c := range p.charges[charges:] {
		d.chargeStep(c, false)
		d.push(draftStep{log: len(d.log), open: d.open, charge: c}, nil)
	}
}

// Checkpoint returns a position of the plan to which Rollback can return.
func (d *Draft) Checkpoint() int { return len(d.steps) }

// Rollback undoes all steps since a checkpoint, newest first. A proposal that Propose has returned since then is
// void: the caller drops it.
func (d *Draft) Rollback(to int) {
	for to = max(to, 0); len(d.steps) > to; {
		last := len(d.steps) - 1
		was := d.steps[last]
		d.steps[last] = draftStep{}
		d.steps = d.steps[:last]
		d.forgetAfter(last)
		for i := range was.moves {
			d.countMove(&was.moves[i], -1)
		}
		d.chargeStep(was.charge, true)
		for _, at := range was.delayed {
			d.setAfter(at, false)
		}
		if was.node != nil {
			d.nodes[was.node.index] = d.restored(was.node)
			d.journal.add(was.node.index)
		}
		d.uncount(&was)
		if was.open != d.open {
			d.forgetNear()
		}
		if was.withdraws {
			d.capsules[d.log[was.use.at].(Place).Capsule] = was.use
		}
		if d.open = was.open; was.log < len(d.log) {
			d.forgetCompany(d.log[was.log:])
			d.restoreUse(d.log[was.log], was.use)
			d.log = d.log[:was.log]
		}
	}
}

// delay sets Place.After of the earlier placements of the proposal in the making on a node that take an extra which a new
// placement takes too, if these now fit only beside what is left when the remains on the node have stopped: the ledger
// judges them all on the sum. It returns their log positions.
func (d *Draft) delay(n *NodeState, spec *Spec) (at []int) {
	if len(spec.Extras) == 0 {
		return nil
	}
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].open == d.open && d.steps[i].log >= d.open; i-- {
		s := &d.steps[i]
		if s.spec == nil || s.node.index != n.index || len(s.spec.Extras) == 0 {
			continue
		}
		if place, _ := d.log[s.log].(Place); place.After || (&arrival{spec: s.spec, node: n.Node, counted: true, nodeOf: d.describes}).fault(draftCounts{d}) == nil {
			continue
		}
		d.setAfter(s.log, true)
		at = append(at, s.log)
	}
	return at
}

// setAfter sets Place.After of the placement at a log position.
func (d *Draft) setAfter(at int, after bool) {
	if place, ok := d.log[at].(Place); ok {
		place.After = after
		d.log[at] = place
	}
}

// ExtraFree returns how much of an extra ([Extra]) is free on a node, as the plan leaves it: what the node has, less what
// the capsules placed there take, less what capsules take that have left the node and still run there. It is negative
// where more is taken than the node has.
func (d *Draft) ExtraFree(n *NodeState, name string) int64 {
	switch {
	case d.view == nil:
		return 0
	case !d.rules.rules.Made() || d.rules.rule(extraGroup(name), NodeKey).apart == 0: // the draft does not count it
		return d.view.state.ExtraFree(n, name)
	}
	return d.rules.extraFree(n.Node, name)
}

// restored returns a node to which the plan is rolled back, shown to no asker if it was shown to another one than the
// current (LookAs).
func (d *Draft) restored(n *NodeState) *NodeState {
	if n.nominated == nil || n.nominated.asker == nil || n.nominated.asker == d.asking {
		return n
	}
	return d.shownTo(n, nil)
}

// forgetAfter drops the entries of after from a position on. If a NoFit refers to them, it keeps the array; the draft's
// next append copies.
func (d *Draft) forgetAfter(from int) {
	if from < d.shared {
		d.after, d.shared = d.after[:from:from], from
		return
	}
	d.after[from] = nil
	d.after = d.after[:from]
}

// restoreUse sets the use of the capsule or the hold of a commitment back to its value before that step.
func (d *Draft) restoreUse(c Commitment, use draftUse) {
	h, _ := c.(Hold)
	r, _ := c.(Release)
	if hold := cmp.Or(h.ID, r.Hold); hold != "" {
		d.holds[hold] = use
	} else if id := c.effect().changes(); id != "" {
		d.capsules[id] = use
	}
}

// settles reports whether the plan has a step for the nominated capsule, for a member of the nominated gang, or for the
// nomination itself, so that the nomination may have ended when the next proposal is judged. Such a nomination is not
// ended again to make way.
func (d *Draft) settles(of *Nomination) bool {
	for id := range d.view.state.capsulesOf(of.Capsule, of.Gang) {
		if d.capsules[id].what != draftUntouched {
			return true
		}
	}
	return d.changes(of)
}

// Reserve takes the room of a capsule of the spec on a node without a commitment, so that a navigator can find out what
// else would fit. The caller must roll it back before the next Propose, which would otherwise bet on that room too.
// Errors are those of Place.
func (d *Draft) Reserve(spec *Spec, to Choice) error {
	if spec == nil {
		return invalidf("draft: Reserve needs a spec")
	}
	n, err := d.current(to.Node)
	if err != nil {
		return err
	}
	s := draftStep{node: n, log: len(d.log), open: d.open}
	taken, _, err := d.arrives(&s, &Capsule{Spec: spec}, to.Devices)
	if err != nil {
		return err
	}
	d.push(s, taken)
	return nil
}

// replace notes a step without a commitment that replaces a node by now.
func (d *Draft) replace(n, now *NodeState) {
	d.push(draftStep{node: n, log: len(d.log), open: d.open}, now)
}
