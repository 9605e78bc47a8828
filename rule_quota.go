package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/orbitsched/orbit/internal/wide"
)

// Queues bound what the capsules that name them may use, and say which of them may be evicted for one another ([Queue]).

// check implements [Commitment].
func (c PutQueue) check(v *validator) Commitment {
	v.id("queue id", string(c.Queue.ID))
	v.text("queue id of the parent", string(c.Queue.Parent), v.limits.IDBytes)
	for _, list := range c.Queue.lists {
		for name := range list {
			v.text("name of a resource", name, v.limits.SpecBytes)
		}
	}
	v.failAll(c.Queue.faults())
	return nil
}

// execute implements [Commitment].
func (c PutQueue) execute(t *tx) (NodeID, error) {
	return "", t.putQueue(&c.Queue)
}

func (PutQueue) subject() CapsuleID { return "" }

func (PutQueue) effect() effect { return effect{quotas: true} }

// own implements [cloner.own].
func (c PutQueue) own(*cloner) Commitment {
	q := &c.Queue
	q.Nominal, q.Borrow, q.Lend = maps.Clone(q.Nominal), maps.Clone(q.Borrow), maps.Clone(q.Lend)
	return c
}

// check implements [Commitment].
func (c RemoveQueue) check(v *validator) Commitment {
	v.ref("queue id", string(c.Queue))
	return nil
}

// execute implements [Commitment].
func (c RemoveQueue) execute(t *tx) (NodeID, error) {
	return "", t.removeQueue(c.Queue)
}

func (RemoveQueue) subject() CapsuleID { return "" }

func (RemoveQueue) effect() effect { return effect{quotas: true} }

// txQueue is the entry of one queue in the write-set.
type txQueue struct {
	// The record before the proposal; nil: there is none.
	was *queueRecord
	now queueRecord
	// The proposal puts or removes the queue.
	put bool
}

// queueEntry returns the entry of a queue, with an empty record if there is none. The pointer holds until the next entry is added.
func (t *tx) queueEntry(id QueueID) *txQueue {
	if e := t.queues.find(id); e != nil {
		return e
	}
	e := t.queues.add(id)
	if e.was = t.s.queueNamed(id); e.was != nil {
		e.now = *e.was
	}
	e.now.id = id
	return e
}

// queue implements [queueSource]: it returns the record of a queue as the proposal leaves it.
func (t *tx) queue(id QueueID) *queueRecord {
	if e := t.queues.find(id); e != nil {
		if e.now.quota == nil {
			return nil
		}
		return &e.now
	}
	return t.s.queue(id)
}

// putQueue makes or replaces a queue. What it lends and what of its use counts above is taken from its former parent and given
// to the new one.
func (t *tx) putQueue(c *Queue) error {
	if err := t.mayPutQueue(c); err != nil {
		return err
	}
	next := &quota{Queue: *c, changed: t.rev}
	t.alterQueue(c.ID, func(q *queueRecord) {
		if was := q.quota; was != nil {
			next.children = was.children
			next.subtree, next.naming = was.subtree, was.naming
			next.addNominal(&was.Queue, -1)
		}
		next.addNominal(c, 1)
		q.quota = nil
	})
	t.alterQueue(c.ID, func(q *queueRecord) { q.quota = next })
	t.queueEntry(c.ID).put = true
	for q := t.queue(c.ID); q != nil; q = q.parent(t) {
		for r := range q.quota.subtree.each {
			if q.quota.subtree.of(r).Exceeds(wide.Int{}.Plus(math.MaxInt64)) {
				return t.invalid(Rejection{Queue: q.id}, "queue %q: %v adds up to more than 64 bits can hold", q.id, r)
			}
		}
	}
	return nil
}

// mayPutQueue checks that the queue has a parent if it names one, and that its tree has no cycle and not too many levels.
func (t *tx) mayPutQueue(c *Queue) error {
	if c.Parent == "" {
		return nil
	}
	parent, levels := t.queue(c.Parent), 1
	if parent == nil {
		return t.refuse(Rejection{Queue: c.Parent, advice: "put the parent first"}, t.s.left.Queues, "queue %q: there is no queue %q to be its parent", c.ID, c.Parent)
	}
	for q := parent; q != nil; q = q.parent(t) {
		if levels++; q.id == c.ID {
			return t.invalid(Rejection{Queue: c.ID}, "queue %q: its parent %q is below it", c.ID, c.Parent)
		}
	}
	if q := t.queue(c.ID); q != nil && q.quota.children > 0 {
		levels += t.levelsBelow(c.ID)
	}
	if levels > maxQueueLevels {
		return t.invalid(Rejection{Queue: c.ID}, "queue %q: its tree would have %d levels; it can have %d", c.ID, levels, maxQueueLevels)
	}
	return nil
}

// levelsBelow returns how many levels there are below a queue. It visits all queues.
func (t *tx) levelsBelow(id QueueID) (most int) {
	depth := func(q *queueRecord) {
		for below := 0; q != nil; q, below = q.parent(t), below+1 {
			if q.id == id {
				most = max(most, below)
			}
		}
	}
	t.s.queues.Ascend(func(q queueAt) bool {
		depth(t.queue(q.id))
		return true
	})
	for i := range t.queues.entries {
		depth(t.queue(t.queues.keys[i]))
	}
	return most
}

// removeQueue ends a queue. judgeQueues refuses it if a capsule names the queue.
func (t *tx) removeQueue(id QueueID) error {
	q := t.queue(id)
	if q == nil {
		return t.refuse(Rejection{Queue: id}, t.s.left.Queues, "there is no queue %q", id)
	}
	if t.breaks(q.quota.children > 0) {
		return t.refuse(Rejection{Queue: id, advice: "remove them, or give them another parent, first"}, t.newestQuota(q), "queue %q is the parent of %d others", id, q.quota.children)
	}
	t.alterQueue(id, func(q *queueRecord) { q.quota = nil })
	t.queueEntry(id).put = true
	return nil
}

// alterQueue changes the quota of a queue, and the records above it by what that means for them.
func (t *tx) alterQueue(id QueueID, change func(*queueRecord)) {
	e := t.queueEntry(id)
	before, parent := e.now.gives(), e.now.above()
	change(&e.now)
	after := e.now.gives()
	parent = cmp.Or(parent, e.now.above())
	if parent == "" {
		return
	}
	t.alterQueue(parent, func(q *queueRecord) {
		next := *q.quota
		next.children += after.children - before.children
		next.subtree.addCharge(&after.subtree, 1)
		next.subtree.addCharge(&before.subtree, -1)
		next.naming.addCharge(&after.naming, 1)
		next.naming.addCharge(&before.naming, -1)
		q.quota = &next
		for _, sum := range []*charge{&q.used, &q.below} {
			sum.addCharge(&after.used, 1)
			sum.addCharge(&before.used, -1)
		}
	})
}

// charged is what a capsule counts for in its queue; zero if it names none, or has been released for good.
type charged struct {
	queue QueueID
	spec  *Spec
	// The model of its devices; empty if it has none.
	model           string
	placed, waiting bool
}

// stepCharge is what a step of a plan changes in the queues: what a capsule counts for before and after it.
type stepCharge struct{ before, after charged }

// chargedAs returns what a record counts for if it is on the node. Alive is false if it ends by the proposal.
func chargedAs(c *Capsule, n *Node, alive bool) charged {
	if c == nil || c.Spec.Queue == "" || c.released || !alive {
		return charged{}
	}
	out := charged{queue: c.Spec.Queue, spec: c.Spec, placed: c.Placed(), waiting: c.Pending()}
	if out.placed && c.Spec.Devices.Count > 0 {
		out.model = n.Devices.Model
	}
	return out
}

// amount returns how much of a resource a capsule takes.
func (c *charged) amount(of resource) int64 {
	if c.placed {
		for r, x := range c.spec.charges(c.model) {
			if r == of {
				return x
			}
		}
	}
	return 0
}

// asks yields the resources of which a capsule takes more of its queue after the proposal than before, and how much it takes then.
func (c *charged) asks(before *charged) func(func(resource, int64) bool) {
	return func(yield func(resource, int64) bool) {
		if !c.placed {
			return
		}
		for r, x := range c.spec.charges(c.model) {
			if c.exceeds(before, r, x) && !yield(r, x) {
				return
			}
		}
	}
}

// exceeds reports whether a capsule takes more of its queue if it takes so much of a resource after the proposal.
func (c *charged) exceeds(before *charged, r resource, x int64) bool {
	return c.queue != before.queue || x > before.amount(r)
}

// chargedBy returns what a capsule of the write-set counts for before the proposal and after it.
func (t *tx) chargedBy(e *txCapsule) (before, after charged) {
	if (e.was == nil || e.was.Spec.Queue == "") && e.now.Spec.Queue == "" {
		return before, after
	}
	var from, to *Node
	if e.was != nil && e.was.Placed() {
		from = t.s.Node(e.was.Node).Node
	}
	if e.now.Placed() {
		to = t.describes(e.now.Node)
	}
	return chargedAs(e.was, from, true), chargedAs(&e.now, to, !e.ends)
}

// chargeQueues brings the queues up to date for all that the proposal does with capsules, once.
func (t *tx) chargeQueues() {
	if t.charged {
		return
	}
	t.charged = true
	for i := range t.capsules.entries {
		if before, after := t.chargedBy(&t.capsules.entries[i]); before != after {
			t.charge(&before, -1)
			t.charge(&after, 1)
		}
	}
	t.chargeModels()
	for i := range t.queues.entries {
		e := &t.queues.entries[i]
		if e.was == nil || e.was.quota != e.now.quota || e.now.used.rises(&e.was.used) {
			e.now.tight = t.rev
		}
		if e.was != nil && e.was.used.rises(&e.now.used) {
			e.now.eased = t.rev
		}
	}
}

// chargeModels counts the capsules on nodes that get devices of another model, except those of the write-set.
func (t *tx) chargeModels() {
	if t.s.queues.Len() == 0 {
		return
	}
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.was == nil || n.gone || n.was.Node.Devices.Model == n.now.Node.Devices.Model {
			continue
		}
		for c := range t.s.On(n.now.Node.ID) {
			if t.capsules.find(c.ID) == nil {
				before, after := chargedAs(c, n.was.Node, true), chargedAs(c, n.now.Node, true)
				t.charge(&before, -1)
				t.charge(&after, 1)
			}
		}
	}
}

// charge adds what a capsule counts for to its queue and to those above; with the sign -1 it subtracts it.
func (t *tx) charge(c *charged, sign int) {
	if c.queue == "" {
		return
	}
	e := t.queueEntry(c.queue)
	e.now.living, e.now.waiting = e.now.living+sign, e.now.waiting+sign*btoi(c.waiting)
	if !c.placed {
		return
	}
	for r, x := range c.spec.charges(c.model) {
		for id, more := c.queue, (wide.Int{}.Plus(int64(sign) * x)); id != "" && more != (wide.Int{}); {
			id, more = t.queueEntry(id).now.use(r, more, id != c.queue)
		}
	}
}

// hedgeQuota lets what a proposal frees of quota beyond what it takes be taken still, by a capsule that there is not.
func (p *planSum) hedgeQuota() {
	if len(p.charges) == 0 {
		return
	}
	type key struct {
		queue QueueID
		model string
	}
	freed := map[key]*charge{}
	add := func(c *charged, sign int64) {
		if c.placed {
			k := key{c.queue, c.model}
			if freed[k] == nil {
				freed[k] = &charge{}
			}
			freed[k].addSpec(c.spec, c.model, sign)
		}
	}
	for _, c := range p.charges {
		add(&c.before, 1)
		add(&c.after, -1)
	}
	for k, sum := range freed {
		spec := &Spec{Queue: k.queue}
		for r := range sum.each {
			x := sum.of(r).Int64()
			switch {
			case x <= 0:
			case r.name == "":
				spec.Envelope.Reservation[r.d] = x
			case strings.HasPrefix(r.name, devicePrefix):
				spec.Devices = DeviceRequest{Count: 1, Milli: int(x)}
			default:
				spec.Extras = append(spec.Extras, Extra{strings.TrimPrefix(r.name, extraPrefix), x})
			}
		}
		p.charges = append(p.charges, &stepCharge{after: charged{queue: k.queue, spec: spec, model: k.model, placed: true}})
	}
}

// judgeQueues judges that each queue that a capsule newly names exists, that no queue ends that one names, that arrivals
// and growth are within the quotas, and that evictions between queues take back what is borrowed.
func (t *tx) judgeQueues() error {
	if len(t.queues.keys) == 0 {
		return nil
	}
	t.at = -1
	for i := range t.queues.entries {
		if e := &t.queues.entries[i]; e.put && e.now.quota == nil && e.now.living > 0 {
			return t.refuse(Rejection{Queue: e.now.id, advice: "release them for good, or let them name another queue"}, t.s.rev, "queue %q is named by %d capsules that have not been released for good", e.now.id, e.now.living)
		}
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		before, after := t.chargedBy(e)
		if after.queue == "" || e.adopted {
			continue
		}
		switch q := t.queue(after.queue); {
		case q != nil:
			if err := t.judgeQuota(e, before, after, q); err != nil {
				return err
			}
		case e.was == nil || e.anew || e.was.Spec != e.now.Spec:
			return t.refuse(Rejection{Capsule: e.now.ID, Queue: after.queue, advice: "put the queue first"}, t.s.left.Queues, "capsule %q names queue %q, which does not exist", e.now.ID, after.queue)
		}
	}
	return t.judgeReclaims()
}

// judgeQuota judges that what a capsule asks for is available on the path from its queue to the root. What another party has let it
// grow by already is a fact, and so is the queue that another party has moved it to, and that its node has devices of another model.
//
// This runs for each placement in a queue, so it allocates nothing.
func (t *tx) judgeQuota(e *txCapsule, before, after charged, q *queueRecord) error {
	if !after.placed || !e.arrives && (e.was == nil || e.was.Spec == e.now.Spec || t.applied(e.now.ID)) {
		return nil
	}
	var path [maxQueueLevels]*queueRecord
	n := 0
	for level := q; level != nil; level = level.parent(t) {
		path[n], n = level, n+1
	}
	for r, x := range after.spec.charges(after.model) {
		if !path[n-1].divides(r) || !after.exceeds(&before, r, x) {
			continue
		}
		var lowest *queueRecord
		left := wide.Int{}
		for i := n - 1; i >= 0; i-- {
			level := path[i]
			if i == n-1 {
				left = level.quota.subtree.of(r).Minus(level.used.of(r))
			} else {
				left = level.availableBelow(left, r)
			}
			if left.Negative() && level.used.of(r).Exceeds(t.usedBefore(level).of(r)) {
				lowest = level
			}
		}
		if lowest != nil {
			return t.refuseQuota(e, q, lowest, r, x)
		}
	}
	return nil
}

// usedBefore returns what a queue used before the proposal.
func (t *tx) usedBefore(q *queueRecord) *charge {
	switch e := t.queues.find(q.id); {
	case e == nil:
		return &q.used
	case e.was != nil:
		return &e.was.used
	}
	return &charge{}
}

// applied reports whether the proposal says that another spec of a capsule is applied already.
func (t *tx) applied(id CapsuleID) bool {
	return slices.ContainsFunc(t.p.Do, func(c Commitment) bool {
		r, ok := c.(Respec)
		return ok && r.Capsule == id && r.Applied
	})
}

// refuseQuota refuses a proposal by which a queue on the path from a capsule's queue has too little of a resource. The capsule asks for
// so much of it.
func (t *tx) refuseQuota(e *txCapsule, q, level *queueRecord, r resource, want int64) error {
	l := t.lackOf(q, level, r)
	at := Rejection{Capsule: e.now.ID, Node: e.now.Node, Want: want, Free: level.available(t, r).Plus(want).Int64()}
	l.fill(&at, &t.s.names)
	return t.refuse(at, max(t.newestQuota(q), e.newestSpec()), "%s", l.text(&t.s.names))
}

// lackOf returns what a queue lacks of a resource because a queue on its path to the root has too little.
func (t *tx) lackOf(q, level *queueRecord, r resource) *lack {
	missing := wide.Int{}.Minus(level.available(t, r)).Int64()
	return &lack{queue: q.id, level: level.limitedBy(t, r).id, of: r, missing: missing, borrowers: q.borrowers(t, t.allQueues, r)}
}

// allQueues yields the queues as the proposal leaves them.
func (t *tx) allQueues(yield func(*queueRecord) bool) {
	going := true
	t.s.queues.Ascend(func(q queueAt) bool {
		if q := t.queue(q.id); q != nil {
			going = yield(q)
		}
		return going
	})
	for i := 0; going && i < len(t.queues.entries); i++ {
		if e := &t.queues.entries[i]; e.was == nil && e.now.quota != nil {
			going = yield(&e.now)
		}
	}
}

// newestQuota returns the last revision before the proposal at which something became harder to place in a queue.
func (t *tx) newestQuota(q *queueRecord) (newest Revision) {
	for ; q != nil; q = q.parent(t) {
		if was := t.s.queueNamed(q.id); was != nil {
			newest = max(newest, was.tight)
		}
	}
	return newest
}

// newestShare returns the last revision before the proposal at which the share of a queue, or of one above it, may have changed.
func (t *tx) newestShare(q *queueRecord) (newest Revision) {
	for ; q != nil; q = q.parent(t) {
		if was := t.s.queueNamed(q.id); was != nil {
			newest = max(newest, was.tight, was.eased)
		}
	}
	return newest
}

// judgeReclaims judges the evictions between queues.
func (t *tx) judgeReclaims() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.evicted || e.was.Spec.Queue == "" {
			continue
		}
		c, _ := t.p.Do[e.evictedBy].(Evict)
		if c.recalls(e.was) { // it has consented when it borrowed
			continue
		}
		for cause := range t.newcomersFor(&c) {
			if !t.reclaims(cause, e) {
				continue
			}
			if err := t.judgeReclaim(cause, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// newcomersFor yields the capsules that the proposal places or lets grow and for which an eviction makes way.
func (t *tx) newcomersFor(c *Evict) func(func(*txCapsule) bool) {
	return func(yield func(*txCapsule) bool) {
		for i := range t.capsules.entries {
			e := &t.capsules.entries[i]
			if e.now.ID != c.For && (c.ForGang == "" || e.now.Gang() != c.ForGang || e.grows != nil) || !e.now.Placed() || !e.arrives && e.grows == nil || e.adopted {
				continue
			}
			if !yield(e) {
				return
			}
		}
	}
}

// reclaims reports whether an eviction of the victim for the newcomer is judged by their queues, which differ, and not by
// their priorities.
func (t *tx) reclaims(newcomer, victim *txCapsule) bool {
	a, b := newcomer.now.Spec.Queue, victim.was.Spec.Queue
	return a != b && t.queue(a) != nil && t.queue(b) != nil
}

// contender is a queue just below a common ancestor; or the capsules that name the ancestor itself, which count as such a queue.
type contender struct {
	ancestor *queueRecord
	// Nil: the capsules of the ancestor.
	queue *queueRecord
}

// contenders returns the two queues just below the lowest common ancestor of two queues, and whether there is one.
func contenders(in queueSource, a, b *queueRecord) (x, y contender, ok bool) {
	for up := a; up != nil; up = up.parent(in) {
		y.queue = nil
		for other := b; other != nil; other = other.parent(in) {
			if other.id == up.id {
				x.ancestor, y.ancestor = up, up
				return x, y, true
			}
			y.queue = other
		}
		x.queue = up
	}
	return x, y, false
}

// used returns what the contender uses.
func (c contender) used() *charge {
	if c.queue != nil {
		return &c.queue.used
	}
	own := c.ancestor.used
	own.addCharge(&c.ancestor.below, -1)
	return &own
}

// share returns the share of the contender.
func (c contender) share(in queueSource) Share {
	if c.queue != nil {
		return c.queue.share(in)
	}
	nominal := c.nominal()
	return shareIn(in, c.ancestor, c.used(), &nominal, 1)
}

// nominal returns what the contender may use without borrowing.
func (c contender) nominal() charge {
	if c.queue != nil {
		return c.queue.quota.subtree
	}
	var q quota
	q.addNominal(&c.ancestor.quota.Queue, 1)
	return q.subtree
}

// before returns the contender as it was before the proposal; ok is false if it did not exist.
func (t *tx) before(c contender) (was contender, ok bool) {
	if was.ancestor = t.s.queue(c.ancestor.id); c.queue != nil {
		was.queue = t.s.queue(c.queue.id)
	}
	return was, was.ancestor != nil && (c.queue == nil) == (was.queue == nil)
}

// judgeReclaim judges an eviction between two queues.
func (t *tx) judgeReclaim(newcomer, victim *txCapsule) error {
	a, b := t.queue(newcomer.now.Spec.Queue), t.queue(victim.was.Spec.Queue)
	of := reclaim{a: a.id, b: b.id, victims: t.leavesWith(victim)}
	of.before, of.after = t.chargedBy(newcomer)
	why := t.reclaimFault(&of)
	a, b = t.queue(of.a), t.queue(of.b)
	if why == "" {
		return nil
	}
	t.at = victim.evictedBy
	at := Rejection{Capsule: victim.now.ID, Node: victim.was.Node, Queue: b.id, advice: "reclaim only what other queues borrow, from those with the higher share"}
	return t.refuse(at, max(t.newestShare(a), t.newestShare(b), victim.newest()), "%s", reclaimText(victim.now.ID, b.id, newcomer.now.ID, a.id, why))
}

// reclaimText says why a capsule of queue b does not make way for one of queue a.
func reclaimText(victim CapsuleID, b QueueID, newcomer CapsuleID, a QueueID, why string) string {
	return fmt.Sprintf("capsule %q of queue %q does not make way for capsule %q of queue %q: %s", victim, b, newcomer, a, why)
}

// leavesWith returns what is taken off its node with a victim: the victim, or all of its gang if that goes whole.
func (t *tx) leavesWith(victim *txCapsule) (out []charged) {
	g, arrived := t.gangs.find(victim.was.Gang()), 0
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; g != nil && e.arrives && e.now.Placed() && e.now.Gang() == victim.was.Gang() {
			arrived++
		}
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e == victim || e.evicted && g != nil && e.was.Gang() == victim.was.Gang() && g.now.Total() <= arrived {
			before, _ := t.chargedBy(e)
			out = append(out, before)
		}
	}
	return out
}

// reclaim is an eviction of a capsule of queue b, or of a whole gang, for a newcomer of queue a.
type reclaim struct {
	a, b QueueID
	// What the newcomer counts for before and after the proposal, and what the victims counted for.
	before, after charged
	victims       []charged
}

// reclaimFault returns why no capsule of queue b makes way for a capsule of queue a; empty: it may. It may move the records of queues.
func (t *tx) reclaimFault(of *reclaim) string {
	x, y, ok := contenders(t, t.queue(of.a), t.queue(of.b))
	if !ok {
		return "they are in different trees"
	}
	was, ok := t.before(y)
	if !ok || !was.borrows(t.s, of) {
		return fmt.Sprintf("%s borrowed nothing that it asks for", y)
	}
	if mine, theirs, former := x.share(t), y.share(t), was.share(t.s); mine.Compare(theirs) > 0 || mine == theirs && theirs.Compare(former) >= 0 {
		return fmt.Sprintf("the share of %s would be %v, that of %s %v after %v", x, mine, y, theirs, former)
	}
	if id := t.keepsOwn(of); id != "" {
		return fmt.Sprintf("queue %q would borrow nothing that it asks for if it stayed", id)
	}
	return ""
}

// keepsOwn returns a queue, from that of the victims up to the one that contends, that would borrow nothing that the newcomer
// asks for if the victims had stayed; empty: there is none.
func (t *tx) keepsOwn(of *reclaim) QueueID {
	for i := range of.victims {
		t.charge(&of.victims[i], 1)
		defer t.charge(&of.victims[i], -1)
	}
	_, y, _ := contenders(t, t.queue(of.a), t.queue(of.b))
	if y.queue == nil && !y.borrows(t, of) {
		return y.ancestor.id
	}
	for q := t.queue(of.b); q.id != y.ancestor.id; q = q.parent(t) {
		if !(contender{y.ancestor, q}).borrows(t, of) {
			return q.id
		}
	}
	return ""
}

// String names the contender.
func (c contender) String() string {
	if c.queue != nil {
		return fmt.Sprintf("queue %q", c.queue.id)
	}
	return fmt.Sprintf("the own work of queue %q", c.ancestor.id)
}

// borrows reports whether the contender borrows something that the newcomer asks for.
func (c contender) borrows(in queueSource, of *reclaim) bool {
	used, nominal, root := c.used(), c.nominal(), c.ancestor.root(in)
	for r := range of.after.asks(&of.before) {
		if root.divides(r) && used.of(r).Exceeds(nominal.of(r)) {
			return true
		}
	}
	return false
}

// publishQueues writes the queues that the proposal changes.
func (s *State) publishQueues(t *tx) {
	t.chargeQueues()
	for i := range t.queues.entries {
		e := &t.queues.entries[i]
		if e.put && e.now.quota == nil && e.was != nil && e.was.quota != nil {
			s.left.Queues = s.rev
		}
		switch {
		case e.now.quota == nil && e.now.living == 0:
			s.queues.Delete(queueAt{id: e.now.id})
		case e.was != nil && e.was.owner == s.owner: // no snapshot has the record
			*e.was = e.now
		default:
			now := e.now
			now.owner = s.owner
			s.queues.ReplaceOrInsert(queueAt{now.id, &now})
		}
	}
}

// queues recounts what the queues use.
func (v *verifier) queues() {
	again := newState(v.s.limits, v.s.names)
	t := tx{s: again, rev: v.s.rev}
	for q := range v.s.queuesByLevel {
		if err := t.putQueue(&q.quota.Queue); err != nil {
			v.fail("queue %q: %v", q.id, err)
		}
	}
	for c := range v.s.Capsules() {
		var at *Node
		if n := v.s.Node(c.Node); n != nil {
			at = n.Node
		}
		if c.Placed() && at == nil {
			continue // another fault
		}
		of := chargedAs(c, at, true)
		t.charge(&of, 1)
	}
	found := 0
	for i := range t.queues.entries {
		e := &t.queues.entries[i]
		if e.now.quota == nil && e.now.living == 0 {
			continue
		}
		found++
		q := v.s.queueNamed(e.now.id)
		if q == nil || !q.equals(&e.now) {
			v.fail("queue %q counts %s; there are %s", e.now.id, q.counts(), e.now.counts())
		}
	}
	if found != v.s.queues.Len() {
		v.fail("%d records of queues; there are %d", v.s.queues.Len(), found)
	}
	v.s.queues.Ascend(func(q queueAt) bool {
		if q.eased > 0 {
			v.date(q.eased, "queue", string(q.id))
		}
		if v.date(q.tight, "queue", string(q.id)); q.quota != nil {
			v.date(q.quota.changed, "queue", string(q.id))
		}
		return true
	})
}

// overQuota returns the newcomers that outrank a victim's unit and for which too little quota is left if the victim stays beside them
// and the victims that stay already.
func (s *sparing) overQuota(e *txCapsule, unit *victims) (out []*txCapsule) {
	if s.t.queue(e.was.Spec.Queue) == nil {
		return nil
	}
	if s.quotas == nil {
		s.quotas = s.t.quotasAfter()
	}
	var outrank []*txCapsule
	for _, n := range s.nodes {
		for i := range n.newcomers {
			if c := n.newcomers[i].of; s.outranks(&n.newcomers[i], unit) {
				outrank = append(outrank, c)
			} else if before, after := s.t.chargedBy(c); before != after {
				s.quotas.charge(&after, -1)
				defer s.quotas.charge(&after, 1)
				if c.grows != nil { // it keeps what it has
					s.quotas.charge(&before, 1)
					defer s.quotas.charge(&before, -1)
				}
			}
		}
	}
	for _, c := range outrank {
		if s.crowds(e, c) {
			out = append(out, c)
		}
	}
	return out
}

// quotasAfter returns a write-set of the queues alone, as the proposal leaves them.
func (t *tx) quotasAfter() *tx {
	books := &tx{s: t.s, rev: t.rev}
	for i := range t.queues.entries { // what PutQueue has changed
		books.queueEntry(t.queues.keys[i]).now = t.queues.entries[i].now
	}
	for i := range t.capsules.entries {
		if before, after := t.chargedBy(&t.capsules.entries[i]); before != after {
			books.charge(&before, -1)
			books.charge(&after, 1)
		}
	}
	return books
}

// keep counts a victim that stays; with the sign -1 it leaves after all.
func (s *sparing) keep(e *txCapsule, sign int) {
	if s.quotas != nil {
		before, _ := s.t.chargedBy(e)
		s.quotas.charge(&before, sign)
	}
}

// crowds reports whether a queue on the path of a newcomer has too little of something that the newcomer asks for if a victim stays, and
// more of it if the victim leaves.
func (s *sparing) crowds(victim, newcomer *txCapsule) bool {
	q := s.quotas.queue(newcomer.now.Spec.Queue)
	before, after := s.t.chargedBy(newcomer)
	for r := range after.asks(&before) {
		if q == nil || !q.root(s.quotas).divides(r) {
			continue
		}
		for level := q; level != nil; level = level.parent(s.quotas) {
			without := s.quotas.queue(level.id).available(s.quotas, r)
			s.keep(victim, 1)
			with := s.quotas.queue(level.id).available(s.quotas, r)
			s.keep(victim, -1)
			if with.Negative() && without.Exceeds(with) {
				return true
			}
		}
	}
	return false
}
