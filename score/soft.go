package score

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Preferences rates a node by the spec's preferences that it does not meet: their weight as a fraction of the weight of
// all preferences. A node meets a preference with a negative weight if it does not match. 0: all are met, or there are
// none.
type Preferences struct{}

// Score returns the fraction.
func (Preferences) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return unmet(node.Node, spec), 0
}

// Bound is exact: the fraction is the same on all nodes to which it applies.
func (Preferences) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64) {
	return always(unmet(like, spec))
}

func unmet(n *orbit.Node, spec *orbit.Spec) float64 {
	unmet, all := 0.0, 0.0
	for i := range spec.Prefer {
		p := &spec.Prefer[i]
		weight := math.Abs(p.Weight)
		all += weight
		if p.On(n) != (p.Weight > 0) {
			unmet += weight
		}
	}
	if all == 0 {
		return 0
	}
	return unmet / all
}

// always returns a bound that is the same over all sets of nodes.
func always(value float64) func(least, most *Extent) (value, tie float64) {
	return func(_, _ *Extent) (float64, float64) { return value, 0 }
}

// Domains rates a node 0 if it is in one of the failure domains that the spec spreads across, and 1 elsewhere. It rates
// all nodes 0 for a spec that names no domains.
type Domains struct{}

// Score returns 0 or 1.
func (Domains) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	return outside(node.Node.Labels, spec), 0
}

// Bound is exact: either all nodes to which it applies are in the domains, or none is.
func (Domains) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64) {
	return always(outside(like.Labels, spec))
}

func outside(labels map[string]string, spec *orbit.Spec) float64 {
	if len(spec.Spread.Names) == 0 {
		return 0
	}
	domain, labelled := labels[spec.Spread.Level]
	if labelled && slices.Contains(spec.Spread.Names, domain) {
		return 0
	}
	return 1
}

// Crowding prefers nodes with few capsules, whatever the size of the node or of the capsules. It rates n/(n+Half) for n
// capsules on the node before placing, which rises fast at first and never reaches 1.
type Crowding struct {
	// Half is the number of capsules for which the rating is ½; 0: 10.
	Half int
}

// Score returns the quotient.
func (s Crowding) Score(node *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	return s.rate(node.Capsules), 0
}

// Bound rates the smallest number of capsules.
func (s Crowding) Bound(*orbit.Spec, *orbit.Node) func(least, most *Extent) (value, tie float64) {
	return func(least, _ *Extent) (value, tie float64) { return s.rate(least.Capsules()), 0 }
}

func (s Crowding) rate(capsules int) float64 {
	n := float64(capsules)
	return n / (n + float64(cmp.Or(max(s.Half, 0), 10)))
}
