package pgledger_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/pgserver"
	"github.com/orbitsched/orbit/pgledger"
)

// lasts is for how long the tokens of these tests live.
const lasts = time.Minute

// clock is the clock of all processes of a test.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// refreshes opens the refreshes as some processes do, with a clock that stands still.
func refreshes(t testing.TB, url string, o pgledger.Options, processes int) (*clock, []*pgledger.Refreshes) {
	c, out := &clock{}, make([]*pgledger.Refreshes, processes)
	c.advance(time.Hour)
	for i := range out {
		r, err := pgledger.OpenRefreshes(t.Context(), url, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		r.SetClock(c.now)
		out[i] = r
	}
	return c, out
}

// model is what the test knows of a token.
type model struct {
	kept, promised time.Time // the last refresh, and until when the token was promised to live
	ended          bool
}

// Whatever processes refresh and ask, and however long they do not: no token ends before a time until which it was promised to live, or
// sooner than it lasts after a refresh; one that has ended never lives again; and one that nobody refreshes is found to have ended in
// time by each process that asks.
func TestRefreshesKeepTheirPromises(t *testing.T) {
	url := sharedURL(t)
	c, all := refreshes(t, url, pgledger.Options{Schema: schema(t, url)}, 3)
	rapid.Check(t, func(rt *rapid.T) {
		processes := all[:rapid.IntRange(1, len(all)).Draw(rt, "processes")]
		tokens, models := []string{"no token", ""}, []*model{{ended: true}, {ended: true}}
		saw := func(lives []time.Duration, err error) {
			require.NoError(rt, err)
			require.Len(rt, lives, len(tokens))
			for i, m := range models {
				if lives[i] == 0 && !m.ended {
					require.False(rt, c.now().Before(m.promised), "token %d has ended %v before the promised time", i, m.promised.Sub(c.now()))
					require.GreaterOrEqual(rt, c.now().Sub(m.kept), lasts)
				}
				m.ended = m.ended || lives[i] == 0
				require.False(rt, m.ended && lives[i] > 0, "token %d lives again", i)
				if until := c.now().Add(lives[i]); lives[i] > 1 && until.After(m.promised) { // 1 ns promises nothing
					m.promised = until
				}
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			r := processes[rapid.IntRange(0, len(processes)-1).Draw(rt, "process")]
			switch rapid.SampledFrom([]string{"begin", "keep", "keep", "left", "left", "left", "left"}).Draw(rt, "what") {
			case "begin":
				token, err := r.Begin(rt.Context(), lasts)
				require.NoError(rt, err)
				tokens, models = append(tokens, token), append(models, &model{kept: c.now(), promised: c.now().Add(lasts)})
			case "keep":
				lives, err := r.Keep(rt.Context(), tokens)
				for i, m := range models {
					if err == nil && lives[i] > 0 {
						m.kept = c.now()
					}
				}
				saw(lives, err)
			default:
				saw(r.Left(rt.Context(), tokens))
			}
			c.advance(lasts * time.Duration(rapid.SampledFrom([]int{0, 1, 2, 2, 4, 5, 8, 40}).Draw(rt, "eighths")) / 8)
		}
		for range 12 { // within 1.5 times as long
			for _, r := range processes {
				saw(r.Left(rt.Context(), tokens))
			}
			c.advance(lasts / 8)
		}
		for i, m := range models {
			require.True(rt, m.ended, "token %d", i)
		}
	})
	for _, r := range all {
		require.Zero(t, r.Seen())
	}
}

// After an outage, however long, the first process that asks ends no token before the others have had time to refresh theirs.
func TestRefreshesAfterAnOutage(t *testing.T) {
	url := sharedURL(t)
	c, r := refreshes(t, url, pgledger.Options{Schema: schema(t, url)}, 2)
	token, err := r[0].Begin(t.Context(), lasts)
	require.NoError(t, err)
	tokens := []string{token}
	for range 3 {
		for range 8 {
			_, err = r[0].Keep(t.Context(), tokens)
			require.NoError(t, err)
			_, err = r[1].Left(t.Context(), tokens)
			require.NoError(t, err)
			c.advance(lasts / 8)
		}
		c.advance(3 * lasts) // nothing answers
		for range 2 {
			lives, err := r[1].Left(t.Context(), tokens)
			require.NoError(t, err)
			require.Positive(t, lives[0])
			c.advance(lasts / 10)
		}
		lives, err := r[0].Keep(t.Context(), tokens)
		require.NoError(t, err)
		require.Equal(t, lasts*3/4, lives[0])
	}
}

// A process that is about to end a token waits for one that is refreshing it, and then does not end it.
func TestRefreshBeforeTheEnd(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.Options{Schema: schema(t, url)}
	c, r := refreshes(t, url, o, 1)
	token, err := r[0].Begin(t.Context(), lasts)
	require.NoError(t, err)
	for range 8 {
		lives, err := r[0].Left(t.Context(), []string{token})
		require.NoError(t, err)
		require.Positive(t, lives[0])
		c.advance(lasts / 8)
	}
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), fmt.Sprintf(`UPDATE %q.term SET beats = beats + 1`, o.Schema))
	require.NoError(t, err)
	var lives []time.Duration
	done := make(chan error, 1)
	go func() {
		var err error
		lives, err = r[0].Left(context.Background(), []string{token})
		done <- err
	}()
	watcher, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, watcher.Close(context.Background())) }()
	require.Eventually(t, func() bool {
		var waits int
		err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1`, "%"+o.Schema+"%ended%").Scan(&waits)
		return err == nil && waits == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	require.Positive(t, lives[0])
	lives, err = r[0].Keep(t.Context(), []string{token})
	require.NoError(t, err)
	require.Positive(t, lives[0])
}

// A process knows for how long it has seen no refresh of a token, and nothing of a token that it has not asked for.
func TestSilentSinceTheLastRefresh(t *testing.T) {
	url := sharedURL(t)
	c, r := refreshes(t, url, pgledger.Options{Schema: schema(t, url)}, 2)
	token, err := r[0].Begin(t.Context(), lasts)
	require.NoError(t, err)
	left := func() {
		_, err := r[1].Left(t.Context(), []string{token})
		require.NoError(t, err)
	}
	c.advance(lasts / 8)
	require.Zero(t, r[1].Silent(token))
	require.Zero(t, r[1].Silent("no token"))
	left()
	c.advance(lasts / 8)
	left()
	require.Equal(t, lasts/8, r[1].Silent(token))
	_, err = r[0].Keep(t.Context(), []string{token})
	require.NoError(t, err)
	require.Equal(t, lasts/8, r[1].Silent(token), "it has not asked since")
	left()
	require.Zero(t, r[1].Silent(token))
}

// Processes that refresh and ask for the same tokens in different orders do not hinder each other, and no refresh is lost.
func TestRefreshesAtOnce(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.Options{Schema: schema(t, url)}
	_, r := refreshes(t, url, o, 2)
	var tokens []string
	for range 50 {
		token, err := r[0].Begin(t.Context(), lasts)
		require.NoError(t, err)
		tokens = append(tokens, token)
	}
	turned := slices.Clone(tokens)
	slices.Reverse(turned)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 20 {
				_, err := r[i%2].Keep(t.Context(), [][]string{tokens, turned}[i/2%2])
				assert.NoError(t, err)
				_, err = r[i%2].Left(t.Context(), turned)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	var least, most int
	require.NoError(t, pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT min(beats), max(beats) FROM %q.term`, o.Schema)).Scan(&least, &most))
	require.Equal(t, []int{160, 160}, []int{least, most})
	run(t, url, fmt.Sprintf(`UPDATE %q.term SET kept = now() - interval '8 days' WHERE id %% 2 = 0`, o.Schema))
	other, err := pgledger.OpenRefreshes(t.Context(), url, o)
	require.NoError(t, err)
	_, err = other.Begin(t.Context(), lasts)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	var rows int
	require.NoError(t, pool.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %q.term`, o.Schema)).Scan(&rows))
	require.Equal(t, 26, rows, "what nobody has kept for a week is gone")
}

// Refreshes need what SQL grants and nothing more, go on when their server does, and say so while it is away. Two ledgers in one schema
// have nothing in common.
func TestRefreshesOfARole(t *testing.T) {
	s := pgserver.ForTest(t)
	url := s.URL("postgres")
	name, as := role(t, url)
	o := pgledger.Options{Configure: as, Patience: -1}
	_, err := pgledger.OpenRefreshes(t.Context(), url, o)
	require.ErrorIs(t, err, pgledger.ErrSetup)
	run(t, url, pgledger.SQL("orbit", name))
	c, r := refreshes(t, url, o, 1)
	o.Name = "another"
	_, other := refreshes(t, url, o, 1)
	token, err := r[0].Begin(t.Context(), lasts)
	require.NoError(t, err)
	lives, err := other[0].Keep(t.Context(), []string{token})
	require.NoError(t, err)
	require.Zero(t, lives[0])
	require.NoError(t, s.Stop(syscall.SIGQUIT))
	_, err = r[0].Keep(t.Context(), []string{token})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, err = r[0].Left(t.Context(), []string{token})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, err = r[0].Begin(t.Context(), lasts)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	require.NoError(t, s.Start())
	require.Eventually(t, func() bool {
		lives, err = r[0].Keep(t.Context(), []string{token, token})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, []time.Duration{lasts * 3 / 4, lasts * 3 / 4}, lives)
	for range 10 {
		lives, err = r[0].Left(t.Context(), []string{token})
		require.NoError(t, err)
		c.advance(lasts / 8)
	}
	require.Zero(t, lives[0])
}
