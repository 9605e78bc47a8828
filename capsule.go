package orbit

import (
	"fmt"
	"iter"
	"maps"
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
	// Adopted reports that the placement was made by an [Adopt], or grew by a [Respec] that was Applied: neither asks for
	// free capacity.
	Adopted bool
	// Respecified reports that Spec has replaced the spec with which the capsule was submitted.
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
	surge      *Remains // see Capsule.Surge
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

// Surge returns the second instance that a surge ([Evict].Surge) has given to the capsule; nil: there is none. While its
// [Remains.Surge] is true, the capsule surges: the second instance is the former one, and serves until the capsule is Ready
// where it is placed. When the surge is over, the second instance is told to stop: the former one, or, if the surge was
// undone, the one at the other place. If the capsule has not begun and waits for nothing else, that one is listed as
// [Capsule.Remains] and not here, because the capsule may not begin before it has stopped.
func (c *Capsule) Surge() *Remains { return c.rare().surge }

// surging returns the former instance, which serves until the capsule is ready where it is placed; nil: the capsule does not surge.
func (c *Capsule) surging() *Remains {
	if s := c.rare().surge; s != nil && s.Surge {
		return s
	}
	return nil
}

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

// ended takes r, which has stopped or is lost with its node, out of the record. If that was Remains and the capsule has not begun,
// a second instance that is told to stop takes the place of Remains, because the capsule has to wait for it, too.
func (c *Capsule) ended(r *Remains) {
	u := *c.rare()
	if u.remains == r {
		u.remains = nil
	}
	if u.surge == r {
		u.surge = nil
	}
	c.setRare(u.ordered(c.Begun))
}

// replaced puts another record of the same instance in the place of r, which is Remains or Surge.
func (c *Capsule) replaced(r, by *Remains) {
	u := *c.rare()
	if u.remains == r {
		u.remains = by
	} else {
		u.surge = by
	}
	c.setRare(u)
}

// ordered moves a second instance that is told to stop from surge to remains, if remains is free and the capsule has not begun.
// Then Remains alone says whether the capsule may begin.
func (u uncommon) ordered(begun bool) uncommon {
	if u.remains == nil && u.surge != nil && !u.surge.Surge && !begun {
		u.remains, u.surge = u.surge, nil
	}
	return u
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

// stops returns where a capsule that is about to be placed may still run until it has stopped: its Remains, its Surge, and the node
// on which it has begun, if the plan moves it.
func (c *Capsule) stops() (out []*Remains) {
	for _, r := range [...]*Remains{c.Remains(), c.Surge()} {
		if r != nil {
			out = append(out, r)
		}
	}
	if c.Begun { // the plan moves it
		out = append(out, &Remains{Capsule: c.ID, Spec: c.Spec, Node: c.Node})
	}
	return out
}

// runsElsewhere reports whether a capsule that is placed again may still run on its former node.
func (c *Capsule) runsElsewhere() bool { return c.Remains() != nil || c.Begun }

// waitsToBegin reports whether a placed capsule has been waiting to begin since it was placed: it has never run there.
func (c *Capsule) waitsToBegin(n *Node) bool {
	return c.Placed() && !c.Begun && n.Confirms && n.State != Lost && (c.Waits || c.Remains() != nil)
}

// alive returns the spec of a record that has not been released for good, else nil.
func (c *Capsule) alive() *Spec {
	if c == nil || c.released {
		return nil
	}
	return c.Spec
}

// datable returns an error for a record that no history can produce, because its fields contradict each other. Examples
// are a placement at revision 0, devices without a node, and a nomination of a capsule that does not wait.
func (c *Capsule) datable() error {
	switch {
	case c.PlacedAt == 0 && (c.Node != "" || !c.PlacedBy.IsZero() || c.PlaceTime != 0):
		return fmt.Errorf("capsule %q was placed, at revision 0", c.ID)
	case c.Nomination() != nil && !c.Pending():
		return fmt.Errorf("capsule %q is nominated and does not wait", c.ID)
	case c.Borrows() != nil && (c.Node == "" || !c.Spec.Backfills || c.Gang() != "" || (c.Borrows().Capsule == "") == (c.Borrows().Gang == "")):
		return fmt.Errorf("capsule %q on node %q borrows from %s: it does not backfill, or that cannot be", c.ID, c.Node, c.Borrows())
	case c.Node == "" && (c.Devices != 0 || c.Note() != "" || c.Begun || c.Waits):
		return fmt.Errorf("capsule %q is on no node, and has devices %016b, note %q there; begun: %v, waits: %v", c.ID, c.Devices, c.Note(), c.Begun, c.Waits)
	case c.Adopted && (c.Node == "" || c.Waits && !c.Respecified):
		return fmt.Errorf("capsule %q was adopted, and is on no node or waits to begin", c.ID)
	case c.surging() != nil && (c.Node == "" || c.Node == c.Surge().Node):
		return fmt.Errorf("capsule %q surges from node %q, and is placed there or nowhere: %q", c.ID, c.Surge().Node, c.Node)
	case c.Surge() != nil && c.surging() == nil && !c.Begun && c.Remains() == nil: // see ordered
		return fmt.Errorf("capsule %q: what has to stop on node %q is a second instance, without a first one", c.ID, c.Surge().Node)
	case c.Begun && (c.Waits || c.Remains() != nil) || c.Ready && !c.Begun:
		return fmt.Errorf("capsule %q: begun is %v, ready is %v, and it waits to begin is %v; these exclude each other", c.ID, c.Begun, c.Ready, c.Waits || c.Remains() != nil)
	}
	return nil
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

// maxRoles is the maximum number of roles of a gang. The record of a capsule has 16 bits for the index of its role.
const maxRoles = 1 << 16

// Remains is the record of a capsule that was taken off its node after it had begun, and that may still run there. It
// ends when the agent of the node confirms that the capsule has stopped, or when the node is lost. Remains do not
// reduce the free capacity of the node, so other capsules may be placed there; but one that does not fit beside the
// Remains waits to begin until they end. The capsule itself also waits, wherever it is placed next.
type Remains struct {
	// Capsule is the capsule that ran there. It may be pending, placed elsewhere, or released for good.
	Capsule CapsuleID `json:"-"`
	// Spec is the spec that the capsule had there; a [Respec] with Stopping replaces it. [Capsule.Spec] may be another, because
	// the capsule has got another spec since, or was submitted again.
	Spec *Spec `json:"-"`
	// Node is the node that the capsule was taken off.
	Node NodeID `json:"node"`
	// Devices are the device instances that the capsule held there.
	Devices DeviceSet `json:"devices,omitempty"`
	// Since is the revision at which it was placed there.
	Since Revision `json:"since"`
	// Left is the revision at which it was taken off.
	Left Revision `json:"left"`
	// Adopted is the [Capsule.Adopted] that the capsule had there.
	Adopted bool `json:"adopted,omitempty"`
	// Surge reports that these are the former instance of a capsule that surges ([Evict].Surge). It is meant to run on, and keeps
	// its room and devices, until the capsule is Ready where it is placed now.
	Surge bool `json:"surge,omitempty"`
	// Ready reports, while Surge is true, that this instance is ready, as [Capsule.Ready] does of the placed one.
	Ready bool `json:"ready,omitempty"`
	// Note is, while Surge is true, the [Capsule.Note] that the capsule had there.
	Note string `json:"note,omitempty"`
}

// same reports whether both are nil, or are remains of the same placement that agree in Surge and Spec.
func (r *Remains) same(o *Remains) bool {
	return r == o || r != nil && o != nil && r.Capsule == o.Capsule && r.Since == o.Since && r.Surge == o.Surge && r.Spec == o.Spec
}
