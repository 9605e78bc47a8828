package logledger_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

// marks returns a proposal with n marks of about a kilobyte, which hardly compresses.
func marks(rng *rand.Rand, key string, n int) orbit.Proposal {
	p := orbit.Proposal{ID: orbit.NewProposalID()}
	for i := range n {
		value := make([]byte, 1000)
		for k := range value {
			value[k] = byte('a' + rng.IntN(26))
		}
		p.Do = append(p.Do, orbit.Mark{Key: fmt.Sprint(key, i), Value: string(value)})
	}
	return p
}

// TestLargeGroups: proposals of which each is small enough are committed although all together are too large for one entry, and
// one that is too large alone is refused for good. The log is read back: no entry is larger than readers take.
func TestLargeGroups(t *testing.T) {
	for _, ledgers := range []int{1, 3} {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%d/%d", ledgers, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { largeGroups(t, ledgers, seed) })
			})
		}
	}
}

func largeGroups(t *testing.T, ledgers int, seed uint64) {
	const limit = 20_000
	store, rng := &logtest.Store{}, rand.New(rand.NewPCG(seed, 1))
	var open []*logledger.Ledger
	for range ledgers {
		l, err := logledger.Open(t.Context(), store.Open(logtest.Faults{Latency: time.Millisecond, Seed: seed}), logledger.Options{CheckpointEvery: 1 << 40})
		require.NoError(t, err)
		l.LimitEntries(limit)
		open = append(open, l)
	}
	done, n := make(chan error), 0
	for k, l := range open {
		for c := range 12 {
			size, batch := 1+rng.IntN(15), rng.IntN(3)
			if c%4 == 0 {
				size = 25
			}
			var all []orbit.Proposal
			for i := range 1 + batch {
				all = append(all, marks(rng, fmt.Sprint(k, "-", c, "-", i, "-"), size))
			}
			pause := time.Duration(rng.IntN(30)) * time.Millisecond
			n++
			go func() {
				time.Sleep(pause)
				var err error
				for i, p := range all { // one after another, so that no run is too large unless its proposal is
					_, failed := l.Propose(t.Context(), p)
					if isLarge := size == 25; isLarge != (failed != nil) || isLarge && fmt.Sprint(failed) != "logledger: invalid: the changes of one entry have at most 536870912 bytes; propose less at once" {
						err = fmt.Errorf("proposal %d with %d marks: %w", i, size, failed)
					}
				}
				done <- err
			}()
		}
	}
	for range n {
		require.NoError(t, <-done)
	}
	for _, l := range open {
		require.NoError(t, l.Health())
		_, err := l.Propose(t.Context(), marks(rng, "after", 1))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	found, err := logledger.Inspect(t.Context(), store.Open(logtest.Faults{}), func(p logledger.Part) error {
		if p.Bytes > limit {
			return fmt.Errorf("entry %d has %d bytes", p.Index, p.Bytes)
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, found.State.Verify())
}
