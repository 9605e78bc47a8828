package nav

import "github.com/orbitsched/orbit"

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
	t.cursor = next
	bound := view.State().NodeBound()
	if all {
		*t = freeTally{view: view, cursor: next, seen: make([]quantities, bound)}
		for i := range bound {
			t.count(i)
		}
		return
	}
	for len(t.seen) < bound {
		t.seen = append(t.seen, quantities{})
	}
	for _, i := range changed {
		t.count(int(i))
	}
}

// count counts a node anew.
func (t *freeTally) count(i int) {
	var now quantities
	if n := t.view.State().NodeByIndex(i); n != nil && !n.Node.Unschedulable {
		room := freeRoom(n)
		now = room.measure(n.Node)
	}
	for d, v := range now {
		t.sum[d] += float64(v) - float64(t.seen[i][d])
	}
	t.seen[i] = now
}

// loadVector is what is asked for of each dimension, as a part of what is free.
type loadVector [allDims]float64

// load returns what part of the free room the classes ask for. Of a dimension that is not to be had it is 0: no
// order of placing changes that.
func (t *freeTally) load(classes []*batchClass) (load loadVector) {
	for _, c := range classes {
		for d := range load {
			load[d] += float64(len(c.capsules)) * float64(wantOf(c.spec, d))
		}
	}
	for d := range load {
		if t.sum[d] >= 1 {
			load[d] /= t.sum[d]
		} else {
			load[d] = 0
		}
	}
	return load
}

// add adds what others ask for.
func (l *loadVector) add(o loadVector) {
	for d, v := range o {
		l[d] += v
	}
}

// scarce returns the dimensions that are at least half as much in demand as the one most in demand.
func (l *loadVector) scarce() (dims []int) {
	most := 0.0
	for _, v := range l {
		most = max(most, v)
	}
	for d, v := range l {
		if v > 0 && v >= most/2 {
			dims = append(dims, d)
		}
	}
	return dims
}

// over reports whether more is asked for than there is.
func (l *loadVector) over() bool {
	for _, v := range l {
		if v > 1 {
			return true
		}
	}
	return false
}
