package score

import "github.com/orbitsched/orbit"

// The constants of [Spread].
const (
	spreadPerCapsule = 5.0
	spreadDomain     = 2.5
	spreadTaint      = 25.0
	spreadDevices    = 1e6
)

// Spread is the services score of "Many Schedulers, One Commit Loop", number for number:
//
//	  mean over the nonzero dimensions of the node of remaining/available after placing
//	+ 5.0 for each capsule already on the node
//	- the weights of the preferences that match
//	- 2.5 if the node's failure domain is one that the spec spreads across
//	+ 25 for each PreferNoSchedule taint that the spec does not tolerate
//	+ 1,000,000 if the node has devices and the spec asks for none
//	not below 0
//
// The last two terms are additions. So work without devices stays off nodes with devices while it fits on others, whatever
// their number of capsules, unless a preference outweighs that.
type Spread struct{}

// Score rates the node; tie is always 0.
//
// Though it speaks of stranded resources, the score spreads and never packs. The first term is at most 1, so a node
// with one capsule less always wins unless preferences or domains outweigh 5.0. Among nodes that are equal otherwise,
// the first term prefers the one whose free share shrinks most. The score mixes units, and the floor at 0 makes all
// good nodes alike. Available means free before placing.
func (Spread) Score(node *orbit.NodeState, _ *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	value = stranded(node, spec) + spreadPerCapsule*float64(node.Capsules)
	if spec.Devices.Count == 0 && node.Node.Devices.Count > 0 {
		value += spreadDevices
	}
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

// stranded returns the mean, over the dimensions with free capacity, of the fraction of it that remains free after
// placing. The fraction is 1 where the spec asks for nothing.
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

// Bound adds up the same terms in the same order, each at its minimum, so that it is exact for a single node.
func (Spread) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *Extent) (value, tie float64) {
	b := newSpreadBound(spec, like)
	return func(least, most *Extent) (value, tie float64) {
		value = b.stranded(least, most) + spreadPerCapsule*float64(least.Capsules())
		if b.plain && least.Devices() > 0 {
			value += spreadDevices
		}
		for _, weight := range b.less {
			value -= weight
		}
		return notNegative(value), 0
	}
}

// notNegative is a faster max(value, 0).
func notNegative(value float64) float64 {
	if value < 0 {
		return 0
	}
	return value
}

// spreadBound has the terms of a spec that are the same on all nodes to which a bound applies.
type spreadBound struct {
	wants []wanted
	// The dimensions of which the spec asks for nothing.
	others []int
	// The amounts to subtract, in the order of Score.
	less []float64
	// The spec asks for no devices.
	plain bool
}

func newSpreadBound(spec *orbit.Spec, like *orbit.Node) *spreadBound {
	b := &spreadBound{plain: spec.Devices.Count == 0}
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

// stranded returns a lower bound of the function stranded. Each term grows with what is available, and is 1 where the
// spec asks for nothing. A dimension of which the spec asks for nothing, and which is free on some nodes only, is left
// out, because one more 1 raises the mean. Where rounding could make the result too high, a little is subtracted.
//
// A search calls it some eighty times. Unpredictable conditions are therefore computed as numbers and not branched on.
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

// positive returns 1 for a number above zero, else 0. It is wrong for the least int64, which no free capacity is.
func positive(free int64) int64 { return int64(uint64(-free) >> 63) }
