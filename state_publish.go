package orbit

// publish writes the write-set of a judged proposal into the state. The caller must own the state for
// writing, and the state must not have changed since the write-set was made. It cannot fail.
func (s *State) publish(t *tx) {
	s.rev, s.order, s.common = t.rev, max(s.order, t.order), t.common
	for _, before := range befores {
		before(s, t)
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
	for i := range t.nodes.entries {
		if e := &t.nodes.entries[i]; e.dirty {
			s.publishNode(e)
		}
	}
	for _, amid := range amids {
		amid(s, t)
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
	for _, after := range afters {
		after(s, t)
	}
	if t.places == 0 {
		s.recent.Add(t.p.ID, t.rev, s.limits.ProposalIDs, s.owner)
	}
	s.dropReleased()
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
// the counts of its groups, and the counts of pending work.
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

// moves reports whether a capsule must be unlinked from its node and groups, and linked anew: its node has changed, or
// its spec, which may be in other groups. Nodes are compared by id, because a node that leaves and joins again in one
// proposal keeps its slot.
func moves(from, to *Capsule) bool {
	return from.Node != to.Node || to.Placed() && !from.Spec.groupsAs(to.Spec)
}

// link adds a placed capsule to its node's list and to its group.
func (s *State) link(slot uint32, c *capsuleRecord) {
	n := s.nodes.Own(c.node, s.owner)
	c.link = n.listed
	n.members.Own(c.link/membersChunk, s.owner)[c.link%membersChunk] = slot
	n.listed++
	s.countGroup(c, 1)
	if near := c.capsule.Spec.Near; near.Group != "" && near.Level != NodeKey { // proposals bet on this group at this level: keep its counts by domain
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

// queueReleased queues the capsules that the proposal has released for good, or that end, in the order of its
// commitments, so that every replay of the history drops records in the same order.
func (s *State) queueReleased(t *tx) {
	for _, c := range t.p.Do {
		id := c.effect().leaves
		if id == "" {
			continue
		}
		if e := t.capsules.find(id); e.now.released && !e.queued { // it may have been submitted again
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
// is not free while a capsule still runs under it. After remains have ended, it visits the kept records again.
func (s *State) dropReleased() {
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
