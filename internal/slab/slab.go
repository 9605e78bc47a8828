// Package slab allocates memory for many small values at once.
package slab

import "unsafe"

// Of hands out values of one type, perSlab of them from one allocation. All values of a slab stay in memory as long as
// one of them is in use. The zero value is ready.
type Of[T any] struct{ rest []T }

// perSlab is the number of values that share an allocation.
const perSlab = 64

// New returns a pointer to a copy of the value.
func (s *Of[T]) New(value T) *T {
	if len(s.rest) == 0 {
		s.rest = make([]T, perSlab)
	}
	p := &s.rest[0]
	s.rest = s.rest[1:]
	*p = value
	return p
}

// Slice returns a slice of n zero values. Its capacity is n, so append does not overwrite other values.
func (s *Of[T]) Slice(n int) []T {
	if len(s.rest) < n {
		s.rest = make([]T, max(n, perSlab))
	}
	out := s.rest[:n:n]
	s.rest = s.rest[n:]
	return out
}

// Boxes converts values of type T to interface values of type I, which T must implement with value receivers. An
// ordinary conversion allocates memory for each value. Boxes makes the interface value refer to a copy in a slab, which
// is never changed afterwards. T must be larger than a pointer, or interface values would not refer to it.
type Boxes[I, T any] struct {
	values Of[T]
	// An interface value of dynamic type T, from which New copies the type.
	like  I
	ready bool
}

// New returns the value as an I.
func (b *Boxes[I, T]) New(value T) I {
	if !b.ready {
		b.like, b.ready = any(value).(I), true
	}
	out := b.like
	// An interface value is two words: its type, and a pointer to what it holds.
	(*[2]unsafe.Pointer)(unsafe.Pointer(&out))[1] = unsafe.Pointer(b.values.New(value))
	return out
}
