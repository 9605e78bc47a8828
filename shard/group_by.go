package shard

import (
	"hash/fnv"

	"github.com/orbitsched/orbit"
)

// Rule chooses the scheduler for a node that has no owner. The schedulers are the living ones, sorted; there is at
// least one. If the rule returns no name of the list, such as "", the node goes to the lightest group. A rule must not
// block, must not change the node, and must always return the same for the same arguments, so that several Groups
// agree.
type Rule func(node *orbit.Node, schedulers []string) string

// ByHash is a [Rule] that chooses the scheduler whose name together with the node's id has the highest hash. So the
// node prefers the same scheduler in every process, whatever other schedulers come and go.
func ByHash(node *orbit.Node, schedulers []string) (best string) {
	most := uint64(0)
	for _, name := range schedulers {
		if h := hash(0, name, string(node.ID)); best == "" || h > most {
			best, most = name, h
		}
	}
	return best
}

// AtRandom returns a [Rule] that chooses a scheduler at random. With the same seed it makes the same choices.
func AtRandom(seed uint64) Rule {
	return func(node *orbit.Node, schedulers []string) string {
		return schedulers[hash(seed, string(node.ID))%uint64(len(schedulers))]
	}
}

// hash returns the FNV-1a hash of a seed and words, with its bits mixed once more, so that similar words do not have
// similar hashes.
func hash(seed uint64, words ...string) uint64 {
	h := fnv.New64a()
	for _, w := range words {
		_, _ = h.Write([]byte(w)) // never fails
		_, _ = h.Write([]byte{0})
	}
	return mix(h.Sum64() ^ seed*0x9e3779b97f4a7c15)
}
