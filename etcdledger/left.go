package etcdledger

import "github.com/orbitsched/orbit"

// nodeOf returns the node that a commitment touches: for a release the one that is left, which an earlier
// commitment of the same proposal may have named.
func nodeOf(s *orbit.State, do []orbit.Commitment, i int) orbit.NodeID {
	switch c := do[i].(type) {
	case orbit.PutNode:
		return c.Node.ID
	case orbit.RemoveNode:
		return c.Node
	case orbit.Place:
		return c.Node
	case orbit.Hold:
		return c.Node
	case orbit.Release:
		return leftBy(s, do[:i], &c)
	}
	return ""
}

// leftBy returns the node that a release leaves.
func leftBy(s *orbit.State, before []orbit.Commitment, c *orbit.Release) orbit.NodeID {
	for i := len(before) - 1; i >= 0; i-- {
		switch b := before[i].(type) {
		case orbit.Place:
			if c.Hold == "" && b.Capsule == c.Capsule {
				return b.Node
			}
		case orbit.Release:
			if c.Hold == "" && b.Capsule == c.Capsule {
				return ""
			}
		case orbit.Hold:
			if c.Hold != "" && b.ID == c.Hold {
				return b.Node
			}
		}
	}
	if c.Hold != "" {
		h, _ := s.Hold(c.Hold)
		return h.Node
	}
	if known := s.Capsule(c.Capsule); known != nil {
		return known.Node
	}
	return ""
}
