package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// ties breaks ties between nodes of equal score: by a hash of the node's id with the seed or, with seed 0, by numbers that
// are in the order of the ids.
//
// The index is the same for all seeds. A box knows the smallest number in it, but not the smallest hash with a seed;
// that is computed when two candidates are equal in everything else, and kept for as long as the box stays as it is.
type ties struct {
	seed uint64
	// By the lowest bits of a box's version.
	memo []leastRank
}

// leastRank is the smallest rank of the points of a box with this version.
type leastRank struct{ version, rank uint64 }

// nodeHash hashes a node's id, the same in every process (FNV-1a, 64 bits, and the last steps of MurmurHash3). It is a
// variable for the tests alone, in which nodes have the same hash by intent.
var nodeHash = func(id orbit.NodeID) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return mix(h)
}

// mix makes each bit depend on all. Different numbers stay different.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// rank is a node's rank for a seed other than 0. All seeds have the same order of hashes, as on a ring, and each begins
// somewhere else: so nodes that follow each other for one seed do for all, and are together in a tree that all share.
func rank(seed, hash uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	return hash - mix(seed*golden)
}

// of is what breaks ties for a node with this number and this hash.
func (t *ties) of(number, hash uint64) uint64 {
	if t.seed == 0 {
		return number
	}
	return rank(t.seed, hash)
}

// least is the smallest rank of the points of a box.
func (t *ties) least(b *kd.Box) uint64 {
	if t.seed == 0 {
		return b.Rank
	}
	kept := &t.memo[b.Version&uint64(len(t.memo)-1)]
	if kept.version == b.Version {
		return kept.rank
	}
	least := ^uint64(0)
	if b.Leaf() {
		for i := range b.Points {
			least = min(least, rank(t.seed, b.Points[i].Hash))
		}
	} else {
		least = min(t.least(b.Left), t.least(b.Right))
	}
	*kept = leastRank{b.Version, least}
	return least
}

// reserve makes room to keep what is known of the boxes of a tree with so many points.
func (t *ties) reserve(points int) {
	boxes := 256
	for boxes < points/4 {
		boxes *= 2
	}
	if t.seed != 0 && boxes > len(t.memo) {
		t.memo = make([]leastRank, boxes)
	}
}
