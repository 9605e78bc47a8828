package shard

import (
	"hash/fnv"

	"github.com/orbitsched/orbit"
)

// Rule says to which of the schedulers, which are sorted and never none, a node goes that has no owner. Any other
// answer, as "", leaves it to the balance: the node goes to the lightest group. It must answer without waiting, and
// always the same, so that several Groups agree. It must not write to the node.
type Rule func(node *orbit.Node, schedulers []string) string

// ByHash is the rule that gives a node to the scheduler whose name hashes highest with the node's id. While schedulers
// come and go each node keeps its preference, in any process.
func ByHash(node *orbit.Node, schedulers []string) (best string) {
	most := uint64(0)
	for _, name := range schedulers {
		if h := hash(0, name, string(node.ID)); best == "" || h > most {
			best, most = name, h
		}
	}
	return best
}

// AtRandom returns the rule that gives each node to any of the schedulers. The same seed gives the same.
func AtRandom(seed uint64) Rule {
	return func(node *orbit.Node, schedulers []string) string {
		return schedulers[hash(seed, string(node.ID))%uint64(len(schedulers))]
	}
}

// hash is FNV-1a of a seed and words, stirred: nearby words must not give nearby numbers.
func hash(seed uint64, words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w)) // never fails
		_, _ = h.Write([]byte{0})
	}
	x := h.Sum64() ^ seed*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
