package orbit

import (
	"slices"

	"github.com/orbitsched/orbit/internal/kd"
)

// Score rates a node for a spec: lower is better, and equal values go by tie. It sees the node as it is now
// (with what the plan has reserved), its telemetry report and the shared spec, never the capsule, and it
// must be a pure function of the three: that is what makes equivalence classes and caching exact. A value
// that is NaN or infinite takes the node out of the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses the
// device instances; the default is [NodeState.PickDevices]. One that can bound itself is [Bounded], one that
// reads more than its arguments must say so: [Versioned]. One that draws lots has a method Draw(decision
// uint64) (Score, bool). It returns the score for one decision, and false if it draws none after all. Engines
// ask for it before every choice, with a number that is another one in every view, after every Place, and
// with every Seed; and rate all nodes with it.
type Score interface {
	Score(node *NodeState, report *Report, spec *Spec) (value, tie float64)
}

// Bounded is a Score that can bound itself over a set of nodes without looking at each. place.Indexed then finds
// the best node in an index that all specs share, and needs nothing per spec.
//
// A bound that is too high is not noticed: Indexed then chooses other nodes than Exhaustive. Run both over the
// same work and compare, with more than 16 nodes; below that Indexed asks for no bound. One that says little is slower
// than none. Whoever embeds a bounded score and has a Score method of its own needs a Bound of its own, too.
type Bounded interface {
	Score
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
	Bound(spec *Spec, like *Node) func(least, most *Extent) (value, tie float64)
}

// Versioned is a Score that reads more than its arguments: counts per domain, say, or what else is on the
// nodes. When its version changes, engines forget all that they have computed with it, for every spec: one that
// changes with every placement makes place.Indexed as slow as place.Exhaustive, unless it is [Bounded].
//
// Who counts is the navigator: before Sync, from the view, which covers what others have done; after every Place
// and Rollback, if the counts are to follow the plan.
type Versioned interface {
	Score
	// Version changes whenever the score of a node may have changed though the node, its report and the spec
	// have not. It must not come back to an earlier value.
	Version() uint64
}

// ScoreFunc makes a Score of a function.
type ScoreFunc func(node *NodeState, report *Report, spec *Spec) (value, tie float64)

// Score calls f.
func (f ScoreFunc) Score(node *NodeState, report *Report, spec *Spec) (value, tie float64) {
	return f(node, report, spec)
}

// Weighted is one term of a [WeightedSum].
type Weighted struct {
	Weight float64
	Score  Score
}

// WeightedSum adds scores up, values and ties alike, each times its weight. Building blocks that run from
// 0 to 1 (package score has some) add up to something that can be reasoned about.
type WeightedSum []Weighted

// Score returns the sum.
func (s WeightedSum) Score(node *NodeState, report *Report, spec *Spec) (value, tie float64) {
	for _, term := range s {
		v, t := term.Score.Score(node, report, spec)
		value += float64(term.Weight * v) // rounded here on every processor, as in Bound
		tie += float64(term.Weight * t)
	}
	return value, tie
}

// Bound adds up the bounds of the terms. It cannot say if a term is not [Bounded], or has a negative weight.
func (s WeightedSum) Bound(spec *Spec, like *Node) func(least, most *Extent) (value, tie float64) {
	bounds := make([]func(least, most *Extent) (value, tie float64), len(s))
	for i, term := range s {
		if b, ok := term.Score.(Bounded); ok && term.Weight >= 0 {
			bounds[i] = b.Bound(spec, like)
		}
		if bounds[i] == nil {
			return nil
		}
	}
	return func(least, most *Extent) (value, tie float64) {
		for i, bound := range bounds {
			v, t := bound(least, most)
			value += float64(s[i].Weight * v)
			tie += float64(s[i].Weight * t)
		}
		return value, tie
	}
}

// drawer is what a score may have that draws lots, see [Score].
type drawer interface {
	Draw(decision uint64) (drawn Score, draws bool)
}

// Draw lets the terms draw that draw lots.
func (s WeightedSum) Draw(decision uint64) (drawn Score, draws bool) {
	var sum WeightedSum
	for i, term := range s {
		if d, ok := term.Score.(drawer); ok {
			if one, ok := d.Draw(decision); ok {
				if sum == nil {
					sum = slices.Clone(s)
				}
				sum[i].Score = one
			}
		}
	}
	return sum, sum != nil
}

// Version mixes the versions of the terms that have one.
func (s WeightedSum) Version() (version uint64) {
	for _, term := range s {
		if v, ok := term.Score.(Versioned); ok {
			version = version*0x9e3779b97f4a7c15 + v.Version() // the golden ratio, as an odd multiplier
		}
	}
	return version
}

// Extent is what a score can know of a set of nodes without looking at each: the least or the most of every
// quantity. The extent of a single node is both. It is read with its methods.
type Extent [kd.Dims]int64

// The coordinates of an Extent: those first that scores read most, so that they share a cache line.
const (
	extentCapsules  = 0
	extentFree      = 1
	extentDevices   = Dimensions + 1
	extentIdle      = Dimensions + 2
	extentLargest   = Dimensions + 3
	extentInstances = Dimensions + 4
	extentCapacity  = Dimensions + 5
)

// Free is what is free of a dimension; negative where capacity has shrunk below what is used.
func (e *Extent) Free(d Dimension) int64 { return e[extentFree+d] }

// Capacity is the capacity in a dimension.
func (e *Extent) Capacity(d Dimension) int64 { return e[extentCapacity+d] }

// Capsules is the number of capsules on the node.
func (e *Extent) Capsules() int { return int(e[extentCapsules]) }

// DevicesFree is what is free of all device instances together, in milli.
func (e *Extent) DevicesFree() int64 { return e[extentDevices] }

// DevicesIdle is the number of instances of which nothing is taken.
func (e *Extent) DevicesIdle() int { return int(e[extentIdle]) }

// DeviceLargest is the most that is free on one instance, in milli.
func (e *Extent) DeviceLargest() int { return int(e[extentLargest]) }

// Devices is the number of instances, those that are out of order included.
func (e *Extent) Devices() int { return int(e[extentInstances]) }

// Extent returns the extent of one node: both its least and its most.
func (n *NodeState) Extent() (e Extent) {
	for d, capacity := range n.Node.Capacity {
		e[extentFree+d] = capacity - n.used[d]
		e[extentCapacity+d] = capacity
	}
	e[extentCapsules] = int64(n.Capsules)
	e[extentInstances] = int64(n.Node.Devices.Count)
	for i := range n.Node.Devices.Count {
		free := int64(n.DeviceFree(i))
		e[extentDevices] += free
		e[extentIdle] += int64(btoi(free == deviceMilli))
		e[extentLargest] = max(e[extentLargest], free)
	}
	return e
}
