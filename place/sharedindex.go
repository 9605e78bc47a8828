package place

import (
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// sharedIndex is the index of the nodes that all engines of one ledger share in this process.
//
//	ledger ── state ──► sharedIndex ── fork ──► boxIndex of each engine ◄── what its plan has changed
//	                        ▲                        │
//	                        └────── bring ───────────┘ by the first engine that syncs with a newer state
//
// Whether an engine chooses right does not depend on what others bring here: each knows which nodes have changed here
// and in its own draft since it went off, and takes all of which the two say different things to be apart. So it may
// sync with an older state than others, or with one that continues otherwise.
//
// Code of importers never runs under the lock. The first engine has an index of its own instead, which is faster,
// until a second one comes; and so has one that has been the only one for long.
type sharedIndex struct {
	mu sync.Mutex
	// The index is one of the nodes of a state with this revision; else it is to begin anew.
	ready    bool
	revision orbit.Revision
	nodes    nodeIndex
	// Nodes that have changed here.
	journal slotJournal
	// The engine that has an index of its own, 0 if none has, and whether one ever had.
	alone uint64
	begun bool
	// The engine that was the last to fork, and how many nodes it has checked since another did.
	last uint64
	busy int
}

type sharedKey struct{}

// sharedBy returns what the engines of a state's ledger share.
func sharedBy(s *orbit.State) *sharedIndex {
	return s.Shared(sharedKey{}, func() any { return &sharedIndex{} }).(*sharedIndex)
}

// admit reports whether an engine is to have an index of its own.
func (s *sharedIndex) admit(user uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun, s.alone = true, user
	}
	if s.alone != user {
		s.alone = 0
	}
	return s.alone == user
}

// leave reports whether an engine that has just gone off from here is to keep the index as its own, because no other has
// asked for so long that it would not matter if one came and had to build it. The lock is held.
func (s *sharedIndex) leave(user uint64, checked int) bool {
	if s.last != user {
		s.last, s.busy = user, 0
	}
	if s.busy += checked; s.busy < 4*s.nodes.live+64 {
		return false
	}
	s.alone, s.busy, s.ready, s.nodes = user, 0, false, nodeIndex{kinds: s.nodes.kinds}
	return true
}

// bring brings the index up to a state, if that is newer; check are the nodes of which the two may say different things.
// If it has to be built, it cuts by hash or by number. The lock is held.
func (s *sharedIndex) bring(state *orbit.State, check []int32, c *specClass, byHash bool) {
	if s.ready && state.Revision() <= s.revision {
		return
	}
	begin := !s.ready
	s.ready = false // if anything panics, begin afresh
	var changed []int32
	if begin {
		s.journal.forget()
		s.nodes.begin(state, byHash)
	} else {
		for _, slot := range check {
			if n := state.NodeByIndex(int(slot)); !s.nodes.says(slot, n) {
				s.nodes.register(slot, description(n))
				changed = append(changed, slot)
			}
		}
	}
	s.journal.add(changed)
	s.nodes.review()
	s.nodes.arrange()
	s.nodes.settle(changed, func(slot int32) *orbit.NodeState { return state.NodeByIndex(int(slot)) }, s.probe(c))
	s.revision, s.ready = state.Revision(), true
}

// learn divides the nodes by the labels of which a spec speaks.
func (s *sharedIndex) learn(c *specClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return // the fork that comes next says so again
	}
	s.ready = false
	s.nodes.learn(c.spec)
	s.nodes.arrange()
	if s.nodes.plants {
		s.nodes.plant(func(slot int32) *orbit.NodeState { return s.nodes.at(slot).in }, s.probe(c))
	}
	s.ready = true
}

// probe is for cutting the shared tree. It asks the class's score only if that is one of this module: code of importers
// may never return, or panic, and would do so under the lock. Spread takes its place.
func (s *sharedIndex) probe(c *specClass) kd.Probe {
	if ours(c.bounded) {
		return c.probe(&s.nodes)
	}
	return newSpecClass(c.spec, score.Spread{}).probe(&s.nodes)
}

// ours reports whether a score has no code of importers in it.
func ours(s orbit.Score) bool {
	switch s := s.(type) {
	case score.Spread, score.BestFit, score.DotProduct, score.LeastAllocated, score.MostAllocated, score.Balance,
		score.Preferences, score.Domains, score.Crowding:
		return true
	case score.WeightedSum:
		for _, term := range s {
			if !ours(term.Score) {
				return false
			}
		}
		return true
	}
	return false
}

// slotJournal is an endless list of node indices, of which the end is kept.
type slotJournal struct {
	list []int32
	// Position of list[0].
	base uint64
}

// maxJournal is how many indices are kept: an engine that falls behind by more compares all nodes.
const maxJournal = 1 << 16

func (j *slotJournal) add(slots []int32) {
	j.list = append(j.list, slots...)
	if over := len(j.list) - maxJournal; over > 0 {
		over = max(over, maxJournal/2)
		j.base += uint64(over)
		j.list = append(j.list[:0], j.list[over:]...)
	}
}

// forget makes all positions too old.
func (j *slotJournal) forget() {
	j.base += uint64(len(j.list)) + 1
	j.list = j.list[:0]
}

// end is the position of what is added next.
func (j *slotJournal) end() uint64 { return j.base + uint64(len(j.list)) }

// since returns what was added from a position on; lost: some of it is not kept any more.
func (j *slotJournal) since(position uint64) (slots []int32, lost bool) {
	if position < j.base || position > j.end() {
		return nil, true
	}
	return j.list[position-j.base:], false
}
