package logledger_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// TestChaos: four ledgers on one log are linearizable while answers are lost, calls are dropped, late or doubled, and
// processes are paused or cut off.
func TestChaos(t *testing.T) {
	for seed := range uint64(chaosSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	some := func(most float64) float64 { return most * rng.Float64() * float64(rng.IntN(2)) }
	store := &logtest.Store{PageBytes: 1 + rng.IntN(4000)}
	var logs []*logtest.Handle
	var ledgers []orbit.Ledger
	for k := range 4 {
		faults := logtest.Faults{
			Latency: time.Duration(rng.IntN(2000)) * time.Microsecond, Jitter: time.Duration(rng.IntN(2000)) * time.Microsecond,
			Lost: some(0.05), Dropped: some(0.05), Refused: some(0.05), Late: some(0.05), Doubled: some(0.2), Seed: seed + uint64(k),
		}
		h := store.Open(faults)
		every := 200 + rng.IntN(500)
		if k == 0 {
			every = 1 << 20 // the load reads the history from this one, so the others do not trim it
		}
		l := open(t, h, logledger.Options{OnError: func(error) {}, CheckpointEvery: every, Patience: time.Duration(rng.IntN(3000)+50) * time.Millisecond})
		logs, ledgers = append(logs, h), append(ledgers, l)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { trouble(ctx, rng, logs[1:]) }) // the load reads the history from the first, which must not fall behind
	figures, err := ledgertest.Load{Seed: seed, Operations: 1500, Workers: 12}.Run(t.Context(), ledgers...)
	stop()
	wg.Wait()
	require.NoError(t, err)
	t.Log(figures)
	whole := orbit.Revision(0)
	for _, l := range ledgers {
		s := snapshot(t, l)
		require.NoError(t, s.Verify())
		whole = max(whole, s.Revision())
	}
	for _, l := range ledgers {
		require.Equal(t, whole, snapshot(t, l).Revision())
		t.Logf("%+v", l.(*logledger.Ledger).Stats())
	}
}

// snapshot takes a snapshot; while a log fails by chance it tries again.
func snapshot(t *testing.T, l orbit.Ledger) *orbit.State {
	for range 1000 {
		if s, err := l.Snapshot(t.Context()); err == nil {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Fail(t, "the ledger cannot be read")
	return nil
}

// trouble pauses handles and cuts them off, one after the other, until ctx ends.
func trouble(ctx context.Context, rng *rand.Rand, logs []*logtest.Handle) {
	for ctx.Err() == nil {
		h := logs[rng.IntN(len(logs))]
		switch rng.IntN(3) {
		case 0:
			h.Pause()
		case 1:
			h.Cut(true)
		}
		wait(ctx, time.Duration(rng.IntN(400))*time.Millisecond)
		h.Resume()
		h.Cut(false)
		wait(ctx, time.Duration(rng.IntN(400))*time.Millisecond)
	}
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
