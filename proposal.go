package orbit

import (
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Revision numbers the states of a ledger. Revisions rise with every commit and may have gaps. Zero is
// before the first.
type Revision uint64

// ProposalID tells proposals apart, so that one that is sent twice has one effect. The zero id opts out.
// Make ids with [NewProposalID], or let the [Engine] do it.
type ProposalID [16]byte

// IsZero reports whether the id opts out of being recognised.
func (id ProposalID) IsZero() bool { return id == ProposalID{} }

// String returns the id in hexadecimal.
func (id ProposalID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes the id in hexadecimal.
func (id ProposalID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (id *ProposalID) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(id)) {
		return invalidf("proposal id %q: want %d hexadecimal digits", text, hex.EncodedLen(len(id)))
	}
	_, err := hex.Decode(id[:], text)
	if err != nil {
		return invalidf("proposal id %q: %v", text, err)
	}
	return nil
}

// Proposal asks a ledger to commit all of Do, in order, if every bet in If holds; or none of it.
// A ledger keeps nothing of the slices after Propose has returned.
type Proposal struct {
	// ID identifies the proposal, which is applied at most once. Never use an id again for another proposal.
	ID ProposalID
	// View is the revision of the view that the proposal was planned on. It tells bad luck (conflict) from a mistake
	// (infeasible). Zero: planned on no view; every obstacle then counts as a conflict, except a record that never
	// existed.
	View Revision
	// Do lists the commitments, which are applied in order, all or none.
	Do []Commitment
	// If lists the bets, which are judged before Do.
	If []Precondition
}

// Clone returns a copy that does not change with p: it shares no slice, map or pointer with p but specs that a
// ledger has handed out. Every ledger works on a copy, made before it checks anything; so does an [Engine].
func (p Proposal) Clone() Proposal {
	var c cloner
	c.proposal(&p)
	return p
}

// cloner copies proposals. Those that it has copied share arrays, but no element. A ledger, which keeps no array once it
// has answered, takes it from cloners and gives it back, so that copying takes no memory.
type cloner struct {
	does []Commitment
	bets []Precondition
	// The spec seen last, and the copy of it.
	last, copied *Spec
}

var cloners = sync.Pool{New: func() any { return new(cloner) }}

// giveBack lets the arrays serve for other proposals. It requires that nothing refers to them any more.
func (c *cloner) giveBack() {
	clear(c.does)
	clear(c.bets)
	c.does, c.bets, c.last, c.copied = c.does[:0], c.bets[:0], nil, nil
	cloners.Put(c)
}

// proposals copies all proposals of a batch, which is the caller's own.
func (c *cloner) proposals(batch []Proposal) {
	does, bets := 0, 0
	for i := range batch {
		does, bets = does+len(batch[i].Do), bets+len(batch[i].If)
	}
	c.does, c.bets = slices.Grow(c.does, does), slices.Grow(c.bets, bets)
	for i := range batch {
		c.proposal(&batch[i])
	}
}

// proposal replaces everything that p refers to by a copy.
func (c *cloner) proposal(p *Proposal) {
	from := len(c.does)
	c.does = append(c.does, p.Do...)
	p.Do = slices.Clip(c.does[from:])
	from = len(c.bets)
	c.bets = append(c.bets, p.If...)
	p.If = slices.Clip(c.bets[from:])
	for i := range p.Do {
		switch do := p.Do[i].(type) {
		case PutNode:
			p.Do[i] = PutNode{*do.Node.clone()}
		case Submit:
			p.Do[i] = c.submit(do)
		case Nominate:
			do.Parts = slices.Clone(do.Parts)
			p.Do[i] = do
		}
	}
}

// submit copies the ids, the spec and the gang.
func (c *cloner) submit(s Submit) Submit {
	s.IDs, s.Spec, s.Labels = slices.Clone(s.IDs), c.spec(s.Spec), maps.Clone(s.Labels)
	if s.Gang == nil {
		return s
	}
	gang := *s.Gang
	gang.Levels, gang.Roles = slices.Clone(gang.Levels), slices.Clone(gang.Roles)
	for i := range gang.Roles {
		r := &gang.Roles[i]
		r.Members, r.Spec = slices.Clone(r.Members), c.spec(r.Spec)
	}
	s.Gang = &gang
	return s
}

// spec copies runs of the same spec once, and those that a ledger has handed out not at all.
func (c *cloner) spec(s *Spec) *Spec {
	if s == nil || s.self == s {
		return s
	}
	if s != c.last {
		c.last, c.copied = s, s.clone()
	}
	return c.copied
}

// Commitment is one change of the world. The set is closed: [PutNode], [RemoveNode], [Submit], [Place],
// [Release], [Evict], [Confirm], [Hold], [Nominate], [Assign], [Mark], [PutBudget], [RemoveBudget]; as values, not pointers.
type Commitment interface{ commitment() }

// PutNode lets a node join, or replaces the description of one that has joined: capacity, labels, devices,
// state. Capacity may shrink below what is used; then nothing new is admitted. A node that is Lost stays so.
type PutNode struct {
	// Node is the description of the node.
	Node Node `json:"node"`
}

// RemoveNode lets a node leave. It is refused while capsules, [Remains] or holds are on it: put a dead node as Lost, release its
// capsules in batches, then remove it.
type RemoveNode struct {
	// Node is the node to remove.
	Node NodeID `json:"node"`
}

// Submit adds pending capsules: either one for each of IDs, all of one Spec, or all members of a Gang.
type Submit struct {
	// IDs are the ids of the new capsules; empty if Gang is set.
	IDs []CapsuleID `json:"ids,omitempty"`
	// Spec is the spec of each capsule of IDs.
	Spec *Spec `json:"spec,omitempty"`
	// Owner is the name of the engine that the capsules are assigned to; empty: the engine that claims them.
	Owner string `json:"owner,omitempty"`
	// Gang is the gang whose members are submitted; nil if IDs is set.
	Gang *Gang `json:"gang,omitempty"`
	// At is when the capsules began to wait, by the submitter's clock; 0: unknown. A ledger keeps it and never reads it;
	// navigators and engines count from it how long the capsules have waited.
	At Instant `json:"at,omitempty"`
	// Labels are kept with each of the capsules, which share one copy. No rule of a ledger reads them.
	Labels map[string]string `json:"labels,omitempty"`
}

// Place puts a pending capsule on a node, on these device instances if it asks for devices
// ([NodeState.PickDevices] chooses them).
type Place struct {
	// Capsule is the pending capsule to place.
	Capsule CapsuleID `json:"capsule"`
	// Node is the node to place it on.
	Node NodeID `json:"node"`
	// Devices are the device instances that it gets there.
	Devices DeviceSet `json:"devices,omitempty"`
	// After makes the capsule wait until everything has stopped that has left the node and runs there still, what leaves it by
	// this proposal included. Without After it waits only if it does not fit beside that. See [Remains].
	After bool `json:"after,omitempty"`
	// Note is kept with the placement, as in "warm".
	Note string `json:"note,omitempty"`
	// At is when the capsule was placed, by the clock of the one who says so: an engine sets it where a plan leaves it 0. A
	// ledger keeps it and never reads it.
	At Instant `json:"at,omitempty"`
}

// Release ends a placement or a hold: exactly one of Capsule and Hold is named. A placed capsule returns
// to pending, or with Final ends for good, as a pending one may too.
//
// Final is said by whoever owns the work, and never refused. Back to pending a capsule goes only from a node that does not
// take new work, so that nobody makes room for work of its own with it: from a Lost node it is a loss; from a Cordoned one it is a
// wish, which leaves the gang of the capsule whole, or at least every role's minimum, or none of it placed. From a Ready node it goes with its
// whole gang, if one member is on a Cordoned node, or with Stopped. Use [Evict] to move one.
type Release struct {
	// Capsule is the capsule to release; empty if Hold is set.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// From is the node that the capsule must be on; empty: any node.
	From NodeID `json:"from,omitempty"`
	// Final ends the capsule for good, instead of returning it to pending.
	Final bool `json:"final,omitempty"`
	// Stopped says that the capsule runs no more, though nobody wanted that: its start has failed, say. It goes back to pending from any
	// node, as a loss. It is for the agent of the node to say, so a proposal with it holds nothing but such releases, final ones, and
	// placements of what has stopped: it makes way for nobody else in the same commit.
	Stopped bool `json:"stopped,omitempty"`
	// Hold is the hold to release; empty if Capsule is set.
	Hold HoldID `json:"hold,omitempty"`
}

// HoldID names a hold.
type HoldID string

// Hold keeps room on a node for a later placement. It counts as use. The navigator it is for releases it in the proposal
// that places in its stead. It always ends: a ledger has no clock, so every engine releases holds whose end
// has passed before it plans; where no engine runs, they stay. An end that has passed already is accepted.
type Hold struct {
	// ID identifies the hold.
	ID HoldID `json:"id"`
	// Node is the node on which the hold is.
	Node NodeID `json:"node"`
	// Room is the amount of each resource that the hold takes.
	Room Resources `json:"room"`
	// Devices are the device instances on which the hold takes Milli.
	Devices DeviceSet `json:"devices,omitempty"`
	// Milli is how much the hold takes of each of Devices, in thousandths.
	Milli int `json:"milli,omitempty"`
	// For says what the hold is for; navigators read it, the ledger does not.
	For string `json:"for,omitempty"`
	// Ends is when engines release the hold.
	Ends time.Time `json:"ends"`
}

// Assign hands a capsule from one owner to another. It is a compare-and-swap in itself: From must be the
// owner now (empty: none).
type Assign struct {
	// Capsule is the capsule to assign.
	Capsule CapsuleID `json:"capsule"`
	// From is the owner that the capsule must have now; empty: none.
	From string `json:"from,omitempty"`
	// Owner is the new owner; empty: the engine that claims the capsule.
	Owner string `json:"owner,omitempty"`
}

// Mark keeps a small value under a key: lease terms, node groups, failed marks. An empty value deletes it.
type Mark struct {
	// Key identifies the mark.
	Key string `json:"key"`
	// Value is the new value; empty: the mark is deleted.
	Value string `json:"value,omitempty"`
}

func (PutNode) commitment()    {}
func (RemoveNode) commitment() {}
func (Submit) commitment()     {}
func (Place) commitment()      {}
func (Release) commitment()    {}
func (Hold) commitment()       {}
func (Assign) commitment()     {}
func (Mark) commitment()       {}

// Precondition is a bet on the state before the proposal. The set is closed: [NodeFreeOf],
// [GangUnplaced], [NodeAt], [GroupIn], [MarkAt]; as values, not pointers.
type Precondition interface{ precondition() }

// NodeFreeOf bets that the node still has at least this much free.
type NodeFreeOf struct {
	// Node is the node that the bet is about.
	Node NodeID
	// AtLeast is the amount of each resource that must be free.
	AtLeast Resources
}

// GangUnplaced bets that no member of the gang is placed.
type GangUnplaced struct{ Gang GangID }

// NodeAt is the strict, coarse bet: nothing at all has changed on the node since these counters were read.
// A zero counter is not compared.
type NodeAt struct {
	// Node is the node that the bet is about.
	Node NodeID
	// Usage and Specification are the counters that were read; zero: not compared.
	Usage, Specification Revision
}

// GroupIn bets that a placed capsule of the group is in this domain of the level.
type GroupIn struct{ Group, Level, Domain string }

// MarkAt bets that the mark was last set at this revision; zero: that there is none.
type MarkAt struct {
	// Key identifies the mark that the bet is about.
	Key string
	// Revision is the revision at which the mark was set; zero: the mark does not exist.
	Revision Revision
}

func (NodeFreeOf) precondition()   {}
func (GangUnplaced) precondition() {}
func (NodeAt) precondition()       {}
func (GroupIn) precondition()      {}
func (MarkAt) precondition()       {}

// Change is one committed commitment. Ordered by revision and then by sequence, changes are the history
// of a ledger: applied to the state before them they give the state after them ([State.Apply]).
type Change struct {
	// Revision is the revision of the commit.
	Revision Revision
	// Seq is the position among the changes of one revision.
	Seq int
	// ID is the id of the proposal that was committed.
	ID ProposalID
	// Do is the commitment.
	Do Commitment
	// Node is the node that the commitment changed, if any: for a Release the node that the capsule left.
	Node NodeID
}

// placements remembers which proposals placed a capsule before its last placement. It is immutable.
type placements struct {
	id     ProposalID
	at     Revision
	depth  int
	before *placements
}

// Placements yields which proposals have placed the capsule and when, the newest first; older ones are remembered within
// [Limits.PlacementIDs], and those without an id not at all.
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

// placedBy returns the revision at which the proposal placed c, 0 if it did not.
func (c *Capsule) placedBy(id ProposalID) Revision {
	if id.IsZero() {
		return 0
	}
	if c.PlacedBy == id { // nearly always, where it is asked: in every commit
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
