package orbit

// Score rates a node for a spec: lower is better, and equal values go by tie. It sees the node as it is now
// (with what the plan has reserved), its telemetry report and the shared spec, never the capsule, and it
// must be a pure function of the three: that is what makes equivalence classes and caching exact. A value
// that is NaN or infinite takes the node out of the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses
// the device instances; the default is [NodeState.PickDevices]. One that can bound itself is [Bounded], one
// that reads more than its arguments must say so: [Versioned].
type Score interface {
	Score(node *NodeState, report *Report, spec *Spec) (value, tie float64)
}

// Bounded is a Score that can bound itself over a set of nodes without looking at each. [Indexed] then finds
// the best node in an index that all specs share, and needs nothing per spec.
type Bounded interface {
	Score
	// Bound prepares to bound scores for the spec, on nodes that meet its requirements, and that match each of
	// its preferences and are in one of the domains that it spreads across exactly if like does. The function it returns gets the
	// least and the most of some of those nodes that fit the spec, and returns what neither their values nor
	// their ties are below. Where least and most are one node's own it should return its score, in the same
	// arithmetic: then a search looks at few nodes. It must be pure. Nil: it cannot say.
	Bound(spec *Spec, like *Node) func(least, most *Extent) (value, tie float64)
}

// Versioned is a Score that reads more than its arguments: counts per domain, say, or what else is on the
// nodes. Engines forget what they have computed with it when its version changes.
type Versioned interface {
	Score
	// Version changes whenever the score of a node may have changed though the node, its report and the spec
	// have not.
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

// Version is the sum of the versions of the terms that have one.
func (s WeightedSum) Version() (version uint64) {
	for _, term := range s {
		if v, ok := term.Score.(Versioned); ok {
			version += v.Version()
		}
	}
	return version
}
