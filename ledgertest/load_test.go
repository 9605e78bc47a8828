package ledgertest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/ledgertest"
)

// Loads of one world are in each other's way, each checks what it has seen, and a world is there for the next one.
func TestLoadsOfOneWorld(t *testing.T) {
	scale.Long(t)
	h := newPlane("", orbit.Limits{})
	h.lag = time.Millisecond
	var wg sync.WaitGroup
	for seed := range uint64(2) {
		l := h.peer()
		wg.Go(func() {
			f, err := ledgertest.Load{Seed: seed, Operations: 1200, Workers: 4, World: "w", Shared: true}.Run(bg, l, l)
			assert.NoError(t, err)
			assert.Positive(t, f.Conflicts)
			t.Log(f)
		})
	}
	wg.Wait()
	f, err := ledgertest.Load{Operations: 401, World: "w"}.Run(bg, h)
	require.NoError(t, err)
	require.Equal(t, 401, f.Operations)
	s, err := h.Snapshot(bg)
	require.NoError(t, err)
	require.Equal(t, 3, gangsOf(s), "there is one world")
	_, err = ledgertest.Load{Operations: 100}.Run(bg, h)
	require.NoError(t, err)
	s, err = h.Snapshot(bg)
	require.NoError(t, err)
	require.Equal(t, 6, gangsOf(s), "without a name each load has a world of its own")
}

func gangsOf(s *orbit.State) (n int) {
	for range s.Gangs() {
		n++
	}
	return n
}

// A load that is not alone says so, or is told that it has company.
func TestLoadIsNotAlone(t *testing.T) {
	l := &frequented{}
	_, err := ledgertest.Load{Operations: 300}.Run(bg, l)
	require.ErrorContains(t, err, "which no caller has sent")
	_, err = ledgertest.Load{Operations: 300, Shared: true}.Run(bg, l)
	require.NoError(t, err)
}

// frequented is a ledger to which a stranger writes, before every proposal that is made.
type frequented struct{ orbit.MemoryLedger }

func (f *frequented) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	_, _ = f.MemoryLedger.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "stranger", Value: "v"}}})
	return f.MemoryLedger.Propose(ctx, p)
}

// What others commit after the last snapshot is no part of the recording that ends with it.
func TestHistoryEndsWithItsSnapshot(t *testing.T) {
	l := &busyAtTheEnd{}
	r, err := ledgertest.NewRecorder(bg, l)
	require.NoError(t, err)
	r.Shared = true
	_, err = r.Handle(l).Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "own", Value: "v"}}})
	require.NoError(t, err)
	l.ends = true
	h, err := r.History(bg)
	require.NoError(t, err)
	require.NoError(t, h.Check())
	require.Equal(t, h.Final.Revision(), h.Changes[len(h.Changes)-1].Revision)
}

// busyAtTheEnd is a ledger to which a stranger writes after each snapshot, once the end has come.
type busyAtTheEnd struct {
	orbit.MemoryLedger
	ends bool
}

func (b *busyAtTheEnd) Snapshot(ctx context.Context) (*orbit.State, error) {
	s, err := b.MemoryLedger.Snapshot(ctx)
	if b.ends {
		_, _ = b.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "stranger", Value: "v"}}})
	}
	return s, err
}

// What ends a load: nothing to run on, a context, a history that is gone, wrong answers.
func TestLoadFails(t *testing.T) {
	_, err := ledgertest.Load{}.Run(bg)
	require.ErrorContains(t, err, "needs a ledger")
	ended, cancel := context.WithCancel(bg)
	cancel()
	_, err = ledgertest.Load{}.Run(ended, &orbit.MemoryLedger{})
	require.ErrorIs(t, err, context.Canceled)
	_, err = ledgertest.Load{Operations: 400}.Run(bg, newPlane("loses a change now and then", orbit.Limits{}))
	require.Error(t, err)
	_, err = ledgertest.Load{Operations: 400, Faults: &ledgertest.Faults{Conflict: .1}}.Run(bg, &orbit.MemoryLedger{})
	require.NoError(t, err, "the recorder is behind the faults")
}

// The same seed draws the same work.
func TestLoadIsSeeded(t *testing.T) {
	var committed [2]int
	for i := range committed {
		f, err := ledgertest.Load{Seed: 5, Operations: 300, Workers: 1}.Run(bg, &orbit.MemoryLedger{})
		require.NoError(t, err)
		committed[i] = f.Committed
	}
	require.Equal(t, committed[0], committed[1])
}
