package orbit

import "slices"

// publish writes the write-set of a judged proposal into the state. The caller must own the state for
// writing, and the state must not have changed since the write-set was made. It cannot fail.
func (s *State) publish(t *tx) {
	s.rev, s.order, s.common = t.rev, max(s.order, t.order), t.common
	s.publishCompany(t)
	if s.covered.Len() > 0 { // first: it compares with the state before the proposal
		t.healths(func(spec *Spec, before, after health, _ bool) { s.countHealthy(spec, before, after) })
	}
	for i := range t.capsules.entries { // before the nodes, which may leave only once their lists are empty
		e := &t.capsules.entries[i]
		switch {
		case !e.dirty || e.was == nil || !e.was.Placed():
		case e.anew:
			s.unlink(e.former)
		case moves(e.was, &e.now):
			s.unlink(e.slot)
		}
	}
	ended := s.endRemains(t)
	for i := range t.nodes.entries {
		if e := &t.nodes.entries[i]; e.dirty {
			s.publishNode(e)
		}
	}
	if t.nominates { // before the capsules: publishCapsule overwrites the records that e.was points to
		s.publishNominations(t)
	}
	if t.shares() {
		s.left.Nominations = s.rev
	}
	for i := range t.gangs.entries {
		if e := &t.gangs.entries[i]; e.now != e.was {
			if e.was == nil || e.was.Gang != e.now.Gang {
				e.now.sum = e.now.Gang.digest()
			}
			s.gangs.ReplaceOrInsert(e.now)
		}
	}
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.dirty {
			if e.anew {
				s.retire(t, e.former)
			}
			s.publishCapsule(e)
		}
	}
	if t.finals {
		s.queueReleased(t)
	}
	s.publishHolds(t)
	s.publishMarks(t)
	s.publishBudgets(t)
	if t.places == 0 {
		s.recent.add(t.p.ID, t.rev, s.limits.ProposalIDs, s.owner)
	}
	s.dropReleased(ended)
}

// publishNode writes a node's record, or frees its slot. The node's list of capsules is not part of the write-set:
// publishCapsule updates it.
func (s *State) publishNode(e *txNode) {
	if e.was == nil || e.gone || e.was.Node != e.now.Node {
		s.countCapacity(e)
	}
	slot, id := e.now.index, e.now.Node.ID
	switch {
	case e.gone && e.was == nil: // has joined in this very proposal
		return
	case e.gone:
		s.left.Nodes = s.rev
		s.nodes.Unfile(hashOf(string(id)), slot, s.owner)
		s.members.Delete(nodeKey{id: id})
		s.nodes.Drop(slot, s.owner)
		return
	case e.was == nil:
		s.nodes.Take(slot, s.owner).node = e.now
		s.nodes.File(hashOf(string(id)), slot, s.owner)
		s.members.ReplaceOrInsert(nodeKey{id, slot, uint32(e.now.Node.digest())})
		return
	}
	r := s.nodes.Own(slot, s.owner)
	if e.was.Node != e.now.Node { // pointers, not Specification: proposals of a batch may share a revision, and so the counter
		s.left.Groups = s.rev // labels may have moved its capsules to another domain
		s.relabel(r, e.now.Node.Labels)
		s.members.ReplaceOrInsert(nodeKey{id, slot, uint32(e.now.Node.digest())})
	}
	r.node = e.now
}

// publishCapsule writes a record and updates everything that is derived from it: the list of its node,
// the counts of its groups, its protection, and the counts of pending work.
func (s *State) publishCapsule(e *txCapsule) {
	fresh := e.was == nil || e.anew
	var r *capsuleRecord
	if fresh {
		r = s.capsules.Take(e.slot, s.owner)
		s.capsules.File(hashOf(string(e.now.ID)), e.slot, s.owner)
	} else {
		r = s.capsules.Own(e.slot, s.owner)
	}
	c := &r.capsule
	wasPending, spec := !fresh && c.Pending(), c.Spec
	moved := fresh || moves(c, &e.now)
	s.publishProtection(e)
	if e.failures != nil {
		s.failed.ReplaceOrInsert(failureRecord{e.now.ID, e.failures})
	}
	*c = e.now
	if moved && c.Placed() {
		r.node = e.node
		s.link(e.slot, r)
	}
	if c.Pending() != wasPending || wasPending && c.Spec != spec {
		s.pending += btoi(c.Pending()) - btoi(wasPending)
		if wasPending {
			s.countWaiting(spec, -1)
		}
		if c.Pending() {
			s.countWaiting(c.Spec, 1)
		}
	}
}

// publishProtection removes the protection of a placement that has ended, and adds that of a new placement.
func (s *State) publishProtection(e *txCapsule) {
	if s.protected.Len() > 0 && (e.unprotects || !e.now.Placed() || e.arrives) {
		s.protected.Delete(protection{capsule: e.now.ID})
	}
	if e.protects > 0 && e.now.Placed() {
		s.protected.ReplaceOrInsert(protection{e.now.ID, e.now.PlacedAt, e.protects})
	}
}

// moves reports whether a capsule must be unlinked from its node and groups, and linked anew: its node has changed, or
// it was adopted on the same node with another spec, which may be in other groups. Nodes are compared by id, because a
// node that leaves and joins again in one proposal keeps its slot.
func moves(from, to *Capsule) bool {
	return from.Node != to.Node || to.Adopted && from.PlacedAt != to.PlacedAt && from.Spec != to.Spec
}

// link adds a placed capsule to its node's list and to its group.
func (s *State) link(slot uint32, c *capsuleRecord) {
	n := s.nodes.Own(c.node, s.owner)
	c.link = n.listed
	n.members.Own(c.link/membersChunk, s.owner)[c.link%membersChunk] = slot
	n.listed++
	s.countGroup(c, 1)
	if near := c.capsule.Spec.Near; near.Group != "" { // proposals bet on this group at this level: keep its counts by domain
		s.divide(near.Group, near.Level)
	}
}

// unlink takes a placed capsule off its node's list, where the last entry takes its position, and out of
// the counts of its groups.
func (s *State) unlink(slot uint32) {
	c := s.capsules.At(slot)
	n := s.nodes.Own(c.node, s.owner)
	n.listed--
	if last := n.member(n.listed); last != slot {
		n.members.Own(c.link/membersChunk, s.owner)[c.link%membersChunk] = last
		s.capsules.Own(last, s.owner).link = c.link
	}
	if n.listed%membersChunk == 0 {
		n.members.Drop(n.listed/membersChunk, s.owner)
	}
	s.countGroup(c, -1)
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

// publishBudgets writes budgets that have been put, then drops those that have ended. In this order a group that has a
// budget before and after the proposal is covered without a gap.
func (s *State) publishBudgets(t *tx) {
	modules := s.countModules(t.firstOfModules())
	for i := range t.budgets.entries {
		if e := &t.budgets.entries[i]; e.now != e.was && e.now != nil {
			s.budgets.ReplaceOrInsert(e.now)
			s.cover(e.now, e.left, modules)
		}
	}
	for i := range t.budgets.entries {
		e := &t.budgets.entries[i]
		if e.was == nil || e.now != nil && e.now.members() == e.was.members() {
			continue
		}
		s.left.Budgets = s.rev
		s.uncover(e.was)
		if e.now == nil {
			s.budgets.Delete(e.was)
		}
	}
}

// queueReleased queues the capsules that the proposal has released for good, in the order of its commitments, so that
// every replay of the history drops records in the same order.
func (s *State) queueReleased(t *tx) {
	for _, c := range t.p.Do {
		r, ok := c.(Release)
		if !ok || !r.Final {
			continue
		}
		if e := t.capsules.find(r.Capsule); e.now.released && !e.queued { // it may have been submitted again
			s.enqueueReleased(e.slot)
			e.queued = true
		}
	}
}

// enqueueReleased appends a released record to the queue in which they are dropped.
func (s *State) enqueueReleased(slot uint32) {
	r := s.capsules.Own(slot, s.owner)
	r.link, r.node = noSlot, s.newest
	if s.newest == noSlot {
		s.oldest = slot
	} else {
		s.capsules.Own(s.newest, s.owner).link = slot
	}
	s.newest = slot
	s.releasedCount++
}

// dropReleased drops the oldest released records beyond Limits.Terminal. It keeps records with remains, because an id
// is not free while a capsule still runs under it. After remains have ended (ended), it visits the kept records again.
func (s *State) dropReleased(ended bool) {
	if ended {
		s.late = 0
	}
	for s.releasedCount-s.late > s.limits.Terminal {
		slot := s.oldest
		if s.late > 0 {
			slot = s.capsules.At(s.latest).link
		}
		if s.capsules.At(slot).capsule.Remains() != nil {
			s.late, s.latest = s.late+1, slot
			continue
		}
		s.dequeueReleased(slot)
		c := &s.capsules.At(slot).capsule
		s.left.Capsules = max(s.left.Capsules, c.Changed)
		s.forgetCapsule(slot, c)
		s.capsules.Drop(slot, s.owner)
	}
}

// dequeueReleased takes a released record out of the queue.
func (s *State) dequeueReleased(slot uint32) {
	r := s.capsules.At(slot)
	if s.oldest == slot {
		s.oldest = r.link
	} else {
		s.capsules.Own(r.node, s.owner).link = r.link
	}
	if s.newest == slot {
		s.newest = r.node
	} else {
		s.capsules.Own(r.link, s.owner).node = r.node
	}
	s.releasedCount--
	if r.capsule.Remains() != nil {
		s.late = 0 // r may have been one of the late records: count these anew
	}
}

// retire drops the record of a capsule, which is on no node, because another is submitted under its id.
func (s *State) retire(t *tx, slot uint32) {
	c := s.capsules.At(slot).capsule
	switch {
	case c.released:
		s.dequeueReleased(slot)
	case c.Node == "":
		s.pending--
		s.countWaiting(c.Spec, -1)
	}
	if g := t.gangs.find(c.Gang()); g != nil && g.anew {
		c.common = nil // its gang has been replaced too, so it is not counted there
	}
	s.forgetCapsule(slot, &c)
	s.capsules.Drop(slot, s.owner)
}

// forgetCapsule drops a record: its id may be used again, and its gang's record goes with the last member.
func (s *State) forgetCapsule(slot uint32, c *Capsule) {
	s.capsules.Unfile(hashOf(string(c.ID)), slot, s.owner)
	if s.failed.Len() > 0 {
		s.failed.Delete(failureRecord{capsule: c.ID})
	}
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

// countCapacity updates the summed capacity of all nodes for a changed node.
func (s *State) countCapacity(e *txNode) {
	if e.was != nil {
		s.capacity.addNode(e.was.Node, -1)
	}
	if !e.gone {
		s.capacity.addNode(e.now.Node, 1)
	}
}

// publishCompany writes the counts after the proposal to the state. It requires that nothing else of the proposal is
// published yet, because counting reads the state before the proposal.
func (s *State) publishCompany(t *tx) {
	c := &t.company
	if !t.countCompany() {
		return
	}
	if c.owned {
		s.company = c.companyTables
	}
	for _, m := range c.moved {
		s.company.add(m.key, m.by)
	}
	s.company.lows = c.lows
}

// endRemains removes remains that have ended from the capsules' records in the state, also from records that the
// proposal does not write otherwise, and reports whether there were any. It requires that the write-set has not been
// published.
func (s *State) endRemains(t *tx) (ended bool) {
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if e.was == nil || e.was.remains == nil || !e.stops {
			continue
		}
		for _, r := range *e.was.remains {
			if !e.gone && e.now.remains != nil && slices.Contains(*e.now.remains, r) {
				continue
			}
			ended, s.left.Remains = true, s.rev
			_, slot := s.findCapsule(r.Capsule)
			s.capsules.Own(slot, s.owner).capsule.setRemains(nil)
		}
	}
	return ended
}

// publishNominations takes ended nominations off their nodes, and puts new ones there.
func (s *State) publishNominations(t *tx) {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		var was *Nomination
		if e.was != nil {
			was = e.was.Nomination()
		}
		s.renominate(was, e.now.Nomination())
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

// renominate replaces one nomination by another in all tables of the state. Either may be nil or have ended.
func (s *State) renominate(was, now *Nomination) {
	if was == now {
		return
	}
	if was.Lives() {
		s.nominations.Delete(was)
		s.lapses.Delete(was)
		s.nominated.addRooms(was, -1)
		for i := range was.Parts {
			s.claim(was, i, false)
		}
	}
	if now.Lives() {
		now.sum = digestList(0, now.Parts)
		s.nominations.ReplaceOrInsert(now)
		s.lapses.ReplaceOrInsert(now)
		s.nominated.addRooms(now, 1)
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
