package orbit

import (
	"fmt"
	"slices"
)

// Check reports what [Ledger.Propose] would say to the proposal at this very state: nil if it would be
// committed (or has been), else a [*Rejection]. If it says nil and the ledger is still at this revision,
// the commit succeeds.
func (s *State) Check(p Proposal) error {
	_, err := s.Judge(p)
	return err
}

// Judge returns the proposal that is committed if p is proposed at this very state: p without the evictions of those who
// are spared ([Evict]). The history holds it, and [State.Apply] takes it as it is. The error is that of Check.
func (s *State) Judge(p Proposal) (Proposal, error) {
	p = p.Clone()
	if err := p.check(&s.limits); err != nil {
		return Proposal{}, err
	}
	var t tx
	if _, err := t.run(s, s.rev+1, &p); err != nil {
		return Proposal{}, err
	}
	return t.p, nil
}

// With returns the state that a commit of p at this very state would leave, one revision later, or s itself if p has been
// committed before. The two states share what p does not touch, so With costs what p touches. The result is in no ledger's
// history; a [MemoryLedger] that has it as its Start goes on from there. The error is that of Check.
func (s *State) With(p Proposal) (*State, error) {
	p = p.Clone()
	if err := p.check(&s.limits); err != nil {
		return nil, err
	}
	var t tx
	next := s.thaw()
	switch done, err := t.run(next, s.rev+1, &p); {
	case err != nil:
		return nil, err
	case done != 0:
		return s, nil
	}
	next.publish(&t)
	return next, nil
}

// The first step of a proposal: its bets, on the state before it.

// judge decides one bet on the state before the proposal.
func (t *tx) judge(bet Precondition) error {
	switch bet := bet.(type) {
	case NodeFreeOf:
		return t.judgeFree(bet)
	case NodeAt:
		return t.judgeNodeAt(bet)
	case GangUnplaced:
		g := t.gang(bet.Gang)
		if g == nil {
			return t.refuse(Rejection{Bet: bet}, t.s.left.Gangs, "there is no gang %q", bet.Gang)
		}
		if n := g.was.Total(); n > 0 {
			return t.refuse(Rejection{Bet: bet}, g.newest(), "gang %q has %d members placed", bet.Gang, n)
		}
	case GroupIn:
		return t.judgeGroup(bet)
	case MarkAt:
		if m := t.mark(bet.Key).was; m.changed != bet.Revision {
			return t.refuse(Rejection{Bet: bet}, max(m.changed, t.s.left.Marks),
				"mark %q is at revision %d, not %d", bet.Key, m.changed, bet.Revision)
		}
	}
	return nil
}

// judgeFree compares want with capacity less use: no sum, so nothing wraps.
func (t *tx) judgeFree(bet NodeFreeOf) error {
	n := t.node(bet.Node)
	if n == nil {
		return t.noNode(bet, bet.Node)
	}
	if n.now.hasRoom(&bet.AtLeast) {
		return nil
	}
	r := Rejection{Bet: bet, Node: bet.Node}
	t.short(&r, &bet.AtLeast, n.now.Free())
	return t.refuse(r, n.newest(), "node %q is short", bet.Node)
}

// judgeNodeAt compares counters for equality. They are drawn from the ledger-wide revision, so a node that
// was removed and put back does not pass for the old one.
func (t *tx) judgeNodeAt(bet NodeAt) error {
	n := t.node(bet.Node)
	if n == nil {
		return t.noNode(bet, bet.Node)
	}
	if bet.Usage != 0 && bet.Usage != n.now.Usage {
		return t.refuse(Rejection{Bet: bet, Node: bet.Node}, n.now.Usage,
			"node %q: usage is at revision %d, not %d", bet.Node, n.now.Usage, bet.Usage)
	}
	if bet.Specification != 0 && bet.Specification != n.now.Specification {
		return t.refuse(Rejection{Bet: bet, Node: bet.Node}, n.now.Specification,
			"node %q: specification is at revision %d, not %d", bet.Node, n.now.Specification, bet.Specification)
	}
	return nil
}

// judgeGroup looks for a placed member in the domain, on a node that carries the label.
func (t *tx) judgeGroup(bet GroupIn) error {
	if n := t.s.memberIn(bet.Group, bet.Level, bet.Domain); n != nil {
		if t.missed != nil { // for a footprint: while the node is what it is, the member is there
			t.missed.Nodes = append(t.missed.Nodes, n.Node.ID)
		}
		return nil
	}
	return t.refuse(Rejection{Bet: bet}, t.s.left.Groups,
		"no placed capsule of group %q is in %s %q", bet.Group, bet.Level, bet.Domain)
}

// noNode refuses a bet on a node that is not a member.
func (t *tx) noNode(bet Precondition, id NodeID) error {
	return t.refuse(Rejection{Bet: bet, Node: id}, t.s.left.Nodes, "node %q is not a member", id)
}

// The third step of a proposal, after its bets and its commitments: what only the sum of them shows.

// judgeTotals judges what only the sum of all commitments shows: fit, node by node, and gangs.
func (t *tx) judgeTotals() error {
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.askedDevices == 0 && n.asked == (Resources{}) {
			continue
		}
		if err := t.settleNode(n); err != nil {
			return err
		}
	}
	if err := t.settleMoves(); err != nil {
		return err
	}
	if err := t.settleWaits(); err != nil {
		return err
	}
	if err := t.settleGrowth(); err != nil {
		return err
	}
	if err := t.settleProtection(); err != nil {
		return err
	}
	if err := t.settleCompany(); err != nil {
		return err
	}
	if err := t.settleBudgets(); err != nil {
		return err
	}
	for i := range t.gangs.entries {
		if err := t.settleGang(&t.gangs.entries[i]); err != nil {
			return err
		}
	}
	return t.judgeNominations()
}

// settleNode compares use with capacity where this proposal has asked for something. Dimensions that it
// does not ask for may be over their capacity, if that has shrunk; those that it asks for may not, whatever
// else it releases there.
func (t *tx) settleNode(n *txNode) error {
	node, over := n.now.Node, false
	for d := range n.asked {
		over = over || n.asked[d] > 0 && n.now.used[d] > node.Capacity[d]
	}
	if over {
		t.at = n.asker
		r := Rejection{Node: node.ID}
		t.short(&r, &n.asked, node.Capacity.minus(n.now.used.minus(n.asked)))
		return t.refuse(r, max(n.newest(), n.asks), "node %q is short", r.Node)
	}
	return t.settleDevices(n)
}

// settleDevices does the same for device instances. The node may have lost one in this very proposal.
func (t *tx) settleDevices(n *txNode) error {
	if n.askedDevices == 0 {
		return nil
	}
	d := &n.now.Node.Devices
	for i := range MaxDevices {
		if !n.askedDevices.Has(i) {
			continue
		}
		room, used := int64(0), int64(n.now.devices[i])
		if i < d.Count && !d.Unhealthy.Has(i) {
			room = deviceMilli
		}
		if used > room {
			t.at = n.asker
			before := int64(0)
			if n.was != nil {
				before = int64(n.was.deviceUse()[i])
			}
			r := Rejection{Node: n.now.Node.ID, Dimension: fmt.Sprintf("device %d", i), Want: used - before, Free: max(0, room-before)}
			return t.refuse(r, max(n.newest(), n.asks), "node %q is short", r.Node)
		}
	}
	return nil
}

// settleGang judges a first placement; later placements may be short.
func (t *tx) settleGang(g *txGang) error {
	if err := t.settleWishes(g); err != nil {
		return err
	}
	if g.now.Total() == 0 || g.adopts || g.was != nil && g.was.Total() > 0 && !g.restarts {
		return nil
	}
	i := g.now.wanting()
	if i < 0 {
		return nil
	}
	t.at = -1 // all together
	role := &g.now.Gang.Roles[i]
	return t.refuse(Rejection{}, g.newest(), "gang %q: role %q would have %d members placed, at least %d must be at first",
		g.now.Gang.ID, role.Name, g.now.Placed[i], role.minimum())
}

// judgeShare judges what this proposal nominates, beside what is nominated for those that outrank it. What it outranks has
// to make way, and is not counted: or small work, of which something else is nominated every moment, would keep large work
// from being nominated. It compares sums alone, which fall when a nomination ends; so what is taken here is taken as well
// after others have ended.
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

// shortOf returns an error if a nomination claims more than the share of something, beside all others that are nominated
// but those to leave out, which are those of the lowest rank or none. The others are added up only where the nomination does
// not fit beside the sum of all.
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
	t.s.nominations.Ascend(func(n *Nomination) bool { t.readNominee(n); return true })
	return t.refuse(Rejection{}, t.s.left.Nominations, "those that outrank it and %s would claim more than %d percent of %s",
		made.nominee(), t.s.limits.NominatedShare, t.dimension(d))
}

// addMade adds the nominations that are not in the state, but one and those to leave out.
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

// overShare returns the first of the totals of which a nomination and others claim more than the share, -1 if there is none. The
// first in rank may always claim.
func (t *tx) overShare(made *Nomination, others *totals) int {
	var mine totals
	mine.addRooms(made, 1)
	capacity := t.capacity()
	for d := range mine {
		sum := wide{others[d].hi + mine[d].hi, others[d].lo}
		if sum.lo += mine[d].lo; sum.lo < mine[d].lo {
			sum.hi++
		}
		if mine[d] != (wide{}) && others[d] != (wide{}) && sum.times(100).exceeds(capacity[d].times(t.s.limits.NominatedShare)) {
			return d
		}
	}
	return -1
}

// endedNominations yields the nominations of the state that the proposal ends or replaces.
func (t *tx) endedNominations(yield func(*Nomination) bool) {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.was != nil && e.was.Nomination.Lives() && e.now.Nomination != e.was.Nomination && !yield(e.was.Nomination) {
			return
		}
	}
	for i := range t.gangs.entries {
		if e := &t.gangs.entries[i]; e.was != nil && e.was.Nomination.Lives() && t.current(e.was.Nomination) != e.was.Nomination && !yield(e.was.Nomination) {
			return
		}
	}
}

// capacity returns what all nodes have after this proposal.
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

// crowded returns a node on which there are too many nominations beside one that was made; empty: there is none.
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

// hasEnded reports whether a nomination does not live any more.
func (t *tx) hasEnded(c *Nominate) bool {
	var n *Nomination
	if e := t.capsule(c.Capsule); c.Capsule != "" && e != nil {
		n = e.now.Nomination
	}
	if g := t.gang(c.Gang); c.Gang != "" && g != nil {
		n = g.now.Nomination
	}
	return !n.Lives() || n.Made != c.Since
}

// makesWay reports whether the end of a nomination makes way for one that the same commitments make: that has to outrank it,
// and to claim room on one of its nodes or of a resource that it claims. One that has ended already makes way too.
func (s *State) makesWay(end *Nominate, all []Commitment) bool {
	var o *Nomination
	if c := s.Capsule(end.Capsule); c != nil {
		o = c.Nomination
	} else if g := s.Gang(end.Gang); g != nil {
		o = g.Nomination
	}
	return slices.ContainsFunc(all, func(do Commitment) bool {
		made, ok := do.(Nominate)
		if !ok || len(made.Parts) == 0 || !o.Lives() {
			return ok && len(made.Parts) > 0
		}
		var t tx
		t.begin(s, s.rev+1, &Proposal{Do: all})
		if t.nominate(&made) != nil {
			return false
		}
		n := t.nominations[0]
		return n.Outranks(o) && (n.shares(o) || slices.ContainsFunc(n.Parts, func(part NominatedRoom) bool { return o.claims(part.Node) }))
	})
}
