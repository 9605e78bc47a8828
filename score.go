package orbit

// Score rates a node for a spec: lower is better, and equal values go by tie. It sees the node as it is now
// (with what the plan has reserved), its telemetry report and the shared spec, never the capsule, and it
// must be a pure function of the three: that is what makes equivalence classes and caching exact. A value
// that is NaN or infinite takes the node out of the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses the
// device instances; the default is [NodeState.PickDevices]. Package score has ready scores, and the interfaces of a
// score that can bound itself (Bounded), and of one that reads more than its arguments and must say so (Versioned).
//
// A score that draws lots has a method Draw(decision uint64) (Score, bool). It returns the score for one decision,
// and false if it draws none after all. Engines ask for it before every choice, with a number that is another one in
// every view, after every Place, and with every Seed; and rate all nodes with it.
type Score interface {
	Score(node *NodeState, report *Report, spec *Spec) (value, tie float64)
}

// SpreadsAcross reports whether the node is in one of the failure domains that the spec names.
func (s *Spec) SpreadsAcross(n *Node) bool {
	if len(s.Spread.Names) == 0 {
		return false
	}
	domain, ok := n.Labels[s.Spread.Level]
	if !ok {
		return false
	}
	for _, name := range s.Spread.Names {
		if name == domain {
			return true
		}
	}
	return false
}
