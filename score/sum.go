package score

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// Weighted is one term of a [WeightedSum].
type Weighted struct {
	// Weight multiplies the value and the tie of Score.
	Weight float64
	// Score is the score to add.
	Score orbit.Score
}

// WeightedSum adds up the values of scores, and likewise their ties, each multiplied by its weight. If all terms run from 0 to 1,
// as the building blocks of this package do, a weight is the most that its term can add.
type WeightedSum []Weighted

// Score returns the sums of the weighted values and of the weighted ties.
func (s WeightedSum) Score(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	for _, term := range s {
		v, t := term.Score.Score(node, report, spec)
		value += float64(term.Weight * v) // float64 makes all processors round the product, as in Bound
		tie += float64(term.Weight * t)
	}
	return value, tie
}

// Bound adds up the bounds of the terms. It returns nil if a term is not [Bounded] or has no bound for the spec, or if
// its weight is negative.
func (s WeightedSum) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64) {
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

// drawer is the optional method of a score that draws lots, see [orbit.Score].
type drawer interface {
	Draw(decision uint64) (drawn orbit.Score, draws bool)
}

// Draw returns the sum in which each term that draws lots is replaced by what it has drawn; draws is false if no term draws.
func (s WeightedSum) Draw(decision uint64) (drawn orbit.Score, draws bool) {
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

// Version combines the versions of the terms that have one.
func (s WeightedSum) Version() (version uint64) {
	for _, term := range s {
		if v, ok := term.Score.(Versioned); ok {
			version = version*0x9e3779b97f4a7c15 + v.Version() // 2^64 divided by the golden ratio: odd, and it spreads the bits
		}
	}
	return version
}
