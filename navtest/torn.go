package navtest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// torn says which gang a plan tears apart: by a proposal that leaves it below a minimum at its beginning, or
// by placing it where it has no domain in common.
func (c *call) torn() error {
	books := map[orbit.GangID]*gangBook{}
	var order []orbit.GangID
	for i, p := range c.plan.Proposals {
		for _, do := range p.Do {
			if b, id := c.enter(books, do); b != nil && !slices.Contains(order, id) {
				order = append(order, id)
			}
		}
		for _, id := range order {
			if role, short := books[id].short(); short {
				return fmt.Errorf("plan on revision %d: proposal %d begins gang %q with %d members of role %q, which has %d, at least %d",
					c.state.Revision(), i, id, books[id].placed[role], books[id].gang.Roles[role].Name, len(books[id].gang.Roles[role].Members), minimum(&books[id].gang.Roles[role]))
			}
		}
	}
	for _, id := range order {
		if err := c.scattered(books[id]); err != nil {
			return err
		}
	}
	return nil
}

// gangBook is what becomes of a gang in the course of a plan.
type gangBook struct {
	gang   *orbit.Gang
	placed []int
	// Where the plan puts members.
	to map[orbit.CapsuleID]orbit.NodeID
	// The plan takes members away, so where the others are tells nothing.
	moves bool
}

// enter books one commitment, if it moves a member of a gang.
func (c *call) enter(books map[orbit.GangID]*gangBook, do orbit.Commitment) (*gangBook, orbit.GangID) {
	var id orbit.CapsuleID
	by := 1
	switch do := do.(type) {
	case orbit.Place:
		id = do.Capsule
	case orbit.Release:
		id, by = do.Capsule, -1
	}
	capsule := c.state.Capsule(id)
	if capsule == nil || capsule.Gang == "" || by < 0 && !capsule.Placed() {
		return nil, ""
	}
	b := books[capsule.Gang]
	if b == nil {
		g := c.state.Gang(capsule.Gang)
		b = &gangBook{gang: g.Gang, placed: slices.Clone(g.Placed), to: map[orbit.CapsuleID]orbit.NodeID{}}
		books[capsule.Gang] = b
	}
	b.placed[roleOf(b.gang, id)] += by
	if place, ok := do.(orbit.Place); ok {
		b.to[id] = place.Node
	} else {
		b.moves = true
	}
	return b, capsule.Gang
}

// short reports whether a gang that is placed is below a minimum, and in which role. A gang that had begun
// before the plan may be.
func (b *gangBook) short() (int, bool) {
	total, begun := 0, -len(b.to)
	for _, n := range b.placed {
		total += n
		begun += n
	}
	if total == 0 || begun > 0 {
		return 0, false
	}
	for i := range b.placed {
		if b.placed[i] < minimum(&b.gang.Roles[i]) {
			return i, true
		}
	}
	return 0, false
}

// scattered says whether the members that a plan places are on no common domain, though the gang requires
// one: among themselves and with those that are placed already, if these have one.
func (c *call) scattered(b *gangBook) error {
	if b.moves || b.gang.Loose || len(b.gang.Levels) == 0 || len(b.to) == 0 {
		return nil
	}
	before := onState(c.state)
	after := func(id orbit.CapsuleID) *orbit.NodeState {
		if node, moved := b.to[id]; moved {
			return c.state.Node(node)
		}
		return before(id)
	}
	g, had := &orbit.GangState{Gang: b.gang}, false
	for _, level := range b.gang.Levels {
		if _, one := shared(g, level, after); one {
			return nil
		}
		begun, one := shared(g, level, before)
		had = had || begun && one
	}
	if state := c.state.Gang(b.gang.ID); state.Total() > 0 && !had {
		return nil // labels have changed since it began: there is no domain to keep to
	}
	return fmt.Errorf("plan on revision %d: the members of gang %q would share no domain of the levels %q that it requires", c.state.Revision(), b.gang.ID, b.gang.Levels)
}

// onState finds the nodes of capsules.
func onState(s *orbit.State) func(orbit.CapsuleID) *orbit.NodeState {
	return func(id orbit.CapsuleID) *orbit.NodeState {
		if c := s.Capsule(id); c != nil && c.Placed() {
			return s.Node(c.Node)
		}
		return nil
	}
}

// shared reports whether any member of a gang is placed, and whether all that are share one domain.
func shared(g *orbit.GangState, level string, on func(orbit.CapsuleID) *orbit.NodeState) (begun, one bool) {
	domain := ""
	for i := range g.Gang.Roles {
		for _, id := range g.Gang.Roles[i].Members {
			n := on(id)
			if n == nil {
				continue
			}
			is := n.Node.Labels[level]
			if is == "" || begun && is != domain {
				return true, false
			}
			begun, domain = true, is
		}
	}
	return begun, true
}

// roleOf returns which role of the gang a member has.
func roleOf(g *orbit.Gang, id orbit.CapsuleID) int {
	return slices.IndexFunc(g.Roles, func(r orbit.Role) bool { return slices.Contains(r.Members, id) })
}

// minimum is the fewest members of a role that a gang may begin with.
func minimum(r *orbit.Role) int { return cmp.Or(r.Min, len(r.Members)) }
