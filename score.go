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
// than none. A type that embeds a bounded score and has a Score method of its own needs a Bound of its own, too.
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
	// Weight multiplies the value and the tie of Score.
	Weight float64
	// Score is the score to add.
	Score Score
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

// The constants of [SpreadScore].
const (
	spreadPerCapsule = 5.0
	spreadDomain     = 2.5
)

// SpreadScore is the services score of "Many Schedulers, One Commit Loop", number for number:
//
//	  mean over the nonzero dimensions of the node of remaining/available after placing
//	+ 5.0 for each capsule already on the node
//	- the weights of the preferences that match
//	- 2.5 if the node's failure domain is one that the spec spreads across
//	not below 0
//
// Though it speaks of stranded resources it spreads and never packs: the first term is at most 1, so a
// node with one capsule less always wins unless preferences or domains outweigh 5.0, and among equals the
// first term prefers the node whose free part shrinks most. It mixes units, and the floor at 0 makes all
// good nodes alike. Available is what is free before placing.
type SpreadScore struct{}

// Score rates the node; tie is always 0.
func (SpreadScore) Score(node *NodeState, _ *Report, spec *Spec) (value, tie float64) {
	value = stranded(node, spec) + spreadPerCapsule*float64(node.Capsules)
	for i := range spec.Prefer {
		if p := &spec.Prefer[i]; p.Matches(node.Node.Labels) {
			value -= p.Weight
		}
	}
	if spec.SpreadsAcross(node.Node) {
		value -= spreadDomain
	}
	return notNegative(value), 0
}

// stranded is the mean, over dimensions with something free, of the part of it that remains after placing: all of
// it where nothing is wanted.
func stranded(node *NodeState, spec *Spec) float64 {
	sum, n, untouched := 0.0, 0, 0
	capacity := &node.Node.Capacity
	for d, want := range &spec.Envelope.Reservation {
		switch available := capacity[d] - node.used[d]; {
		case available <= 0:
		case want == 0:
			untouched++
		default:
			sum += float64(available-want) / float64(available)
			n++
		}
	}
	if n+untouched == 0 {
		return 0
	}
	return (sum + float64(untouched)) / float64(n+untouched)
}

// Bound adds up the same terms in the same order, each at its least, so that it is exact for a single node.
func (SpreadScore) Bound(spec *Spec, like *Node) func(least, most *Extent) (value, tie float64) {
	b := newSpreadBound(spec, like)
	return func(least, most *Extent) (value, tie float64) {
		value = b.stranded(least, most) + spreadPerCapsule*float64(least.Capsules())
		for _, weight := range b.less {
			value -= weight
		}
		return notNegative(value), 0
	}
}

// notNegative is max(value, 0), which takes longer.
func notNegative(value float64) float64 {
	if value < 0 {
		return 0
	}
	return value
}

// wanted is how much is wanted of a dimension.
type wanted struct {
	dim  Dimension
	want int64
}

// wantsOf lists what is wanted, zeros left out.
func wantsOf(spec *Spec) (out []wanted) {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			out = append(out, wanted{Dimension(d), want})
		}
	}
	return out
}

// spreadBound is what a spec comes to on nodes that are alike to it.
type spreadBound struct {
	wants []wanted
	// Dimensions of which nothing is wanted.
	others []Dimension
	// What is taken off, in order.
	less []float64
}

func newSpreadBound(spec *Spec, like *Node) *spreadBound {
	b := &spreadBound{wants: wantsOf(spec)}
	for d, want := range spec.Envelope.Reservation {
		if want == 0 {
			b.others = append(b.others, Dimension(d))
		}
	}
	for i := range spec.Prefer {
		if p := &spec.Prefer[i]; p.Matches(like.Labels) {
			b.less = append(b.less, p.Weight)
		}
	}
	if spec.SpreadsAcross(like) {
		b.less = append(b.less, spreadDomain)
	}
	return b
}

// Up to here integers are exact as floats, and quotients of them keep their order.
const exactFloat = 1 << 53

// stranded is the least that the function of that name can be. Each term grows with what is available, and is 1
// where nothing is wanted. A dimension that is free on some of the nodes only, and of which nothing is wanted, is
// left out: with one more 1 the mean is higher. Where rounding could bring that about or not, a little is taken off.
//
// A search calls it some eighty times; what could go either way is computed rather than decided.
func (b *spreadBound) stranded(least, most *Extent) float64 {
	sum, largest := 0.0, int64(0)
	for i := range b.wants {
		w := &b.wants[i]
		available := max(least[extentFree+w.dim], w.want)
		largest = max(largest, most[extentFree+w.dim])
		sum += float64(available-w.want) / float64(available)
	}
	untouched, partly := int64(0), int64(0)
	for _, d := range b.others {
		all, some := positive(least[extentFree+d]), positive(most[extentFree+d])
		untouched += all
		partly |= all ^ some
	}
	n := int64(len(b.wants)) + untouched
	if n == 0 {
		return 0
	}
	mean := (sum + float64(untouched)) / float64(n)
	if partly != 0 || largest > exactFloat {
		mean -= 1e-9
	}
	return mean
}

// positive is 1 for what is above zero, else 0. What is free is never the least integer there is.
func positive(free int64) int64 { return int64(uint64(-free) >> 63) }

// SpreadsAcross reports whether the node is in one of the failure domains that the spec names.
func (s *Spec) SpreadsAcross(n *Node) bool {
	if len(s.Spread.Names) == 0 {
		return false
	}
	domain, ok := n.Labels[s.Spread.Level]
	if !ok {
		return false
	}
	for _, name := range s.Spread.Names {
		if name == domain {
			return true
		}
	}
	return false
}
