package orbit

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
)

// GangID names a gang.
type GangID string

// Gang is a set of capsules that are placed together in one topology domain, or not at all. The ledger enforces that
// the first placement has at least the minimum of every role; the navigator chooses the domain. Give the specs of the
// roles the class [GangClass], so that navigators for single capsules do not claim the members.
type Gang struct {
	// ID identifies the gang. It may be used again once all members have been released for good: at once by a gang that
	// names all of them again, otherwise when their records have been dropped.
	ID GangID `json:"id"`
	// Roles lists the members; members with the same spec are in one role.
	Roles []Role `json:"roles"`
	// Levels are the topology levels to try, in this order: narrowest first. Empty: all nodes are one domain.
	Levels []string `json:"levels,omitempty"`
	// Loose makes the levels a preference instead of a requirement.
	Loose bool `json:"loose,omitempty"`
}

// Clone returns a copy that shares no memory with g, except specs that a ledger has handed out. To submit a changed gang
// of a [GangState], change a Clone. A plain copy (*g) still has the roles of the state.
func (g *Gang) Clone() *Gang {
	return new(cloner).gang(g)
}

// digest returns a hash of all that a plain copy of g shares with g.
func (g *Gang) digest() (sum uint64) {
	sum = digestList(sum, g.Levels)
	for i := range g.Roles {
		r := &g.Roles[i]
		sum = bits.RotateLeft64(sum, 1) ^ maphash.Comparable(hashSeed, struct {
			name string
			spec *Spec
			min  int
		}{r.Name, r.Spec, r.Min})
		sum = digestList(sum, r.Members)
	}
	return sum
}

// lowest returns the lowest priority of all roles. It is the lowest at which the gang ever evicts others, whichever
// members are done.
func (g *Gang) lowest() int32 {
	lowest := int32(math.MaxInt32)
	for i := range g.Roles {
		lowest = min(lowest, g.Roles[i].Spec.Priority)
	}
	return lowest
}

// faults lists everything that is wrong with g, except with its ids and specs. Limit is the maximum number of members.
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
		case r.Spec.Backfills:
			out = append(out, fmt.Sprintf("role %q backfills; members of gangs leave together, so they cannot", r.Name))
		case r.Min < 0 || r.Min > len(r.Members):
			out = append(out, fmt.Sprintf("role %q: minimum is %d of %d members", r.Name, r.Min, len(r.Members)))
		}
	}
	if total > limit {
		out = append(out, fmt.Sprintf("gang has %d members; this ledger takes %d", total, limit))
	}
	return out
}

// Role is the set of members of a gang that have the same spec.
type Role struct {
	// Name identifies the role within its gang.
	Name string `json:"name"`
	// Spec is the spec of each member of the role.
	Spec *Spec `json:"spec"`
	// Members are the ids of the role's capsules.
	Members []CapsuleID `json:"members"`
	// Min is the minimum number of the role's members in the first placement; 0: all. A member that has been released for
	// good is done and need not be placed, so once fewer members are left, these are the minimum ([GangState.Minimum]).
	Min int `json:"min,omitempty"`
}

// GangState is a gang and the number of its placed members, at one revision. Read it, never write it.
type GangState struct {
	// Gang is the gang as it was submitted.
	Gang *Gang
	// Placed counts the members that are placed now, for each role.
	Placed []int
	// Done counts the members that have been released for good, for each role.
	Done []int
	// Changed is the revision at which a member was last placed or released, or the gang was nominated.
	Changed Revision
	// Nomination is the room that is nominated for the gang while no member is placed. A record of the nomination
	// remains after its end. Nil: the gang has not been nominated since it was submitted or a member was last placed.
	Nomination *Nomination

	// The number of members that still have a record.
	records int
	// The digest of Gang. Only Verify compares it.
	sum uint64
}

// Total returns how many members are placed.
func (g *GangState) Total() int {
	n := 0
	for _, placed := range g.Placed {
		n += placed
	}
	return n
}

// Left returns how many members of a role are not done. A role without members left counts no more: it has no minimum,
// and its priority is not one of the gang's.
func (g *GangState) Left(role int) int { return len(g.Gang.Roles[role].Members) - g.Done[role] }

// Minimum returns the fewest members of a role that must be placed when the gang starts: [Role.Min], or all members
// that are left if these are fewer.
func (g *GangState) Minimum(role int) int {
	left := g.Left(role)
	if least := g.Gang.Roles[role].Min; least > 0 {
		return min(least, left)
	}
	return left
}

// Lacks returns how many members of a role must be placed to reach its minimum; 0: none.
func (g *GangState) Lacks(role int) int { return max(0, g.Minimum(role)-g.Placed[role]) }

// Short reports whether the gang runs, but with fewer members in some role than the role has left.
func (g *GangState) Short() bool {
	if g.Total() == 0 {
		return false
	}
	for i := range g.Gang.Roles {
		if g.Placed[i] < g.Left(i) {
			return true
		}
	}
	return false
}

// Broken reports whether the gang runs, but some role is below its minimum: the gang has lost members. Engines plan the
// members that it lacks before all other work of equal priority.
func (g *GangState) Broken() bool { return g.Total() > 0 && g.wanting() >= 0 }

// Shortfall returns how many members each role of a broken gang lacks, by the name of the role; nil: the gang is not
// broken.
func (g *GangState) Shortfall() map[string]int {
	if !g.Broken() {
		return nil
	}
	lacks := map[string]int{}
	for i := range g.Gang.Roles {
		if n := g.Lacks(i); n > 0 {
			lacks[g.Gang.Roles[i].Name] += n
		}
	}
	return lacks
}

// wanting returns the index of the first role with fewer placed members than its minimum, or -1.
func (g *GangState) wanting() int {
	for i := range g.Gang.Roles {
		if g.Lacks(i) > 0 {
			return i
		}
	}
	return -1
}

// Priorities returns the lowest and the highest priority of the roles that have members left; of all roles if none has.
// A gang is placed at the lowest, and evicts others at the lowest. A gang that is evicted whole counts with the highest.
func (g *GangState) Priorities() (lowest, highest int32) {
	ended := g.ended()
	lowest, highest = math.MaxInt32, math.MinInt32
	for i := range g.Gang.Roles {
		if priority := g.Gang.Roles[i].Spec.Priority; ended || g.Left(i) > 0 {
			lowest, highest = min(lowest, priority), max(highest, priority)
		}
	}
	return lowest, highest
}

// ended reports whether all members are done.
func (g *GangState) ended() bool {
	for i := range g.Gang.Roles {
		if g.Left(i) > 0 {
			return false
		}
	}
	return true
}

// newGangState returns the record of a new gang: none of its members is placed, and none is done.
func newGangState(g *Gang, changed Revision) *GangState {
	counts := make([]int, 2*len(g.Roles))
	return &GangState{Gang: g, Placed: counts[:len(g.Roles):len(g.Roles)], Done: counts[len(g.Roles):], Changed: changed}
}
