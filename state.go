package orbit

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/google/btree"

	"github.com/orbitsched/orbit/internal/cow"
	"github.com/orbitsched/orbit/internal/table"
)

// State is everything a ledger knows at one revision. It is immutable: read it from any goroutine, for as
// long as you like. States share structure, so taking one costs little and keeping one costs what has
// changed since.
//
//	nodes     slot ─► NodeState   capacity, labels, devices · used · counters · slots of its capsules
//	capsules  slot ─► Capsule     spec · owner · node · devices · who placed it, when
//	ids       node id, capsule id ─► slot
//	ordered   nodes by id · gangs · holds · marks · (group, level, domain, node) ─► how many placed
//	          (group, spec) ─► how many wait · budgets · group or module with a budget ─► how many are healthy
//
// To commit, a proposal runs on a write-set over the state (tx): 1. judge the bets, 2. execute the
// commitments in order, 3. judge the totals: does every touched node still fit, is every gang whole; then, and only
// then, 4. publish the write-set. [State.Check] stops before 4, so a refused proposal cannot change anything.
type State struct {
	world
	// Guards cloning the ordered tables, which writes to the original.
	fork sync.Mutex
}

// world is what a State holds; copying it shares everything.
type world struct {
	rev Revision
	// Tables marked with it are ours to write; a frozen state has given it away.
	owner  cow.Owner
	limits Limits
	names  dimensionNames
	// Capsules that wait.
	pending int
	// Last one handed out.
	order  submission
	left   departures
	recent recentIDs

	nodes    table.Table[nodeRecord, [2]nodeRecord]
	capsules table.Table[capsuleRecord, [2]capsuleRecord]
	// Slots of released capsules, in order of release, chained by link.
	oldest, newest uint32
	releasedCount  int
	// How many of the oldest are kept beyond the limit because they have remains, and the slot of the last of them.
	late   int
	latest uint32

	members *btree.BTreeG[nodeKey]
	gangs   *btree.BTreeG[*GangState]
	holds   *btree.BTreeG[*holdRecord]
	marks   *btree.BTreeG[markRecord]
	groups  *btree.BTreeG[groupCount]
	waiting *btree.BTreeG[groupWaiting]
	budgets *btree.BTreeG[*budgetRecord]
	// Placements that are protected.
	protected *btree.BTreeG[protection]
	// The groups and modules that have budgets.
	covered *btree.BTreeG[*coverage]
	// What the rules Apart and Even are judged by.
	company companyTables
	// Those that live, by rank and by when they end.
	nominations, lapses *btree.BTreeG[*Nomination]
	// What they claim together, and what all nodes have.
	nominated, capacity totals

	// What is kept beside the states that have come from one another, by key.
	shared *sync.Map
}

const (
	noSlot = math.MaxUint32
	// Of the ordered tables.
	degree = 32
)

// nodeRecord is a node in its table. Its slot is the node's index; in a free slot node.Node is nil.
type nodeRecord struct {
	node NodeState
	// Slots of its capsules, in no order: position p is element p%membersChunk of chunk p/membersChunk.
	members cow.Array[[membersChunk]uint32]
	listed  uint32
}

// membersChunk fills 128 bytes together with what an array keeps.
const membersChunk = 30

// member returns the slot of the capsule at a position of the node's list.
func (r *nodeRecord) member(position uint32) uint32 {
	return r.members.At(position / membersChunk)[position%membersChunk]
}

// capsuleRecord is a capsule in its table; in a free slot capsule.ID is empty.
type capsuleRecord struct {
	capsule Capsule
	// The slot of its node, while it is placed.
	node uint32
	// Placed: position in the list of its node; released: slot of the one that was released next.
	link uint32
}

// departures tell when something that could be bet on last went away, for telling a conflict from a
// mistake where the record itself is gone.
type departures struct {
	Nodes    Revision `json:"nodes"`
	Capsules Revision `json:"capsules"`
	Holds    Revision `json:"holds"`
	Marks    Revision `json:"marks"`
	Groups   Revision `json:"groups"`
	Gangs    Revision `json:"gangs"`
	// When a budget last ended, or came to cover something else.
	Budgets Revision `json:"budgets"`
	// When the share of nominations was last made harder to keep: by one more, or by less capacity.
	Nominations Revision `json:"nominations"`
	// When remains last ended.
	Remains Revision `json:"remains,omitempty"`
}

type nodeKey struct {
	id   NodeID
	slot uint32
}

type holdRecord struct {
	Hold
	changed Revision
}

type markRecord struct {
	key, value string
	changed    Revision
}

var hashSeed = maphash.MakeSeed()

// hashOf is seeded anew in every process: a caller that chooses ids cannot choose collisions.
func hashOf(id string) uint32 {
	h := maphash.String(hashSeed, id)
	return uint32(h ^ h>>32)
}

// newState returns an empty state at revision 0 that the caller may write.
func newState(limits Limits, names [Dimensions]string) *State {
	return &State{world: world{
		owner:  cow.NewOwner(),
		limits: limits.withDefaults(),
		names:  names,
		oldest: noSlot, newest: noSlot,
		members:   btree.NewG(degree, func(a, b nodeKey) bool { return a.id < b.id }),
		gangs:     btree.NewG(degree, func(a, b *GangState) bool { return a.Gang.ID < b.Gang.ID }),
		holds:     btree.NewG(degree, func(a, b *holdRecord) bool { return a.ID < b.ID }),
		marks:     btree.NewG(degree, func(a, b markRecord) bool { return a.key < b.key }),
		groups:    btree.NewG(degree, groupCount.less),
		waiting:   btree.NewG(degree, groupWaiting.less),
		protected: btree.NewG(degree, func(a, b protection) bool { return a.capsule < b.capsule }),
		budgets:   btree.NewG(degree, func(a, b *budgetRecord) bool { return a.ID < b.ID }),
		covered:   btree.NewG(degree, func(a, b *coverage) bool { return a.of.less(b.of) }),
		company:   newCompanyTables(),
		shared:    &sync.Map{},

		nominations: btree.NewG(degree, (*Nomination).Outranks),
		lapses:      btree.NewG(degree, (*Nomination).endsBefore),
	}}
}

// copy returns a state that shares everything with s and that the caller may write. What s owned it owns
// no longer if it is written to afterwards: only one of the two may go on writing under s's owner.
func (s *State) copy() *State {
	s.fork.Lock()
	defer s.fork.Unlock()
	c := &State{world: s.world}
	c.members = s.members.Clone()
	c.gangs = s.gangs.Clone()
	c.holds = s.holds.Clone()
	c.marks = s.marks.Clone()
	c.groups = s.groups.Clone()
	c.waiting = s.waiting.Clone()
	c.budgets, c.covered, c.protected = s.budgets.Clone(), s.covered.Clone(), s.protected.Clone()
	c.nominations, c.lapses = s.nominations.Clone(), s.lapses.Clone()
	c.company = s.company.clone()
	return c
}

// freeze returns an immutable copy of a state that is being written. The writer goes on under a new owner.
func (s *State) freeze() *State {
	c := s.copy()
	s.owner = cow.NewOwner()
	return c
}

// thaw returns a writable copy of an immutable state.
func (s *State) thaw() *State {
	c := s.copy()
	c.owner = cow.NewOwner()
	return c
}

// Revision returns the revision that s is the state at.
func (s *State) Revision() Revision { return s.rev }

// Limits returns the limits of the ledger.
func (s *State) Limits() Limits { return s.limits }

// DimensionName returns what the ledger's importer calls the dimension.
func (s *State) DimensionName(d int) string { return s.names.name(d) }

// Node returns the node with this id, nil if it is not a member.
func (s *State) Node(id NodeID) *NodeState {
	probe := s.nodes.Probe(hashOf(string(id)))
	for {
		slot, ok := probe.Next()
		if !ok {
			return nil
		}
		if n := &s.nodes.At(slot).node; n.Node.ID == id {
			return n
		}
	}
}

// NodeCount returns how many nodes are members.
func (s *State) NodeCount() int { return s.members.Len() }

// NodeBound returns an upper bound, exclusive, of all nodes' [NodeState.Index].
func (s *State) NodeBound() int { return int(s.nodes.Bound()) }

// NodeByIndex returns the node with this [NodeState.Index], nil if there is none.
func (s *State) NodeByIndex(i int) *NodeState {
	if i < 0 || i >= int(s.nodes.Bound()) {
		return nil
	}
	if n := &s.nodes.At(uint32(i)).node; n.Node != nil {
		return n
	}
	return nil
}

// Nodes yields all nodes, ordered by id.
func (s *State) Nodes() iter.Seq[*NodeState] {
	return func(yield func(*NodeState) bool) {
		s.members.Ascend(func(k nodeKey) bool { return yield(&s.nodes.At(k.slot).node) })
	}
}

// Capsule returns the capsule with this id, nil if there is no record of it.
func (s *State) Capsule(id CapsuleID) *Capsule {
	c, _ := s.findCapsule(id)
	return c
}

// findCapsule returns the capsule with this id and its slot, nil if there is no record of it.
func (s *State) findCapsule(id CapsuleID) (c *Capsule, slot uint32) {
	probe := s.capsules.Probe(hashOf(string(id)))
	for {
		slot, ok := probe.Next()
		if !ok {
			return nil, noSlot
		}
		if c := &s.capsules.At(slot).capsule; c.ID == id {
			return c, slot
		}
	}
}

// CapsuleCount returns how many capsule records there are, released ones that are still kept included.
func (s *State) CapsuleCount() int { return s.capsules.Len() }

// PendingCount returns how many capsules wait for a place.
func (s *State) PendingCount() int { return s.pending }

// Capsules yields all capsule records, in no particular order.
func (s *State) Capsules() iter.Seq[*Capsule] {
	return func(yield func(*Capsule) bool) {
		for _, c := range s.capsuleSlots() {
			if !yield(c) {
				return
			}
		}
	}
}

// capsuleSlots yields all capsule records and their slots.
func (s *State) capsuleSlots() iter.Seq2[uint32, *Capsule] {
	return func(yield func(uint32, *Capsule) bool) {
		s.capsules.All(func(slot uint32, r *capsuleRecord) bool { return yield(slot, &r.capsule) })
	}
}

// Pending returns all capsules that wait, highest priority first and then in order of submission. It looks
// at every record; an [Engine] keeps its own queue from the changes.
func (s *State) Pending() []*Capsule {
	out := make([]*Capsule, 0, s.pending)
	for c := range s.Capsules() {
		if c.Pending() {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *Capsule) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Submitted, b.Submitted))
	})
	return out
}

// On yields the capsules placed on a node, in no particular order; none if it is not a member.
func (s *State) On(id NodeID) iter.Seq[*Capsule] {
	return func(yield func(*Capsule) bool) {
		n := s.Node(id)
		if n == nil {
			return
		}
		r := s.nodes.At(n.index)
		for i := range r.listed {
			if !yield(&s.capsules.At(r.member(i)).capsule) {
				return
			}
		}
	}
}

// Gang returns the gang with this id, nil if there is no record of it.
func (s *State) Gang(id GangID) *GangState {
	g, _ := s.gangs.Get(&GangState{Gang: &Gang{ID: id}})
	return g
}

// Members yields the members of a gang, in the order of its roles: the capsules of which there is a record and whose id has
// not been used again for another capsule. It yields none if there is no such gang.
func (s *State) Members(id GangID) iter.Seq[*Capsule] {
	return func(yield func(*Capsule) bool) {
		g := s.Gang(id)
		if g == nil {
			return
		}
		for i := range g.Gang.Roles {
			for _, member := range g.Gang.Roles[i].Members {
				if c := s.Capsule(member); c != nil && c.Gang == id && !yield(c) {
					return
				}
			}
		}
	}
}

// Gangs yields all gangs, ordered by id.
func (s *State) Gangs() iter.Seq[*GangState] {
	return func(yield func(*GangState) bool) { s.gangs.Ascend(yield) }
}

// Hold returns the hold with this id, and whether it lives.
func (s *State) Hold(id HoldID) (Hold, bool) {
	h, ok := s.holds.Get(&holdRecord{Hold: Hold{ID: id}})
	if !ok {
		return Hold{}, false
	}
	return h.Hold, true
}

// Holds yields all live holds, ordered by id.
func (s *State) Holds() iter.Seq[Hold] {
	return func(yield func(Hold) bool) {
		s.holds.Ascend(func(h *holdRecord) bool { return yield(h.Hold) })
	}
}

// Mark returns the value of a mark and the revision at which it was set: "" and 0 if there is none.
func (s *State) Mark(key string) (value string, at Revision) {
	m, _ := s.marks.Get(markRecord{key: key})
	return m.value, m.changed
}

// Marks yields all marks whose key has this prefix, as key and value, ordered by key.
func (s *State) Marks(prefix string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		s.marks.AscendGreaterOrEqual(markRecord{key: prefix}, func(m markRecord) bool {
			return len(m.key) >= len(prefix) && m.key[:len(prefix)] == prefix && yield(m.key, m.value)
		})
	}
}

// GroupNodes yields the nodes on which capsules of the group are placed, and how many on each.
func (s *State) GroupNodes(group string) iter.Seq2[*NodeState, int] {
	return func(yield func(*NodeState, int) bool) {
		s.groups.AscendGreaterOrEqual(groupCount{group: group}, func(g groupCount) bool {
			return g.group == group && g.level == "" && yield(&s.nodes.At(g.node).node, g.count)
		})
	}
}
