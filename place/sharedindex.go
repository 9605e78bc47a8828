package place

import (
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// sharedIndex is the index of the nodes that all engines of one ledger share in this process. Engines search forks of
// it.
//
//	ledger ── state ──► sharedIndex ── fork ──► boxIndex of each engine ◄── what its plan has changed
//	                        ▲                        │
//	                        └────── bring ───────────┘ by the first engine that syncs with a newer state
//
// The choice of an engine does not depend on which states other engines bring here. Each engine knows which nodes have
// changed in the shared index and in its own draft since its last fork, and checks all of these nodes at the next fork.
// So an engine may sync with an older state than others, or with a state that has diverged from theirs.
//
// Code of importers never runs under the lock. An own index is faster than a fork, so the first engine has one until a
// second engine comes. An engine that has been the only one for long gets an own index as well.
type sharedIndex struct {
	mu sync.Mutex
	// Whether nodes has the nodes of a state with this revision. If not, bring builds it anew.
	ready    bool
	revision orbit.Revision
	nodes    nodeIndex
	// The nodes that have changed in this index, in order.
	journal slotJournal
	// The engine that has an index of its own, 0 if none has; and whether an engine has ever asked.
	alone uint64
	begun bool
	// The engine that forked last; and how many nodes it has checked since another engine forked.
	last uint64
	busy int
}

type sharedKey struct{}

// sharedBy returns the shared index of the ledger of a state.
func sharedBy(s *orbit.State) *sharedIndex {
	return s.Shared(sharedKey{}, func() any { return &sharedIndex{} }).(*sharedIndex)
}

// admit reports whether an engine is to have an index of its own. The first engine is, until another one asks.
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

// leave reports whether an engine that has just forked is to keep the fork as its own index. That is so if no other
// engine has forked while this one checked about four times as many nodes as there are: then it costs little if another
// engine comes and has to build the shared index anew. The lock is held.
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

// bring brings the index up to a state, if the state is newer. The nodes in check are those that may differ. If the
// index has to be built, byHash says how the tree cuts equal nodes. The lock is held.
func (s *sharedIndex) bring(state *orbit.State, check []int32, c *specClass, byHash bool) {
	if s.ready && state.Revision() <= s.revision {
		return
	}
	begin := !s.ready
	s.ready = false // if anything panics, it stays so, and the next call begins afresh
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

// learn makes the index divide the nodes by the labels that a spec names.
func (s *sharedIndex) learn(c *specClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return // the index is built at the next fork, after which update asks again
	}
	s.ready = false
	s.nodes.learn(c.spec)
	s.nodes.arrange()
	if s.nodes.plants {
		s.nodes.plant(func(slot int32) *orbit.NodeState { return s.nodes.at(slot).in }, s.probe(c))
	}
	s.ready = true
}

// probe returns a function by which the shared tree chooses its cuts. It uses the score of the class only if all of
// that score is from this module. Code of importers might panic or never return, and would do so under the lock, so
// Spread takes its place. The cuts affect speed alone.
func (s *sharedIndex) probe(c *specClass) kd.Probe {
	if ours(c.bounded) {
		return c.probe(&s.nodes)
	}
	return newSpecClass(c.spec, score.Spread{}).probe(&s.nodes)
}

// ours reports whether a score consists of code of this module alone.
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

// slotJournal is an ever growing list of node indices, of which only the end is kept.
type slotJournal struct {
	list []int32
	// Position of list[0].
	base uint64
}

// maxJournal is the number of indices that are kept. A reader that falls behind by more has to compare all nodes.
const maxJournal = 1 << 16

func (j *slotJournal) add(slots []int32) {
	j.list = append(j.list, slots...)
	if over := len(j.list) - maxJournal; over > 0 {
		over = max(over, maxJournal/2)
		j.base += uint64(over)
		j.list = append(j.list[:0], j.list[over:]...)
	}
}

// forget empties the journal, and makes all positions that readers hold too old.
func (j *slotJournal) forget() {
	j.base += uint64(len(j.list)) + 1
	j.list = j.list[:0]
}

// end returns the position of the index that is added next.
func (j *slotJournal) end() uint64 { return j.base + uint64(len(j.list)) }

// since returns the indices that were added from a position on; lost: some of them are no longer kept.
func (j *slotJournal) since(position uint64) (slots []int32, lost bool) {
	if position < j.base || position > j.end() {
		return nil, true
	}
	return j.list[position-j.base:], false
}
