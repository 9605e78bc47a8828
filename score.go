package orbit

import "math"

// Score rates a node for a spec: lower is better, and equal values go by tie. It sees the node as it is now
// (with what the plan has reserved), its telemetry report and the shared spec, never the capsule, and it
// must be a pure function of the three: that is what makes equivalence classes and caching exact. A value
// that is NaN or infinite takes the node out of the choice.
//
// A score may also have a method PickDevices(node *NodeState, spec *Spec) (DeviceSet, bool) that chooses
// the device instances; the default is [NodeState.PickDevices].
type Score interface {
	Score(node *NodeState, report *Report, spec *Spec) (value, tie float64)
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
		value += term.Weight * v
		tie += term.Weight * t
	}
	return value, tie
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
	if spec.spreadsAcross(node.Node) {
		value -= spreadDomain
	}
	return math.Max(value, 0), 0
}

// stranded is the mean, over dimensions with something free, of the part of it that remains after placing.
func stranded(node *NodeState, spec *Spec) float64 {
	sum, n := 0.0, 0
	want := &spec.Envelope.Reservation
	for d, available := range node.Free() {
		if available > 0 {
			sum += float64(available-want[d]) / float64(available)
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// spreadsAcross reports whether the node is in one of the failure domains that the spec names.
func (s *Spec) spreadsAcross(n *Node) bool {
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
