package orbit

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
)

// GangID names a gang.
type GangID string

// Gang is a set of capsules that are placed together in one topology domain, or not at all. The ledger enforces that
// the first placement has at least the minimum of every role and of the gang; the navigator chooses the domain. Give the
// specs of the roles the class [GangClass], so that navigators for single capsules do not claim the members. A gang may
// grow: [Submit].Join adds members to it, for example to replace some that are done.
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
	// Min is the minimum number of members of all roles together in the first placement. The minimums of the roles hold
	// too. 0: only these hold. As for a role, once fewer members are left, these are the minimum.
	Min int `json:"min,omitempty"`
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

// role returns the index of the role that another one of the same name and spec joins; -1: there is none.
func (g *Gang) role(r *Role) int {
	return slices.IndexFunc(g.Roles, func(own Role) bool { return own.Name == r.Name && own.Spec == r.Spec })
}

// differs says what another description of g has otherwise; empty: nothing. What is zero there is not compared.
func (g *Gang) differs(by *Gang) string {
	switch {
	case by.Min != 0 && by.Min != g.Min:
		return fmt.Sprintf("a minimum of %d, not of %d", g.Min, by.Min)
	case len(by.Levels) > 0 && !slices.Equal(by.Levels, g.Levels):
		return fmt.Sprintf("levels %q, not %q", g.Levels, by.Levels)
	case by.Loose && !g.Loose:
		return "levels that are required, not preferred"
	}
	for i := range by.Roles {
		r := &by.Roles[i]
		at := g.role(r)
		switch {
		case at < 0 && slices.ContainsFunc(g.Roles, func(own Role) bool { return own.Name == r.Name }):
			return fmt.Sprintf("a role %q of another spec", r.Name)
		case at >= 0 && r.Min != 0 && r.Min != g.Roles[at].Min:
			return fmt.Sprintf("a minimum of %d in role %q, not of %d", g.Roles[at].Min, r.Name, r.Min)
		}
	}
	return ""
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

// faults lists what is wrong with the form of g, except with its ids and specs. The members of a gang that has grown may
// be fewer than its minimums, because those that are done are forgotten.
func (g *Gang) faults() []string {
	var out []string
	if len(g.Roles) == 0 {
		out = append(out, "gang without roles")
	}
	if len(g.Roles) > maxRoles {
		out = append(out, fmt.Sprintf("gang has %d roles; it can have %d", len(g.Roles), maxRoles))
	}
	if g.Min < 0 {
		out = append(out, fmt.Sprintf("minimum of the gang is %d", g.Min))
	}
	for i := range g.Roles {
		r := &g.Roles[i]
		switch {
		case r.Spec == nil:
			out = append(out, fmt.Sprintf("role %q has no spec", r.Name))
		case r.Spec.Backfills:
			out = append(out, fmt.Sprintf("role %q backfills; members of gangs leave together, so they cannot", r.Name))
		case r.Min < 0:
			out = append(out, fmt.Sprintf("role %q: minimum is %d of %d members", r.Name, r.Min, len(r.Members)))
		}
	}
	return out
}

// shortages lists what is wrong with the number of members of a gang that is submitted, or that is to join one. Limit is
// the maximum number of members.
func (g *Gang) shortages(joins bool, limit int) []string {
	var out []string
	total := 0
	for i := range g.Roles {
		r := &g.Roles[i]
		total += len(r.Members)
		switch {
		case len(r.Members) == 0:
			out = append(out, fmt.Sprintf("role %q has no members", r.Name))
		case !joins && r.Min > len(r.Members):
			out = append(out, fmt.Sprintf("role %q: minimum is %d of %d members", r.Name, r.Min, len(r.Members)))
		}
	}
	if !joins && g.Min > total {
		out = append(out, fmt.Sprintf("minimum of the gang is %d of %d members", g.Min, total))
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
	// Spec is the spec with which the members of the role are submitted. A member may get another one ([Respec]); it is
	// then planned by its own. The priority of the gang remains that of its roles. Its class is [GangClass] if a ready-made
	// navigator is to place it; with another class the gang is taken, and waits for a navigator of one's own.
	Spec *Spec `json:"spec"`
	// Members are the ids of the role's capsules.
	Members []CapsuleID `json:"members"`
	// Min is the minimum number of the role's members in the first placement; 0: all, also those that join later. A member
	// that has been released for good is done and need not be placed, so once fewer members are left, these are the minimum
	// ([GangState.Minimum]).
	Min int `json:"min,omitempty"`
}

// GangState is a gang and the number of its placed members, at one revision. Read it, never write it.
type GangState struct {
	// Gang is the gang as it was submitted, with the members and roles that have joined since. Of the members that are done,
	// those may be missing of which there is no record any more.
	Gang *Gang
	// Placed counts the members that are placed now, for each role.
	Placed []int
	// Done counts the members that have been released for good, for each role.
	Done []int
	// Changed is the revision at which a member was last placed or released or has joined, or the gang was nominated.
	Changed Revision
	// Nomination is the room that is nominated for the gang while no member is placed. A record of the nomination
	// remains after its end. Nil: the gang has not been nominated since it was submitted or a member was last placed.
	Nomination *Nomination

	// The number of members that still have a record.
	records int
	// Some member may have another spec than its role says ([Respec], [Adopt]).
	varies bool
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
func (g *GangState) Left(role int) int {
	if uint(role) >= uint(len(g.roles())) {
		return 0
	}
	return len(g.Gang.Roles[role].Members) - numberAt(g.Done, role)
}

// roles returns the roles; none of a zero GangState.
func (g *GangState) roles() []Role {
	if g.Gang == nil {
		return nil
	}
	return g.Gang.Roles
}

// numberAt returns an element of a list, 0 if the list has none there.
func numberAt(list []int, at int) int {
	if uint(at) >= uint(len(list)) {
		return 0
	}
	return list[at]
}

// Minimum returns the fewest members of a role that must be placed when the gang starts: [Role.Min], or all members
// that are left if these are fewer.
func (g *GangState) Minimum(role int) int {
	left := g.Left(role)
	if left == 0 {
		return 0
	}
	return min(cmp.Or(max(0, g.Gang.Roles[role].Min), left), left)
}

// Lacks returns how many members of a role must be placed to reach its minimum; 0: none.
func (g *GangState) Lacks(role int) int { return max(0, g.Minimum(role)-numberAt(g.Placed, role)) }

// LacksInAll returns how many members must be placed to reach the minimum of every role and that of the gang
// ([Gang.Min]); 0: none. It is more than the sum of Lacks if the gang lacks further members, of any role.
func (g *GangState) LacksInAll() int {
	lacks, left, placed := 0, 0, 0
	for i := range g.roles() {
		lacks, left, placed = lacks+g.Lacks(i), left+g.Left(i), placed+numberAt(g.Placed, i)
	}
	if g.Gang == nil {
		return 0
	}
	return max(lacks, min(g.Gang.Min, left)-placed)
}

// Short reports whether the gang runs, but with fewer members in some role than the role has left.
func (g *GangState) Short() bool {
	if g.Total() == 0 {
		return false
	}
	for i := range g.roles() {
		if numberAt(g.Placed, i) < g.Left(i) {
			return true
		}
	}
	return false
}

// Broken reports whether the gang runs, but it or some role is below its minimum: the gang has lost members, or some
// have joined that the minimum counts. Engines plan the members that it lacks before all other work of equal priority.
func (g *GangState) Broken() bool { return g.Total() > 0 && g.wanting() }

// Shortfall returns how many members each role of a broken gang lacks, by the name of the role, and under "*" how many
// further members, of any role, the gang lacks ([Gang.Min]); nil: the gang is not broken. The sum is
// [GangState.LacksInAll].
func (g *GangState) Shortfall() map[string]int {
	if !g.Broken() {
		return nil
	}
	lacks, besides := map[string]int{}, g.LacksInAll()
	for i := range g.roles() {
		if n := g.Lacks(i); n > 0 {
			lacks[g.Gang.Roles[i].Name] += n
			besides -= n
		}
	}
	if besides > 0 {
		lacks["*"] += besides
	}
	return lacks
}

// wanting reports whether the gang or some role has fewer placed members than its minimum.
func (g *GangState) wanting() bool { return g.LacksInAll() > 0 }

// below says which minimum is not reached, how many members count for it that are placed, and what it is. The first
// role that is below its minimum comes before the gang as a whole. It requires a gang that is wanting.
func (g *GangState) below() (whose string, placed, least int) {
	left := 0
	for i := range g.roles() {
		if left += g.Left(i); g.Lacks(i) > 0 {
			return fmt.Sprintf("role %q", g.Gang.Roles[i].Name), g.Placed[i], g.Minimum(i)
		}
	}
	return "it", g.Total(), min(g.Gang.Min, left)
}

// Priorities returns the lowest and the highest priority of the roles that have members left; of all roles if none has.
// A gang is placed at the lowest, and evicts others at the lowest. A gang that is evicted whole counts with the highest.
func (g *GangState) Priorities() (lowest, highest int32) {
	if len(g.roles()) == 0 {
		return 0, 0
	}
	ended := g.ended()
	lowest, highest = math.MaxInt32, math.MinInt32
	for i := range g.roles() {
		if priority := g.Gang.Roles[i].Spec.Priority; ended || g.Left(i) > 0 {
			lowest, highest = min(lowest, priority), max(highest, priority)
		}
	}
	return lowest, highest
}

// ended reports whether all members are done.
func (g *GangState) ended() bool {
	for i := range g.roles() {
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
