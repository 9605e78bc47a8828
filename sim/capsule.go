package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/orbitsched/orbit"
)

// Capsule is a capsule that is not submitted yet. Identical capsules share the Spec; treat it as read-only.
type Capsule struct {
	// ID is the id that the capsule is submitted with.
	ID orbit.CapsuleID
	// Spec is the spec that the capsule is submitted with.
	Spec *orbit.Spec
}

// Class is a number of identical capsules.
type Class struct {
	// Spec is the spec that the capsules share.
	Spec *orbit.Spec
	// Count is how many capsules have the spec.
	Count int
}

// Expand lists the capsules of the classes, class by class. A capsule's id is its module and its number in
// the class, as in "service-0003-000017"; so no two classes may share a module.
func Expand(classes []Class) []Capsule {
	total := 0
	for _, c := range classes {
		total += c.Count
	}
	out := make([]Capsule, 0, total)
	for _, c := range classes {
		for i := range c.Count {
			out = append(out, Capsule{ID: orbit.CapsuleID(c.Spec.Module + "-" + number(i, 6)), Spec: c.Spec})
		}
	}
	return out
}

// Shuffle brings the capsules into a random order, in place, so that classes interleave. Expand returns them grouped by
// class.
func Shuffle(capsules []Capsule, seed uint64) {
	r := source(seed, "shuffle")
	r.Shuffle(len(capsules), func(i, j int) { capsules[i], capsules[j] = capsules[j], capsules[i] })
}

// DeviceDemand returns the sum of a spec's demand on all its device instances, in milli.
func DeviceDemand(spec *orbit.Spec) int64 {
	return int64(spec.Devices.Count) * int64(spec.Devices.Milli)
}

// DeviceCapacity returns the capacity of all device instances of the nodes, in milli.
func DeviceCapacity(nodes []orbit.Node) int64 {
	sum := int64(0)
	for i := range nodes {
		sum += 1000 * int64(nodes[i].Devices.Count)
	}
	return sum
}

// source returns random numbers for a seed and a purpose. Each purpose has a stream of its own, so that a change in one
// use of random numbers does not affect the others.
func source(seed uint64, purpose string) *rand.Rand {
	stream := uint64(len(purpose))
	for i := range len(purpose) {
		stream = stream*0x100000001b3 ^ uint64(purpose[i])
	}
	return rand.New(rand.NewPCG(seed, stream))
}

// number returns i in decimal, with leading zeros up to this number of digits.
func number(i, digits int) string { return fmt.Sprintf("%0*d", digits, i) }

// apportion divides total in proportion to the weights, as exactly as whole numbers allow: the sum of the first k
// shares differs from the exact sum by at most a half, for every k. Weights below 0 count as 0; if no weight is above
// 0, all shares are alike.
func apportion(total int, weights []float64) []int {
	all := 0.0
	for _, w := range weights {
		all += max(w, 0)
	}
	out, sum, given := make([]int, len(weights)), 0.0, 0
	for i, w := range weights {
		if all > 0 {
			sum += max(w, 0) / all
		} else {
			sum += 1 / float64(len(weights))
		}
		out[i] = int(float64(total)*sum+0.5) - given
		given += out[i]
	}
	return out
}
