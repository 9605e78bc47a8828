package score

import "github.com/orbitsched/orbit"

// The constants of [Spread].
const (
	spreadPerCapsule = 5.0
	spreadDomain     = 2.5
	spreadTaint      = 25.0
)

// Spread is the services score of "Many Schedulers, One Commit Loop", number for number:
//
//	  mean over the nonzero dimensions of the node of remaining/available after placing
//	+ 5.0 for each capsule already on the node
//	- the weights of the preferences that match
//	- 2.5 if the node's failure domain is one that the spec spreads across
//	+ 25 for each PreferNoSchedule taint that the spec does not tolerate
//	not below 0
//
// Though it speaks of stranded resources it spreads and never packs: the first term is at most 1, so a
// node with one capsule less always wins unless preferences or domains outweigh 5.0, and among equals the
// first term prefers the node whose free part shrinks most. It mixes units, and the floor at 0 makes all
// good nodes alike. Available is what is free before placing.
type Spread struct{}

// Score rates the node; tie is always 0.
func (Spread) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	value = stranded(node, spec) + spreadPerCapsule*float64(node.Capsules)
	for i := range spec.Prefer {
		if p := &spec.Prefer[i]; p.On(node.Node) {
			value -= p.Weight
		}
	}
	if spec.SpreadsAcross(node.Node) {
		value -= spreadDomain
	}
	if n := node.Node.Shuns(spec); n > 0 {
		value -= -spreadTaint * float64(n)
	}
	return notNegative(value), 0
}

// stranded is the mean, over dimensions with something free, of the part of it that remains after placing: all of
// it where nothing is wanted.
func stranded(node *orbit.NodeState, spec *orbit.Spec) float64 {
	sum, n, untouched := 0.0, 0, 0
	free := node.Free()
	for d, want := range &spec.Envelope.Reservation {
		switch available := free[d]; {
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
func (Spread) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64) {
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

// spreadBound is what a spec comes to on nodes that are alike to it.
type spreadBound struct {
	wants []wanted
	// Dimensions of which nothing is wanted.
	others []int
	// What is taken off, in order.
	less []float64
}

func newSpreadBound(spec *orbit.Spec, like *orbit.Node) *spreadBound {
	b := &spreadBound{}
	for d, want := range spec.Envelope.Reservation {
		switch {
		case want > 0:
			b.wants = append(b.wants, wanted{d, want})
		case want == 0:
			b.others = append(b.others, d)
		}
	}
	for i := range spec.Prefer {
		if p := &spec.Prefer[i]; p.On(like) {
			b.less = append(b.less, p.Weight)
		}
	}
	if spec.SpreadsAcross(like) {
		b.less = append(b.less, spreadDomain)
	}
	if n := like.Shuns(spec); n > 0 {
		b.less = append(b.less, -spreadTaint*float64(n))
	}
	return b
}

// stranded is the least that the function of that name can be. Each term grows with what is available, and is 1
// where nothing is wanted. A dimension that is free on some of the nodes only, and of which nothing is wanted, is
// left out: with one more 1 the mean is higher. Where rounding could bring that about or not, a little is taken off.
//
// A search calls it some eighty times; what could go either way is computed rather than decided.
func (b *spreadBound) stranded(least, most *Extent) float64 {
	sum, largest := 0.0, int64(0)
	for i := range b.wants {
		w := &b.wants[i]
		available := max(least.Free(w.dim), w.want)
		largest = max(largest, most.Free(w.dim))
		sum += float64(available-w.want) / float64(available)
	}
	untouched, partly := int64(0), int64(0)
	for _, d := range b.others {
		all, some := positive(least.Free(d)), positive(most.Free(d))
		untouched += all
		partly |= all ^ some
	}
	n := int64(len(b.wants)) + untouched
	if n == 0 {
		return 0
	}
	mean := (sum + float64(untouched)) / float64(n)
	if partly != 0 || largest > exactFloat {
		mean -= rounding
	}
	return mean
}

// positive is 1 for what is above zero, else 0. What is free is never the least integer there is.
func positive(free int64) int64 { return int64(uint64(-free) >> 63) }
