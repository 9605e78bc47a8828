package orbit

// mayMove reports whether a capsule that is placed on a node may be moved to another one: its spec or a budget consents,
// it has not begun, the node does not keep it, or its gang is broken.
func (s *State) mayMove(c *Capsule, n *NodeState) bool {
	return c.Spec.Movable || !n.Node.keeps(c.Spec) || s.isCovered(c.Spec) || c.waitsToBegin(n.Node) || s.inBroken(c)
}

// Movable reports whether a capsule is placed and may be moved to another node now: its spec ([Spec.Movable]) or a budget
// consents, or it has not begun, and it is not protected. Whether another node takes it is another question, and a budget
// may refuse a move for the number of its members that are missing.
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
