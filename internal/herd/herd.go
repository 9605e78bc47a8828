// Package herd spreads the choices of engines whose proposals lose to those of others.
//
// Engines that rate nodes alike all want the same best node, and of those that plan at the same time one gets it. So an
// engine that loses considers fewer nodes. The hashes of the node ids form a ring, and the ring is cut into equal
// parts. The engine takes the best node of one part, and goes on to the next part only where nothing fits in the first.
// After each pass that loses many proposals the number of parts doubles and the engine moves to another part. So
// engines that have met move apart, and the engine that has won stays where it is. After many passes that lose nothing
// the parts are joined again, two by two, up to the whole ring.
package herd

import "math/bits"

// Spread is the state of one engine: into how many parts it cuts the ring, and where its part begins. The zero value is
// for an engine that loses nothing: the whole ring.
type Spread struct {
	// Seed should differ from engine to engine.
	Seed uint64
	// The ring is cut into 1<<cuts parts.
	cuts int
	// How many times the engine has moved; and how many passes have lost nothing since the parts last changed.
	moves uint64
	calm  int
}

const (
	// MostParts is the largest number of parts. It bounds the cost of spreading, because the best node of a part is
	// chosen as if there were only 1/MostParts as many nodes.
	MostParts = 1 << mostCuts
	mostCuts  = 3
	// The engine spreads if a pass loses more than one in this number of proposals.
	tolerated = 4
	// Parts are joined after this number of passes that lose nothing.
	calmPasses = 16
)

// Passed records a pass: how many proposals it has sent, and how many of them lost to others.
func (s *Spread) Passed(proposed, lost int) {
	switch {
	case lost*tolerated > proposed:
		s.cuts = min(s.cuts+1, mostCuts)
		s.moves++
		s.calm = 0
	case s.cuts == 0 || proposed == 0 || lost > 0:
	default:
		if s.calm++; s.calm == calmPasses {
			s.calm = 0
			s.cuts--
		}
	}
}

// Ring returns the number of parts, and the hash at which the engine's part begins. The parts of two engines with the
// same number of parts are the same or disjoint; each part of an engine with more parts lies within one of an engine
// with fewer.
func (s *Spread) Ring() (parts int, from uint64) {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	if s.cuts == 0 {
		return 1, 0
	}
	length := 64 - s.cuts
	return 1 << s.cuts, Mix(s.Seed+s.moves*golden) >> length << length
}

// Part returns the number of the part in which a hash lies, counted from the part that begins at from.
func Part(parts int, from, hash uint64) int {
	part, _ := bits.Mul64(hash-from, uint64(parts))
	return int(part)
}

// Hash returns a hash of an id that is the same in every process (FNV-1a, 64 bits, and Mix).
func Hash(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return Mix(h)
}

// Mix returns a number in which each bit depends on all bits of h (the last steps of MurmurHash3). Different numbers
// stay different.
func Mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
