package orbit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/least"
	"github.com/orbitsched/orbit/internal/table"
)

// parking holds the classes that fit nowhere. It is indexed so that a change finds the classes that it may help without
// a scan over all of them:
//
//	shelves ─► by a label or a device model that a node must have, and there by the least free amounts that a class needs
//	ties    ─► by the group or the parent that a class wants to be near
//	rests   ─► by what else the answer that it fits nowhere depends on, see NoFit.DependsOn
//	kept    ─► the classes for which evictions were refused because of a budget
//	moving  ─► the classes for which others might move as soon as any node has gained room
//	ends    ─► by when they are tried again in any case
//
// Shelves and ties also have the classes that a plan has left out for another reason than that they fit nowhere, such
// as those of members of gangs. They are not parked; they are there only so that free capacity for them wakes the
// engine.
type parking struct {
	spots map[*Spec]*parkedClass
	// The classes that a plan has left out and that are not parked, and the number of those that still had work when the
	// others were last dropped.
	waiting map[*Spec]*parkedClass
	working int
	rests   map[versioned]*resting
	shelves map[shelf]*least.Set[*parkedClass]
	ties    map[tie]map[*parkedClass]bool
	kept    map[*parkedClass]bool
	moving  []*parkedClass // some may be void, as entries of ends are
	// The number of shelves for classes that may evict, and the highest ceiling of such a class so far.
	evicting int
	ceiling  int32
	// The nodes on which plans have placed work that left out classes that may evict, until the commits are seen. A plan
	// evicts nothing that it has placed itself, but the next plan may.
	placed map[NodeID]bool
	// ends has an entry for each time that a class was parked. An entry is void if its spot is no longer parked.
	ends heap.Heap[parkEnd]
	// Where the engine keeps why classes are parked; nil: the queue is not an engine's.
	reasons *reasonBook
	// found is a buffer for the results of search.
	found []*least.Item[*parkedClass]
	// looked counts the classes and boxes that searches have examined, and weighed the classes of which it was asked whether their
	// queues have enough quota now.
	looked, weighed int
}

// parkedClass is the record of a class that is parked, or that waits for room without being parked.
type parkedClass struct {
	class *class
	// Why the class is parked, since when, and when it is tried again in any case.
	why          error
	began, until time.Time
	// near has the domains to which Spec.Near binds the class, and in which alone a node may help; nil: any node may.
	near  *nearby
	items []shelved
	// trial: the class is being tried again. waits: the class was left out by a plan, and is not parked.
	trial, waits bool
	// Rules of company may have closed domains to the class.
	ruled bool
	// The root of the tree of queues in which the class lacks quota; empty: it lacks none. nodeless: it lacks nothing else, so no
	// node may help.
	tree     QueueID
	nodeless bool
	// The device models for which quota is lacking; nil: all that the spec accepts.
	short []string
	// What the answer that it fits nowhere rests on besides the nodes, if anything.
	rest rest
	// evicts: the class fits nowhere even if capsules of a priority below ceiling are evicted, so it is tried again when
	// a node would have enough room without these. covered has the members of budgets as they were when a budget refused such
	// an eviction; nil: none has.
	evicts  bool
	ceiling int32
	covered table.Sorted[*coverage]
	// moves: others might move for the class as soon as any node has gained room. hurried: one has, so the class is tried again
	// before its end. hurries is how many such trials in a row were in vain, and parked is when the last one was.
	moves, hurried bool
	hurries        int
	parked         time.Time
}

// firstHurry is how long a class waits at least between two trials because nodes elsewhere have gained room. The wait doubles
// while these are in vain, because each is a search among all nodes.
// If room comes so seldom that the class has waited calmWaits times as long, the next wait is the first one again.
const (
	firstHurry = 10 * time.Millisecond
	calmWaits  = 16
)

// tie is what a class depends on besides the free capacity of nodes: where the members of a group are, where its parent
// is, or the set of nodes. The classes that depend on any group also have the zero tie, for changes of which the group
// is not known.
type tie struct {
	group  string
	parent CapsuleID
	// The class depends on the set of nodes: their labels, and which of them are lost.
	nodes bool
	// The class depends on what is left in the tree of queues with this root.
	tree QueueID
}

// parkEnd is the time at which a class has been parked long enough.
type parkEnd struct {
	at   time.Time
	spot *parkedClass
}

// Before orders ends, soonest first.
func (a parkEnd) Before(b parkEnd) bool { return a.at.Before(b.at) }

func newParking() parking {
	return parking{spots: map[*Spec]*parkedClass{}, waiting: map[*Spec]*parkedClass{}, rests: map[versioned]*resting{}, shelves: map[shelf]*least.Set[*parkedClass]{}, ties: map[tie]map[*parkedClass]bool{}, kept: map[*parkedClass]bool{}, ceiling: math.MinInt32, placed: map[NodeID]bool{}}
}

// misfitting is a spec of capsules that a plan leaves out, with what their reasons say together.
type misfitting struct {
	spec *Spec
	// A *NoFit in the plan says that the spec fits on no node. False: the navigator leaves its capsules out for other
	// reasons.
	nowhere bool
	// The first reason with a *NoFit, and its count, if it has one.
	why   error
	count *fitCount
	// The domains to which Spec.Near binds the spec, if each of its NoFits names the same; nil: they differ, or there
	// are none.
	near  *nearby
	ruled bool // rules of company may have closed domains to the spec
	rest  rest // what the NoFit rests on besides the nodes
	// A NoFit holds even if capsules of lower priority are evicted; and a budget has refused such an eviction.
	evicts, kept bool
	// A NoFit says that others might move for the spec as soon as any node gains room.
	moves bool
	// A NoFit says that the queue of the spec lacks quota; and one says that the nodes do not take it.
	quota, room bool
	// The device models for which the NoFits say so, if they name any.
	short []string
}

// park parks a class until a change could help it or the time until has passed. It reports whether the class was not
// parked before. It does not park a class of which a nominee is held back, because the nominee may fit where others of
// the class do not; it makes the class wait for room instead.
func (q *queue) park(m *misfitting, until time.Time) bool {
	spec := m.spec
	if q.holdsNominee(spec) {
		q.await(spec)
		return false
	}
	if s := q.parked.waiting[spec]; s != nil {
		q.parked.remove(s)
	}
	k, began, hurries := q.class(spec), q.now.Time(), 0
	fresh := k.spot == nil
	if !fresh {
		if !k.spot.trial {
			return false
		}
		if began = k.spot.began; k.spot.hurried {
			hurries = k.spot.hurries + 1
		}
		q.unpark(k.spot)
		k = q.class(spec) // unpark has forgotten the class if it has no entries
	}
	s := &parkedClass{class: k, why: m.why, began: began, until: until, near: m.near, ruled: m.ruled, rest: m.rest, evicts: m.evicts, ceiling: q.state.limits.ceiling(spec.Priority)}
	s.moves, s.hurries, s.parked = m.moves, hurries, q.now.Time()
	if own := q.state.queue(spec.Queue); m.quota && own != nil {
		s.tree, s.nodeless, s.short = own.root(q.state).id, !m.room, m.short
	}
	if m.kept {
		s.covered = q.state.covered
	}
	k.spot = s
	q.parked.add(s)
	q.fix(k)
	return fresh
}

// await makes the engine wake up when there is room for a class, although the class is not parked.
func (q *queue) await(spec *Spec) {
	p := &q.parked
	if p.spots[spec] != nil || p.waiting[spec] != nil {
		return
	}
	if len(p.waiting) >= 2*p.working+compactFrom {
		q.dropIdle()
	}
	p.add(&parkedClass{class: &class{spec: spec}, waits: true, ruled: spec.hasRules()})
}

// dropIdle drops the waiting classes that have no work any more. Room for them may never come, so nothing else drops
// those whose capsules were released.
func (q *queue) dropIdle() {
	works := map[*Spec]bool{}
	for _, entries := range [][]entry{q.batch, q.held, q.heldNominees} {
		for _, e := range entries {
			if c := q.valid(e); c != nil {
				works[c.Spec] = true
			}
		}
	}
	for spec, s := range q.parked.waiting {
		if !works[spec] && q.classes[spec] == nil {
			q.parked.remove(s)
		}
	}
	q.parked.working = len(q.parked.waiting)
}

// unpark makes a class ready again or, if it only waits for room, removes its record.
func (q *queue) unpark(s *parkedClass) {
	q.parked.remove(s)
	if !s.waits {
		s.class.spot = nil
		q.fix(s.class)
	}
}

// add files a spot under its shelves and ties and, if its class is parked, under its end.
func (p *parking) add(s *parkedClass) {
	spec := s.class.spec
	wants := wantVector(spec)
	for _, at := range shelvesOf(spec, s.near) {
		if s.nodeless {
			break
		}
		at.evicting = s.evicts
		set := p.shelves[at]
		if set == nil {
			set = &least.Set[*parkedClass]{}
			p.shelves[at] = set
			p.evicting += btoi(s.evicts)
		}
		if s.evicts {
			p.ceiling = max(p.ceiling, s.ceiling)
		}
		s.items = append(s.items, shelved{at, set.Add(s, wants)})
	}
	for _, t := range s.ties() {
		if p.ties[t] == nil {
			p.ties[t] = map[*parkedClass]bool{}
		}
		p.ties[t][s] = true
	}
	if s.waits {
		p.waiting[spec] = s
		return
	}
	p.spots[spec] = s
	p.reasons.park(s)
	p.addRest(s)
	if s.covered.Made() {
		p.kept[s] = true
	}
	if s.moves {
		if len(p.moving) > 2*len(p.spots)+64 {
			p.moving = slices.DeleteFunc(p.moving, func(s *parkedClass) bool { return s.class.spot != s })
		}
		p.moving = append(p.moving, s)
	}
	if p.ends.Push(parkEnd{s.until, s}); len(p.ends) > 2*len(p.spots)+64 {
		p.ends = nil
		for _, s := range p.spots {
			p.ends.Push(parkEnd{s.until, s})
		}
	}
}

// expect notes the nodes on which a plan places work, for the classes that may evict.
func (p *parking) expect(plan []Proposal) {
	for i := range plan {
		for _, do := range plan[i].Do {
			if place, ok := do.(Place); ok && p.evicting > 0 {
				p.placed[place.Node] = true
			}
		}
	}
}

// remove takes a spot out of all indexes but ends, whose entry becomes void.
func (p *parking) remove(s *parkedClass) {
	if s.waits {
		delete(p.waiting, s.class.spec)
	} else {
		delete(p.spots, s.class.spec)
		p.reasons.unpark(s.class.spec)
		delete(p.kept, s)
		p.removeRest(s)
	}
	for _, i := range s.items {
		set := p.shelves[i.shelf]
		if set.Remove(i.item); set.Len() == 0 {
			delete(p.shelves, i.shelf)
			p.evicting -= btoi(i.shelf.evicting)
		}
	}
	for _, t := range s.ties() {
		if delete(p.ties[t], s); len(p.ties[t]) == 0 {
			delete(p.ties, t)
		}
	}
	if len(p.spots) == 0 && len(p.waiting) == 0 { // maps do not shrink
		was := *p
		*p = newParking()
		p.reasons, p.found, p.looked, p.weighed = was.reasons, was.found, was.looked, was.weighed
	}
}

// reconsider unparks the classes that a commitment may have made placeable, and reports whether there were any. The
// queue calls it with every commitment of every engine once the view shows it. With undone the engine calls it with the
// commitments of its own proposals that were refused or given up: the same plan judged the classes that it parked as if
// those were committed.
//
// A parked class fits on no node, or its queue lacks quota. That can change in seven ways:
//
//   - A node offers more. A Release gives room back, also the release of a hold that has ended; so does a Respec that
//     shrinks a capsule, or lets it be evicted by more work. A capsule that had left and has stopped gives back its extras, and its room on a node without
//     an agent; and it closes no domain any more. A PutNode joins a node, adds capacity, changes labels or ends a cordon.
//     A Place, Hold, PutNode or RemoveNode that is undone leaves the node as it was. A report says something new
//     (View.refreshTelemetry). The classes that fit on the node are unparked, except those that need company which is
//     not in the node's domain. A class whose answer holds even with evictions is unparked if it would fit without the
//     capsules of lower priority on the node: one of higher priority may have made way for these, or the engine's own
//     plan has placed these, which it could not evict at once.
//
//   - The company that a class wants has moved. A member of its group is placed or released, or its placement is
//     undone: while no member of a group runs, some navigators start the group anywhere. A PutNode may move the members
//     on a node to another domain; a Respec may move a capsule to other groups. The classes that want to be near the group are unparked; for a PutNode those
//     that want to be near any group.
//
//   - The parent of a class has moved, or is released for good. The classes that fork that capsule are unparked.
//
//   - A capsule or gang is nominated, and ranks higher than before. Its classes are unparked. A nomination has ended:
//     see View.touchNominated.
//
//   - A budget is put or removed, or a protection ends, so more victims may be evicted. All classes are unparked. If
//     a budget has enough healthy members, and more than when an eviction was refused because of a budget, the classes
//     for which it was refused are unparked.
//
//   - A capsule leaves its node, shrinks or gets into another queue, a placement is undone, or a queue is put or removed: the classes
//     that lacked quota in that tree, and have enough now, are unparked ([queue.reconsiderQueues]).
//
//   - A node offers more, but not to the class, and others that may move were in the way of the class. Perhaps they go to that
//     node: the class is tried again soon ([queue.hurry]).
//
// Submit, Assign and Mark change none of these (for marks there is [Engine.Nudge]). A class is parked only for a
// *NoFit.
func (q *queue) reconsider(c *Change, undone bool) (woken bool) {
	if !q.parked.any() {
		return false
	}
	f := effectOf(c.Do)
	switch do, nominates := c.Do.(Nominate); {
	case nominates && undone:
		return q.bringBackNominated(do.Parts)
	case nominates:
		return q.bringBackNominees(do.Capsule, do.Gang)
	case f.victims:
		return q.unparkAll()
	}
	woken = q.reconsiderQueues(&f, undone)
	woken = q.reconsiderTies(c, &f) || woken
	node := cmp.Or(f.node, c.Node)
	if own := q.state.Capsule(f.respecs); f.respecs != "" && own != nil {
		node = own.Node
	}
	if f.arrives != "" && q.parked.placed[node] {
		delete(q.parked.placed, node)
		woken = q.offerEvicting(q.state.Node(node)) || woken
	}
	woken = q.offerSurged(c, &f) || woken
	if !undone && !f.gives {
		return woken
	}
	n := q.state.Node(node)
	woken = q.offer(n) || woken
	return q.hurry(n) || woken
}

// hurry makes those classes due soon for which others might move, because a node has gained room; it may be nil. It reports
// whether there were any. The engine has to pass then even if none is due yet, because what it waits for has changed.
func (q *queue) hurry(n *NodeState) (woken bool) {
	if n == nil || !n.Node.Schedulable() {
		return false
	}
	for _, s := range q.parked.moving {
		if s.class.spot != s {
			continue
		}
		s.hurried, woken = true, true
		wait := firstHurry << min(s.hurries, 32)
		if q.now.Time().Sub(s.parked) >= calmWaits*wait {
			s.hurries = 0
		}
		if soon := s.parked.Add(wait); soon.Before(s.until) {
			q.parked.ends.Push(parkEnd{soon, s})
		}
	}
	clear(q.parked.moving)
	q.parked.moving = q.parked.moving[:0]
	return woken
}

// reconsiderQueues is reconsider for the classes that lack quota. Those are unparked that have enough of it now, in the trees of queues
// where a commitment may have freed some; after a change of the queues themselves, in all trees.
func (q *queue) reconsiderQueues(f *effect, undone bool) (woken bool) {
	if len(q.parked.ties) == 0 {
		return false
	}
	var trees []QueueID
	for _, id := range []CapsuleID{f.leaves, f.respecs, f.arrives} {
		if id == "" || id == f.arrives && !undone {
			continue
		}
		c := q.state.Capsule(id)
		for _, spec := range []*Spec{q.before(id), specOf(c)} {
			if spec == nil {
				f.quotas = f.quotas || c == nil // the record is gone, and with it the name of the queue
			} else if own := q.state.queue(spec.Queue); own != nil {
				trees = append(trees, own.root(q.state).id)
			}
		}
	}
	if f.quotas || f.describes {
		return q.unparkQueued("")
	}
	for _, tree := range slices.Compact(trees) {
		woken = q.unparkQueued(tree) || woken
	}
	return woken
}

// specOf returns the spec of a capsule, nil if there is no capsule.
func specOf(c *Capsule) *Spec {
	if c == nil {
		return nil
	}
	return c.Spec
}

// unparkQueued unparks the classes that lacked quota in a tree and have enough now; with an empty tree, those of all trees, also those
// whose tree is another one now. It reports whether there were any.
func (q *queue) unparkQueued(tree QueueID) (woken bool) {
	visit := func(all map[*parkedClass]bool) {
		for s := range all {
			q.parked.weighed++
			own := q.state.queue(s.class.spec.Queue)
			if own == nil || own.root(q.state).id != s.tree || q.state.hasQuota(s.class.spec, s.short) {
				q.unpark(s)
				woken = true
			}
		}
	}
	if tree != "" {
		visit(q.parked.ties[tie{tree: tree}])
		return woken
	}
	for t, all := range q.parked.ties {
		if t.tree != "" {
			visit(all)
		}
	}
	return woken
}

// offerSurged is offer and hurry for the node on which the former instance of a capsule has just given its room back, because the
// capsule is ready at its new place, or was released for good while it surged. The change names only the new place.
func (q *queue) offerSurged(c *Change, f *effect) (woken bool) {
	own := q.state.Capsule(cmp.Or(f.heals, f.leaves))
	if own == nil || !own.Spec.Surge {
		return false
	}
	for _, r := range [...]*Remains{own.Remains(), own.Surge()} {
		if r != nil && !r.Surge && r.Left == c.Revision && r.Node != c.Node {
			n := q.state.Node(r.Node)
			woken = q.offer(n) || woken
			woken = q.hurry(n) || woken
		}
	}
	return woken
}

// reconsiderTies is reconsider for what classes depend on besides the free capacity of nodes.
func (q *queue) reconsiderTies(c *Change, f *effect) (woken bool) {
	for _, moved := range []CapsuleID{f.arrives, f.leaves, f.stops} {
		woken = q.unparkMoved(moved, c.Revision) || woken
	}
	if own := q.state.Capsule(f.stops); f.stops != "" && own != nil && own.Pending() { // nodes without an agent take it now
		if s := q.parked.spots[own.Spec]; s != nil {
			q.unpark(s)
			woken = true
		}
	}
	if f.regroups {
		woken = q.unparkRegrouped(f.respecs) || woken
	}
	if f.describes {
		woken = q.untie(tie{nodes: true}) || woken
		// A removal of a node that has capsules, which can only be undone, has moved none of them.
		if n := q.state.Node(f.node); f.gives && n != nil && n.Capsules > 0 {
			woken = q.untie(tie{}) || woken
		}
	}
	return f.heals != "" && q.unparkSpared(f.heals) || woken
}

// offer unparks the classes that fit on a node, which may be nil. It reports whether there were any.
func (q *queue) offer(n *NodeState) (woken bool) {
	if !q.offers(n) {
		return false
	}
	has := offerVector(n)
	q.parked.searchFor(n, &has, false)
	woken = q.unparkFound(func(s *parkedClass) *NodeState { return n })
	return q.offerEvicting(n) || woken
}

// offerEvicting unparks the classes that may evict and would fit on a node without the capsules of lower priority. It
// reports whether there were any.
func (q *queue) offerEvicting(n *NodeState) (woken bool) {
	if q.parked.evicting == 0 || !q.offers(n) {
		return false
	}
	ceiling := q.parked.ceiling
	bare := q.state.evicted(n, ceiling)
	has := offerVector(bare)
	q.parked.searchFor(n, &has, true)
	return q.unparkFound(func(s *parkedClass) *NodeState {
		if s.ceiling != ceiling {
			ceiling, bare = s.ceiling, q.state.evicted(n, s.ceiling)
		}
		return bare
	})
}

// offers reports whether a node, which may be nil, may take any parked class.
func (q *queue) offers(n *NodeState) bool {
	return n != nil && len(q.parked.shelves) > 0 && n.Node.Schedulable()
}

// unparkFound unparks those of the found classes that fit on a node. The node is the one that shown returns for the
// class. It reports whether there were any.
func (q *queue) unparkFound(shown func(*parkedClass) *NodeState) (woken bool) {
	p := &q.parked
	for _, item := range p.found {
		s := item.Value
		if s.waits && q.own || !s.waits && s.class.spot != s {
			continue
		}
		if n := shown(s); (n.Fits(s.class.spec) || q.state.fitsNominated(n, s.class.spec)) && s.near.has(n.Node) {
			q.unpark(s)
			woken = true
			if s.waits {
				q.recalled[s.class.spec] = true
			}
		}
	}
	clear(p.found)
	p.found = p.found[:0]
	return woken
}

// unparkSpared unparks the classes for which a budget has refused an eviction, if a budget of this capsule has more healthy
// members than then, and enough for an eviction: also of a member that is not healthy. It reports whether there were any.
func (q *queue) unparkSpared(id CapsuleID) (woken bool) {
	if len(q.parked.kept) == 0 {
		return false
	}
	c := q.state.Capsule(id)
	if c == nil {
		return false
	}
	for of := range c.Spec.memberships {
		now := q.state.coverage(of)
		if now == nil || !slices.ContainsFunc(now.budgets, func(b *budgetRecord) bool { return b.counts(now.healthy) >= b.needed() }) {
			continue
		}
		for s := range q.parked.kept {
			if was, _ := s.covered.Get(now); was == nil || was.healthy.below(now.healthy) {
				q.unpark(s)
				woken = true
			}
		}
	}
	return woken
}

// any reports whether a class is parked or waits for room.
func (p *parking) any() bool { return len(p.spots)+len(p.waiting) > 0 }

// searchFor adds to found the classes on the shelves of a node that need no more than has, those that may evict or all
// others.
func (p *parking) searchFor(n *NodeState, has *least.Vector, evicting bool) {
	search := func(kind shelfKind, key, value string) { p.search(shelf{kind, key, value, evicting}, has) }
	search(anyNode, "", "")
	if len(p.shelves) == 1 && p.shelves[shelf{evicting: evicting}] != nil {
		return
	}
	for key, value := range n.Node.Labels {
		search(withLabelValue, key, value)
		search(withLabel, key, "")
	}
	search(withLabelValue, NodeKey, string(n.Node.ID)) // every node has this key, so shelvesOf uses it only with a value
	search(withModel, n.Node.Devices.Model, "")
}

// search adds to found the classes of a shelf that need no more than a node has free.
func (p *parking) search(at shelf, has *least.Vector) {
	if set := p.shelves[at]; set != nil {
		found, looked := set.Served(p.found, has)
		p.found, p.looked = found, p.looked+looked
	}
}

// unparkMoved unparks the classes that depend on where a capsule is, after a commitment about it at a revision. It reports
// whether there were any.
func (q *queue) unparkMoved(id CapsuleID, at Revision) (woken bool) {
	if id == "" || len(q.parked.ties) == 0 {
		return false
	}
	woken = q.untie(tie{parent: id})
	c := q.state.Capsule(id)
	if c == nil || c.Submitted >= uint64(submission(0).next(at+1)) {
		// That record is gone, and the id may have been given to another capsule. The former one may have been in any
		// group.
		return q.untie(tie{}) || woken
	}
	woken = q.untieCompany(c.Spec) || woken
	if was := q.before(id); was != nil && was != c.Spec { // it has left with the spec that it had then
		woken = q.untieCompany(was) || woken
	}
	return woken
}

// untieCompany unparks the classes that depend on where a capsule of the spec is. It reports whether there were any.
func (q *queue) untieCompany(spec *Spec) (woken bool) {
	for group := range spec.MemberOf {
		woken = q.untie(tie{group: group}) || woken
	}
	for _, a := range spec.Apart { // the capsule may have kept members of the group away
		woken = q.untie(tie{group: a.Group}) || woken
	}
	return woken
}

// unparkRegrouped unparks the classes that depend on the groups and rules that a placed capsule has got or lost with
// another spec: also those for which a budget has refused an eviction, because it may cover the capsule no more. It
// reports whether there were any.
func (q *queue) unparkRegrouped(id CapsuleID) (woken bool) {
	was, c := q.before(id), q.state.Capsule(id)
	if was == nil || c == nil || was == c.Spec || was.groupsAs(c.Spec) && was.sameRules(c.Spec) && was.Module == c.Spec.Module {
		return false
	}
	woken = q.untieCompany(c.Spec)
	woken = q.untieCompany(was) || woken
	for s := range q.parked.kept {
		q.unpark(s)
		woken = true
	}
	return woken
}

// before returns the spec that a capsule had before the changes that the view is reading; nil: none, or it reads none.
func (q *queue) before(id CapsuleID) *Spec {
	if q.former == nil {
		return nil
	}
	return q.former.Capsule(id).alive()
}

// untie unparks the classes with a tie. It reports whether there were any.
func (q *queue) untie(t tie) (woken bool) {
	for s := range q.parked.ties[t] {
		q.unpark(s)
		woken = true
	}
	return woken
}

// ties returns what a class depends on besides the free capacity of nodes. A tie may be listed twice.
func (s *parkedClass) ties() (ties []tie) {
	spec := s.class.spec
	if s.tree != "" {
		ties = append(ties, tie{tree: s.tree})
	}
	if spec.Near.Group != "" {
		ties = append(ties, tie{}, tie{group: spec.Near.Group})
	}
	for _, near := range spec.Nears {
		ties = append(ties, tie{}, tie{group: near.Group})
	}
	if spec.Start.Parent != "" {
		ties = append(ties, tie{parent: spec.Start.Parent})
	}
	if !s.ruled {
		return ties
	}
	ties = append(ties, tie{}, tie{nodes: true})
	for group := range spec.MemberOf {
		ties = append(ties, tie{group: group})
	}
	for _, a := range spec.Apart {
		ties = append(ties, tie{group: a.Group})
	}
	for i := range spec.Even {
		ties = append(ties, tie{group: spec.Even[i].Group})
	}
	return ties
}

// due returns when the next class has been parked long enough; ok is false if no class is parked.
func (p *parking) due() (at time.Time, ok bool) {
	for len(p.ends) > 0 && p.ends[0].spot.class.spot != p.ends[0].spot {
		p.ends.Pop()
	}
	if len(p.ends) == 0 {
		return at, false
	}
	return p.ends[0].at, true
}

// From here on the file has the shelves. They file parked classes by a property that a node must have if a class may
// fit there.

// shelved is the item of a class on one shelf.
type shelved struct {
	shelf shelf
	item  *least.Item[*parkedClass]
}

// shelf is a property that every node on which a class may fit has: a label, a label with its value, or a device model.
// The zero shelf stands for all nodes. Classes that may evict have shelves of their own.
type shelf struct {
	kind       shelfKind
	key, value string
	evicting   bool
}

type shelfKind uint8

const (
	anyNode shelfKind = iota
	withLabelValue
	withLabel
	withModel
)

// maxShelves is the maximum number of shelves on which a class lies.
const maxShelves = 8

// wantVector returns the least free amounts that a node must have for a spec.
func wantVector(spec *Spec) (v least.Vector) {
	copy(v[:], spec.Envelope.Reservation[:])
	if r := &spec.Devices; r.Count > 0 {
		v[Dimensions], v[Dimensions+1] = int64(r.Count), int64(r.Milli)
	}
	return v
}

// offerVector returns the most that a node may have free for any spec: borrowed room counts as free, because a nominee
// may take it back. A dimension that is overdrawn counts as 0, so a spec that asks for nothing of it may still fit.
func offerVector(n *NodeState) (v least.Vector) {
	n = n.without(func(*loan) bool { return true })
	for d, capacity := range n.Node.Capacity {
		v[d] = max(0, capacity-n.used[d])
	}
	for i := range n.Node.Devices.Count {
		if free := n.DeviceFree(i); free > 0 {
			v[Dimensions]++
			v[Dimensions+1] = max(v[Dimensions+1], int64(free))
		}
	}
	return v
}

// shelvesOf returns the shelves on which a class lies, at most maxShelves, such that each node that may help the class
// is searched for on at least one of them. It returns none if no node may help. A label with a value, from a
// requirement or from near, is preferred to a label alone, because fewer nodes have it.
func shelvesOf(spec *Spec, near *nearby) (out []shelf) {
	if near != nil && len(near.domains) <= maxShelves {
		for domain := range near.domains {
			out = append(out, shelf{kind: withLabelValue, key: near.near.Level, value: domain})
		}
		return out
	}
	best := maxShelves + 1
	for i := range spec.Require {
		p := &spec.Require[i]
		switch {
		case p.Op == "In" && len(p.Values) < best:
			best, out = len(p.Values), out[:0]
			for _, value := range p.Values {
				out = append(out, shelf{kind: withLabelValue, key: p.Key, value: value})
			}
		case len(out) == 0 && p.Key != NodeKey && (p.Op == "Exists" || p.Op == "Gt" || p.Op == "Lt"):
			out = append(out, shelf{kind: withLabel, key: p.Key})
		}
	}
	if models := spec.Devices.Models; best > maxShelves && spec.Devices.Count > 0 && len(models) > 0 && len(models) <= maxShelves {
		out = out[:0]
		for _, model := range models {
			out = append(out, shelf{kind: withModel, key: model})
		}
	}
	if len(out) == 0 {
		out = append(out, shelf{})
	}
	return out
}
