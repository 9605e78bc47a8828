package sim

import (
	"sync"

	"github.com/orbitsched/orbit"
)

// Recorder is the floor that a ledger is measured against: what it costs merely to record a placement, given what
// a proposal gives, the ids of a capsule and of a node. It locks, finds the node, checks the fit, subtracts, and
// inserts the capsule's id into a map. Its methods may be called from any goroutine.
type Recorder struct {
	mu     sync.Mutex
	nodes  map[orbit.NodeID]*recorded
	placed map[orbit.CapsuleID]orbit.NodeID
}

type recorded struct{ capacity, used orbit.Resources }

// NewRecorder returns a recorder without nodes.
func NewRecorder() *Recorder {
	return &Recorder{nodes: map[orbit.NodeID]*recorded{}, placed: map[orbit.CapsuleID]orbit.NodeID{}}
}

// Join adds an empty node.
func (r *Recorder) Join(node orbit.NodeID, capacity orbit.Resources) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[node] = &recorded{capacity: capacity}
}

// Place records a placement. It reports false if the node has no room for it; the node must have joined.
func (r *Recorder) Place(c orbit.CapsuleID, node orbit.NodeID, want orbit.Resources) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[node]
	for d := range want {
		if want[d] > n.capacity[d]-n.used[d] {
			return false
		}
	}
	for d := range want {
		n.used[d] += want[d]
	}
	r.placed[c] = node
	return true
}

// Placed returns how many capsules are recorded.
func (r *Recorder) Placed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.placed)
}
