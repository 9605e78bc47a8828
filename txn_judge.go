package orbit

// The first step of a proposal: its bets, on the state before it. The rules of the third step are in rules.go.

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
