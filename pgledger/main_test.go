package pgledger_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/pgserver"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
	"github.com/orbitsched/orbit/pgledger"
)

// shared is the server of all tests that neither stop it nor change it.
var shared struct {
	once sync.Once
	url  string
	s    *pgserver.Server
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.s != nil {
		if err := shared.s.Close(); err != nil {
			fmt.Println(err)
		}
	}
	os.Exit(code)
}

// sharedURL returns the URL of the server in ORBIT_POSTGRES, or of one that is started for the tests. Without either the
// test is skipped.
func sharedURL(t testing.TB) string {
	shared.once.Do(func() {
		if shared.url = os.Getenv("ORBIT_POSTGRES"); shared.url != "" {
			return
		}
		if shared.s, shared.err = pgserver.New("max_connections=400"); shared.err == nil {
			shared.url = shared.s.URL("postgres")
		}
	})
	pgserver.Require(t, shared.err)
	return shared.url
}

// schemas counts the schemas of a run, so that each test has one of its own.
var schemas atomic.Int64

// schema returns the name of a schema that is new, and is dropped after the test.
func schema(t testing.TB, url string) string {
	name := fmt.Sprintf("orbit test %d/%d", os.Getpid(), schemas.Add(1))
	t.Cleanup(func() {
		pool, err := pgxpool.New(context.Background(), url)
		require.NoError(t, err)
		defer pool.Close()
		_, err = pool.Exec(context.Background(), fmt.Sprintf(`DROP SCHEMA IF EXISTS %q CASCADE`, name))
		require.NoError(t, err)
	})
	return name
}

// openLog opens a log as a process does.
func openLog(t testing.TB, url string, o pgledger.LogOptions) *pgledger.Log {
	log, err := pgledger.OpenLog(t.Context(), url, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	return log
}

// open opens a ledger as a process does.
func open(t testing.TB, url string, o pgledger.Options) *pgledger.Ledger {
	l, err := pgledger.Open(t.Context(), url, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// TestLog: a log in Postgres keeps the rules for logs.
func TestLog(t *testing.T) {
	url := sharedURL(t)
	options := map[logledger.Log]pgledger.LogOptions{}
	another := func(t *testing.T, log logledger.Log) logledger.Log {
		peer := openLog(t, url, options[log])
		options[peer] = options[log]
		return peer
	}
	logtest.Suite{
		Peer: another,
		Reopen: func(t *testing.T, log logledger.Log) logledger.Log {
			require.NoError(t, log.Close())
			return another(t, log)
		},
	}.Run(t, func(t *testing.T) logledger.Log {
		o := pgledger.LogOptions{Schema: schema(t, url), Name: "a log"}
		log := openLog(t, url, o)
		options[log] = o
		return log
	})
}

// TestNeverOversubscribed: many goroutines propose at once through the ledgers of two processes, and the history of their commits, which ledgertest adds up by itself, never has more
// on a node than the node has.
func TestNeverOversubscribed(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.Options{Schema: schema(t, url)}
	figures, err := ledgertest.Load{Operations: 500}.Run(t.Context(), open(t, url, o), open(t, url, o))
	require.NoError(t, err)
	require.Positive(t, figures.Infeasible+figures.Conflicts, "nothing was refused, so nothing was tried")
}

// TestSuite: ledgers of two processes in one database are one ledger that keeps all promises.
func TestSuite(t *testing.T) {
	url := sharedURL(t)
	options := map[orbit.Ledger]pgledger.Options{}
	ledgertest.Suite{
		Peer: func(t *testing.T, l orbit.Ledger) orbit.Ledger { return open(t, url, options[l]) },
	}.Run(t, func(t *testing.T) orbit.Ledger {
		o := pgledger.Options{Schema: schema(t, url)}
		l := open(t, url, o)
		options[l] = o
		return l
	})
}
