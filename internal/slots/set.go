// Package slots has sets of small indices.
package slots

// Set is a set of indices of a dense table. Clear takes constant time, except when the set grows; call it before the
// first use.
type Set struct {
	marks []uint32
	mark  uint32
}

// Clear empties the set and makes room for indices below n.
func (s *Set) Clear(n int) {
	if s.mark++; s.mark == 0 || len(s.marks) < n {
		s.marks, s.mark = make([]uint32, n), 1
	}
}

// Add adds an index. It reports whether it is new.
func (s *Set) Add(i int32) bool {
	if s.marks[i] == s.mark {
		return false
	}
	s.marks[i] = s.mark
	return true
}
