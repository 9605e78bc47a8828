package orbit

import (
	"fmt"
	"math"
)

// GangID names a gang.
type GangID string

// Gang is a set of capsules placed together on one topology domain, or none of them. The ledger enforces
// that the first placement is whole, or at least every role's minimum; which domain it is on is the
// navigator's choice. Give the specs of its roles the class [GangClass], so that no navigator for single
// capsules claims them.
type Gang struct {
	// ID identifies the gang. It may be used again once the records of all its members have been dropped.
	ID GangID `json:"id"`
	// Roles lists the members by shape.
	Roles []Role `json:"roles"`
	// Levels are the topology levels to try, in this order, narrowest first; empty: all nodes are one domain.
	Levels []string `json:"levels,omitempty"`
	// Loose makes the levels a preference instead of a requirement.
	Loose bool `json:"loose,omitempty"`
}

// Role is the part of a gang's members that have one shape.
type Role struct {
	// Name identifies the role within its gang.
	Name string `json:"name"`
	// Spec is the spec of each member of the role.
	Spec *Spec `json:"spec"`
	// Members are the ids of the role's capsules.
	Members []CapsuleID `json:"members"`
	// Min is the smallest number of the role's members that the first placement may hold; 0: all.
	Min int `json:"min,omitempty"`
}

// maxRoles is as many as a capsule's record can tell apart.
const maxRoles = 1 << 16

// minimum is the fewest members that the first placement may hold.
func (r *Role) minimum() int {
	if r.Min == 0 {
		return len(r.Members)
	}
	return r.Min
}

// priority returns the priority at which the gang is placed and evicts: that of its lowest role.
func (g *Gang) priority() int32 {
	lowest := int32(math.MaxInt32)
	for i := range g.Roles {
		lowest = min(lowest, g.Roles[i].Spec.Priority)
	}
	return lowest
}

// GangState is a gang and how much of it is placed, at one revision. Read it, never write it.
type GangState struct {
	// Gang is the gang as it was submitted.
	Gang *Gang
	// Placed counts the members that are placed now, for each role.
	Placed []int
	// Changed is the revision at which a member was last placed or released, or the gang was nominated.
	Changed Revision
	// Nomination is the room that the gang is nominated for while no member is placed, or what is kept of the last one
	// that has ended; nil: there has been none since the gang was submitted or a member was placed.
	Nomination *Nomination

	// Members whose record is still kept.
	records int
}

// Total returns how many members are placed.
func (g *GangState) Total() int {
	n := 0
	for _, placed := range g.Placed {
		n += placed
	}
	return n
}

// Short reports whether the gang runs with fewer members than it has, in any role.
func (g *GangState) Short() bool {
	if g.Total() == 0 {
		return false
	}
	for i := range g.Gang.Roles {
		if g.Placed[i] < len(g.Gang.Roles[i].Members) {
			return true
		}
	}
	return false
}

// wanting returns the first role that is below its minimum, -1 if none is.
func (g *GangState) wanting() int {
	for i := range g.Gang.Roles {
		if g.Placed[i] < g.Gang.Roles[i].minimum() {
			return i
		}
	}
	return -1
}

// faults says everything that is wrong with g, except with its ids and specs. Limit is the most members.
func (g *Gang) faults(limit int) []string {
	var out []string
	if len(g.Roles) == 0 {
		out = append(out, "gang without roles")
	}
	if len(g.Roles) > maxRoles {
		out = append(out, fmt.Sprintf("gang has %d roles; it can have %d", len(g.Roles), maxRoles))
	}
	total := 0
	for i := range g.Roles {
		r := &g.Roles[i]
		total += len(r.Members)
		switch {
		case r.Spec == nil:
			out = append(out, fmt.Sprintf("role %q has no spec", r.Name))
			continue
		case len(r.Members) == 0:
			out = append(out, fmt.Sprintf("role %q has no members", r.Name))
		case r.Min < 0 || r.Min > len(r.Members):
			out = append(out, fmt.Sprintf("role %q: minimum is %d of %d members", r.Name, r.Min, len(r.Members)))
		}
	}
	if total > limit {
		out = append(out, fmt.Sprintf("gang has %d members; this ledger takes %d", total, limit))
	}
	return out
}
