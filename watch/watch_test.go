package watch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/watch"
)

func commit(t testing.TB, l orbit.Ledger, do ...orbit.Commitment) orbit.Revision {
	t.Helper()
	rev, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
	return rev
}

func node(id string) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: 8}, Confirms: true}}
}

func submit(id, module string) orbit.Submit {
	return orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: &orbit.Spec{Module: module, Movable: true}}
}

// wakes counts how often each of those who wait is woken, in a bubble: woken is read after synctest.Wait.
type wakes struct {
	*testing.T
	ledger *orbit.MemoryLedger
	index  *watch.Index
	woken  map[string]*int
}

// watching begins an index, and a goroutine for each node and module named.
func watching(t *testing.T, nodes, modules int) *wakes {
	w := &wakes{t, &orbit.MemoryLedger{}, nil, map[string]*int{}}
	for i := range nodes {
		commit(t, w.ledger, node(fmt.Sprint("n", i)))
	}
	w.index = &watch.Index{Ledger: w.ledger}
	ctx := t.Context()
	go func() { assert.NoError(t, w.index.Run(ctx)) }()
	follow := func(name string, wait func(after orbit.Revision) (orbit.Revision, error)) {
		count := new(int)
		w.woken[name] = count
		go func() {
			after := orbit.Revision(0)
			for {
				rev, err := wait(after)
				if err != nil {
					return
				}
				if *count++; after > 0 && rev <= after {
					panic("no newer revision")
				}
				after = rev
			}
		}()
	}
	for i := range nodes {
		id := orbit.NodeID(fmt.Sprint("n", i))
		follow(string(id), func(after orbit.Revision) (orbit.Revision, error) { return w.index.Node(ctx, id, after) })
	}
	for i := range modules {
		module := fmt.Sprint("m", i)
		follow(module, func(after orbit.Revision) (orbit.Revision, error) { return w.index.Module(ctx, module, after) })
	}
	synctest.Wait()
	w.clear()
	return w
}

func (w *wakes) clear() {
	for _, count := range w.woken {
		*count = 0
	}
}

// wakes requires that a commit wakes exactly these, once.
func (w *wakes) wakes(do orbit.Commitment, names ...string) {
	w.Helper()
	commit(w, w.ledger, do)
	synctest.Wait()
	got, want := map[string]int{}, map[string]int{}
	for name, count := range w.woken {
		if *count > 0 {
			got[name] = *count
		}
	}
	for _, name := range names {
		want[name] = 1
	}
	require.Equal(w, want, got, "%T", do)
	w.clear()
}

func (w *wakes) since(id orbit.CapsuleID) orbit.Revision {
	s, err := w.ledger.Snapshot(w.Context())
	require.NoError(w, err)
	if r := s.Capsule(id).Remains(); r != nil {
		return r.Since
	}
	return s.Capsule(id).PlacedAt
}

// Each commit wakes those whom it concerns: the node that a capsule comes to or leaves, where it still runs, and where it waits for that.
func TestWhoIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, 3, 2)
		w.wakes(submit("a", "m0"), "m0")
		w.wakes(orbit.Place{Capsule: "a", Node: "n0"}, "m0", "n0")
		began := w.since("a")
		w.wakes(orbit.Confirm{Capsule: "a", Since: began, Begun: true}, "m0", "n0")
		w.wakes(submit("b", "m1"), "m1")
		w.wakes(orbit.Mark{Key: "k", Value: "v"})
		cordoned := node("n0")
		cordoned.Node.State = orbit.Cordoned
		w.wakes(cordoned, "n0")
		w.wakes(orbit.Release{Capsule: "a"}, "m0", "n0")
		w.wakes(orbit.Place{Capsule: "a", Node: "n1"}, "m0", "n0", "n1")
		w.wakes(orbit.Confirm{Capsule: "a", Since: began, Stopped: true}, "m0", "n0", "n1") // n1 has waited for that
		w.wakes(orbit.Release{Capsule: "a", Final: true}, "m0", "n1")
		w.wakes(submit("a", "m1"), "m0", "m1") // the id is another module's by now
		w.wakes(orbit.RemoveNode{Node: "n2"}, "n2")
		w.wakes(node("n2"), "n2")
	})
}

// Agents do not wake for each other: n agents are woken n times by n placements, not n times n.
func TestAgentsDoNotWakeForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		w := watching(t, n, 0)
		for i := range n {
			id := fmt.Sprint("c", i)
			commit(t, w.ledger, submit(id, ""), orbit.Place{Capsule: orbit.CapsuleID(id), Node: orbit.NodeID(fmt.Sprint("n", i))})
			synctest.Wait()
		}
		for name, count := range w.woken {
			require.Equal(t, 1, *count, name)
		}
	})
}

// What came before the wait is not missed, though the index saw it before: between a return and the next call, and before the first.
func TestNothingIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		x := &watch.Index{Ledger: l}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- x.Run(ctx) }()
		commit(t, l, node("n"))
		after, err := x.Node(ctx, "n", 0)
		require.NoError(t, err)
		at := commit(t, l, submit("a", "m"), orbit.Place{Capsule: "a", Node: "n"})
		commit(t, l, orbit.Mark{Key: "k", Value: "v"})
		synctest.Wait()
		rev, err := x.Node(ctx, "n", after)
		require.NoError(t, err)
		require.GreaterOrEqual(t, rev, at)
		brief, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		_, err = x.Node(brief, "n", rev)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
		require.NoError(t, <-done)
		require.ErrorIs(t, (&watch.Index{}).Run(t.Context()), orbit.ErrInvalid)
	})
}

// faulty is a ledger that cannot be reached now and then.
type faulty struct {
	*orbit.MemoryLedger
	down atomic.Bool
}

func (f *faulty) Snapshot(ctx context.Context) (*orbit.State, error) {
	if f.down.Load() {
		return nil, orbit.ErrUnavailable
	}
	return f.MemoryLedger.Snapshot(ctx)
}

// While the ledger cannot be read that is said, once a second; afterwards everything is seen that came meanwhile.
func TestAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, told := &faulty{MemoryLedger: &orbit.MemoryLedger{}}, atomic.Int64{}
		x := &watch.Index{Ledger: l, OnError: func(err error) {
			if !errors.Is(err, orbit.ErrUnavailable) {
				panic(err)
			}
			told.Add(1)
		}}
		go func() { _ = x.Run(t.Context()) }()
		commit(t, l, node("n"))
		after, err := x.Node(t.Context(), "n", 0)
		require.NoError(t, err)
		l.down.Store(true)
		commit(t, l, submit("a", "m"), orbit.Place{Capsule: "a", Node: "n"})
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		require.EqualValues(t, 10, told.Load())
		l.down.Store(false)
		_, err = x.Node(t.Context(), "n", after)
		require.NoError(t, err)
	})
}

// What is kept in mind is bounded, and nothing is missed for it.
func TestManyModules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watching(t, 1, 1)
		for i := range 5000 {
			commit(t, w.ledger, submit(fmt.Sprint("x", i), fmt.Sprint("other", i)))
		}
		synctest.Wait()
		w.wakes(submit("a", "m0"), "m0")
	})
}
