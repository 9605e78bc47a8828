package pgledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// fill appends entries up to an index.
func fill(t testing.TB, log logledger.Log, upTo logledger.Index) {
	for i := range upTo {
		_, err := log.Append(t.Context(), logledger.Append{Index: i + 1, Data: fmt.Appendf(nil, "entry %d", i+1)})
		require.NoError(t, err)
	}
}

// blocked starts an append of entry 2, which is there, while a transaction is about to remove entries 1 to 3. It waits until the
// append waits for the transaction, and returns its process in the server, the transaction, and where its error comes.
func blocked(t *testing.T, url string) (pid int, removing pgx.Tx, ended chan error) {
	o := pgledger.LogOptions{Schema: schema(t, url)}
	log := openLog(t, url, o)
	fill(t, log, 5)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	removing, err = pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = removing.Rollback(context.Background()) })
	_, err = removing.Exec(t.Context(), fmt.Sprintf(`DELETE FROM %q.entry WHERE at <= 3`, o.Schema))
	require.NoError(t, err)
	ended = make(chan error, 1)
	go func() {
		_, err := log.Append(context.Background(), logledger.Append{Index: 2, Data: []byte("late")})
		ended <- err
	}()
	require.Eventually(t, func() bool {
		return pool.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND position($1 in query) > 0`, o.Schema).Scan(&pid) == nil
	}, time.Minute, time.Millisecond)
	return pid, removing, ended
}

// TestLateBesideTrim: an entry that comes late, while the one at its index is being removed, writes nothing.
func TestLateBesideTrim(t *testing.T) {
	_, removing, ended := blocked(t, sharedURL(t))
	require.NoError(t, removing.Commit(t.Context()))
	require.ErrorIs(t, <-ended, logledger.ErrTaken)
}

// TestEndedConnection: what a server that ends a connection has done is not known.
func TestEndedConnection(t *testing.T) {
	url := sharedURL(t)
	pid, _, ended := blocked(t, url)
	run(t, url, fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, pid))
	err := <-ended
	require.Error(t, err)
	require.NotErrorIs(t, err, orbit.ErrUnavailable)
	require.NotErrorIs(t, err, logledger.ErrTaken)
}

// TestLostAnswer: after a lost answer nothing is said of the entry, which is there; what was not sent is certainly not there.
func TestLostAnswer(t *testing.T) {
	url := sharedURL(t)
	var losing atomic.Bool
	var silent atomic.Int64
	o := pgledger.LogOptions{Schema: schema(t, url)}
	peer := openLog(t, url, o)
	o.Configure = func(c *pgxpool.Config) {
		lossy(c, &silent, func(answer []byte) bool { return losing.Load() && bytes.Contains(answer, []byte("SELECT 1\x00")) })
	}
	log := openLog(t, url, o)
	fill(t, log, 1)
	losing.Store(true)
	_, err := log.Append(t.Context(), logledger.Append{Index: 2, Data: []byte("its answer is lost")})
	losing.Store(false)
	require.ErrorIs(t, err, errAnswerLost)
	require.NotErrorIs(t, err, orbit.ErrUnavailable)
	require.Eventually(t, func() bool {
		tail, err := peer.Tail(t.Context())
		return err == nil && tail == 2
	}, time.Minute, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = log.Append(ctx, logledger.Append{Index: 3})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
}

// TestCheckpointsAtOnce: of checkpoints that are stored at the same time the one at the highest index is the newest in the end, and
// whole.
func TestCheckpointsAtOnce(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.LogOptions{Schema: schema(t, url)}
	log, peer := openLog(t, url, o), openLog(t, url, o)
	fill(t, log, 9)
	large := bytes.Repeat([]byte("0123456789"), 300_000)
	save := func(log logledger.Log, at logledger.Index, meanwhile func()) error {
		return log.SaveCheckpoint(t.Context(), at, func(w io.Writer) error {
			_, err := w.Write(large[:len(large)-int(at)])
			meanwhile()
			return err
		})
	}
	nothing := func() {}
	newest := func(want logledger.Index) {
		at, r, err := peer.Checkpoint(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, at)
		got, err := io.ReadAll(r)
		require.NoError(t, errors.Join(err, r.Close()))
		require.True(t, bytes.Equal(large[:len(large)-int(at)], got), "checkpoint %d is not whole", at)
	}
	require.NoError(t, save(log, 5, func() { require.NoError(t, save(peer, 4, nothing)) }))
	newest(5)
	require.ErrorIs(t, save(log, 6, func() { require.NoError(t, save(peer, 7, nothing)) }), logledger.ErrTaken)
	newest(7)
	require.ErrorIs(t, save(log, 8, func() { require.NoError(t, save(peer, 8, nothing)) }), logledger.ErrTaken)
	newest(8)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	var parts int
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FROM %q.checkpoint`, o.Schema)).Scan(&parts))
	require.Equal(t, 3, parts, "parts of other checkpoints are left")
}
