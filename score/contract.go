package score

import "github.com/orbitsched/orbit"

// Bounded is a Score that can bound itself over a set of nodes without rating each. place.Indexed then finds the best
// node in an index that all specs share, and keeps no scores per spec.
//
// Nothing detects a bound that is too high: Indexed then chooses other nodes than Exhaustive. To test a bound, run both
// over the same work and compare their choices, with more than 16 nodes, because up to that number Indexed uses no
// bounds. A loose bound can make Indexed slower than no bound. A type that embeds a bounded score and has a Score
// method of its own needs a Bound method of its own, too.
type Bounded interface {
	orbit.Score
	// Bound prepares a bound for one spec. All nodes to which it applies meet the requirements of the spec. They agree
	// with like on each preference of the spec, and on whether they are in one of the domains that the spec spreads
	// across. Nothing else may be read from like. Nil: the score has no bound for this spec.
	//
	// The function returned takes the least and the most of each quantity over a set of nodes. It returns lower bounds
	// of the value and of the tie: no node of the set on which the spec fits has a lower value or a lower tie. Some
	// nodes of the set may not fit, so the least free capacity may be smaller than the spec's reservation, even
	// negative. If least and most are both the extent of one node, the function should return exactly the score of that
	// node, by the same operations in the same order. A smaller result is also right, but makes searches longer. A
	// result that is NaN bounds nothing. There are no telemetry reports: a term that reads one counts as its best case.
	// Bound and the function must be pure; if the score is also [Versioned], they must be so for as long as the version
	// stays the same.
	Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64)
}

// Versioned is a Score that reads more than its arguments, such as counts per domain, or what else is on the nodes.
// When its version changes, engines drop all that they have computed with it, for every spec. A version that changes
// with every placement makes place.Indexed as slow as place.Exhaustive, unless the score is [Bounded].
//
// The navigator keeps the counts: before each Sync it updates them from the view, which includes what others have done;
// and after every Place and Rollback if they are to follow the plan.
type Versioned interface {
	orbit.Score
	// Version must return another value whenever the score of a node may have changed although the node, its report and
	// the spec have not. It must never return to an earlier value.
	Version() uint64
}

// Func is a function as a Score: the lowest value is the best, and the lowest tie among equal values. Such a score has no bounds.
type Func func(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64)

// Score calls f.
func (f Func) Score(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return f(node, report, spec)
}
