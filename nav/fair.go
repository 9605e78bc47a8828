package nav

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/orbitsched/orbit"
)

// Fair wraps a navigator and decides in which order it plans the work of queues ([orbit.Spec].Queue), so that queues that
// compete for what others lend get fair shares of it. It claims what the wrapped navigator claims: give the engine one of
// the two, not both.
//
//	engine.Navigator = &nav.Fair{Navigator: &nav.Preempting{Navigator: &nav.Batch{}}}
//
// Fair itself evicts nothing. So a queue gets what others have borrowed of it only when that ends; with a [Preempting] in the Fair it is taken back
// at once.
//
// [Fair.Plan] says how the order is found. A Fair belongs to one engine and is not safe for
// concurrent use.
type Fair struct {
	// Navigator is the wrapped navigator. Required.
	Navigator orbit.Navigator
	// HalfLife makes the past count: if it is not zero, what a queue has used on average decides in place of its share
	// at present (2.), with all queues that it competes with measured alike: what was used a HalfLife ago counts half as much as what is used
	// now. It is divided by what all of them may use and by the weight, as a share is, but what the queue has of its own counts, too. What the plan itself places counts in full and at
	// once. So of two queues, the one goes first that has used less lately. Fair sees the usage when it plans, and remembers nothing from
	// before its first plan. It may not be negative.
	HalfLife time.Duration

	quotas orbit.Quotas
	past   fairPast
}

// Fairly wraps a navigator with a [Fair]. It is for [Default].
func Fairly(n orbit.Navigator) orbit.Navigator { return &Fair{Navigator: n} }

// Claims returns the wrapped navigator's answer.
func (f *Fair) Claims(module string, class orbit.AppClass) bool {
	return f.Navigator == nil || f.Navigator.Claims(module, class) // without one, Plan says so
}

var (
	errNoFair   = errors.New("nav: Fair.Navigator is nil; set it to the navigator whose work is ordered, as in &nav.Batch{}")
	errHalfLife = errors.New("nav: Fair.HalfLife is negative; 0 lets only the present count")
)

// Plan puts the pending work into the order of the tournaments, and lets the wrapped navigator plan it. Its error is the
// wrapped navigator's.
//
// The order of the work of one tree of queues is found by a tournament. In each queue the work is compared that comes first
// there and in each queue below it. Going first, at each level of the tree, is:
//
//  1. work with which the queue just below does not borrow: afterwards, that uses no more than its subtree of all that the work asks for;
//  2. then work after which that queue has the lower share ([orbit.State.Share]);
//  3. then work of higher priority, with the engine's Aging;
//  4. then what comes first in the engine's order: nominees, and what was submitted first.
//
// Within one queue, the engine's order decides. Work that names a queue with others below it competes with them as a
// queue of its own, which has the Nominal of the queue and the weight 1. The winner is counted as placed, and the next
// tournament begins. Work that the quotas do not admit competes no more, and neither does other work of its spec. It comes
// after all work that the quotas admit, in the order of a tournament of its own, in which neighbours in a queue that have one
// spec count as one. A gang of which no member is placed counts with all members that wait, or with its minimums if the
// quotas admit no more.
//
// Different trees, and work without a queue, do not compete by shares. A tree keeps the turns that its work has in the
// engine's order, and its work takes these turns in the order of the tournament. So work without a queue is planned as if there were no Fair,
// and high priority makes the turn of its tree come early, but not that of its own queue.
//
// The wrapped navigator learns the order as the order of the pending capsules and as [orbit.View.Turn], and then
// chooses nodes as ever. Nothing is withheld from it. A pass sees at most [orbit.Engine] MaxPlan capsules. From each queue it sees
// some, but the more of the backlog it sees, the fairer the order: give MaxPlan the size of a sweep.
//
// The plan's notes begin with "queued" (how many of the pending capsules name a queue) and "overQuota" (how many of them
// the quotas do not admit beside those before them). The notes of the wrapped navigator follow.
func (f *Fair) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	switch {
	case f.Navigator == nil:
		return orbit.Plan{}, errNoFair
	case f.HalfLife < 0:
		return orbit.Plan{}, errHalfLife
	}
	r := &fairPass{Fair: f, view: view, state: view.State()}
	f.quotas.Begin(r.state)
	if f.HalfLife > 0 {
		f.past.advance(r.state, view.Now(), f.HalfLife)
	}
	if ordered := r.order(pending); ordered != nil {
		pending = ordered
		view.SetTurns(r.turns(pending))
		defer view.SetTurns(nil)
	}
	plan, err := f.Navigator.Plan(ctx, view, pending)
	plan.Notes = append([]slog.Attr{slog.Int("queued", r.queued), slog.Int("overQuota", r.over)}, plan.Notes...)
	return plan, err
}

// fairPass is one call of Plan.
type fairPass struct {
	*Fair
	view  *orbit.View
	state *orbit.State
	// For the notes.
	queued, over int
}

// order returns the pending work in the order in which it is planned; nil if none of it names a queue.
func (r *fairPass) order(pending []*orbit.Capsule) []*orbit.Capsule {
	var trees []*fairTree
	known := map[orbit.QueueID]*fairQueue{}
	gangs := map[orbit.GangID]*fairWork{}
	for at, c := range pending {
		if w := gangs[c.Gang()]; w != nil {
			w.capsules = append(w.capsules, c)
			w.queue.tree.slots = append(w.queue.tree.slots, at)
			continue
		}
		q := r.queueOf(c.Spec.Queue, known, &trees)
		if q == nil {
			continue
		}
		w := r.work(c, q, at)
		if w.whole {
			gangs[c.Gang()] = w
		}
		q.own = append(q.own, w)
		q.tree.slots = append(q.tree.slots, at)
	}
	if len(trees) == 0 {
		return nil
	}
	out := append([]*orbit.Capsule(nil), pending...)
	for _, t := range trees {
		r.queued += len(t.slots)
		for i, c := range t.run() {
			out[t.slots[i]] = c
		}
	}
	return out
}

// queueOf returns the entry of a queue, with entries for all queues above it; nil if there is no such queue.
func (r *fairPass) queueOf(id orbit.QueueID, known map[orbit.QueueID]*fairQueue, trees *[]*fairTree) *fairQueue {
	if id == "" || known[id] != nil {
		return known[id]
	}
	state, there := r.state.Queue(id)
	if !there {
		return nil
	}
	q := &fairQueue{id: id, above: r.queueOf(state.Queue.Parent, known, trees)}
	if q.above == nil {
		q.tree = &fairTree{fairPass: r, root: q}
		*trees = append(*trees, q.tree)
	} else {
		q.tree = q.above.tree
		q.above.below = append(q.above.below, q)
	}
	known[id] = q
	return q
}

// turns returns the numbers by which navigators sort work, highest first: neighbours get the same number if they are of one
// spec, or if neither names a queue and both have the same priority.
func (r *fairPass) turns(ordered []*orbit.Capsule) map[orbit.CapsuleID]int32 {
	out := make(map[orbit.CapsuleID]int32, len(ordered))
	turn := int32(math.MaxInt32)
	for i, c := range ordered {
		if i > 0 && !r.together(ordered[i-1], c) {
			turn--
		}
		out[c.ID] = turn
	}
	return out
}

// together reports whether the order of two neighbours does not matter.
func (r *fairPass) together(a, b *orbit.Capsule) bool {
	return a.Spec == b.Spec && r.view.Aged(a) == r.view.Aged(b) ||
		a.Spec.Queue == "" && b.Spec.Queue == "" && r.view.Aged(a) == r.view.Aged(b)
}
