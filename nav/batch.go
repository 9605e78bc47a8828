package nav

import (
	"context"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// Batch is the navigator for batch work: global throughput rather than care for one task. It orders classes
// (specs), not capsules, packs tightly, and decides which work is left out when there is not room for all, so that
// as many capsules as possible are placed. Highest priority first is the rule between priorities. Within one, work
// that takes little of what is scarce goes before work that takes much, whenever it was submitted: give work that
// must not wait for that a priority of its own.
//
// It sees what it is handed, so set [orbit.Engine] MaxPlan to the size of a sweep: with 5,000, a sweep of 5,000
// tasks is one pass.
//
// One level of priority is planned like this:
//
//  1. If there seems to be room for all: largest class first, filling node after node. If all are placed, that is
//     it; and if there is only one class, no other order does better.
//  2. Else a linear program over classes and kinds of nodes says how many of each class to place, and its duals give
//     an upper bound on how many capsules fit.
//  3. Deal those shares out so that every node is used up evenly, and fill up with what is left over, smallest
//     first. Try up to three orders, until one comes within half a percent of the bound, and keep the best.
//
// The last two look at every node, as finding out why something does not fit does. Levels of few capsules, for which
// that would cost more than placing them, keep what the first order has placed, or go smallest first if there cannot be
// room for all. Nothing that fits is left out: what a plan has no place for fits nowhere beside what it does place,
// which is what an [orbit.NoFit] says of it. Each capsule is a proposal of its own, so that a conflict costs one
// placement.
//
// Plan.Notes say how good the packing is:
//
//	pending  capsules handed over, members of gangs not counted
//	placed   those that the plan has a place for
//	bound    an upper bound on how many of them fit on the nodes as the view shows them, in whatever order
//	gap      the part of the bound that is not reached, from 0 to 1
//	tried    packings that were made, one to restore the best included
//
// and then what the placement engine notes. They are about one plan: the capsules of a class that the engine has
// parked are not handed over again, and not in pending. Where gap is 0 and not all are placed, no packing places
// more.
//
// The bound does not know of co-location ([orbit.Near]), priorities and a placement engine's filter: it is larger than it
// need be then. Where all is placed, and where the context ended before it was needed, it is what was pending.
//
// The zero value works. A Batch belongs to one engine.
type Batch struct {
	// Placement chooses the nodes; it belongs to this navigator alone. Nil: a [place.Indexed]. One of package place
	// without a Score gets the score of Batch, so that a Seed or a Filter can be set; another score makes the packing
	// only as good as that score is.
	Placement orbit.PlacementEngine

	ready bool
	draft orbit.Draft
	score packScore
	free  freeTally
}

// Claims reports whether the class is Batch.
func (b *Batch) Claims(_ string, class orbit.AppClass) bool { return class == orbit.Batch }

// Plan packs level after level. When ctx ends it returns what it has so far, and the context's error.
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

func fill(score *orbit.Score, with orbit.Score) {
	if *score == nil {
		*score = with
	}
}
