package place

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/herd"
	"github.com/orbitsched/orbit/internal/kd"
)

// ties breaks ties between nodes of equal score: by a hash of the node's id with the seed or, with seed 0, by numbers that
// are in the order of the ids.
type ties struct {
	seed   uint64
	hashes leastHashes
}

// leastHashes knows the smallest hash in a box, where hashes are counted from one of them on.
//
// The index is the same for all engines, so a box does not know it; it is computed when it is needed, and kept for as long
// as the box stays as it is.
type leastHashes struct {
	from uint64
	// By the lowest bits of a box's version.
	memo []leastHash
}

// leastHash is the smallest hash of the points of a box with this version.
type leastHash struct{ version, hash uint64 }

// nodeHash hashes a node's id, the same in every process. It is a variable for the tests alone, in which nodes have the same
// hash by intent.
var nodeHash = func(id orbit.NodeID) uint64 { return herd.Hash(string(id)) }

// rank is a node's rank for a seed other than 0. All seeds have the same order of hashes, as on a ring, and each begins
// somewhere else: so nodes that follow each other for one seed do for all, and are together in a tree that all share.
func rank(seed, hash uint64) uint64 { return hash - begins(seed) }

// begins is the hash at which the ring begins for a seed.
func begins(seed uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	return herd.Mix(seed * golden)
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
	return t.hashes.least(b)
}

// begin prepares for a search of a tree with so many points.
func (t *ties) begin(seed uint64, points int) {
	if t.seed = seed; seed != 0 {
		t.hashes.begin(begins(seed), points)
	}
}

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

// begin makes room to keep what is known of the boxes of a tree with so many points, where hashes are counted from one on.
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
