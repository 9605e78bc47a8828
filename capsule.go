package orbit

import (
	"fmt"
	"iter"
	"math"
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
	// Owner is the engine that the capsule is assigned to; empty: the engine that claims it.
	Owner string
	// Gang is the gang that the capsule is a member of; empty: none.
	Gang GangID
	// Node is the node that the capsule is placed on; empty: it is not placed.
	Node NodeID
	// Note is the Place.Note of the placement.
	Note string
	// Submitted is the order of submission, which rises within a ledger: the revision times 2^20, plus the position
	// within that revision, in the order of the commitments.
	Submitted uint64
	// Changed is the revision at which this record last changed.
	Changed Revision
	// PlacedAt is the revision at which the capsule was last placed.
	PlacedAt Revision
	// PlacedBy is the id of the proposal that placed the capsule last.
	PlacedBy ProposalID
	// Remains is what may still run of an earlier placement, or of a former capsule with this id; nil: nothing. Until it ends, the
	// capsule does not begin anywhere.
	Remains *Remains
	// Nomination is the room that the capsule is nominated for while it waits. After the nomination has ended, a record of it stays. Nil:
	// there has been no nomination since the capsule was submitted or last placed.
	Nomination *Nomination
	// Borrows names the nominee whose room on Node the capsule uses ([Spec.Backfills]). Of the nominations that lent to it when it was
	// placed, this was the first in rank; it may have ended since. Nil: the capsule uses no nominated room.
	Borrows *Nominee
	// Labels are the Submit.Labels of its submission; nil: none. All capsules of one Submit share them, so do not change them.
	Labels map[string]string
	// SubmitTime is the Submit.At of its submission; 0: unknown.
	SubmitTime Instant
	// PlaceTime is the Place.At of its last placement; 0: unknown, or it was never placed.
	PlaceTime Instant
	// Devices are the device instances that the capsule holds on Node. The field stands after the larger ones because that makes
	// the record smaller.
	Devices DeviceSet
	// Begun reports that the agent of Node has confirmed that the capsule begins to run there ([Confirm]).
	Begun bool
	// Ready reports that the agent of Node has confirmed Ready, and not NotReady since then ([Confirm]). If Node has no agent that
	// confirms, Ready stays false, and budgets count the capsule as ready all the same.
	Ready bool
	// Waits reports that the capsule was placed to wait: it begins only after all [Remains] on Node that had left by the time of the
	// placement have stopped (those whose Left is not above PlacedAt). It stays true after they have: propose [Confirm] to find out.
	Waits bool
	// Adopted reports that the capsule is placed by an [Adopt], whether or not there was room for it.
	Adopted bool
	// Respecified reports that Spec is not the one with which the capsule was submitted.
	Respecified bool

	// The index of its role in the gang.
	role     uint16
	released bool
	// The proposals that placed it before PlacedBy, as a list that begins with the newest.
	earlier *placements
}

// submission is a position in the order of submission ([Capsule.Submitted]). It is computed from the revision and not by counting
// submissions. So a state that was read from a dump goes on with the same numbers as a state that has seen the whole history.
type submission uint64

// submittedAt returns the revision at which the capsule was submitted, or a little more if more than 2^20 capsules were submitted at
// one revision.
func (c *Capsule) submittedAt() Revision {
	return min(Revision(c.Submitted>>submissionBits), c.Changed)
}

// submissionBits is how many bits of a submission number the capsules of one revision. They suffice for one [Submit].
const submissionBits = 20

// next returns the submission that follows s for a capsule that is submitted at a revision.
func (s submission) next(rev Revision) submission {
	return max(s+1, submission(min(rev, 1<<42))<<submissionBits)
}

// Pending reports whether the capsule waits for a place.
func (c *Capsule) Pending() bool { return c.Node == "" && !c.released }

// Placed reports whether the capsule is on a node.
func (c *Capsule) Placed() bool { return c.Node != "" }

// Released reports whether the capsule has been released for good. Such records are kept for a while
// ([Limits.Terminal], and as long as there are [Remains]) so that late proposals get a precise answer.
func (c *Capsule) Released() bool { return c.released }

// placements remembers which proposals placed a capsule before its last placement. It is immutable.
type placements struct {
	id     ProposalID
	at     Revision
	depth  int
	before *placements
}

// Placements yields the proposals that have placed the capsule, or a former capsule with its id, and the revision of each, the newest
// first. It knows at least the last [Limits.PlacementIDs] of them. A proposal without an id is not remembered.
func (c *Capsule) Placements() iter.Seq2[ProposalID, Revision] {
	return func(yield func(ProposalID, Revision) bool) {
		if !c.PlacedBy.IsZero() && !yield(c.PlacedBy, c.PlacedAt) {
			return
		}
		for p := c.earlier; p != nil; p = p.before {
			if !yield(p.id, p.at) {
				return
			}
		}
	}
}

// placedBy returns the revision at which the proposal placed c, or 0 if it is not known to have placed c.
func (c *Capsule) placedBy(id ProposalID) Revision {
	if id.IsZero() {
		return 0
	}
	if c.PlacedBy == id { // the usual case
		return c.PlacedAt
	}
	for p := c.earlier; p != nil; p = p.before {
		if p.id == id {
			return p.at
		}
	}
	return 0
}

// remember adds the last placement to the earlier ones, and keeps at most limit of those.
func (c *Capsule) remember(limit int) {
	if c.PlacedBy.IsZero() {
		return
	}
	c.earlier = trim(&placements{id: c.PlacedBy, at: c.PlacedAt, before: c.earlier}, limit)
}

// trim copies the list down to the limit when it has grown to twice that, so that the cost is constant.
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

// Gang is a set of capsules that are placed together in one topology domain, or not at all. The ledger enforces
// that the first placement is whole, or has at least the minimum of every role. The navigator chooses the
// domain. Give the specs of its roles the class [GangClass], so that no navigator for single
// capsules claims them.
type Gang struct {
	// ID identifies the gang. It may be used again once all members have been released for good: at once for a gang that names them
	// all again, else when their records have been dropped.
	ID GangID `json:"id"`
	// Roles lists the members, those with the same spec in one role.
	Roles []Role `json:"roles"`
	// Levels are the topology levels to try, in this order, narrowest first; empty: all nodes are one domain.
	Levels []string `json:"levels,omitempty"`
	// Loose makes the levels a preference instead of a requirement.
	Loose bool `json:"loose,omitempty"`
}

// Role is the members of a gang that have the same spec.
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

// maxRoles is the most roles of a gang: the index of a role has 16 bits in the record of a capsule.
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
	// Nomination is the room that the gang is nominated for while no member is placed. After the nomination has ended, a record of it
	// stays. Nil: there has been no nomination since the gang was submitted or a member was last placed.
	Nomination *Nomination

	// How many members still have a record.
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

// wanting returns the index of the first role with fewer placed members than its minimum, or -1.
func (g *GangState) wanting() int {
	for i := range g.Gang.Roles {
		if g.Placed[i] < g.Gang.Roles[i].minimum() {
			return i
		}
	}
	return -1
}

// faults lists everything that is wrong with g, except with its ids and specs. Limit is the most members that it may have.
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

// Evict takes a capsule off its node, either to make way for other work or to be moved. If it is a member of a gang, the gang must
// keep the minimum of every role, or no placed member at all.
//
// With For or ForGang it is an eviction to make way. The capsule, the victim, returns to pending. The same proposal must place the
// capsule or gang named there, which must have a strictly higher priority and need room that the victim takes. The ledger spares
// victims that need not leave: it goes through them in the order of the proposal and puts each one back that fits beside what
// is still on the node and the newcomers that outrank it. A gang that is evicted whole is put back as one. A victim that has
// left by itself is skipped. The history holds only the evictions that remain ([State.Judge]). Therefore no proposal is
// refused because there is more room than it expected, and no capsule is evicted that its newcomer does not need to be. A gang that is evicted whole counts with the
// priority of its highest role; members of a gang evict with the priority of its lowest.
//
// With neither it is a move: the same proposal must place the capsule again. A move needs one of three: the capsule is
// [Spec.Movable]; a [Budget] covered it before the proposal; or its node takes no new work, before the proposal and all through
// it, or has a NoExecute taint that the capsule does not tolerate for ever ([Taint]). A gang of which a part is moved keeps as many placed members as it had.
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

// Protect keeps a capsule on its node for a while: no [Evict] and no [Release] from a cordoned node takes it off. What its owner
// releases for good, what stops and what is lost is not protected. With For the protection begins with a placement, which the same
// proposal must make; with Since it ends. It also ends with the placement.
//
// No rule reads a clock, so engines end protections: each counts For from when it first sees one, and the first that is done proposes
// the end. An engine that starts anew counts anew; where no engine runs, protections stay. A plan may protect only work of its
// navigator, and end no protection ([State.Offence]).
type Protect struct {
	// Capsule is the capsule to protect.
	Capsule CapsuleID `json:"capsule"`
	// For is how long engines wait until they end the protection, at most [Limits.Protect]; 0 if Since is set.
	For time.Duration `json:"for,omitempty"`
	// Since ends the protection of the placement that was made at this revision ([Capsule.PlacedAt]); 0 if For is set.
	Since Revision `json:"since,omitempty"`
}

func (Protect) commitment() {}

// Confirm is what the agent of a node reports of a capsule there: that it is about to run, that it serves or does not, or that it
// runs no more. Exactly one of Begun, Ready, NotReady and Stopped must be set. Besides Confirms, such a proposal may hold only releases that are Final or Stopped, and
// placements of capsules that the proposal says have stopped. A navigator's plan may not hold a Confirm.
type Confirm struct {
	// Capsule is the capsule that the agent reports about.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed there ([Capsule.PlacedAt], [Remains.Since]).
	Since Revision `json:"since"`
	// Begun says that the capsule is about to run where it is placed. The agent proposes it before it starts the capsule, and
	// starts it only once this is committed. The ledger refuses it while something still runs that has to stop first, with
	// ErrInfeasible if View is set; then the agent tries again after a later revision. It is also refused, as a conflict, if the capsule has
	// got another spec after View ([Resize]), with which it has to be started. The node must be one that Confirms and is not Lost.
	Begun bool `json:"begun,omitempty"`
	// Ready says that the capsule serves. Budgets count it as healthy from then on ([Budget]). If Begun was not confirmed before, Ready
	// says that too, and is refused where Begun would be. A capsule that is placed again is not ready until this is said again.
	Ready bool `json:"ready,omitempty"`
	// NotReady says that a capsule which was Ready runs but does not serve: it has failed its health check, or starts anew in its place.
	// Budgets count it as missing until the next Ready. It is refused where the capsule is not ready already.
	NotReady bool `json:"notReady,omitempty"`
	// Stopped says that a capsule which was taken off its node runs there no more: its [Remains] end. For a capsule that is still
	// placed and runs no more, use [Release.Stopped] if it is to run again; if it is done, propose {Release Final, Confirm
	// Stopped} together.
	Stopped bool `json:"stopped,omitempty"`
}

func (Confirm) commitment() {}

// Remains is a capsule that was taken off its node after it had begun, and may still run there. It ends when the agent of the
// node confirms that the capsule has stopped, or when the node is lost. Remains do not reduce what is free on the node, so
// others may be placed there; but one that does not fit beside them waits to begin until they end. The capsule itself, wherever
// it is placed next, waits too.
type Remains struct {
	// Capsule is the capsule that ran there. It may be pending, placed elsewhere, or released for good.
	Capsule CapsuleID `json:"-"`
	// Spec is the spec that the capsule had there. Since then its id may have been submitted again with another.
	Spec *Spec `json:"-"`
	// Node is the node that the capsule was taken off.
	Node NodeID `json:"node"`
	// Devices are the device instances that it had there.
	Devices DeviceSet `json:"devices,omitempty"`
	// Since is the revision at which it was placed there.
	Since Revision `json:"since"`
	// Left is the revision at which it was taken off.
	Left Revision `json:"left"`
	// Adopted reports that the placement was an [Adopt].
	Adopted bool `json:"adopted,omitempty"`
}

// same reports whether both are the remains of one placement, or nil.
func (r *Remains) same(o *Remains) bool {
	return r == o || r != nil && o != nil && r.Capsule == o.Capsule && r.Since == o.Since
}
