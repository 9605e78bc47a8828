package orbit

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"math"
	"math/bits"
	"time"
)

// CapsuleID names a capsule. An id may be used again as soon as the former capsule has been released for good ([Submit]).
type CapsuleID string

// Capsule is the record of one capsule in a [State]. Read it, never write it.
type Capsule struct {
	// ID identifies the capsule. It may be used again as soon as the capsule has been released for good.
	ID CapsuleID
	// Spec is shared by all capsules with an equal spec. It must not be changed.
	Spec *Spec
	// Node is the node on which the capsule is placed; empty: it is not placed.
	Node NodeID
	// Submitted is the capsule's number in the order of submission; later submissions have higher numbers. It is the
	// revision times 2^20, plus the position among the commitments of that revision.
	Submitted uint64
	// Changed is the revision at which this record last changed.
	Changed Revision
	// PlacedAt is the revision at which the capsule was last placed.
	PlacedAt Revision
	// PlacedBy is the id of the proposal that placed the capsule last.
	PlacedBy ProposalID
	// PlaceTime is the Place.At of its last placement; 0: unknown, or it was never placed.
	PlaceTime Instant
	// Devices are the device instances that the capsule holds on Node. (The small fields stand at the end because that
	// makes the record smaller.)
	Devices DeviceSet
	// Begun reports that the agent of Node has confirmed that it is about to start the capsule ([Confirm]).
	Begun bool
	// Ready reports that the agent of Node has confirmed Ready, and not NotReady since ([Confirm]). On a node without a
	// confirming agent Ready stays false, and budgets count the capsule as ready nevertheless.
	Ready bool
	// Waits reports that the capsule was placed to wait: it begins only after all [Remains] on Node that had left
	// before the placement (Left not above PlacedAt) have stopped. Waits stays true afterwards; to find out whether the
	// capsule may begin, propose [Confirm].
	Waits bool
	// Adopted reports that the placement was made by an [Adopt], which does not ask for free capacity.
	Adopted bool
	// Respecified reports that Spec is not the spec with which the capsule was submitted.
	Respecified bool

	released bool
	// Nil: all fields are zero.
	common *common
	// Nil: all fields are zero.
	uncommon *uncommon
}

// common is what the capsules of one [Submit], or of one role of its gang, have in common. Their records refer to one
// common, which is never changed: an [Assign] makes its capsule refer to another. Copies would make a record half as
// large again.
type common struct {
	owner  string
	gang   GangID
	labels map[string]string
	time   Instant
	// The index of the role in the gang.
	role uint16
}

// shared returns the pointer that a record keeps: last, which other records keep, if it is equal; nil if c is zero.
func (c common) shared(last *common) *common {
	switch {
	case c.owner == "" && c.gang == "" && c.labels == nil && c.time == 0:
		return nil
	case last != nil && c.owner == last.owner && c.gang == last.gang && c.role == last.role && c.time == last.time && maps.Equal(c.labels, last.labels):
		return last
	}
	own := c // c itself would be allocated in the other cases too
	return &own
}

// uncommon is what few capsules have. It is never changed, because snapshots refer to it: [Capsule.setRare] makes the
// record refer to another.
type uncommon struct {
	note       string
	remains    *Remains
	nomination *Nomination
	borrows    *Nominee
	// The placements before PlacedBy, as a linked list, newest first.
	earlier *placements
}

// Owner returns the name of the engine to which the capsule is assigned; empty: the engine whose navigator claims it.
func (c *Capsule) Owner() string { return c.inCommon().owner }

// Gang returns the id of the capsule's gang; empty: it is in no gang.
func (c *Capsule) Gang() GangID { return c.inCommon().gang }

// Labels returns a copy of the Submit.Labels of the capsule's submission; nil: none.
func (c *Capsule) Labels() map[string]string { return maps.Clone(c.inCommon().labels) }

// Label returns the value of one of the capsule's labels; empty: it has no such label. It copies nothing.
func (c *Capsule) Label(key string) string { return c.inCommon().labels[key] }

// SubmitTime returns the Submit.At of the capsule's submission; 0: unknown.
func (c *Capsule) SubmitTime() Instant { return c.inCommon().time }

// Note returns the Place.Note of the placement.
func (c *Capsule) Note() string { return c.rare().note }

// Remains returns an earlier placement of the capsule, or of a former capsule with its id, that may still run; nil:
// there is none. Until it ends, the capsule begins nowhere.
func (c *Capsule) Remains() *Remains { return c.rare().remains }

// Nomination returns the room that is nominated for the capsule while it is pending. A record of the nomination remains
// after its end. Nil: the capsule has not been nominated since it was submitted or last placed.
func (c *Capsule) Nomination() *Nomination { return c.rare().nomination }

// Borrows returns the nominee whose room on Node the capsule borrows ([Spec.Backfills]): of the nominations that lent
// to it when it was placed, the first in rank. That nomination may have ended since. Nil: the capsule borrows no room.
func (c *Capsule) Borrows() *Nominee { return c.rare().borrows }

var noCommon, noUncommon = common{}, uncommon{}

// inCommon returns common, never nil. Read it, never write it.
func (c *Capsule) inCommon() *common {
	if c.common == nil {
		return &noCommon
	}
	return c.common
}

// rare returns uncommon, never nil. Read it, never write it.
func (c *Capsule) rare() *uncommon {
	if c.uncommon == nil {
		return &noUncommon
	}
	return c.uncommon
}

// setRare replaces uncommon.
func (c *Capsule) setRare(u uncommon) {
	switch u {
	case *c.rare():
	case uncommon{}:
		c.uncommon = nil
	default:
		own := u // u itself would be allocated in the other cases too
		c.uncommon = &own
	}
}

// setRemains replaces or ends what remains of an earlier placement.
func (c *Capsule) setRemains(r *Remains) {
	u := *c.rare()
	u.remains = r
	c.setRare(u)
}

// setNomination replaces the nomination.
func (c *Capsule) setNomination(n *Nomination) {
	u := *c.rare()
	u.nomination = n
	c.setRare(u)
}

// submission is a position in the order of submission ([Capsule.Submitted]). It is computed from the revision instead
// of counting submissions, so a state that was read from a dump continues with the same numbers as a state that has
// seen the whole history.
type submission uint64

// SubmittedAt returns the revision at which the capsule was submitted, or a slightly higher one if more than 2^20
// capsules were submitted at one revision.
func (c *Capsule) SubmittedAt() Revision {
	return min(Revision(c.Submitted>>submissionBits), c.Changed)
}

// submissionBits is the number of bits that number the capsules of one revision. They suffice for one [Submit].
const submissionBits = 20

// next returns the submission number after s for a capsule that is submitted at a revision.
func (s submission) next(rev Revision) submission {
	return max(s+1, submission(min(rev, 1<<42))<<submissionBits)
}

// Pending reports whether the capsule waits to be placed.
func (c *Capsule) Pending() bool { return c.Node == "" && !c.released }

// Placed reports whether the capsule is on a node.
func (c *Capsule) Placed() bool { return c.Node != "" }

// Released reports whether the capsule has been released for good. The state keeps such records for a while
// ([Limits.Terminal], and as long as there are [Remains]), so that late proposals get a precise answer.
func (c *Capsule) Released() bool { return c.released }

// placements is a linked list of the proposals that placed a capsule before its last placement. It is immutable.
type placements struct {
	id     ProposalID
	at     Revision
	depth  int
	before *placements
}

// Placements yields the proposals that have placed the capsule, or a former capsule with its id, each with its
// revision, newest first. It knows at least the last [Limits.PlacementIDs] of them. Proposals without an id are not
// recorded.
func (c *Capsule) Placements() iter.Seq2[ProposalID, Revision] {
	return func(yield func(ProposalID, Revision) bool) {
		if !c.PlacedBy.IsZero() && !yield(c.PlacedBy, c.PlacedAt) {
			return
		}
		for p := c.rare().earlier; p != nil; p = p.before {
			if !yield(p.id, p.at) {
				return
			}
		}
	}
}

// placedBy returns the revision at which the proposal placed c, or 0 if no such placement is recorded.
func (c *Capsule) placedBy(id ProposalID) Revision {
	if id.IsZero() {
		return 0
	}
	if c.PlacedBy == id { // the usual case
		return c.PlacedAt
	}
	for p := c.rare().earlier; p != nil; p = p.before {
		if p.id == id {
			return p.at
		}
	}
	return 0
}

// remember prepends the last placement to the earlier ones, and keeps at least limit of them.
func (c *Capsule) remember(limit int) {
	if c.PlacedBy.IsZero() {
		return
	}
	u := *c.rare()
	u.earlier = trim(&placements{id: c.PlacedBy, at: c.PlacedAt, before: u.earlier}, limit)
	c.setRare(u)
}

// trim copies the first limit entries once the list has twice as many, so that the amortised cost is constant.
func trim(p *placements, limit int) *placements {
	if p.before != nil {
		p.depth = p.before.depth + 1
	}
	if p.depth < 2*limit {
		return p
	}
	var kept []placements
	for q := p; q != nil && len(kept) < limit; q = q.before {
		kept = append(kept, *q)
	}
	for i := range kept {
		kept[i].depth, kept[i].before = limit-1-i, nil
		if i+1 < len(kept) {
			kept[i].before = &kept[i+1]
		}
	}
	return &kept[0]
}

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

// maxRoles is the maximum number of roles of a gang. The record of a capsule has 16 bits for the index of its role.
const maxRoles = 1 << 16

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

// newGangState returns the record of a new gang: none of its members is placed, and none is done.
func newGangState(g *Gang, changed Revision) *GangState {
	counts := make([]int, 2*len(g.Roles))
	return &GangState{Gang: g, Placed: counts[:len(g.Roles):len(g.Roles)], Done: counts[len(g.Roles):], Changed: changed}
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

// lowest returns the lowest priority of all roles. It is the lowest at which the gang ever evicts others, whichever
// members are done.
func (g *Gang) lowest() int32 {
	lowest := int32(math.MaxInt32)
	for i := range g.Roles {
		lowest = min(lowest, g.Roles[i].Spec.Priority)
	}
	return lowest
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

// Evict takes a capsule off its node, either to make way for other work or to move the capsule. If the capsule is a
// member of a gang, the gang must keep the minimum of every role, or have no placed member left.
//
// With For or ForGang it is an eviction to make way. The evicted capsule, the victim, becomes pending again. The same
// proposal must place the capsule or gang that is named, the newcomer. The newcomer must have a strictly higher
// priority and need room that the victim takes. One broken gang may evict another one whole without a higher priority:
// ForGang must name a gang that is broken before the proposal and not after it, and that precedes the victim
// ([State.Precedes]). The ledger spares victims that need not leave: in the order of the
// proposal, it puts back each victim that fits beside the capsules that are still on the node and the newcomers that
// outrank it. A gang that is evicted whole is put back whole. A victim that has left on its own is skipped. The history
// has only the evictions that remain ([State.Judge]). So no proposal is refused because there is more room than it
// expected, and no capsule is evicted without need. A gang that is evicted whole counts with the priority of its
// highest role; members of a gang evict with the priority of its lowest role.
//
// Without For and ForGang it is a move: the same proposal must place the capsule again. One of four conditions must
// hold. The capsule is [Spec.Movable]. Or a [Budget] covered it before the proposal. Or its node takes no new work,
// before the proposal and all through it, or has a NoExecute taint that the capsule does not tolerate for ever
// ([Taint]). Or the capsule waits to begin ([State.Waiting]); budgets and protections are not judged then. If some
// members of a gang are moved, the number of its placed members must stay the same. A broken gang needs no consent if
// all of its placed members leave their nodes and no role is below its minimum afterwards.
type Evict struct {
	// Capsule is the capsule to take off its node.
	Capsule CapsuleID `json:"capsule"`
	// From is the node on which the capsule must be placed.
	From NodeID `json:"from"`
	// Since is the revision at which it must have been placed there ([Capsule.PlacedAt]).
	Since Revision `json:"since"`
	// For is the capsule for which the victim makes way; empty if ForGang is set, or for a move.
	For CapsuleID `json:"for,omitempty"`
	// ForGang is the gang for whose members the victim makes way; empty if For is set, or for a move.
	ForGang GangID `json:"forGang,omitempty"`
}

func (Evict) commitment() {}

// Protect keeps a capsule on its node for a while: no [Evict], and no [Release] from a cordoned node, takes it off. It
// does not protect a capsule that its owner releases for good, that stops, or whose node is lost. With For, the
// protection begins with a placement that the same proposal makes. With Since, the protection ends. It also ends with
// the placement.
//
// No rule of a ledger reads a clock, so engines end protections. Each engine counts For from the moment at which it
// first sees the protection, and the first to finish proposes the end. An engine that restarts counts anew; where no
// engine runs, protections stay. A plan may protect only work of its navigator, and may not end a protection
// ([State.Offence]).
type Protect struct {
	// Capsule is the capsule to protect.
	Capsule CapsuleID `json:"capsule"`
	// For is the time after which engines end the protection, at most [Limits.Protect]; 0 if Since is set.
	For time.Duration `json:"for,omitempty"`
	// Since ends the protection of the placement that was made at this revision ([Capsule.PlacedAt]); 0 if For is set.
	Since Revision `json:"since,omitempty"`
}

func (Protect) commitment() {}

// Confirm is the report of a node's agent about a capsule there: the capsule is about to run, serves, does not serve,
// or has stopped. Exactly one of Begun, Ready, NotReady and Stopped must be set. A proposal with a Confirm may
// otherwise hold only releases that are Final or Stopped, and placements of capsules that the same proposal reports as
// stopped. A navigator's plan may not hold a Confirm.
type Confirm struct {
	// Capsule is the capsule that the agent reports about.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed there ([Capsule.PlacedAt], [Remains.Since]).
	Since Revision `json:"since"`
	// Begun says that the capsule is about to run where it is placed. The agent proposes it before it starts the
	// capsule, and starts the capsule only after the commit. The ledger refuses Begun while a capsule still runs that
	// must stop first. That refusal is ErrInfeasible if View is set; the agent then tries again after a later revision.
	// The ledger also refuses it, as a conflict, if the capsule has got another spec after View ([Resize]): the agent
	// must start it with the new spec. The node must be one that Confirms and is not Lost.
	Begun bool `json:"begun,omitempty"`
	// Ready says that the capsule serves. From then on budgets count it as healthy ([Budget]). If Begun was not
	// confirmed before, Ready implies it, and is refused where Begun would be. After another placement the capsule is
	// not ready until Ready is confirmed again.
	Ready bool `json:"ready,omitempty"`
	// NotReady says that a capsule that was Ready runs but does not serve: its health check failed, or it restarts in
	// place. Budgets count it as missing until the next Ready. NotReady is refused for a capsule that is not ready.
	NotReady bool `json:"notReady,omitempty"`
	// Stopped says that a capsule that was taken off its node no longer runs there: its [Remains] end. If the capsule
	// is still placed but no longer runs, it has failed, and Stopped is refused: use [Release.Stopped] if it is to run
	// again. If it is done, propose {Release Final, Confirm Stopped} together.
	Stopped bool `json:"stopped,omitempty"`
}

func (Confirm) commitment() {}

// Remains is the record of a capsule that was taken off its node after it had begun, and that may still run there. It
// ends when the agent of the node confirms that the capsule has stopped, or when the node is lost. Remains do not
// reduce the free capacity of the node, so other capsules may be placed there; but one that does not fit beside the
// Remains waits to begin until they end. The capsule itself also waits, wherever it is placed next.
type Remains struct {
	// Capsule is the capsule that ran there. It may be pending, placed elsewhere, or released for good.
	Capsule CapsuleID `json:"-"`
	// Spec is the spec that the capsule had there. Since then its id may have been submitted again with another.
	Spec *Spec `json:"-"`
	// Node is the node that the capsule was taken off.
	Node NodeID `json:"node"`
	// Devices are the device instances that the capsule held there.
	Devices DeviceSet `json:"devices,omitempty"`
	// Since is the revision at which it was placed there.
	Since Revision `json:"since"`
	// Left is the revision at which it was taken off.
	Left Revision `json:"left"`
	// Adopted reports that the placement was an [Adopt].
	Adopted bool `json:"adopted,omitempty"`
}

// same reports whether both are the remains of the same placement, or both are nil.
func (r *Remains) same(o *Remains) bool {
	return r == o || r != nil && o != nil && r.Capsule == o.Capsule && r.Since == o.Since
}
