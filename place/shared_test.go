package place

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

// sharer is an engine with a view of its own on a ledger of which others have views, too.
type sharer struct {
	view  orbit.View
	draft orbit.Draft
	Indexed
}

// sharers returns a ledger with nodes, with capsules of two specs, and engines with different seeds.
func sharers(t testing.TB, nodes, engines, capsules int) (*orbit.MemoryLedger, []*sharer) {
	l := &orbit.MemoryLedger{}
	for from := 0; from < nodes; from += 1000 {
		var do []orbit.Commitment
		for i := from; i < min(from+1000, nodes); i++ {
			n := machine(orbit.NodeID(fmt.Sprintf("n%05d", i)), 1000)
			n.Labels = map[string]string{"zone": fmt.Sprint("z", i%3), "host": fmt.Sprint(i)}
			do = append(do, orbit.PutNode{Node: n})
		}
		commit(t, l, do...)
	}
	for i := range 2 {
		spec := wants(int64(1 + i))
		spec.Prefer = []orbit.Preference{{Predicate: predicates(fmt.Sprintf("zone in (z%d)", i))[0], Weight: 1}}
		commit(t, l, orbit.Submit{IDs: names(fmt.Sprint("c", i), capsules), Spec: spec})
	}
	var all []*sharer
	for i := range engines {
		all = append(all, &sharer{Indexed: Indexed{Seed: uint64(1 + i)}})
	}
	return l, all
}

// sync shows the engine the ledger as it is.
func (s *sharer) sync(t require.TestingT, l orbit.Ledger) {
	require.NoError(t, s.view.Refresh(context.Background(), l, nil, time.Unix(0, 0)))
	s.draft.Sync(&s.view)
}

// place plans the capsules from so many on, by turns of one spec and the other, and proposes them if they are to be.
func (s *sharer) place(t require.TestingT, l orbit.Ledger, from, to int, propose bool) {
	for i := from; i < to; i++ {
		c := s.view.State().Capsule(orbit.CapsuleID(fmt.Sprintf("c%d%04d", i%2, i)))
		if !c.Pending() {
			continue
		}
		require.NoError(t, s.draft.PlaceBest(&s.Indexed, c))
		if p := s.draft.Propose(); propose {
			_, err := l.Propose(context.Background(), p)
			if err != nil {
				require.ErrorIs(t, err, orbit.ErrConflict)
			}
		}
	}
}

// What the nodes that a commit changes cost in the index does not grow with the number of engines: the one that places
// moves them, the first that syncs after it moves them for all, and the tree is built for all.
func TestNodesMoveOnceForAllEngines(t *testing.T) {
	for _, engines := range []int{4, 32} {
		l, all := sharers(t, 2000, engines, 400)
		var moved int
		for round := range 4 {
			for i, s := range all {
				s.sync(t, l)
				if s.place(t, l, 100*round, 100*round+20, false); i == round {
					s.place(t, l, 100*round+20, 100*round+100, true)
				}
				if round > 1 {
					require.Zero(t, s.index.builds, "no engine looks at all nodes again")
				}
				if i != round {
					moved += max(0, s.index.nodes.moves-20) // less those of its own plan
				}
			}
		}
		shared := all[0].index.shared
		t.Logf("%d engines: %d nodes moved for all, %d by engines for themselves", engines, shared.moves, moved)
		require.LessOrEqual(t, shared.moves, 4*80)
		require.Zero(t, moved)
		require.Equal(t, 2, shared.builds, "once, and again when a spec speaks of a label")
	}
}

// An engine that asks long after its Sync forks a version for the state that it has seen: it does not move the nodes
// that others have changed meanwhile back to where they were.
func TestOldViewsForkOldVersions(t *testing.T) {
	const late = 12
	l, all := sharers(t, 2000, 2+late, 2000)
	for range 2 { // until the first engine has no index of its own
		for _, s := range all {
			s.sync(t, l)
			s.place(t, l, 0, 2, false)
		}
	}
	for i, s := range all[2:] {
		s.sync(t, l)
		other := all[i%2]
		other.sync(t, l)
		other.place(t, l, 100*i, 100*i+100, true)
	}
	for _, s := range all[2:] {
		s.place(t, l, 1998, 2000, false)
		require.LessOrEqual(t, s.index.nodes.moves, 2, "those of its own plan")
	}
}

// A shared index keeps few versions, and fewer if much changes between them.
func TestFewVersionsAreKept(t *testing.T) {
	keep := func(changed ...int) (kept int) {
		var s sharedIndex
		for _, n := range changed {
			s.add(indexVersion{changed: n})
			require.Equal(t, n, s.versions[len(s.versions)-1].changed, "the newest is there")
		}
		return len(s.versions)
	}
	require.Equal(t, mostVersions, keep(slices.Repeat([]int{1}, 100)...))
	require.Equal(t, 5, keep(slices.Repeat([]int{mostChanged / 4}, 100)...))
	require.Equal(t, 1, keep(1, 1, 1, mostChanged+1))
	require.Equal(t, 2, keep(1, mostChanged+1, 1, mostChanged))
}

// Engines that share an index open no more boxes for a choice than a sole engine does, however they break ties.
func TestSharedTreesStayAsGood(t *testing.T) {
	scale.Sequential(t)
	for name, w := range map[string]struct{ nodes, zones, rounds int }{
		"more capsules than nodes": {4000, 6, 120}, // the tree has to be built anew in time
		"nodes that are all alike": {4000, 1, 20},
	} {
		t.Run(name, func(t *testing.T) {
			one := boxesPerChoice(t, w.nodes, w.zones, w.rounds, 1)
			require.Less(t, one, 15.0)
			for _, seeds := range [][]uint64{{1, 2}, {1, 2, 3, 4}, {0, 1}, {1, 0}, {0, 1, 2}} {
				boxes := boxesPerChoice(t, w.nodes, w.zones, w.rounds, seeds...)
				t.Logf("seeds %v: %.1f boxes a choice, %.1f with one engine", seeds, boxes, one)
				require.Less(t, boxes, one)
			}
		})
	}
}

// boxesPerChoice fills nodes in a number of zones by engines with these seeds, which place 100 capsules in each round, in
// turns. It returns how many boxes they open for a choice.
func boxesPerChoice(t *testing.T, nodes, zones, rounds int, seeds ...uint64) float64 {
	const each = 100
	l := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for i := range nodes {
		do = append(do, orbit.PutNode{Node: labelled(machine(orbit.NodeID(fmt.Sprintf("n%05d", i)), 1000), "zone", fmt.Sprint(i%zones))})
	}
	commit(t, l, do...)
	var all []*sharer
	for _, seed := range seeds {
		all = append(all, &sharer{Indexed: Indexed{Seed: seed}})
	}
	boxes := 0
	for round := range rounds {
		for i := range each / 2 {
			spec := wants(int64(1 + (7*round+i)%20))
			spec.Require = predicates(fmt.Sprintf("zone in (%d)", i%zones))
			commit(t, l, orbit.Submit{IDs: names(fmt.Sprintf("c%d-%d-", round, i), 2), Spec: spec})
		}
		s := all[round%len(all)]
		s.sync(t, l)
		for _, c := range s.view.State().Pending() {
			require.NoError(t, s.draft.PlaceBest(&s.Indexed, c))
			_, err := l.Propose(t.Context(), s.draft.Propose())
			require.NoError(t, err)
		}
		boxes += s.frontier.counts.boxes
	}
	return float64(boxes) / each / float64(rounds)
}

// An engine more takes little memory, also while it has a plan in the making.
func TestAnEngineMoreTakesLittleMemory(t *testing.T) {
	scale.Sequential(t)
	if testing.Short() {
		t.Skip("takes a heap of 200 MiB")
	}
	const engines, mib = 16, 1 << 20
	l, all := sharers(t, 50_000, 2+engines, 100)
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / mib
	}
	plan := func(some []*sharer) {
		for range 2 { // the first has an index of its own at first
			for _, s := range some {
				s.sync(t, l)
				s.place(t, l, 0, 100, false)
			}
		}
	}
	plan(all[:2])
	first := heap()
	plan(all[2:])
	each := (heap() - first) / engines
	t.Logf("%.2f MiB an engine more", each)
	require.Less(t, each, 2.0)
	runtime.KeepAlive(all)
}

// Engines that sync and place at the same time each choose what Exhaustive chooses, while nodes come, go, and change
// their labels, and while specs come that speak of labels nobody has spoken of. For the race detector.
func TestEnginesShareAtTheSameTime(t *testing.T) {
	const engines, rounds = 8, 12
	l, all := sharers(t, 300, engines, 2*engines*rounds)
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			t := panicky{}
			for round := range rounds {
				id := orbit.CapsuleID(fmt.Sprintf("own-%d-%d", i, round))
				spec := wants(1)
				spec.Prefer = []orbit.Preference{{Predicate: orbit.Predicate{Key: []string{"host", "zone", "rack", fmt.Sprint("new", i)}[round%4], Op: "Exists"}, Weight: 1}}
				commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec},
					orbit.PutNode{Node: racked(orbit.NodeID(fmt.Sprintf("n%05d", 7*i+round)), fmt.Sprint("r", round))},
					orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("late-%d-%d", i, round)), 9)})
				s.sync(t, l)
				plain := draftFor(&Exhaustive{Seed: s.Seed})
				plain.Sync(&s.view)
				want, err := plain.best(s.view.State().Capsule(id).Spec)
				require.NoError(t, err)
				got, err := s.Best(&s.draft, s.view.State().Capsule(id).Spec)
				require.NoError(t, err)
				require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
				s.place(t, l, 2*(i*rounds+round), 2*(i*rounds+round)+2, true)
				_, err = l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: orbit.NodeID(fmt.Sprintf("late-%d-%d", i, round))}}})
				if err != nil {
					require.ErrorIs(t, err, orbit.ErrConflict, "something has been placed there")
				}
			}
		})
	}
	wg.Wait()
}

// The first engine has an index of its own until a second one comes; and so has again one that has been the only one to
// ask for long.
func TestTheOnlyEngineHasAnIndexOfItsOwn(t *testing.T) {
	l, all := sharers(t, 100, 2, 1000)
	turn := func(s *sharer, from, to int) {
		s.sync(t, l)
		s.place(t, l, from, to, true)
	}
	turn(all[0], 0, 2)
	require.True(t, all[0].index.alone)
	turn(all[1], 2, 4)
	require.False(t, all[1].index.alone)
	turn(all[0], 4, 6)
	require.False(t, all[0].index.alone)
	for i := 6; !all[1].index.alone; i += 2 {
		require.Less(t, i, 900)
		turn(all[1], i, i+2)
	}
	require.Empty(t, all[1].index.shared.versions, "the shared one is gone")
	turn(all[0], 900, 902)
	turn(all[1], 902, 904)
	require.False(t, all[0].index.alone || all[1].index.alone)
}

// A spec that speaks of a new label is answered also by an engine with an old view, although the index divides the
// nodes of the newest state by the label.
func TestOldViewsLearnLabels(t *testing.T) {
	l, all := sharers(t, 100, 3, 1000)
	spec := wants(1)
	spec.Prefer = []orbit.Preference{{Predicate: predicates("room in (r7)")[0], Weight: 1}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: spec}, orbit.PutNode{Node: racked("n00000", "k")})
	n := machine("n00042", 1000)
	n.Labels = map[string]string{"room": "r7"}
	commit(t, l, orbit.PutNode{Node: n})
	old := all[2]
	for _, s := range all {
		s.sync(t, l)
	}
	for i := range 3 {
		all[0].sync(t, l)
		all[0].place(t, l, 2*i, 2*i+2, true)
		all[1].sync(t, l)
		all[1].place(t, l, 900, 902, false)
	}
	shared := all[1].index.shared
	require.Less(t, old.view.Revision(), shared.versions[0].state.Revision())
	builds := shared.builds
	got, err := old.Best(&old.draft, old.view.State().Capsule("new").Spec)
	require.NoError(t, err)
	require.Equal(t, n.ID, got.Node.Node.ID)
	require.Equal(t, builds+1, shared.builds, "the nodes are divided once for all")
	require.Len(t, shared.versions, 1, "versions that do not divide the nodes by the label serve nobody")
}

// Once an engine shares the index, it still gives nothing to the nodes that it has seen expire while it had one of its
// own.
func TestNodesStayExpiredInTheSharedIndex(t *testing.T) {
	l, all := sharers(t, 100, 2, 1000)
	tel := &board{stale: time.Hour}
	for i := range 100 {
		tel.say(orbit.Report{Node: orbit.NodeID(fmt.Sprintf("n%05d", i)), Expired: i != 50}, time.Unix(0, 0))
	}
	s := all[0]
	for _, alone := range []bool{true, false} {
		require.NoError(t, s.view.Refresh(t.Context(), l, tel, time.Unix(0, 0)))
		s.draft.Sync(&s.view)
		got, err := s.Best(&s.draft, s.view.State().Capsule("c00000").Spec)
		require.NoError(t, err)
		require.Equal(t, orbit.NodeID("n00050"), got.Node.Node.ID)
		require.Equal(t, alone, s.index.alone)
		require.LessOrEqual(t, s.frontier.counts.rated, 1, "no other node is looked at")
		all[1].sync(t, l)
		all[1].place(t, l, 2, 4, true)
	}
}

// branch is a ledger that shows one state.
type branch struct {
	orbit.Ledger
	state *orbit.State
}

func (b branch) Snapshot(context.Context) (*orbit.State, error) { return b.state, nil }

// Two states that have diverged may have the same node under different indices. Each engine chooses by its own state.
func TestBranchesShareAnIndex(t *testing.T) {
	l, all := sharers(t, 50, 2, 10)
	base := snapshotOf(t, l)
	at := base.Revision()
	joins := func(id string, after orbit.Revision) orbit.Change {
		return orbit.Change{Revision: at + after, Do: orbit.PutNode{Node: labelled(machine(orbit.NodeID(id), 1_000_000), "zone", "z0")}}
	}
	apply := func(changes ...orbit.Change) branch {
		s, err := base.Apply(changes)
		require.NoError(t, err)
		return branch{l, s}
	}
	branches := []branch{
		apply(orbit.Change{Revision: at + 1, Do: orbit.RemoveNode{Node: "n00007"}}, joins("large", 2)),
		apply(orbit.Change{Revision: at + 1, Do: orbit.Mark{Key: "k", Value: "v"}}, joins("large", 2)),
	}
	large := func(b branch) *orbit.NodeState { return b.state.Node("large") }
	require.NotEqual(t, large(branches[0]).Index(), large(branches[1]).Index())
	require.Equal(t, large(branches[0]).Specification, large(branches[1]).Specification)
	for range 3 {
		for i, s := range all {
			s.sync(t, branches[i])
			spec := s.view.State().Capsule("c00000").Spec
			want, err := (&Exhaustive{Seed: s.Seed}).Best(&s.draft, spec)
			require.NoError(t, err)
			got, err := s.Best(&s.draft, spec)
			require.NoError(t, err)
			require.Equal(t, want, got)
			checkIndex(t, &s.Indexed, &s.draft)
		}
	}
}

// trap is a score with a bound that never returns when it is told so. It says when it is called then.
type trap struct {
	score.Spread
	shut   *bool
	caught func()
	hold   chan struct{}
}

func (s trap) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	bound := s.Spread.Bound(spec, like)
	return func(least, most *score.Extent) (value, tie float64) {
		if *s.shut {
			s.caught()
			<-s.hold
		}
		return bound(least, most)
	}
}

// start runs a function in a goroutine, and closes the channel after it.
func start(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// A bound of an importer that never returns holds up its own engine only, because it is never called under the lock.
func TestABoundThatNeverReturns(t *testing.T) {
	l, all := sharers(t, 100, 3, 1000)
	shut, hold, caught := false, make(chan struct{}), make(chan struct{})
	all[1].Score = trap{shut: &shut, hold: hold, caught: sync.OnceFunc(func() { close(caught) })}
	for _, s := range all {
		s.sync(t, l)
		s.place(t, l, 0, 4, false)
	}
	for i := range 300 { // the tree has to be cut for them
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprint("more", i)), int64(i))})
	}
	shut = true
	all[1].sync(t, l) // it is the first to see all that
	gone := start(func() { all[1].place(panicky{}, l, 100, 102, false) })
	<-caught
	placed := start(func() {
		all[2].sync(panicky{}, l)
		all[2].place(panicky{}, l, 102, 110, true)
	})
	select {
	case <-placed:
	case <-time.After(time.Minute):
		t.Error("another engine waits for it")
	}
	close(hold)
	<-gone
}
