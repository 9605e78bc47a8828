package score

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Preferences is the weight of the spec's preferences that the node does not meet, as a part of the weight
// of all of them. A preference with a negative weight is met by a node that does not match. 0: all are met,
// or there are none.
type Preferences struct{}

// Score returns the part.
func (Preferences) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	unmet, all := 0.0, 0.0
	for i := range spec.Prefer {
		p := &spec.Prefer[i]
		weight := math.Abs(p.Weight)
		all += weight
		if p.Matches(node.Node.Labels) != (p.Weight > 0) {
			unmet += weight
		}
	}
	if all == 0 {
		return 0, 0
	}
	return unmet / all, 0
}

// Domains is 0 on a node in one of the failure domains that the spec spreads across, or for a spec that
// names none, and 1 elsewhere.
type Domains struct{}

// Score returns 0 or 1.
func (Domains) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	if len(spec.Spread.Names) == 0 {
		return 0, 0
	}
	domain, labelled := node.Node.Labels[spec.Spread.Level]
	if labelled && slices.Contains(spec.Spread.Names, domain) {
		return 0, 0
	}
	return 1, 0
}

// Crowding prefers nodes with few capsules, whatever their size: it is n/(n+Half) for n capsules on the
// node before placing. It rises fast at first and never reaches 1.
type Crowding struct {
	Half int // the number of capsules that is rated ½; 0: 10
}

// Score returns the quotient.
func (s Crowding) Score(node *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	n := float64(node.Capsules)
	return n / (n + float64(cmp.Or(max(s.Half, 0), 10))), 0
}
