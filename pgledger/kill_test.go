package pgledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/pgserver"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/pgledger"
)

// errAnswerLost is how a connection ends whose answer is lost.
var errAnswerLost = errors.New("the answer is lost")

// deaf is a connection that loses answers: the server has got what was asked, and may have done it.
type deaf struct {
	net.Conn
	lose func(answer []byte) bool
}

// Read implements io.Reader.
func (c deaf) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.lose(p[:n]) {
		return 0, errors.Join(errAnswerLost, c.Close())
	}
	return n, err
}

// lossy lets the connections of a pool lose the answers that lose says, and counts them.
func lossy(c *pgxpool.Config, lost *atomic.Int64, lose func(answer []byte) bool) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return deaf{conn, func(answer []byte) bool {
			if !lose(answer) {
				return false
			}
			lost.Add(1)
			return true
		}}, nil
	}
}

// storm kills a server and its connections.
type storm struct {
	t     *testing.T
	s     *pgserver.Server
	rng   *rand.Rand
	kills map[string]int
}

// strike does one of the things that can happen to a server.
func (k *storm) strike() {
	switch k.rng.IntN(6) {
	case 0:
		k.restart("crashes", syscall.SIGQUIT)
	case 1:
		k.restart("kills", syscall.SIGKILL)
	case 2:
		k.restart("stops", syscall.SIGINT)
	case 3:
		resume := k.s.Pause()
		k.rest()
		resume()
		k.kills["pauses"]++
	default:
		k.terminate()
	}
}

// restart stops the server by a signal and starts it again.
func (k *storm) restart(what string, with syscall.Signal) {
	require.NoError(k.t, k.s.Stop(with))
	k.rest()
	require.NoError(k.t, k.s.Start())
	k.kills[what]++
}

// terminate ends the connections of all ledgers, or some.
func (k *storm) terminate() {
	conn, err := pgx.Connect(context.Background(), k.s.URL("postgres"))
	require.NoError(k.t, err)
	defer func() { require.NoError(k.t, conn.Close(context.Background())) }()
	_, err = conn.Exec(context.Background(),
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < $1`, k.rng.Float64()*2)
	require.NoError(k.t, err)
	k.kills["connections"]++
}

// rest waits for a random time, so that the next strike meets commits in all stages.
func (k *storm) rest() { time.Sleep(time.Duration(k.rng.IntN(300)) * time.Millisecond) }

// run strikes until ctx ends.
func (k *storm) run(ctx context.Context) {
	for k.rest(); ctx.Err() == nil; k.rest() {
		k.strike()
	}
}

// TestKills: four ledgers are one linearizable ledger while the server is stopped, killed and paused, connections are ended, and
// answers are lost. Nothing that was answered is lost, nothing is committed twice, and the tables have what the ledgers show.
func TestKills(t *testing.T) {
	s := pgserver.ForTest(t, "synchronous_commit=off", "wal_writer_delay=10s") // a commit that does not ask for the disk is lost in a crash
	k := &storm{t: t, s: s, rng: rand.New(rand.NewPCG(1, 0)), kills: map[string]int{}}
	judged := 0
	for seed := uint64(0); k.strikes() < scale.Of(15, 300) || judged == 0; seed++ {
		if k.round(t, seed) {
			judged++
		}
	}
	t.Logf("%d histories judged, strikes: %v", judged, k.kills)
}

// strikes is how many strikes there were.
func (k *storm) strikes() (n int) {
	for _, kind := range k.kills {
		n += kind
	}
	return n
}

// round runs a load on four ledgers in the storm. It reports whether the whole history could be judged: a ledger that was cut off
// while the others have made two checkpoints does not have it.
func (k *storm) round(t *testing.T, seed uint64) (judged bool) {
	o := pgledger.Options{Schema: fmt.Sprintf("round %d", seed), OnError: func(error) {}, Timeout: time.Second}
	var lost atomic.Int64
	var ledgers []orbit.Ledger
	for range 4 {
		o.CheckpointEvery = 100 + k.rng.IntN(500)
		o.Configure = func(c *pgxpool.Config) { lossy(c, &lost, func([]byte) bool { return rand.IntN(1000) == 0 }) }
		o.Patience = time.Duration(50+k.rng.IntN(5000)) * time.Millisecond
		ledgers = append(ledgers, calm{openAnyhow(t, k.s.URL("postgres"), o)})
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { k.run(ctx) })
	within, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	figures, err := ledgertest.Load{Seed: seed, Operations: 1500, Workers: 12}.Run(within, ledgers...)
	stop()
	wg.Wait()
	judged = !errors.Is(err, orbit.ErrCompacted)
	if judged {
		require.NoError(t, err)
	}
	t.Logf("%v; lost answers %d, strikes %v", figures, lost.Load(), k.kills)
	o.Configure = nil
	want := dump(t, open(t, k.s.URL("postgres"), o))
	for i, l := range ledgers {
		require.Equal(t, want, dump(t, l), "ledger %d", i)
		t.Logf("%+v", l.(calm).Stats())
		require.NoError(t, l.(calm).Close())
	}
	return judged
}

// calm is a ledger that waits before it says that the store cannot be reached, so that a load does not ask a thousand times a
// second.
type calm struct{ *pgledger.Ledger }

// Propose implements orbit.Ledger.
func (c calm) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	rev, err := c.Ledger.Propose(ctx, p)
	if errors.Is(err, orbit.ErrUnavailable) {
		time.Sleep(50 * time.Millisecond)
	}
	return rev, err
}

// openAnyhow opens a ledger, however often that is answered by nobody.
func openAnyhow(t *testing.T, url string, o pgledger.Options) *pgledger.Ledger {
	for {
		l, err := pgledger.Open(t.Context(), url, o)
		if !errors.Is(err, orbit.ErrUnavailable) {
			require.NoError(t, err)
			return l
		}
	}
}

// dump returns the state of a ledger, which must be sound.
func dump(t *testing.T, l orbit.Ledger) string {
	s, err := l.Snapshot(t.Context())
	for errors.Is(err, orbit.ErrUnavailable) {
		s, err = l.Snapshot(t.Context())
	}
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	var out bytes.Buffer
	require.NoError(t, s.Dump(&out))
	return out.String()
}
