package nav

import (
	"cmp"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// fairTree is a tree of queues with waiting work.
type fairTree struct {
	*fairPass
	root *fairQueue
	// The positions of its work among the pending capsules, in order.
	slots []int
	// The quotas no longer decide: what they do not admit is put into order.
	late bool
}

// fairQueue is a queue, with the waiting work that names it.
type fairQueue struct {
	id    orbit.QueueID
	tree  *fairTree
	above *fairQueue
	below []*fairQueue
	// The work that names the queue itself and is not yet in the order, first come first; and what the quotas do not
	// admit.
	own, later []*fairWork
	// Specs of which the quotas admit no capsule more.
	full map[*orbit.Spec]bool
	// The work that goes first of all that waits here and below; nil: nothing waits. And how it compares with that of the
	// queue's neighbours.
	first *fairWork
	turn  fairTurn
}

// fairWork is a capsule, or a gang that is placed as a whole.
type fairWork struct {
	queue *fairQueue
	// The pending capsules of it.
	capsules []*orbit.Capsule
	whole    bool
	// What it takes; and of a gang, what it takes at least.
	asks, least []fairAsk
	// The position of its first capsule in the engine's order, and the priority of that.
	at       int
	priority int32
}

// fairAsk is a number of capsules of one spec, with the model of their devices.
type fairAsk struct {
	spec  *orbit.Spec
	model string
	n     int
}

// work returns a capsule, or its gang if that starts whole, as one piece of work.
func (r *fairPass) work(c *orbit.Capsule, q *fairQueue, at int) *fairWork {
	w := &fairWork{queue: q, capsules: []*orbit.Capsule{c}, at: at, priority: r.view.Aged(c)}
	if waiterOf(r.state, c).gang == "" {
		w.asks = []fairAsk{askOf(c.Spec)}
		return w
	}
	w.whole = true
	m := loadGang(r.state, c.Gang())
	for _, waiting := range m.waiting {
		for _, member := range waiting {
			w.asks = addAsk(w.asks, member.Spec)
		}
	}
	needs := seats.NeedsOf(m.state, m.waiting)
	for _, member := range needs.Members() {
		w.least = addAsk(w.least, member.Spec)
	}
	return w
}

// addAsk adds one more capsule of a spec.
func addAsk(asks []fairAsk, spec *orbit.Spec) []fairAsk {
	for i := range asks {
		if asks[i].spec == spec {
			asks[i].n++
			return asks
		}
	}
	return append(asks, askOf(spec))
}

// askOf returns a capsule of a spec. If the spec takes several models, the devices are not counted: it is not known yet
// which it gets.
func askOf(spec *orbit.Spec) fairAsk {
	return fairAsk{spec: spec, model: spec.Devices.Model(), n: 1}
}

// run returns the capsules of the tree in order: all that the quotas admit, then the others.
func (t *fairTree) run() (out []*orbit.Capsule) {
	t.seedAll(t.root)
	for w := t.next(); w != nil; w = t.next() {
		out = append(out, w.capsules...)
	}
	t.late, t.over = true, t.over+len(t.slots)-len(out)
	if len(out) < len(t.slots) {
		t.seedAll(t.root)
		for w := t.next(); w != nil; w = t.next() {
			out = append(out, w.capsules...)
		}
	}
	return out
}

// seedAll begins the tournament in a queue and all below it.
func (t *fairTree) seedAll(q *fairQueue) {
	if t.late {
		q.own, q.later = together(q.later), nil
	}
	for _, b := range q.below {
		t.seedAll(b)
	}
	t.seed(q)
}

// together puts capsules of one spec that follow each other together: what the quotas do not admit is ordered by the first of them.
func together(later []*fairWork) (out []*fairWork) {
	for _, w := range later {
		last := len(out) - 1
		if last >= 0 && !w.whole && !out[last].whole && out[last].asks[0].spec == w.asks[0].spec {
			out[last].capsules = append(out[last].capsules, w.capsules...)
		} else {
			out = append(out, w)
		}
	}
	return out
}

// seed finds what goes first in a queue, among its own work and the first of the queues below.
func (t *fairTree) seed(q *fairQueue) {
	var best fairTurn
	q.first = nil
	for !t.late && len(q.own) > 0 && !q.own[0].whole && q.full[q.own[0].asks[0].spec] {
		q.later, q.own = append(q.later, q.own[0]), q.own[1:]
	}
	if len(q.own) > 0 {
		q.first, best = q.own[0], t.turnOf(q.own[0], q.id, q.id)
	}
	for _, b := range q.below {
		if b.first != nil && (q.first == nil || b.turn.before(&best)) {
			q.first, best = b.first, b.turn
		}
	}
	if q.first != nil && q.above != nil {
		q.turn = t.turnOf(q.first, q.above.id, q.id)
	}
}

// next removes the winner of the tree, counts it as placed, and returns it; nil: no more work is admitted.
func (t *fairTree) next() *fairWork {
	for t.root.first != nil {
		w := t.root.first
		q := w.queue
		q.own = q.own[1:]
		admitted := t.admit(w)
		if !admitted {
			if q.later = append(q.later, w); !w.whole {
				if q.full == nil {
					q.full = map[*orbit.Spec]bool{}
				}
				q.full[w.asks[0].spec] = true
			}
		}
		for up := q; up != nil; up = up.above {
			t.seed(up)
		}
		if admitted {
			return w
		}
	}
	return nil
}

// admit counts work as placed, unless the quotas do not admit it.
func (t *fairTree) admit(w *fairWork) bool {
	if t.late {
		t.charge(w, 1)
		return true
	}
	if t.takes(w.asks) {
		return true
	}
	if len(w.least) == 0 || !t.takes(w.least) {
		return false
	}
	w.asks = w.least
	return true
}

// takes counts all of some asks as placed if the quotas admit them, and reports whether they do.
func (t *fairTree) takes(asks []fairAsk) bool {
	for i, a := range asks {
		if !t.quotas.Takes(a.spec, a.model, a.n) {
			for _, a := range asks[:i] {
				t.quotas.Charge(a.spec, a.model, -a.n)
			}
			return false
		}
		t.quotas.Charge(a.spec, a.model, a.n)
	}
	return true
}

// charge counts work as placed; with the sign -1 it no longer does.
func (t *fairTree) charge(w *fairWork, sign int) {
	for _, a := range w.asks {
		t.quotas.Charge(a.spec, a.model, sign*a.n)
	}
}

// fairTurn is how work compares with other work in one queue of the path from its own queue to the root.
type fairTurn struct {
	borrows  bool
	share    orbit.Share
	past     fairFraction
	priority int32
	at       int
}

// turnOf returns the turn of work in a queue, which it reaches by the queue below: that is the queue itself if the work names it.
func (t *fairTree) turnOf(w *fairWork, in, below orbit.QueueID) fairTurn {
	turn := fairTurn{priority: w.priority, at: w.at}
	t.charge(w, 1)
	for _, a := range w.asks {
		share, borrows := t.quotas.Below(in, below, a.spec, a.model)
		turn.share, turn.borrows = share, turn.borrows || borrows
	}
	if t.HalfLife > 0 {
		turn.past, turn.share = t.past.share(&t.quotas, in, below), orbit.Share{}
	}
	t.charge(w, -1)
	return turn
}

// before reports whether the work of the turn goes first.
func (a *fairTurn) before(b *fairTurn) bool {
	return cmp.Or(btoi(a.borrows)-btoi(b.borrows), a.share.Compare(b.share), a.past.compare(&b.past),
		cmp.Compare(b.priority, a.priority), cmp.Compare(a.at, b.at)) < 0
}
