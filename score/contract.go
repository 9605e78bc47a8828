package score

import "github.com/orbitsched/orbit"

// Bounded is a Score that can bound itself over a set of nodes without looking at each. place.Indexed then finds
// the best node in an index that all specs share, and needs nothing per spec.
//
// A bound that is too high is not noticed: Indexed then chooses other nodes than Exhaustive. Run both over the
// same work and compare, with more than 16 nodes; below that Indexed asks for no bound. One that says little is slower
// than none. A type that embeds a bounded score and has a Score method of its own needs a Bound of its own, too.
type Bounded interface {
	orbit.Score
	// Bound prepares a bound for one spec. All nodes that it will be used for meet the spec's requirements, and
	// agree with like on each of its preferences, and on being in one of the domains that it spreads across; like
	// tells nothing else of them. Nil: the score has no bound for this spec.
	//
	// The function returned is given the least and the most of every quantity over a set of nodes. It returns a
	// value and a tie: no node of the set that fits the spec has a lower value, and none has a lower tie. Some of the
	// nodes may not fit, so what is free may be less than what is wanted, even negative. Given one node's own
	// extent as both, it should return exactly its score, by the same operations in the same order: a lower bound
	// is right as well, but takes more looking. What is no number bounds nothing. There are no reports: a term that
	// reads one counts as its best case. Both functions must be pure, for as long as the version stays of a score
	// that is [Versioned] too.
	Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64)
}

// Versioned is a Score that reads more than its arguments: counts per domain, say, or what else is on the
// nodes. When its version changes, engines forget all that they have computed with it, for every spec: one that
// changes with every placement makes place.Indexed as slow as place.Exhaustive, unless it is [Bounded].
//
// Who counts is the navigator: before Sync, from the view, which covers what others have done; after every Place
// and Rollback, if the counts are to follow the plan.
type Versioned interface {
	orbit.Score
	// Version changes whenever the score of a node may have changed though the node, its report and the spec
	// have not. It must not come back to an earlier value.
	Version() uint64
}

// Func makes a Score of a function.
type Func func(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64)

// Score calls f.
func (f Func) Score(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return f(node, report, spec)
}
