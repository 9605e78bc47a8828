// Package herd decides how far the choices of an engine spread, from how many of its proposals lose to others.
//
// Engines that rate nodes alike all want the same best node, and of those that plan at a time one gets it. So an engine that
// loses takes fewer nodes into view: the hashes of the nodes' ids make a ring, the ring is cut into equal parts, and the engine
// takes the best node of one part, or of the next part only where nothing fits in the first. With each pass that loses many
// proposals the parts are halved and the engine moves to another one, so those that met part, and the one that has won stays
// where it is. After many passes in which nothing is lost the parts are joined again, two by two, up to the whole ring.
package herd

import "math/bits"

// Spread is how far the choices of one engine spread. The zero value is for an engine that loses nothing: the whole ring.
type Spread struct {
	// Seed should be another one for each engine.
	Seed uint64
	// The ring is cut into 1<<cuts parts.
	cuts int
	// How often the engine has moved, and in how many passes it has lost nothing since the parts last changed.
	moves uint64
	calm  int
}

const (
	// MostParts bounds the number of parts, and with it what spreading costs: the best node of a part is chosen where it
	// would have been the best of so many times as many nodes.
	MostParts = 1 << mostCuts
	mostCuts  = 3
	// The engine spreads if a pass loses more than one of so many proposals.
	tolerated = 4
	// Parts are joined after so many passes that lose nothing.
	calmPasses = 16
)

// Passed takes in how many proposals a pass has sent, and how many of them lost to others.
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

// Ring returns into how many parts the ring is cut, and the hash at which the engine's part begins. Parts of engines of as many
// parts are the same or have nothing in common; those of more parts lie within those of fewer.
func (s *Spread) Ring() (parts int, from uint64) {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	if s.cuts == 0 {
		return 1, 0
	}
	length := 64 - s.cuts
	return 1 << s.cuts, Mix(s.Seed+s.moves*golden) >> length << length
}

// Part returns in which part of the ring a hash lies, counted from the part that begins at from.
func Part(parts int, from, hash uint64) int {
	part, _ := bits.Mul64(hash-from, uint64(parts))
	return int(part)
}

// Hash hashes an id, the same in every process (FNV-1a, 64 bits, and Mix).
func Hash(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return Mix(h)
}

// Mix makes each bit depend on all (the last steps of MurmurHash3). Different numbers stay different.
func Mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
