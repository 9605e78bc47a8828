package orbit

import "slices"

// publish makes the write-set of a proposal that has been judged part of the state. It requires that the
// state is ours to write and has not changed since the write-set was made. It cannot fail.
func (s *State) publish(t *tx) {
	s.rev, s.order = t.rev, max(s.order, t.order)
	s.publishCompany(t)
	if s.covered.Len() > 0 { // before anything changes
		t.healths(func(spec *Spec, before, after health, _ bool) { s.countHealthy(spec, before, after) })
	}
	for i := range t.capsules.entries { // before nodes: they may leave once they are empty
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

// publishNode writes a node's record, or frees its slot. The list of its capsules is not the write-set's:
// it follows when the capsules are published.
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
		s.members.ReplaceOrInsert(nodeKey{id, slot})
		return
	}
	r := s.nodes.Own(slot, s.owner)
	if e.was.Node != e.now.Node { // the proposals of a batch may share a revision, so the counter need not tell
		s.left.Groups = s.rev // labels may have moved its capsules to another domain
		s.relabel(r, e.now.Node.Labels)
	}
	r.node = e.now
}

// publishCapsule writes a record and lets everything that is derived from it follow: the list of its node,
// the counts of its group.
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

// publishProtection ends the protection of a placement that has ended, and enters a new one.
func (s *State) publishProtection(e *txCapsule) {
	if s.protected.Len() > 0 && (e.unprotects || !e.now.Placed() || e.arrives) {
		s.protected.Delete(protection{capsule: e.now.ID})
	}
	if e.protects > 0 && e.now.Placed() {
		s.protected.ReplaceOrInsert(protection{e.now.ID, e.now.PlacedAt, e.protects})
	}
}

// moves reports whether a record goes from one node, or from none, to another, or to none. The id says it, because a
// node that leaves and joins again in one proposal keeps its slot. What is found on its node with another spec may be of other groups.
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
	if near := c.capsule.Spec.Near; near.Group != "" { // it has bet on where they are, and others will
		s.divide(near.Group, near.Level)
	}
}

// unlink takes a placed capsule off its node's list, the last of the list taking its position, and out of
// its group.
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

// publishBudgets writes budgets that have been put and drops those that have ended. Those that are put come first: what has a
// budget before and after had one all the time.
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

// queueReleased queues what the proposal has released for good, in the order of its commitments: which records are
// dropped first follows from the history.
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

// dropReleased forgets the oldest released records beyond the limit, but those with remains: while something runs under an
// id, the id is not free. Those that were kept for that are looked at again when remains have ended.
func (s *State) dropReleased(ended bool) {
	if ended {
		s.late = 0
	}
	for s.releasedCount-s.late > s.limits.Terminal {
		slot := s.oldest
		if s.late > 0 {
			slot = s.capsules.At(s.latest).link
		}
		if s.capsules.At(slot).capsule.Remains != nil {
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
	if r.capsule.Remains != nil {
		s.late = 0 // it may have been one of these
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
	if g := t.gangs.find(c.Gang); g != nil && g.anew {
		c.Gang = "" // its gang has been replaced too
	}
	s.forgetCapsule(slot, &c)
	s.capsules.Drop(slot, s.owner)
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
		s.lapses.Delete(was)
		s.nominated.addRooms(was, -1)
		for i := range was.Parts {
			s.claim(was, i, false)
		}
	}
	if now.Lives() {
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
