package place

import "github.com/orbitsched/orbit"

// Exhaustive is the reference [orbit.PlacementEngine]: it calls the score once for each feasible node. Faster engines
// must agree with it, choice by choice. It is fast enough for some hundreds of nodes. The zero value works. Give each
// of several navigators another Seed: with the same Seed they all choose the same of several equal nodes, and lose half
// of their bets there.
type Exhaustive struct {
	// Score rates the nodes; nil: [score.Spread].
	Score orbit.Score
	// Filter excludes nodes from the choice; nil: none.
	Filter Filter
	// FilterVersion returns the version of a Filter that reads more than its arguments; nil: the Filter reads nothing
	// else.
	FilterVersion FilterVersion
	// Seed breaks ties by a hash of the node id; 0: the lowest node id wins.
	Seed uint64
	// MostParts is the largest number of parts into which the nodes are divided while many proposals lose to others
	// ([orbit.View.Part]); 0: 8. With 1 the engine always chooses among all nodes.
	MostParts int

	rater rater
}

// Filter excludes nodes for reasons that the ledger does not know. It returns the reason, which completes "n nodes ..."
// as in "have a stale report", or "" to keep the node. Like a [orbit.Score] it must be a pure function of its
// arguments: the node as the plan leaves it, its report and the spec. A filter that reads more, such as counts of what
// is placed elsewhere, needs a [FilterVersion] beside it. Without one, [Indexed] uses outdated answers, and a class
// that the filter has refused stays parked although the filter would admit it now.
type Filter func(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) string

// FilterVersion returns the version of a filter. The version must be another one whenever the filter may answer
// differently for the same node, report and spec, and it must never return to an earlier one. Each engine of this
// package asks for the version before each choice, and drops all that it has computed if the version has changed. A
// version that changes with every placement therefore makes Indexed as slow as Exhaustive, unless its score is
// [score.Bounded].
//
// A filter that counts what the ledger has can bring its counts up to date in this function: [orbit.View.Changed] names
// the nodes to read again. If the counts are to follow the plan too, the navigator has to update them after each Place
// and Rollback. While classes are parked that the filter has refused, the [orbit.Engine] also asks for the version,
// with its own view, whenever a change of the ledger may concern these classes, and plans them again if the version has
// changed. If the version changes for a reason that the ledger does not show, call [orbit.Engine.Nudge]. Calls never
// overlap, but they may come from different goroutines.
type FilterVersion func(view *orbit.View) uint64

// Version calls f.
func (f *FilterVersion) Version(view *orbit.View) uint64 { return (*f)(view) }

// Best implements [orbit.PlacementEngine].
func (e *Exhaustive) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	if err := unready(draft, spec); err != nil {
		return orbit.Choice{}, err
	}
	e.rater.sync(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	e.rater.readVersion(&e.FilterVersion)
	e.rater.draw()
	near := choiceIn(draft, spec)
	return e.rater.scan(spec, &near)
}
