package orbit

// minHeap is a binary heap of values that know their order.
type minHeap[T interface{ before(T) bool }] []T

// push adds a value.
func (h *minHeap[T]) push(x T) {
	*h = append(*h, x)
	h.up(len(*h) - 1)
}

// pop removes and returns the first. It requires a heap that is not empty.
func (h *minHeap[T]) pop() T {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	var zero T
	s[last] = zero
	*h = s[:last]
	h.down(0)
	return first
}

// up restores the order after the value at i has shrunk.
func (h *minHeap[T]) up(i int) {
	s := *h
	for i > 0 {
		parent := (i - 1) / 2
		if !s[i].before(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

// down restores the order after the value at i has grown.
func (h *minHeap[T]) down(i int) {
	s := *h
	for {
		child := 2*i + 1
		if child >= len(s) {
			return
		}
		if child+1 < len(s) && s[child+1].before(s[child]) {
			child++
		}
		if !s[child].before(s[i]) {
			return
		}
		s[i], s[child] = s[child], s[i]
		i = child
	}
}
