package score

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// Shape is a request that a number of capsules have in common.
type Shape struct {
	// Capsules is how many capsules have this shape; only the ratio between shapes counts.
	Capsules int
	// CPU is what one capsule reserves, in milli-cores.
	CPU int64
	// Devices is the device request of one capsule.
	Devices orbit.DeviceRequest
}

// typicalPercent is the percentage of the work that its typical shapes cover.
const typicalPercent = 95

// Typical returns the shapes that work typically has, from a list with one spec for each capsule: the most frequent
// ones, as many as necessary to cover 95% of the list. They are sorted by rising device request, and between equally
// frequent shapes the smaller request is chosen. [FGD] takes shapes in any order and is fastest in this one.
func Typical(specs []*orbit.Spec) []Shape {
	shapes := shapesOf(specs)
	slices.SortFunc(shapes, func(a, b Shape) int {
		return cmp.Or(cmp.Compare(b.Capsules, a.Capsules), compareRequests(a, b))
	})
	n, covered := 0, 0
	for ; 100*covered < typicalPercent*len(specs); n++ {
		covered += shapes[n].Capsules
	}
	shapes = slices.Clone(shapes[:n])
	slices.SortFunc(shapes, compareRequests)
	return shapes
}

// shapesOf returns the different shapes with their counts, in no order.
func shapesOf(specs []*orbit.Spec) []Shape {
	type key struct {
		cpu          int64
		count, milli int
		models       string
	}
	found := map[key]Shape{}
	for _, s := range specs {
		cpu, d := s.Envelope.Reservation[orbit.CPU], s.Devices
		k := key{cpu, d.Count, d.Milli, strings.Join(d.Models, "\x00")}
		found[k] = Shape{Capsules: found[k].Capsules + 1, CPU: cpu, Devices: d}
	}
	return slices.Collect(maps.Values(found))
}

func compareRequests(a, b Shape) int {
	return cmp.Or(
		cmp.Compare(a.Devices.Milli, b.Devices.Milli),
		cmp.Compare(a.Devices.Count, b.Devices.Count),
		cmp.Compare(a.CPU, b.CPU),
		slices.Compare(a.Devices.Models, b.Devices.Models),
	)
}
