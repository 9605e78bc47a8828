package nav

import (
	"context"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// Batch is the navigator for batch work: it favours global throughput over any single task. It orders classes (specs),
// not capsules, packs tightly, and decides which work is left out when there is not room for all, so that as many
// capsules as possible are placed. Between priorities, the highest goes first. Within one, work that takes little of
// the scarce resources goes before work that takes much, whenever it was submitted: give work that must not wait for
// that a priority of its own.
//
// Batch sees only the capsules of its pass, so set [orbit.Engine] MaxPlan to the size of a sweep: with 5,000, a sweep
// of 5,000 tasks is one pass.
//
// [Batch.Plan] says how a level of priority is packed, and what the notes of a plan mean. The zero value works. A Batch belongs to one engine and is not safe for
// concurrent use.
type Batch struct {
	// Placement chooses the nodes; nothing else may use it. Nil: a [place.Indexed]. An engine of package place without
	// a Score gets the score of Batch, so that a Seed or a Filter can be set. With another score the packing is only as
	// good as that score.
	Placement orbit.PlacementEngine

	ready bool
	draft orbit.Draft
	score packScore
	free  freeTally
}

// Claims reports whether the class is Batch.
func (b *Batch) Claims(_ string, class orbit.AppClass) bool { return class == orbit.Batch }

// Plan packs level after level. If ctx ends it returns the plan so far, and the context's error.
//
// One level of priority is planned like this:
//
//  1. If there seems to be room for all: place the largest class first, and fill node after node; work without devices
//     goes to nodes with devices only when it fits on no other. If that places all, the level is done; if there is only
//     one class, no other order does better.
//  2. Otherwise a linear program over classes and kinds of nodes says how many capsules of each class to place. Its duals
//     give an upper bound on how many capsules fit.
//  3. Place these shares in rounds, so that every node is used up evenly, and then fill the remaining room with the other
//     capsules, smallest first. Try up to three orders, until one comes within half a percent of the bound, and keep the
//     best.
//
// Steps 2 and 3 look at every node, and so does finding out why something does not fit. For a level of so few capsules
// that this would cost more than placing them, Batch keeps what the first order has placed, or goes smallest first if
// there cannot be room for all. Nothing that fits is left out: a capsule that a plan does not place fits nowhere beside
// the ones that it places, and its [orbit.NoFit] says that. Each capsule is a proposal of its own, so that a conflict
// costs one placement.
//
// Plan.Notes say how good the packing is:
//
//	pending  the plan's pending capsules, members of gangs not counted
//	placed   those that the plan has a place for
//	bound    an upper bound on how many of them fit on the nodes as the view shows them, in whatever order
//	gap      the part of the bound that is not reached, from 0 to 1
//	tried    packings that were made, one to restore the best included
//
// The placement engine's notes follow. They are about one plan: capsules of a class that the engine has parked are not
// planned again, and are not counted in pending. If gap is 0 and not all are placed, no packing places more.
//
// The bound does not know of co-location ([orbit.Near]), priorities and a placement engine's filter; where these matter
// it is larger than necessary. If everything is placed, or the context ends before the bound is needed, the bound is
// the number of pending capsules.
func (b *Batch) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	b.init()
	b.draft.Sync(view)
	b.free.sync(view)
	levels, members := divide(view, pending)
	s := &sweep{placement: b.Placement, draft: &b.draft, state: view.State(), score: &b.score, bound: -1}
	s.pending = len(pending) - len(members)
	for _, c := range members {
		s.plan.Unplaced = append(s.plan.Unplaced, leftToItsGang(c))
	}
	err := s.run(ctx, levels, &b.free)
	s.note()
	if n, ok := b.Placement.(noter); ok {
		s.plan.Notes = append(s.plan.Notes, n.Notes()...)
	}
	return s.plan, err
}

// init fills in the placement engine and its score.
func (b *Batch) init() {
	if b.ready {
		return
	}
	b.ready = true
	if b.Placement == nil {
		b.Placement = &place.Indexed{}
	}
	switch e := b.Placement.(type) {
	case *place.Indexed:
		fill(&e.Score, &b.score)
	case *place.Exhaustive:
		fill(&e.Score, &b.score)
	case *place.Sampled:
		fill(&e.Score, &b.score)
	}
}

// fill sets a score that is nil.
func fill(score *orbit.Score, with orbit.Score) {
	if *score == nil {
		*score = with
	}
}
