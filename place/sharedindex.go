package place

import (
	"slices"
	"sync"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
	"github.com/orbitsched/orbit/score"
)

// sharedIndex is the index of the nodes that the engines of one ledger share in this process. Engines search forks of
// it.
//
//	ledger ── state ──► sharedIndex ── fork ──► boxIndex of each engine ◄── what its plan has changed
//	                        ▲                        │
//	                        └────── bring ───────────┘ by the first engine that syncs with a newer state
//
// The choice of an engine does not depend on which states other engines bring here. Each engine registers in its fork
// the nodes in which its draft differs from the state of the version that it has forked. So an engine may sync with an
// older state than others, or with a state that has diverged from theirs.
//
// Code of importers never runs under the lock. An own index is faster than a fork, so the first engine has one until a
// second engine comes. An engine that has been the only one for long gets an own index as well.
type sharedIndex struct {
	// Whether the tree cuts equal nodes by hash, and not by number.
	byHash bool

	mu sync.Mutex
	// The index for several states, in the order of their revisions. Older versions are kept for engines that have
	// synced with a state and fork only after others have brought newer ones.
	versions []indexVersion
	// The kinds with which a new index begins; and how many nodes were moved and trees built for all engines.
	kinds         nodeKinds
	moves, builds int
	// The number of boxes that engines have opened in forks since the newest version was made.
	opened int
	// The engine that has an index of its own, 0 if none has; and whether an engine has ever asked.
	alone uint64
	begun bool
	// The engine that forked last; and how many nodes it has checked since another engine forked.
	last uint64
	busy int
}

// indexVersion is the index of all nodes of a state. It shares memory with the version before, all but what belongs to
// nodes that have changed in between.
type indexVersion struct {
	state   *orbit.State
	nodes   nodeIndex
	changed int
}

// The number of versions that are kept, and the sum of the nodes that have changed in them. For each of these nodes a
// version takes about 2 KiB.
const (
	mostVersions = 16
	mostChanged  = 1 << 14
)

// sharedKey is the key of a shared index in a state. Engines that break ties by hash share one, and engines that break
// them by node id (Seed 0) another: in a tree that is cut by the other order, a search has to open many boxes to find the
// first of many equally good nodes.
type sharedKey struct{ byHash bool }

// sharedBy returns the shared index of the ledger of a state.
func sharedBy(s *orbit.State, byHash bool) *sharedIndex {
	key := sharedKey{byHash}
	return s.Cached(key, func() any { return &sharedIndex{byHash: byHash} }).(*sharedIndex)
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
func (s *sharedIndex) leave(user uint64, checked, live int) bool {
	if s.last != user {
		s.last, s.busy = user, 0
	}
	if s.busy += checked; s.busy < 4*live+64 {
		return false
	}
	s.alone, s.busy, s.versions = user, 0, nil
	return true
}

// version returns the newest version for a state that is not newer than this one, or else the oldest. If the state is
// newer than all versions, it adds one first. The lock is held.
func (s *sharedIndex) version(state *orbit.State, c *specClass) *indexVersion {
	if n := len(s.versions); n == 0 || s.versions[n-1].state.Revision() < state.Revision() {
		s.bring(state, c)
	}
	at := len(s.versions) - 1
	for at > 0 && s.versions[at].state.Revision() > state.Revision() {
		at--
	}
	return &s.versions[at]
}

// bring adds the version for a state that is newer than all versions. If a score panics, none is added. The lock is
// held.
func (s *sharedIndex) bring(state *orbit.State, c *specClass) {
	v := indexVersion{state: state}
	var changed []int32
	if n := len(s.versions); n == 0 {
		v.nodes.kinds = s.kinds
		v.nodes.begin(state, s.byHash)
	} else {
		v.nodes = s.versions[n-1].nodes.fork()
		for i := range state.Diff(s.versions[n-1].state).NodeIndices() {
			slot := int32(i)
			if n := state.NodeByIndex(i); !v.nodes.says(slot, n) {
				v.nodes.register(slot, description(n))
				changed = append(changed, slot)
			}
		}
	}
	v.changed = len(changed)
	v.nodes.tree.Opened(s.opened)
	s.opened = 0
	v.nodes.review()
	v.nodes.arrange()
	v.nodes.moveTo(changed, func(slot int32) *orbit.NodeState { return state.NodeByIndex(int(slot)) }, s.probe(c, &v.nodes))
	s.add(v)
}

// add adds a version, and drops the oldest if there are too many.
func (s *sharedIndex) add(v indexVersion) {
	s.kinds = v.nodes.kinds
	s.moves, s.builds = s.moves+v.nodes.moves, s.builds+v.nodes.builds
	s.versions = append(s.versions, v)
	first, changed := len(s.versions)-1, v.changed
	for first > 0 && len(s.versions)-first < mostVersions && changed <= mostChanged {
		first--
		changed += s.versions[first].changed
	}
	s.versions = slices.Delete(s.versions, 0, first)
}

// learn makes the index divide the nodes by the labels that a spec names. Only one version is left after it.
func (s *sharedIndex) learn(c *specClass) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.versions)
	if n == 0 {
		return // the index is built at the next fork, after which update asks again
	}
	v := indexVersion{state: s.versions[n-1].state, nodes: s.versions[n-1].nodes.fork()}
	s.versions = nil // if anything panics, the next fork builds the index anew
	v.nodes.learn(c.spec)
	v.nodes.arrange()
	if v.nodes.plants {
		v.nodes.plant(func(slot int32) *orbit.NodeState { return v.nodes.at(slot).in }, s.probe(c, &v.nodes))
	}
	s.add(v)
}

// probe returns a function by which the shared tree chooses its cuts. It uses the score of the class only if all of
// that score is from this module. Code of importers might panic or never return, and would do so under the lock, so
// Spread takes its place. The cuts affect speed alone.
func (s *sharedIndex) probe(c *specClass, x *nodeIndex) kd.Probe {
	if ours(c.bounded) {
		return c.probe(x)
	}
	return newSpecClass(c.spec, score.Spread{}).probe(x)
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
