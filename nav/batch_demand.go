package nav

import (
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// freeTally has the sums of the free capacity of all nodes. To sync it with a view costs as much as the view has
// changes.
type freeTally struct {
	view   *orbit.View
	cursor uint64
	// seen has, by node index, the values with which the node was counted.
	seen []seats.Quantities
	sum  [seats.AllDims]float64
}

// sync brings the sums up to the view.
func (t *freeTally) sync(view *orbit.View) {
	if view != t.view {
		*t = freeTally{view: view}
	}
	changed, next, all := view.Changed(t.cursor)
	bound := view.State().NodeBound()
	if t.cursor = next; all {
		t.seen, t.sum = make([]seats.Quantities, bound), [seats.AllDims]float64{}
		for i := range bound {
			t.count(i)
		}
		return
	}
	t.seen = append(t.seen, make([]seats.Quantities, max(0, bound-len(t.seen)))...)
	for _, i := range changed {
		t.count(int(i))
	}
}

// count replaces the values of a node in the sums.
func (t *freeTally) count(i int) {
	var now seats.Quantities
	if n := t.view.State().NodeByIndex(i); n != nil && n.Node.Schedulable() {
		now = seats.MeasureFree(n)
	}
	for d, v := range now {
		t.sum[d] += float64(v) - float64(t.seen[i][d])
	}
	t.seen[i] = now
}

// demandVector has the requested part of the free capacity in each dimension.
type demandVector [seats.AllDims]float64

// demand returns which part of all free capacity the classes request. It is 0 in a dimension without free capacity,
// because there the order of placing changes nothing.
func (t *freeTally) demand(classes []*batchClass) (out demandVector) {
	for d := range out {
		if t.sum[d] < 1 {
			continue
		}
		for _, c := range classes {
			out[d] += float64(len(c.capsules)) * float64(seats.WantOf(c.spec, d))
		}
		out[d] /= t.sum[d]
	}
	return out
}

// scarce returns the dimensions whose demand is at least half of the highest demand.
func (v *demandVector) scarce() (dims []int) {
	most := slices.Max(v[:])
	for d, part := range v {
		if part > 0 && part >= most/2 {
			dims = append(dims, d)
		}
	}
	return dims
}
