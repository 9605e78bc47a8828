package orbit

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit/internal/cow"
	"github.com/orbitsched/orbit/internal/recent"
	"github.com/orbitsched/orbit/internal/table"
)

// State is everything a ledger knows at one revision. It is immutable: read it from any goroutine, for as long as you
// like. States share structure (copy-on-write), so to take one costs little, and to keep one costs the memory of the
// records that have changed since.
//
//	nodes     slot ─► NodeState   capacity, labels, devices · used · counters · slots of its capsules
//	capsules  slot ─► Capsule     spec · owner · node · devices · who placed it, when
//	ids       node id, capsule id ─► slot
//	ordered   nodes by id · gangs · holds · marks · (group, level, domain, node) ─► how many placed
//	          (group, spec) ─► how many wait · budgets · group or module with a budget ─► how many are healthy
//
// The zero value is an empty state, with default limits.
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
	// The state may write in place to tables that are marked with this owner. A frozen state never writes.
	owner  cow.Owner
	limits Limits
	// What the capsules of the last submission have in common; those of the next may share it.
	common *common
	names  dimensionNames
	// The number of pending capsules.
	pending int
	// The last submission number that was given to a capsule.
	order submission
	left  departures
	// The newest ids of proposals that place nothing, which therefore no capsule's record remembers.
	recent recent.IDs[ProposalID, Revision]

	nodes    table.Table[nodeRecord, [2]nodeRecord]
	capsules table.Table[capsuleRecord, [2]capsuleRecord]
	// Slots of released capsules, in order of release, chained by link.
	oldest, newest uint32
	releasedCount  int
	// The number of oldest records in that queue that are kept beyond the limit because they have remains, and the slot
	// of the last one.
	late   int
	latest uint32

	members table.Sorted[nodeKey]
	gangs   table.Sorted[*GangState]
	holds   table.Sorted[*holdRecord]
	marks   table.Sorted[markRecord]
	groups  table.Sorted[groupCount]
	waiting table.Sorted[groupWaiting]
	budgets table.Sorted[*budgetRecord]
	// The queues, and what is used of them.
	queues table.Sorted[queueAt]
	// Placements that are protected.
	protected table.Sorted[protection]
	// The capsules that have failed, or have not begun and were released for that.
	failed table.Sorted[failureRecord]
	// The groups and modules that have budgets.
	covered table.Sorted[*coverage]
	// The counts by which the rules Apart and Even are judged.
	company companyTables
	// The living nominations, ordered by rank and by Ends.
	nominations, lapses table.Sorted[*Nomination]
	// The sum of all nominated room, and the summed capacity of all nodes.
	nominated, capacity totals

	// Values that all states of one ledger share, by key, such as an index. They are no part of the state.
	shared *sync.Map
}

const (
	noSlot = math.MaxUint32
	// The degree of the B-trees of the ordered tables.
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
	// While the capsule is placed: its position in the list of its node. Once it is released: the slot of the next
	// record in the queue.
	link uint32
}

// departures are the revisions at which a record of each kind last went away. If a proposal names a record that is
// gone, they tell a conflict from a mistake.
type departures struct {
	Nodes    Revision `json:"nodes"`
	Capsules Revision `json:"capsules"`
	Holds    Revision `json:"holds"`
	Marks    Revision `json:"marks"`
	Groups   Revision `json:"groups"`
	Gangs    Revision `json:"gangs"`
	// The last revision at which a budget ended, or came to cover another group or module.
	Budgets Revision `json:"budgets"`
	// The last revision at which a queue ended.
	Queues Revision `json:"queues,omitempty"`
	// The last revision that made Limits.NominatedShare harder to keep: by a new nomination, or by less capacity.
	Nominations Revision `json:"nominations"`
	// The last revision at which remains ended.
	Remains Revision `json:"remains,omitempty"`
}

type nodeKey struct {
	id   NodeID
	slot uint32
	// A part of the digest of the node's description, as it was put. See intact.
	sum uint32
}

type holdRecord struct {
	Hold
	changed Revision
}

type markRecord struct {
	key, value string
	changed    Revision
}

// intact reports whether a member's description is as it was put: not changed through a plain copy, which shares maps and
// lists with it.
func (s *State) intact(n *Node) bool {
	k, ok := s.members.Get(nodeKey{id: n.ID})
	return ok && k.sum == uint32(n.digest())
}

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
		members:   table.NewSorted(degree, func(a, b nodeKey) bool { return a.id < b.id }),
		gangs:     table.NewSorted(degree, func(a, b *GangState) bool { return a.Gang.ID < b.Gang.ID }),
		holds:     table.NewSorted(degree, func(a, b *holdRecord) bool { return a.ID < b.ID }),
		marks:     table.NewSorted(degree, func(a, b markRecord) bool { return a.key < b.key }),
		groups:    table.NewSorted(degree, groupCount.less),
		waiting:   table.NewSorted(degree, groupWaiting.less),
		protected: table.NewSorted(degree, func(a, b protection) bool { return a.capsule < b.capsule }),
		failed:    table.NewSorted(degree, func(a, b failureRecord) bool { return a.capsule < b.capsule }),
		budgets:   table.NewSorted(degree, func(a, b *budgetRecord) bool { return a.ID < b.ID }),
		covered:   table.NewSorted(degree, func(a, b *coverage) bool { return a.of.less(b.of) }),
		queues:    table.NewSorted(degree, func(a, b queueAt) bool { return a.id < b.id }),
		company:   newCompanyTables(),
		shared:    &sync.Map{},

		nominations: table.NewSorted(degree, (*Nomination).Outranks),
		lapses:      table.NewSorted(degree, (*Nomination).endsBefore),
	}}
}

// copy returns a state that shares everything with s, its owner included. Only one of the two may go on writing under
// that owner: the caller gives the other a new one.
func (s *State) copy() *State {
	if !s.members.Made() {
		return s.made()
	}
	s.fork.Lock()
	defer s.fork.Unlock()
	c := &State{world: s.world}
	c.members = s.members.Clone()
	c.gangs = s.gangs.Clone()
	c.holds = s.holds.Clone()
	c.marks = s.marks.Clone()
	c.groups = s.groups.Clone()
	c.waiting = s.waiting.Clone()
	c.budgets, c.covered, c.protected, c.failed = s.budgets.Clone(), s.covered.Clone(), s.protected.Clone(), s.failed.Clone()
	c.queues = s.queues.Clone()
	c.nominations, c.lapses = s.nominations.Clone(), s.lapses.Clone()
	c.company = s.company.clone()
	return c
}

// made returns s or, if s is the zero value, an empty state in its place, which has limits and can be written to.
func (s *State) made() *State {
	if s.members.Made() {
		return s
	}
	return newState(Limits{}, [Dimensions]string{})
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
func (s *State) Limits() Limits { return s.made().limits }

// DimensionName returns what the ledger's importer calls the dimension.
func (s *State) DimensionName(d int) string { return s.names.name(d) }

// Quantity returns an amount of the dimension in words, in units that people read: "72 cores", "1.5 GiB of memory",
// "3 of slots". Bytes are rounded up to two decimals, so that as much as the text says is enough.
func (s *State) Quantity(d int, amount int64) string { return s.names.quantity(d, amount, true) }

// Node returns the node with this id, nil if it is not a member. Its field Node is the description (labels, capacity,
// state); the rest is what is used of it.
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

// Members yields the members of a gang, in the order of its roles: the capsules of which there is a record and whose id
// has not been used again for another capsule. It yields none if there is no such gang.
func (s *State) Members(id GangID) iter.Seq[*Capsule] {
	return func(yield func(*Capsule) bool) {
		g := s.Gang(id)
		if g == nil {
			return
		}
		for i := range g.Gang.Roles {
			for _, member := range g.Gang.Roles[i].Members {
				if c := s.Capsule(member); c != nil && c.Gang() == id && !yield(c) {
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

// Broken yields the gangs that run below the minimum of a role or their own ([GangState.Broken]), ordered by id.
// [GangState.Shortfall] says what each lacks. The cost is a look at each gang.
func (s *State) Broken() iter.Seq[*GangState] {
	return func(yield func(*GangState) bool) {
		s.gangs.Ascend(func(g *GangState) bool { return !g.Broken() || yield(g) })
	}
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

// Remains yields the remains of capsules that have left a node and still run there, in the order in which they left;
// none if the node is not a member. Until the node's agent confirms that they have stopped, or the node is lost,
// placements that do not fit beside them do not begin, and the node cannot leave.
func (s *State) Remains(id NodeID) iter.Seq[*Remains] {
	return func(yield func(*Remains) bool) {
		if n := s.Node(id); n != nil {
			n.Remains(yield)
		}
	}
}

// groupCount is the number of capsules of a group that are placed on one node. An entry with a level repeats the count
// under the node's domain at that level, "" if the node has none. A group has such entries for each level by which it
// is divided (divide).
type groupCount struct {
	group, level, domain string
	node                 uint32
	count                int
}

// less orders by group; within a group first the entries without a level by node, then the entries of each level by
// domain. It tests for equality first, because most comparisons are within a group, where equal strings mostly share
// their bytes.
func (a groupCount) less(b groupCount) bool {
	switch {
	case a.group != b.group:
		return a.group < b.group
	case a.level != b.level:
		return a.level < b.level
	case a.domain != b.domain:
		return a.domain < b.domain
	}
	return a.node < b.node
}

// mostLevels is the largest number of levels by which a group is divided. Each level costs time whenever a member
// moves.
const mostLevels = 16

// countGroup adds by to the counts of a capsule's groups on its node. GroupIn bets and co-location read these counts.
func (s *State) countGroup(c *capsuleRecord, by int) {
	for group := range c.capsule.Spec.MemberOf {
		if by < 0 {
			s.left.Groups = s.rev
		}
		labels := s.nodes.At(c.node).node.Node.Labels
		for level := range s.levels(group) {
			s.countIn(groupCount{group: group, level: level, domain: labels[level], node: c.node}, by)
		}
		s.countIn(groupCount{group: group, node: c.node}, by)
	}
}

// countIn adds by to one count. A count of zero has no entry.
func (s *State) countIn(g groupCount, by int) {
	if known, ok := s.groups.Get(g); ok {
		g = known
	}
	if g.count += by; g.count == 0 {
		s.groups.Delete(g)
		return
	}
	s.groups.ReplaceOrInsert(g)
}

// levels yields the levels by which a group is divided. The loop body may change the counts.
func (s *State) levels(group string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for level, ok := s.levelBehind(group, ""); ok && yield(level); {
			level, ok = s.levelBehind(group, level)
		}
	}
}

// levelBehind returns the first level after the given one by which a group is divided.
func (s *State) levelBehind(group, level string) (next string, ok bool) {
	s.groups.AscendGreaterOrEqual(groupCount{group: group, level: level + "\x00"}, func(g groupCount) bool {
		next, ok = g.level, g.group == group
		return false
	})
	return next, ok
}

// divided reports whether a group is divided by a level.
func (s *State) divided(group, level string) (ok bool) {
	s.groups.AscendGreaterOrEqual(groupCount{group: group, level: level}, func(g groupCount) bool {
		ok = g.group == group && g.level == level
		return false
	})
	return ok
}

// divide adds counts by the domains of a level to a group, if it has members. It visits all nodes of the group once;
// from then on countGroup keeps these counts, until the group is empty. They only save time: no answer of the state
// depends on them.
func (s *State) divide(group, level string) {
	if s.divided(group, level) {
		return
	}
	n := 0
	for range s.levels(group) {
		n++
	}
	if n >= mostLevels {
		return
	}
	var counts []groupCount
	for n, count := range s.GroupNodes(group) {
		counts = append(counts, groupCount{group, level, n.Node.Labels[level], n.index, count})
	}
	slices.SortFunc(counts, func(a, b groupCount) int { // inserts in key order are faster
		return cmp.Or(cmp.Compare(a.domain, b.domain), cmp.Compare(a.node, b.node))
	})
	for _, g := range counts {
		s.groups.ReplaceOrInsert(g)
	}
}

// relabel moves the counts of the groups on a node to the domains that the node's new labels name.
func (s *State) relabel(r *nodeRecord, to map[string]string) {
	from, seen := r.node.Node.Labels, map[string]bool{}
	if maps.Equal(from, to) {
		return
	}
	for i := range r.listed {
		for group := range s.capsules.At(r.member(i)).capsule.Spec.MemberOf {
			if seen[group] {
				continue
			}
			seen[group] = true
			for level := range s.levels(group) {
				if g, ok := s.groups.Delete(groupCount{group: group, level: level, domain: from[level], node: r.node.index}); ok {
					g.domain = to[level]
					s.groups.ReplaceOrInsert(g)
				}
			}
		}
	}
}

// memberIn returns a node in a domain on which a member of the group is placed, nil if there is none.
func (s *State) memberIn(group, level, domain string) (n *NodeState) {
	if s.divided(group, level) {
		s.groups.AscendGreaterOrEqual(groupCount{group: group, level: level, domain: domain}, func(g groupCount) bool {
			if g.group == group && g.level == level && g.domain == domain {
				n = &s.nodes.At(g.node).node
			}
			return false
		})
		return n
	}
	for n := range s.GroupNodes(group) {
		if n.Node.Labels[level] == domain {
			return n
		}
	}
	return nil
}

// groupWaiting is the number of pending capsules of one spec that are members of a group, or ask to be near it. Like
// groupCount it is updated when records are published. Specs that name no group have none; a spec that is near its own
// group counts once.
type groupWaiting struct {
	group string
	spec  *Spec
	count int
}

// less orders by group and then by the text of the spec, so that the specs of a group are neighbours, in an
// order that depends on the contents of the specs alone.
func (a groupWaiting) less(b groupWaiting) bool {
	if a.group != b.group || b.spec == nil || a.spec == nil {
		return cmp.Or(cmp.Compare(a.group, b.group), btoi(a.spec != nil)-btoi(b.spec != nil)) < 0
	}
	return a.spec.key < b.spec.key
}

// GroupPending yields the specs of pending capsules that concern the group, with the number of pending capsules of
// each. These are the group's members ([Spec.MemberOf]), members of gangs included, and capsules that ask to be near
// the group ([Spec.AllNear]). The order depends on the specs alone.
func (s *State) GroupPending(group string) iter.Seq2[*Spec, int] {
	return func(yield func(*Spec, int) bool) {
		s.waiting.AscendGreaterOrEqual(groupWaiting{group: group}, func(w groupWaiting) bool {
			return w.group == group && yield(w.spec, w.count)
		})
	}
}

// Nominations yields the nominations that live, highest rank first.
func (s *State) Nominations() iter.Seq[*Nomination] {
	return func(yield func(*Nomination) bool) { s.nominations.Ascend(yield) }
}

// specsOf returns the specs of a nominee: that of the capsule, or those of the gang's roles and of the members that have
// another. Nil: there is no such record.
func (s *State) specsOf(capsule CapsuleID, gang GangID) (specs []*Spec) {
	if c := s.Capsule(capsule); c != nil {
		return []*Spec{c.Spec}
	}
	if g := s.Gang(gang); g != nil {
		for i := range g.Gang.Roles {
			specs = append(specs, g.Gang.Roles[i].Spec)
		}
		for c := range s.Members(gang) {
			if !g.varies {
				break
			}
			if !slices.Contains(specs, c.Spec) {
				specs = append(specs, c.Spec)
			}
		}
	}
	return specs
}

// countWaiting adds by to the number of pending capsules of a spec, in each group that the spec names.
func (s *State) countWaiting(spec *Spec, by int) {
	for group := range spec.MemberOf {
		s.countWaitingIn(group, spec, by)
	}
	for group := range spec.nearOthers {
		s.countWaitingIn(group, spec, by)
	}
}

// countWaitingIn adds by to the count of a spec in one group.
func (s *State) countWaitingIn(group string, spec *Spec, by int) {
	w := groupWaiting{group: group, spec: spec}
	if known, ok := s.waiting.Get(w); ok {
		w = known
	}
	if w.count += by; w.count == 0 {
		s.waiting.Delete(w)
		return
	}
	s.waiting.ReplaceOrInsert(w)
}

// Cached returns the value under a key that all states of one ledger in this process share, including the states that
// Apply makes from them. If there is no value yet, Cached calls build and keeps its result. Engines share an index of
// the nodes in this way, for example. The value must be safe for concurrent use, and must not rely on the order of the
// states that it is shown, because two states may continue the same state differently. It lives as long as one of the
// states. The zero State keeps no values.
func (s *State) Cached(key any, build func() any) any {
	if s.shared == nil {
		return build()
	}
	if kept, ok := s.shared.Load(key); ok {
		return kept
	}
	kept, _ := s.shared.LoadOrStore(key, build())
	return kept
}

// protection is the time for which engines protect a placement. Protections have a table of their own, because few
// placements are protected.
type protection struct {
	capsule CapsuleID
	since   Revision
	lasts   time.Duration
}

// Protected returns the time for which engines protect the placement of a capsule, counted from when they first see the
// placement; 0: it is not protected.
func (s *State) Protected(id CapsuleID) time.Duration {
	p, _ := s.protected.Get(protection{capsule: id})
	return p.lasts
}

// Protections yields the capsules that are protected and for how long each is, ordered by id.
func (s *State) Protections() iter.Seq2[*Capsule, time.Duration] {
	return func(yield func(*Capsule, time.Duration) bool) {
		s.protected.Ascend(func(p protection) bool { return yield(s.Capsule(p.capsule), p.lasts) })
	}
}

// shielded returns why a wish may not take a capsule off its node; nil: no protection forbids it.
func (s *State) shielded(c *Capsule) *Rejection {
	lasts := s.Protected(c.ID)
	if lasts == 0 || s.health(c).placed == 0 {
		return nil
	}
	r := &Rejection{Capsule: c.ID, Node: c.Node, Protected: lasts, advice: "wait until its protection has ended"}
	text := fmt.Sprintf("capsule %q is protected on node %q for %v from revision %d on", c.ID, c.Node, lasts, c.PlacedAt)
	if c.PlaceTime != 0 {
		r.Until = instantOf(c.PlaceTime.Time().Add(lasts))
		text += fmt.Sprintf(", until about %s", r.Until.Time().Format(time.RFC3339))
	}
	r.Reason = text
	return r
}

// HoldsWith yields the live holds whose id has this prefix, ordered by id. It visits no others.
func (s *State) HoldsWith(prefix HoldID) iter.Seq[Hold] {
	return func(yield func(Hold) bool) {
		s.holds.AscendGreaterOrEqual(&holdRecord{Hold: Hold{ID: prefix}}, func(h *holdRecord) bool {
			return strings.HasPrefix(string(h.ID), string(prefix)) && yield(h.Hold)
		})
	}
}

// lists reports whether the list of a capsule's node has the capsule at the position that its record names.
func (s *State) lists(c *capsuleRecord, slot uint32) bool {
	n := s.nodes.At(c.node)
	return c.link < n.listed && n.member(c.link) == slot
}

// evicted returns the node without the capsules of a priority below the ceiling, except those that cannot be evicted
// from it now. Gangs and budgets may keep further capsules there.
func (s *State) evicted(n *NodeState, ceiling int32) *NodeState {
	bare := *n
	for c := range s.On(n.Node.ID) {
		if c.Spec.Priority < ceiling && s.Protected(c.ID) == 0 && (!c.Begun || n.Node.Confirms) {
			bare.gives(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli)
		}
	}
	return &bare
}

// outranked returns why the victim may not be evicted for the evictor that e names, by the priorities in the state;
// empty: it may, also because the evictor is a broken gang that precedes the victim's.
func (s *State) outranked(e *Evict, victim *Capsule) string {
	if s.reclaims(e, victim) {
		return ""
	}
	why := s.limits.keeps(victim.Spec.Priority, s.evictor(e))
	if why != "" && e.ForGang != "" && s.Precedes(e.ForGang, victim.Gang()) {
		return ""
	}
	return why
}

// evictor returns the priority of the capsule or gang that an eviction makes way for; math.MaxInt32 if that is not in
// the state.
func (s *State) evictor(e *Evict) int32 {
	gang, priority := e.ForGang, int32(math.MaxInt32)
	if c := s.Capsule(e.For); c != nil {
		gang, priority = c.Gang(), c.Spec.Priority
	}
	if g := s.Gang(gang); g != nil {
		lowest, _ := g.Priorities()
		priority = min(priority, lowest)
	}
	return priority
}
