package nav

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// freeTally adds up what is free on all nodes, and follows the view at the cost of what has changed.
type freeTally struct {
	view   *orbit.View
	cursor uint64
	// By node index, what it was counted with.
	seen []quantities
	sum  [allDims]float64
}

// sync brings the sums up to the view.
func (t *freeTally) sync(view *orbit.View) {
	if view != t.view {
		*t = freeTally{view: view}
	}
	changed, next, all := view.Changed(t.cursor)
	bound := view.State().NodeBound()
	if t.cursor = next; all {
		t.seen, t.sum = make([]quantities, bound), [allDims]float64{}
		for i := range bound {
			t.count(i)
		}
		return
	}
	t.seen = append(t.seen, make([]quantities, max(0, bound-len(t.seen)))...)
	for _, i := range changed {
		t.count(int(i))
	}
}

// count counts a node anew.
func (t *freeTally) count(i int) {
	var now quantities
	if n := t.view.State().NodeByIndex(i); n != nil && n.Node.Schedulable() {
		now = measureFree(n)
	}
	for d, v := range now {
		t.sum[d] += float64(v) - float64(t.seen[i][d])
	}
	t.seen[i] = now
}

// demandVector is what is asked for of each dimension, as a part of what is free.
type demandVector [allDims]float64

// demand returns what part of all that is free the classes ask for. Of a dimension that is not to be had it is 0: no
// order of placing changes that.
func (t *freeTally) demand(classes []*batchClass) (out demandVector) {
	for d := range out {
		if t.sum[d] < 1 {
			continue
		}
		for _, c := range classes {
			out[d] += float64(len(c.capsules)) * float64(wantOf(c.spec, d))
		}
		out[d] /= t.sum[d]
	}
	return out
}

// scarce returns the dimensions that are at least half as much in demand as the one most in demand.
func (v *demandVector) scarce() (dims []int) {
	most := slices.Max(v[:])
	for d, part := range v {
		if part > 0 && part >= most/2 {
			dims = append(dims, d)
		}
	}
	return dims
}
