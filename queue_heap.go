package orbit

// turn is a class that has work, and what decides when it is served: higher priority first, then whose first entry
// was submitted first.
type turn struct {
	submitted uint64
	priority  int32
	class     *class
}

// before orders turns. No two classes have an entry in common.
func (t *turn) before(o *turn) bool {
	if t.priority != o.priority {
		return t.priority > o.priority
	}
	return t.submitted < o.submitted
}

// readyHeap is a heap of turns, each with fanout below it. A class knows where its turn is (class.at).
//
// With many classes, nearly every capsule that is taken moves a turn from the top to the bottom. So the heap holds the
// keys itself and is flat: a move down touches few cache lines and updates class.at of few classes.
type readyHeap []turn

const fanout = 4

// put inserts a class at the position of its turn, or moves it there.
func (h *readyHeap) put(t turn) {
	if t.class.at < 0 {
		t.class.at = len(*h)
		*h = append(*h, t)
	}
	h.sift(t.class.at, t)
}

// remove takes a class out, if it is there.
func (h *readyHeap) remove(k *class) {
	if k.at < 0 {
		return
	}
	last := len(*h) - 1
	moved, at := (*h)[last], k.at
	(*h)[last] = turn{}
	*h = (*h)[:last]
	if k.at = -1; at < last {
		h.sift(at, moved)
	}
}

// sift fills the gap at i with a turn, after others have made way for it, up or down.
func (h readyHeap) sift(i int, t turn) {
	for i > 0 && t.before(&h[(i-1)/fanout]) {
		h.fill(i, h[(i-1)/fanout])
		i = (i - 1) / fanout
	}
	for {
		next := h.first(fanout*i + 1)
		if next < 0 || !h[next].before(&t) {
			break
		}
		h.fill(i, h[next])
		i = next
	}
	h.fill(i, t)
}

// first returns the position of the first in order among the children that begin at a position; -1 if there are none.
func (h readyHeap) first(from int) int {
	if from >= len(h) {
		return -1
	}
	best := from
	for i := from + 1; i < min(from+fanout, len(h)); i++ {
		if h[i].before(&h[best]) {
			best = i
		}
	}
	return best
}

// fill writes a turn down at i.
func (h readyHeap) fill(i int, t turn) {
	h[i] = t
	t.class.at = i
}
