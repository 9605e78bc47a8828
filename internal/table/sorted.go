package table

import "github.com/google/btree"

// Sorted keeps records in order, persistently: a clone shares memory with its original until one of them is written to.
// The zero value is empty and can be read, but not written to; [NewSorted] makes one that can. Its methods are
// those of a [btree.BTreeG].
type Sorted[T any] struct{ tree *btree.BTreeG[T] }

// NewSorted returns an empty table in the order of less. A larger degree makes reading cheaper and copying dearer.
func NewSorted[T any](degree int, less func(a, b T) bool) Sorted[T] {
	return Sorted[T]{btree.NewG(degree, less)}
}

// Made reports whether the table is no zero value.
func (t Sorted[T]) Made() bool { return t.tree != nil }

// Clone returns a copy of the table. It also writes to the original, so calls for one table must not overlap.
func (t Sorted[T]) Clone() Sorted[T] {
	if t.tree == nil {
		return t
	}
	return Sorted[T]{t.tree.Clone()}
}

// Len returns the number of records.
func (t Sorted[T]) Len() int {
	if t.tree == nil {
		return 0
	}
	return t.tree.Len()
}

// Get returns the record that is neither less nor greater than key, and whether there is one.
func (t Sorted[T]) Get(key T) (found T, ok bool) {
	if t.tree == nil {
		return found, false
	}
	return t.tree.Get(key)
}

// Min returns the first record, and whether there is one.
func (t Sorted[T]) Min() (first T, ok bool) {
	if t.tree == nil {
		return first, false
	}
	return t.tree.Min()
}

// Max returns the last record, and whether there is one.
func (t Sorted[T]) Max() (last T, ok bool) {
	if t.tree == nil {
		return last, false
	}
	return t.tree.Max()
}

// Ascend calls yield with each record in order, until it returns false.
func (t Sorted[T]) Ascend(yield func(T) bool) {
	if t.tree != nil {
		t.tree.Ascend(yield)
	}
}

// AscendGreaterOrEqual is Ascend from the first record on that is not less than from.
func (t Sorted[T]) AscendGreaterOrEqual(from T, yield func(T) bool) {
	if t.tree != nil {
		t.tree.AscendGreaterOrEqual(from, yield)
	}
}

// DescendGreaterThan is Ascend backwards, as long as the records are greater than to.
func (t Sorted[T]) DescendGreaterThan(to T, yield func(T) bool) {
	if t.tree != nil {
		t.tree.DescendGreaterThan(to, yield)
	}
}

// ReplaceOrInsert puts a record into the table, and returns the one that it replaces and whether there was one.
func (t Sorted[T]) ReplaceOrInsert(record T) (was T, ok bool) { return t.tree.ReplaceOrInsert(record) }

// Delete removes the record that is neither less nor greater than key, and returns it and whether there was one.
func (t Sorted[T]) Delete(key T) (was T, ok bool) { return t.tree.Delete(key) }
