package place

import "github.com/orbitsched/orbit"

// Exhaustive is the reference [orbit.PlacementEngine]: one call of the score for each feasible node. It is what
// faster engines must agree with, choice by choice, and fast enough for some hundreds of nodes. The zero
// value works. Give each of several navigators another Seed: with the same one they all prefer the same among
// equal nodes, and lose half of their bets there.
type Exhaustive struct {
	// Score rates the nodes; nil: [score.Spread].
	Score orbit.Score
	// Filter takes nodes out of the choice; nil: none.
	Filter Filter
	// FilterVersion is the version of a Filter that reads more than its arguments; nil: it does not.
	FilterVersion FilterVersion
	// Seed breaks ties by a hash of the node id; 0: the lowest node id wins.
	Seed uint64
	// MostParts bounds into how many parts the nodes are divided while proposals lose to others ([orbit.View.Part]); 0: 8.
	// 1 chooses among all nodes even then.
	MostParts int

	rater rater
}

// Filter takes nodes out of the choice for what the ledger does not know: it returns why, completing
// "n nodes ..." as in "have a stale report", or "" to keep the node. Like a [orbit.Score] it must be a pure
// function of what it sees: the node as the plan leaves it, its report and the spec. One that reads more, such as counts of
// what is placed elsewhere, needs a [FilterVersion] beside it: else [Indexed] goes by what it said before, and a class
// that it refuses stays parked although it would be taken now.
type Filter func(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) string

// FilterVersion returns the version of a filter: another number whenever the filter may say something else of a node though
// the node, its report and the spec have not changed, and never an earlier one again. Every engine of this package asks for
// it before each choice, and forgets all that it has computed when it has changed: a version that changes with every
// placement makes Indexed as slow as Exhaustive, unless its score is [score.Bounded].
//
// A filter that counts what the ledger has does so here, from the view: [orbit.View.Changed] names the nodes to look at
// again. If it is to follow the plan, too, the navigator tells it after every Place and Rollback. While classes are parked that the
// filter has refused, the [orbit.Engine] asks as well, with its own view, whenever a change of the ledger may concern them, and
// plans them again when the version has changed. If the version changes for a reason that the ledger does not show, call
// [orbit.Engine.Nudge]. No two calls are made at a time, but they may come from different goroutines.
type FilterVersion func(view *orbit.View) uint64

// Version calls f.
func (f *FilterVersion) Version(view *orbit.View) uint64 { return (*f)(view) }

// Best implements [orbit.PlacementEngine].
func (e *Exhaustive) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	if err := unready(draft, spec); err != nil {
		return orbit.Choice{}, err
	}
	e.rater.follow(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	e.rater.look(&e.FilterVersion)
	e.rater.draw()
	near := choiceIn(draft, spec)
	return e.rater.scan(spec, &near)
}
