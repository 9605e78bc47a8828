package orbit

import "slices"

// publish makes the write-set of a proposal that has been judged part of the state. It requires that the
// state is ours to write and has not changed since the write-set was made. It cannot fail.
func (s *State) publish(t *tx) {
	s.rev = t.rev
	s.nodes.Grow(t.nodeSlots, s.owner)
	s.capsules.Grow(t.capsuleSlots, s.owner)
	for i := range t.capsules.entries { // before nodes: they may leave once they are empty
		if e := &t.capsules.entries[i]; e.dirty && e.was != nil && e.was.Placed() && moves(e.was, &e.now) {
			s.unlink(e.slot)
		}
	}
	for i := range t.nodes.entries {
		if e := &t.nodes.entries[i]; e.dirty {
			s.publishNode(e)
		}
	}
	if t.leavers {
		s.freeNodes(t)
	}
	if t.nominates { // before capsules: then what they were is no more
		s.publishNominations(t)
	}
	if t.shares() {
		s.left.Nominations = s.rev
	}
	for i := range t.gangs.entries {
		if e := &t.gangs.entries[i]; e.now != e.was {
			s.gangs.ReplaceOrInsert(e.now)
		}
	}
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.dirty {
			s.publishCapsule(e)
		}
	}
	if t.finals {
		s.queueReleased(t)
	}
	s.publishHolds(t)
	s.publishMarks(t)
	if t.places == 0 {
		s.recent.add(t.p.ID, t.rev, s.limits.ProposalIDs, s.owner)
	}
	s.dropReleased()
}

// publishNode writes a node's record, or frees its slot. The list of its capsules is not the write-set's:
// it follows when the capsules are published.
func (s *State) publishNode(e *txNode) {
	r := s.nodes.Own(e.now.index, s.owner)
	if e.was == nil || e.gone || e.was.Node != e.now.Node {
		s.countCapacity(e)
	}
	if e.gone {
		if e.was != nil {
			s.left.Nodes = s.rev
			s.forgetNode(&r.node)
		}
		*r = nodeRecord{}
		return
	}
	if e.was != nil && e.was.Specification != e.now.Specification {
		s.left.Groups = s.rev // labels may have moved its capsules to another domain
	}
	r.node = e.now
	if id := e.now.Node.ID; e.was == nil {
		s.nodes.File(hashOf(string(id)), e.now.index, s.owner)
		s.members.ReplaceOrInsert(nodeKey{id, e.now.index})
	}
}

// freeNodes frees the slots of nodes that have left: in the order of slots, whatever the order in which bets
// and commitments touched the nodes, so that a replay hands out the same slots.
func (s *State) freeNodes(t *tx) {
	var slots []uint32
	for i := range t.nodes.entries {
		if e := &t.nodes.entries[i]; e.dirty && e.gone {
			slots = append(slots, e.now.index)
		}
	}
	slices.Sort(slots)
	for _, slot := range slots {
		s.nodes.Drop(slot)
	}
}

// forgetNode takes a node that leaves out of the ordered table and the index.
func (s *State) forgetNode(n *NodeState) {
	s.nodes.Unfile(hashOf(string(n.Node.ID)), n.index, s.owner)
	s.members.Delete(nodeKey{id: n.Node.ID})
}

// publishCapsule writes a record and lets everything that is derived from it follow: the list of its node,
// the counts of its group.
func (s *State) publishCapsule(e *txCapsule) {
	r := s.capsules.Own(e.slot, s.owner)
	c := &r.capsule
	fresh, wasPending := e.was == nil, c.ID != "" && c.Pending()
	if fresh {
		if e.now.Submitted == 0 {
			s.order = s.order.next(s.rev)
			e.now.Submitted = uint64(s.order)
		}
		s.capsules.File(hashOf(string(e.now.ID)), e.slot, s.owner)
	}
	moved := fresh || moves(c, &e.now)
	*c = e.now
	if moved && c.Placed() {
		r.node = e.node
		s.link(e.slot, r)
	}
	if c.Pending() != wasPending {
		s.pending += 1 - 2*btoi(wasPending)
		s.countWaiting(c.Spec, 1-2*btoi(wasPending))
	}
}

// moves reports whether a record goes from one node, or from none, to another, or to none. The id says it, because a
// node that leaves and joins again in one proposal keeps its slot.
func moves(from, to *Capsule) bool { return from.Node != to.Node }

// link adds a placed capsule to its node's list and to its group.
func (s *State) link(slot uint32, c *capsuleRecord) {
	n := s.nodes.Own(c.node, s.owner)
	if n.appender != s.lineage || len(n.members) == cap(n.members) {
		s.moveMembers(n)
	}
	c.link = uint32(len(n.members))
	n.members = append(n.members, slot)
	s.countGroup(c, 1)
}

// unlink takes a placed capsule off its node's list, the last of the list taking its position, and out of
// its group.
func (s *State) unlink(slot uint32) {
	c := s.capsules.At(slot)
	n := s.nodes.Own(c.node, s.owner)
	if n.remover != s.owner {
		s.moveMembers(n)
	}
	last := n.members[len(n.members)-1]
	n.members[c.link] = last
	n.members = n.members[:len(n.members)-1]
	if last != slot {
		s.capsules.Own(last, s.owner).link = c.link
	}
	s.countGroup(c, -1)
}

// moveMembers gives a node's list an array that no other state sees, with room for more.
func (s *State) moveMembers(n *nodeRecord) {
	n.members = append(make([]uint32, 0, max(4, len(n.members)+len(n.members)/2)), n.members...)
	n.appender, n.remover = s.lineage, s.owner
}

// countGroup keeps the number of a group's capsules on each node; GroupIn bets and co-location read it.
func (s *State) countGroup(c *capsuleRecord, by int) {
	if c.capsule.Spec.Group == "" {
		return
	}
	g := groupCount{group: c.capsule.Spec.Group, node: c.node}
	if known, ok := s.groups.Get(g); ok {
		g = known
	}
	if by < 0 {
		s.left.Groups = s.rev
	}
	if g.count += by; g.count == 0 {
		s.groups.Delete(g)
		return
	}
	s.groups.ReplaceOrInsert(g)
}

// publishHolds writes holds that have begun and drops those that have ended.
func (s *State) publishHolds(t *tx) {
	for _, e := range t.holds.entries {
		switch e.now {
		case e.was:
		case nil:
			s.holds.Delete(e.was)
			s.left.Holds = s.rev
		default:
			s.holds.ReplaceOrInsert(e.now)
		}
	}
}

// publishMarks writes marks; one with an empty value is deleted.
func (s *State) publishMarks(t *tx) {
	for _, e := range t.marks.entries {
		switch {
		case !e.dirty:
		case e.now.value == "":
			s.marks.Delete(e.now)
			s.left.Marks = s.rev
		default:
			s.marks.ReplaceOrInsert(e.now)
		}
	}
}

// queueReleased queues what the proposal has released for good, in the order of its commitments: which records are
// dropped first follows from the history.
func (s *State) queueReleased(t *tx) {
	for _, c := range t.p.Do {
		if r, ok := c.(Release); ok && r.Final {
			s.enqueueReleased(t.capsules.find(r.Capsule).slot)
		}
	}
}

// enqueueReleased appends a released record to the queue in which they are dropped.
func (s *State) enqueueReleased(slot uint32) {
	s.capsules.Own(slot, s.owner).link = noSlot
	if s.newest == noSlot {
		s.oldest = slot
	} else {
		s.capsules.Own(s.newest, s.owner).link = slot
	}
	s.newest = slot
	s.releasedCount++
}

// dropReleased forgets the oldest released records beyond the limit.
func (s *State) dropReleased() {
	for s.releasedCount > s.limits.Terminal {
		slot := s.oldest
		r := s.capsules.Own(slot, s.owner)
		s.oldest = r.link
		if s.oldest == noSlot {
			s.newest = noSlot
		}
		s.releasedCount--
		s.left.Capsules = max(s.left.Capsules, r.capsule.Changed)
		s.forgetCapsule(slot, &r.capsule)
		*r = capsuleRecord{}
		s.capsules.Drop(slot)
	}
}

// forgetCapsule drops a record: its id may be used again, and its gang's record goes with the last member.
func (s *State) forgetCapsule(slot uint32, c *Capsule) {
	s.capsules.Unfile(hashOf(string(c.ID)), slot, s.owner)
	if g := s.gangOf(c); g != nil {
		now := *g
		if now.records--; now.records == 0 {
			s.gangs.Delete(g)
			s.left.Gangs = s.rev
		} else {
			s.gangs.ReplaceOrInsert(&now)
		}
	}
}

// gangOf returns the gang that a capsule is a member of, or nil.
func (s *State) gangOf(c *Capsule) *GangState {
	if c.Gang == "" {
		return nil
	}
	return s.Gang(c.Gang)
}

// countCapacity keeps the sums of what all nodes offer.
func (s *State) countCapacity(e *txNode) {
	if e.was != nil {
		s.capacity.addNode(e.was.Node, -1)
	}
	if !e.gone {
		s.capacity.addNode(e.now.Node, 1)
	}
}

// publishNominations takes what has ended off its nodes, and files what has been made there.
func (s *State) publishNominations(t *tx) {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		var was *Nomination
		if e.was != nil {
			was = e.was.Nomination
		}
		s.renominate(was, e.now.Nomination)
	}
	for i := range t.gangs.entries {
		e := &t.gangs.entries[i]
		var was *Nomination
		if e.was != nil {
			was = e.was.Nomination
		}
		s.renominate(was, e.now.Nomination)
	}
}

// renominate replaces one nomination by another.
func (s *State) renominate(was, now *Nomination) {
	if was == now {
		return
	}
	if was.Lives() {
		s.nominations.Delete(was)
		for i := range was.Parts {
			s.claim(was, i, false)
		}
	}
	if now.Lives() {
		s.nominations.ReplaceOrInsert(now)
		for i := range now.Parts {
			s.claim(now, i, true)
		}
	}
}

// claim puts a part of a nomination on its node, or takes it off.
func (s *State) claim(of *Nomination, at int, made bool) {
	n := s.Node(of.Parts[at].Node)
	if n == nil {
		return // it has left, after the nomination ended
	}
	n = &s.nodes.Own(n.index, s.owner).node
	var parts []nominatedPart
	if n.nominated != nil {
		parts = slices.DeleteFunc(slices.Clone(n.nominated.parts), func(p nominatedPart) bool { return p.of == of })
	}
	if made {
		parts = append(parts, nominatedPart{of, at})
		slices.SortFunc(parts, func(a, b nominatedPart) int { return a.of.compare(b.of) })
	}
	if n.nominated = nil; len(parts) > 0 {
		n.nominated = &nominated{parts: parts}
	}
}
