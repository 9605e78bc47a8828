package sim

import (
	"sync"

	"github.com/orbitsched/orbit"
)

// Floor is the minimum against which ledgers are measured: it only records placements, given the ids of a capsule and
// of a node, as a proposal gives them. To place, it locks, finds the node, checks the fit, adds to the node's usage,
// and inserts the capsule's id into a map. Its methods may be called from any goroutine.
type Floor struct {
	mu     sync.Mutex
	nodes  map[orbit.NodeID]*recorded
	placed map[orbit.CapsuleID]orbit.NodeID
}

type recorded struct{ capacity, used orbit.Resources }

// NewFloor returns a Floor without nodes.
func NewFloor() *Floor {
	return &Floor{nodes: map[orbit.NodeID]*recorded{}, placed: map[orbit.CapsuleID]orbit.NodeID{}}
}

// Join adds an empty node.
func (f *Floor) Join(node orbit.NodeID, capacity orbit.Resources) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes[node] = &recorded{capacity: capacity}
}

// Place records a placement. It reports false if the node has no room for it; the node must have joined.
func (f *Floor) Place(c orbit.CapsuleID, node orbit.NodeID, want orbit.Resources) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[node]
	for d := range want {
		if want[d] > n.capacity[d]-n.used[d] {
			return false
		}
	}
	for d := range want {
		n.used[d] += want[d]
	}
	f.placed[c] = node
	return true
}

// Placed returns how many capsules are recorded.
func (f *Floor) Placed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.placed)
}
