package pgledger_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
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
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// certificate makes a certificate for 127.0.0.1 that signs itself, and its key, as PEM.
func certificate(t *testing.T) (cert, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// TestTLS: the URL says whom to trust, and another server is refused.
func TestTLS(t *testing.T) {
	s := pgserver.ForTest(t)
	cert, key := certificate(t)
	require.NoError(t, s.Write("server.crt", cert))
	require.NoError(t, s.Write("server.key", key))
	require.NoError(t, s.Stop(syscall.SIGINT))
	require.NoError(t, s.Write("postgresql.auto.conf", []byte("ssl = on\n")))
	require.NoError(t, s.Start())
	another, _ := certificate(t)
	for what, trusted := range map[string][]byte{"the server": cert, "another": another} {
		file := filepath.Join(t.TempDir(), "ca.pem")
		require.NoError(t, os.WriteFile(file, trusted, 0o600))
		url := fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=verify-full&sslrootcert=%s", s.Address(), file)
		l, err := pgledger.Open(t.Context(), url, pgledger.Options{Patience: -1})
		if what == "another" {
			require.ErrorIs(t, err, orbit.ErrUnavailable)
			require.ErrorContains(t, err, "certificate")
			continue
		}
		require.NoError(t, err)
		works(t, l)
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		var plain int
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE backend_type = 'client backend' AND NOT ssl`).Scan(&plain))
		require.Zero(t, plain, "connections without TLS")
		require.NoError(t, conn.Close(context.Background()))
		require.NoError(t, l.Close())
	}
}

// TestBackAgain: a ledger goes on by itself when its server does, also when it was away for longer than the patience.
func TestBackAgain(t *testing.T) {
	s := pgserver.ForTest(t)
	var mu sync.Mutex
	lost, back := map[string]int{}, 0
	l := open(t, s.URL("postgres"), pgledger.Options{Patience: 100 * time.Millisecond, OnError: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, logledger.ErrBack) {
			back++
		} else {
			lost[strings.SplitN(err.Error(), ":", 3)[1]]++
		}
	}})
	works(t, l)
	require.NoError(t, s.Stop(syscall.SIGQUIT))
	_, err := l.Propose(t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: "a", Value: "b"}}})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	require.Error(t, l.Health())
	_, err = l.Snapshot(t.Context())
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	require.NoError(t, s.Start())
	require.Eventually(t, func() bool { return l.Health() == nil }, time.Minute, 10*time.Millisecond)
	works(t, l)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return back == len(lost) && back > 0
	}, time.Minute, 10*time.Millisecond, "each end is told of")
	mu.Lock()
	defer mu.Unlock()
	for what, n := range lost {
		require.Equal(t, 1, n, what)
	}
}

// TestIdleOutage: a process that neither proposes nor reads knows that its server is gone, is told so once, and is told once that it is
// back: nothing is said of the notifications that come from it.
func TestIdleOutage(t *testing.T) {
	s := pgserver.ForTest(t)
	told := make(chan error, 100)
	l := open(t, s.URL("postgres"), pgledger.Options{OnError: func(err error) { told <- err }})
	for range 3 {
		works(t, l)
		require.NoError(t, l.Health())
		require.NoError(t, s.Stop(syscall.SIGINT))
		lost := <-told
		require.ErrorContains(t, lost, "the store has not worked since")
		require.ErrorContains(t, lost, "nothing is committed until it does")
		require.ErrorContains(t, l.Health(), "the store has not worked since")
		require.NoError(t, s.Start())
		back := <-told
		require.ErrorIs(t, back, logledger.ErrBack)
		require.ErrorContains(t, back, "works again after")
		require.Eventually(t, func() bool { return l.Health() == nil }, time.Minute, time.Millisecond)
	}
	works(t, l)
	require.Empty(t, told)
}

// mute is a connection that fails when it is asked for notifications, while muted is set. It counts how often it is asked.
type mute struct {
	net.Conn
	muted *atomic.Bool
	asked *atomic.Int64
}

// Write implements io.Writer.
func (c mute) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("LISTEN orbit")) {
		c.asked.Add(1)
		if c.muted.Load() {
			return 0, errors.Join(errAnswerLost, c.Close())
		}
	}
	return c.Conn.Write(p)
}

// TestLostNotifications: while a server answers and there are no notifications, that is told once, and the ledger is healthy. A
// connection that is lost and at once made again is not worth telling.
func TestLostNotifications(t *testing.T) {
	url := sharedURL(t)
	var muted atomic.Bool
	var asked atomic.Int64
	told := make(chan error, 100)
	o := pgledger.Options{Schema: schema(t, url), OnError: func(err error) { told <- err }, Configure: func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return mute{conn, &muted, &asked}, err
		}
	}}
	works(t, open(t, url, o))
	require.Empty(t, told)
	muted.Store(true)
	l := open(t, url, o)
	lost := <-told
	require.ErrorContains(t, lost, "no notifications, asking every")
	works(t, l)
	require.NoError(t, l.Health())
	muted.Store(false)
	require.ErrorIs(t, <-told, logledger.ErrBack)
	before := asked.Load()
	run(t, url, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN orbit%'`)
	require.Eventually(t, func() bool { return asked.Load() >= before+2 }, time.Minute, time.Millisecond) // of two ledgers
	works(t, l)
	require.Empty(t, told)
}

// TestPatienceSaysWhy: if the context is shorter than the patience, the error says what was wrong.
func TestPatienceSaysWhy(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := pgledger.Open(ctx, "postgres://nobody@127.0.0.1:1/orbit", pgledger.Options{})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "connection refused")
}

// TestStandby: a standby is no place to read from, because it may be behind; the ledger finds the primary among several servers.
func TestStandby(t *testing.T) {
	s := pgserver.ForTest(t)
	works(t, open(t, s.URL("postgres"), pgledger.Options{}))
	standby, err := s.Standby()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	_, err = pgledger.Open(t.Context(), standby.URL("postgres"), pgledger.Options{Patience: -1})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	log, err := pgledger.OpenLog(t.Context(), standby.URL("postgres"), pgledger.LogOptions{
		Existing: true, Configure: func(c *pgxpool.Config) { c.ConnConfig.ValidateConnect = nil },
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	_, err = log.Tail(t.Context())
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, err = log.Read(t.Context(), 0)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, _, err = log.Checkpoint(t.Context())
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	works(t, open(t, fmt.Sprintf("postgres://postgres@%s,%s/postgres", standby.Address(), s.Address()), pgledger.Options{}))
}
