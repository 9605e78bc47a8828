package orbit

// mayMove reports whether one of the reasons to move a placed capsule off its node n holds: its spec is Movable, a
// budget covers it, it waits to begin, n is not Ready or has a taint that expels it, or its gang is broken. It does not
// look at protections. What surges does not move. What ends when it leaves its node ([Spec.Ends]) must be Movable. A member of a broken gang may move for that reason alone only if the whole gang leaves, which
// the ledger judges (judgeWishes).
func (s *State) mayMove(c *Capsule, n *NodeState) bool {
	if c.surging() != nil {
		return false
	}
	if n.Node.ends(c) {
		return c.Spec.Movable
	}
	return c.Spec.Movable || !n.Node.keeps(c.Spec) || s.isCovered(c.Spec) || c.waitsToBegin(n.Node) || s.inBroken(c)
}

// Movable reports whether a capsule is placed, is not protected ([Protect]), and may be moved to another node now. For
// that, one of these must hold: its spec says [Spec.Movable]; a [Budget] covers it; it waits to begin
// ([State.Waiting]); its node is not Ready, or has a NoExecute taint that it does not tolerate for ever; or it is a
// member of a broken gang. What would end by leaving ([Spec.Ends]) must be Spec.Movable. Movable does not look for a node that would take the capsule. A budget may still refuse the
// move because too few members are healthy. A member of a broken gang with no other reason moves only with all of it.
func (s *State) Movable(c *Capsule) bool {
	if c == nil || !c.Placed() {
		return false
	}
	n := s.Node(c.Node)
	return n != nil && s.Protected(c.ID) == 0 && s.mayMove(c, n)
}

// FitsByMoves reports whether a node lacks free capacity or devices for a capsule of the spec, and would have enough
// without the capsules there that are Movable. It says nothing of rules of company, and nothing about whether other nodes
// take what would have to move. It looks at each capsule on the node.
func (s *State) FitsByMoves(n *NodeState, spec *Spec) bool {
	if n == nil || n.Node == nil || spec == nil || !n.misfit(spec).isShortage() {
		return false
	}
	without := *n
	for c := range s.On(n.Node.ID) {
		if s.Movable(c) {
			without.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
		}
	}
	return without.misfit(spec) == Misfit{}
}
