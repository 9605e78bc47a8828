// Package heap has a binary heap of values that know their order.
package heap

// Ordered is the constraint of the values on a heap.
type Ordered[T any] interface {
	// Before reports whether the value goes first.
	Before(other T) bool
}

// Heap holds values, the first at position 0. The zero value is empty.
type Heap[T Ordered[T]] []T

// Push adds a value.
func (h *Heap[T]) Push(x T) {
	*h = append(*h, x)
	s, i := *h, len(*h)-1
	for i > 0 {
		parent := (i - 1) / 2
		if !x.Before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = x
}

// Pop removes and returns the first value. The heap must not be empty.
func (h *Heap[T]) Pop() T {
	s := *h
	first, last := s[0], len(s)-1
	x := s[last]
	var zero T
	s[last] = zero
	if *h = s[:last]; last > 0 {
		h.Replace(x)
	}
	return first
}

// Replace replaces the first value by another one and restores the order. The heap must not be empty.
func (h *Heap[T]) Replace(x T) {
	s, i := *h, 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1].Before(s[child]) {
			child++
		}
		if !s[child].Before(x) {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = x
}
