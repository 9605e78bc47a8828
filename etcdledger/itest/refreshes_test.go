package itest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/lease"
)

// A token lives while it is kept, whichever process does so, and never again after it has ended. What is no token has ended. The records
// of the ledger do not change, and an etcd that is gone is no end.
func TestRefreshes(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	one, two := open(t, connect(t, c), options()), open(t, connect(t, c), options())
	here, there := etcdledger.Refreshes(connect(t, c), options()), etcdledger.Refreshes(connect(t, c), options())
	const ttl = 2 * time.Second
	before, err := one.Snapshot(t.Context())
	require.NoError(t, err)
	kept, left, intime := outlived(t, here, there, ttl)
	for !intime {
		kept, left, intime = outlived(t, here, there, ttl)
	}
	all := tokens(kept, left)
	lives, err := here.Keep(t.Context(), all)
	require.NoError(t, err)
	require.Equal(t, []time.Duration{0, ttl, 0, 0, 0, 0}, lives)
	require.NoError(t, c.Kill(0))
	_, err = here.Keep(t.Context(), all)
	require.Error(t, err)
	_, err = here.Left(t.Context(), all)
	require.Error(t, err)
	_, err = here.Begin(t.Context(), ttl)
	require.Error(t, err)
	require.NoError(t, c.Restart(within(t, time.Minute), 0))
	require.Eventually(t, func() bool {
		lives, err = there.Keep(t.Context(), []string{kept, left})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, []time.Duration{ttl, 0}, lives, "a member that is started again begins the time of each lease anew")
	after, err := two.Snapshot(t.Context())
	require.NoError(t, err)
	require.Equal(t, before.Revision(), after.Revision())
	require.Zero(t, one.Stats().Followed+two.Stats().Followed)
}

// tokens are two tokens, at 1 and 3, and texts that are none.
func tokens(kept, left string) []string {
	return []string{"", kept, "no token", left, "0", "ffffffffffffffff"}
}

// outlived begins two tokens, and keeps one of them until the other one has ended. It returns false if the machine was too busy to keep it
// in time.
func outlived(t *testing.T, here, there lease.Refreshes, ttl time.Duration) (kept, left string, intime bool) {
	began := time.Now()
	kept, err := here.Begin(t.Context(), ttl-time.Second/2)
	require.NoError(t, err)
	left, err = here.Begin(t.Context(), ttl)
	require.NoError(t, err)
	require.NotEqual(t, kept, left)
	all := tokens(kept, left)
	for last := began; ; time.Sleep(ttl / 10) {
		now := time.Now()
		lives, err := there.Keep(t.Context(), []string{kept})
		require.NoError(t, err)
		if time.Since(last) >= ttl { // it may have ended
			return kept, left, false
		}
		last = now
		require.Equal(t, []time.Duration{ttl}, lives, "rounded up")
		lives, err = there.Left(t.Context(), all)
		require.NoError(t, err)
		if time.Since(last) >= ttl {
			return kept, left, false
		}
		require.Positive(t, lives[1])
		for _, i := range []int{0, 2, 4, 5} {
			require.Zero(t, lives[i], all[i])
		}
		if lives[3] == 0 {
			require.GreaterOrEqual(t, time.Since(began), ttl-time.Second/2)
			return kept, left, true
		}
		require.LessOrEqual(t, lives[3], ttl)
		require.Less(t, time.Since(began), time.Minute, "it does not end")
	}
}

func BenchmarkRefreshes(b *testing.B) {
	c := start(b, cluster.Options{})
	home := etcdledger.Refreshes(connect(b, c), options())
	var tokens []string
	for range 1000 {
		token, err := home.Begin(b.Context(), time.Minute)
		require.NoError(b, err)
		tokens = append(tokens, token)
	}
	b.Run("Keep", func(b *testing.B) {
		for b.Loop() {
			_, err := home.Keep(b.Context(), tokens)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.N*len(tokens))/b.Elapsed().Seconds(), "terms/s")
	})
	b.Run("Left", func(b *testing.B) {
		for b.Loop() {
			_, err := home.Left(b.Context(), tokens)
			require.NoError(b, err)
		}
		b.ReportMetric(float64(b.N*len(tokens))/b.Elapsed().Seconds(), "terms/s")
	})
}
