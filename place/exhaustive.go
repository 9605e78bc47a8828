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
	// Seed breaks ties by a hash of the node id; 0: the lowest node id wins.
	Seed uint64
	// MostParts bounds into how many parts the nodes are divided while proposals lose to others ([orbit.View.Part]); 0: 8.
	// 1 chooses among all nodes even then.
	MostParts int

	rater rater
}

// Filter takes nodes out of the choice for what the ledger does not know: it returns why, completing
// "n nodes ..." as in "have a stale report", or "" to keep the node. Like a [orbit.Score] it must be a pure
// function of what it sees.
type Filter func(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) string

// Best implements [orbit.PlacementEngine].
func (e *Exhaustive) Best(draft *orbit.Draft, spec *orbit.Spec) (orbit.Choice, error) {
	if err := unready(draft, spec); err != nil {
		return orbit.Choice{}, err
	}
	e.rater.follow(draft, e.Score, e.Filter, e.Seed, e.MostParts)
	e.rater.draw()
	return e.rater.scan(spec, nearIn(draft, spec))
}
