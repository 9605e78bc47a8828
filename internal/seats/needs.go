package seats

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// Needs says which members a gang must place to reach its minimums.
type Needs struct {
	// The waiting members of each role, and how many of them the role needs.
	Roles []Role
	// How many members the gang needs in all: at least the sum of what the roles need. Any waiting members will do for the
	// rest ([orbit.Gang.Min]).
	InAll int
}

// NeedsOf returns what a gang needs, whose waiting members are given by role. If the roles need as many members as the
// gang in all, only these are in the result.
func NeedsOf(g *orbit.GangState, waiting [][]*orbit.Capsule) Needs {
	n := Needs{InAll: g.LacksInAll()}
	sum := 0
	for role := range waiting {
		sum += g.Lacks(role)
	}
	for role, members := range waiting {
		needed := min(len(members), g.Lacks(role))
		if sum == n.InAll {
			members = members[:needed]
		}
		n.Roles = append(n.Roles, Role{Members: members, Needed: needed})
	}
	return n
}

// Rest returns how many members the gang needs besides what the roles need.
func (n *Needs) Rest() int {
	rest := n.InAll
	for _, r := range n.Roles {
		rest -= r.Needed
	}
	return max(0, rest)
}

// Members returns as many members as the gang needs in all, the hardest to seat first: those that the roles need, and of
// the others those that are easiest to seat.
func (n *Needs) Members() []*orbit.Capsule {
	var needed, others []*orbit.Capsule
	for _, r := range n.Roles {
		needed, others = append(needed, r.Members[:r.Needed]...), append(others, r.Members[r.Needed:]...)
	}
	others = HardestFirst(others)
	return HardestFirst(append(needed, others[max(0, len(others)-n.Rest()):]...))
}

// Enough reports whether as many members wait as the gang needs, and it needs any.
func (n *Needs) Enough(g *orbit.GangState) bool {
	waiting := 0
	for i, r := range n.Roles {
		if waiting += len(r.Members); r.Needed < g.Lacks(i) {
			return false
		}
	}
	return n.InAll > 0 && waiting >= n.InAll
}

// Missing returns how many members a seating lacks of the needed ones. For what the gang needs besides those of its roles,
// all count that have seats.
func (n *Needs) Missing(f *Fit) int {
	lacks := 0
	for a := range f.Asks {
		lacks += max(0, f.Asks[a].Needed-f.Placed[a])
	}
	return max(lacks, n.InAll-f.Total)
}

// Needy returns the first member without a seat that an ask needs, and the position of the ask; if all these have seats,
// the first member without one. Nil: all members have seats.
func (f *Fit) Needy() (ask int, member *orbit.Capsule) {
	for a := range f.Asks {
		if n := f.Placed[a]; n < f.Asks[a].Needed {
			return a, f.Asks[a].Members[n]
		}
	}
	return f.Next()
}

// Lacking says in words how many members a gang lacks, by a key of [orbit.GangState.Shortfall].
func Lacking(n int, role string) string {
	if role == "*" {
		return fmt.Sprintf("%d of any role", n)
	}
	return fmt.Sprintf("%d of role %q", n, role)
}
