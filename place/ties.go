package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/herd"
	"github.com/orbitsched/orbit/internal/kd"
)

// ties ranks nodes of equal score: by a hash of the id, counted from the place where the ring begins for the seed, or
// with seed 0 by numbers that are in the order of the ids. The lower rank wins.
type ties struct {
	seed   uint64
	hashes leastHashes
}

// leastHashes finds the smallest hash in a box, where hashes are counted from a given one on, around a ring.
//
// The tree is shared by engines with different seeds, so its boxes cannot store this hash. It is computed when needed,
// and kept as long as the box does not change.
type leastHashes struct {
	from uint64
	// By the lowest bits of the version of a box. A later box with the same bits overwrites the entry.
	memo []leastHash
}

// leastHash is the smallest hash of the points of a box with this version.
type leastHash struct{ version, hash uint64 }

// nodeHash hashes the id of a node, with the same result in every process. It is a variable only for tests, which make
// hashes collide.
var nodeHash = func(id orbit.NodeID) uint64 { return herd.Hash(string(id)) }

// rank returns the rank of a node for a seed other than 0. All seeds have the same order of hashes, as on a ring, and
// each begins at another place. So nodes that are next to each other for one seed are so for all seeds, and are
// together in the tree that all engines share.
func rank(seed, hash uint64) uint64 { return hash - begins(seed) }

// begins returns the hash at which the ring begins for a seed.
func begins(seed uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	return herd.Mix(seed * golden)
}

// of returns the rank of a node with this number and this hash.
func (t *ties) of(number, hash uint64) uint64 {
	if t.seed == 0 {
		return number
	}
	return rank(t.seed, hash)
}

// least returns the smallest rank of the points of a box.
func (t *ties) least(b *kd.Box) uint64 {
	if t.seed == 0 {
		return b.Rank
	}
	return t.hashes.least(b)
}

// begin prepares for a search of a tree with this number of points.
func (t *ties) begin(seed uint64, points int) {
	if t.seed = seed; seed != 0 {
		t.hashes.begin(begins(seed), points)
	}
}

// least returns the smallest hash of the points of a box, counted from l.from on. It wraps around: the difference of
// two uint64 is the distance on the ring.
func (l *leastHashes) least(b *kd.Box) uint64 {
	kept := &l.memo[b.Version&uint64(len(l.memo)-1)]
	if kept.version == b.Version {
		return kept.hash
	}
	least := ^uint64(0)
	if b.Leaf() {
		for i := range b.Points {
			least = min(least, b.Points[i].Hash-l.from)
		}
	} else {
		least = min(l.least(b.Left), l.least(b.Right))
	}
	*kept = leastHash{b.Version, least}
	return least
}

// begin prepares for boxes of a tree with this number of points, where hashes are counted from the given one on. It
// drops results for another beginning.
func (l *leastHashes) begin(from uint64, points int) {
	boxes := 256
	for boxes < points/4 {
		boxes *= 2
	}
	switch {
	case boxes > len(l.memo):
		l.memo = make([]leastHash, boxes)
	case l.from != from:
		clear(l.memo)
	}
	l.from = from
}
