package orbit

import (
	"fmt"
	"slices"
)

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

// judgeFree judges a NodeFreeOf. It compares AtLeast with capacity less use: no sum is built that could overflow.
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

// judgeNodeAt compares the counters of a node for equality. They are drawn from the ledger-wide revision, so a node
// that was removed and put back never has the counters of the old one.
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

// judgeGroup judges a GroupIn: a member must be placed on a node that carries the label of the domain.
func (t *tx) judgeGroup(bet GroupIn) error {
	if t.s.memberIn(bet.Group, bet.Level, bet.Domain) != nil {
		return nil
	}
	return t.refuse(Rejection{Bet: bet}, t.s.left.Groups,
		"no placed capsule of group %q is in %s %q", bet.Group, bet.Level, bet.Domain)
}

// noNode refuses a bet on a node that is not a member.
func (t *tx) noNode(bet Precondition, id NodeID) error {
	return t.refuse(Rejection{Bet: bet, Node: id}, t.s.left.Nodes, "node %q is not a member", id)
}

// The third step of a proposal, after its bets and its commitments: the rules that are judged on the sum of all
// commitments.

// judgeTotals judges the rules that depend on all commitments together: fit, node by node, then moves, waits, growth,
// protections, company, budgets, gangs and nominations. Of a history that is replayed it judges nothing, and only settles
// what waits.
func (t *tx) judgeTotals() error {
	if t.replays {
		return t.settleWaits()
	}
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

// settleNode compares the use of a node with its capacity in each dimension that this proposal takes from. A dimension
// that it does not take from may be over a capacity that has shrunk; a dimension that it takes from may not, whatever
// the proposal releases there.
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

// settleDevices is settleNode for device instances. This very proposal may have removed an instance or made it
// unhealthy.
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

// settleGang judges wishes, and the gang's first placement: every role needs its minimum at once. After that a gang may
// fall short of its minimums, for example when members stop, and place them one by one.
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
		g.now.Gang.ID, role.Name, g.now.Placed[i], g.now.Minimum(i))
}

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
		sum := others[d].add(mine[d])
		if mine[d] != (wide{}) && others[d] != (wide{}) && sum.times(100).exceeds(capacity[d].times(t.s.limits.NominatedShare)) {
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
