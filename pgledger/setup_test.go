package pgledger_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// run runs SQL as the superuser.
func run(t testing.TB, url, sql string) {
	conn, err := pgx.Connect(context.Background(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(context.Background(), sql)
	require.NoError(t, err, sql)
}

// role makes a role that may nothing, removes it after the test, and returns its name and how it connects.
func role(t testing.TB, url string) (name string, as func(*pgxpool.Config)) {
	name = fmt.Sprintf("orbit role %d", schemas.Add(1))
	run(t, url, fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'of a test'`, name))
	t.Cleanup(func() { run(t, url, fmt.Sprintf(`DROP OWNED BY %q; DROP ROLE %q`, name, name)) })
	return name, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = name, "of a test" }
}

// TestRole: a role needs what SQL grants and nothing more. Without it the error has the SQL, at once.
func TestRole(t *testing.T) {
	url := sharedURL(t)
	name, as := role(t, url)
	o := pgledger.Options{Schema: schema(t, url), Configure: as}
	began := time.Now()
	_, err := pgledger.Open(t.Context(), url, o)
	require.ErrorIs(t, err, pgledger.ErrSetup)
	require.ErrorContains(t, err, "CREATE SCHEMA")
	require.Less(t, time.Since(began), 5*time.Second)
	run(t, url, pgledger.SQL(o.Schema, name))
	l := open(t, url, o)
	works(t, l, open(t, url, o))
	require.NoError(t, l.Health())

	ctx := t.Context()
	log := openLog(t, url, pgledger.LogOptions{Schema: o.Schema, Name: "a log", Configure: as})
	for i := range logledger.Index(3) {
		require.NoError(t, log.Post(ctx, logledger.Post{Data: []byte("post")}))
		_, err := log.Append(ctx, logledger.Append{Index: i + 1, Data: []byte("entry"), Settled: make([]logledger.PostID, 1)})
		require.NoError(t, err)
		require.NoError(t, log.SaveCheckpoint(ctx, i+1, func(w io.Writer) error { _, err := w.Write([]byte("state")); return err }))
	}
	require.NoError(t, log.Trim(ctx, 2))
	_, err = log.Read(ctx, 0)
	require.ErrorIs(t, err, logledger.ErrTrimmed)
}

// TestRoleThatReads: a role that may only read the tables can open a log that is there.
func TestRoleThatReads(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.LogOptions{Schema: schema(t, url)}
	log := openLog(t, url, o)
	_, err := log.Append(t.Context(), logledger.Append{Index: 1, Data: []byte("entry")})
	require.NoError(t, err)
	name, as := role(t, url)
	run(t, url, fmt.Sprintf(`GRANT USAGE ON SCHEMA %q TO %q; GRANT SELECT ON ALL TABLES IN SCHEMA %q TO %q`, o.Schema, name, o.Schema, name))
	o.Configure, o.Existing = as, true
	reader := openLog(t, url, o)
	page, err := reader.Read(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("entry")}, page.Entries)
	_, err = reader.Append(t.Context(), logledger.Append{Index: 2, Data: []byte("entry")})
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	require.ErrorContains(t, err, "permission denied")
	another, elsewhere := o, o
	another.Name, elsewhere.Schema = "another", "another"
	for _, o := range []pgledger.LogOptions{another, elsewhere} {
		_, err = pgledger.OpenLog(t.Context(), url, o)
		require.ErrorIs(t, err, pgledger.ErrNoLog)
	}
}

// TestOpenFails: Open says what is wrong, and at once if waiting is of no use.
func TestOpenFails(t *testing.T) {
	url := sharedURL(t)
	newer := schema(t, url)
	works(t, open(t, url, pgledger.Options{Schema: newer}))
	run(t, url, fmt.Sprintf(`UPDATE %q.format SET version = 2`, newer))
	for what, c := range map[string]struct {
		url  string
		o    pgledger.Options
		want error
	}{
		"no url":         {"postgres://host:port", pgledger.Options{}, orbit.ErrInvalid},
		"schema in URL":  {"postgres://h/d?schema=s", pgledger.Options{}, orbit.ErrInvalid},
		"name in URL":    {"postgres://h/d?name=n", pgledger.Options{}, orbit.ErrInvalid},
		"schema":         {url, pgledger.Options{Schema: "\xff"}, orbit.ErrInvalid},
		"long schema":    {url, pgledger.Options{Schema: fmt.Sprintf("%064d", 0)}, orbit.ErrInvalid},
		"name":           {url, pgledger.Options{Name: "a\x00"}, orbit.ErrInvalid},
		"few":            {url, pgledger.Options{Configure: func(c *pgxpool.Config) { c.MaxConns = 0 }}, orbit.ErrInvalid},
		"no database":    {url, pgledger.Options{Configure: func(c *pgxpool.Config) { c.ConnConfig.Database = "none" }}, pgledger.ErrSetup},
		"no role":        {url, pgledger.Options{Configure: func(c *pgxpool.Config) { c.ConnConfig.User = "none" }}, pgledger.ErrSetup},
		"newer":          {url, pgledger.Options{Schema: newer}, logledger.ErrVersion},
		"nobody answers": {"postgres://localhost:1", pgledger.Options{Patience: -1}, orbit.ErrUnavailable},
	} {
		began := time.Now()
		_, err := pgledger.Open(t.Context(), c.url, c.o)
		require.ErrorIs(t, err, c.want, what)
		if c.want == pgledger.ErrSetup { //nolint:errorlint // a case of the table
			require.Regexp(t, `CREATE (DATABASE|ROLE) "none"`, err.Error())
		}
		require.Less(t, time.Since(began), 5*time.Second, what)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := pgledger.Open(ctx, url, pgledger.Options{Schema: newer})
	require.ErrorIs(t, err, context.Canceled)
}

// TestMadeAtOnce: processes that start together make the schema, the tables and the ledger once.
func TestMadeAtOnce(t *testing.T) {
	url := sharedURL(t)
	for range 5 {
		o := pgledger.Options{Schema: schema(t, url)}
		ledgers := make([]orbit.Ledger, 8)
		errs := make([]error, len(ledgers))
		var wg sync.WaitGroup
		for i := range ledgers {
			wg.Go(func() {
				l, err := pgledger.Open(t.Context(), url, o)
				if ledgers[i], errs[i] = l, err; err == nil {
					t.Cleanup(func() { require.NoError(t, l.Close()) })
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		works(t, ledgers...)
	}
}

// TestNames: two names in one schema, and one name in two schemas, are different ledgers, and do not wake each other.
func TestNames(t *testing.T) {
	url := sharedURL(t)
	one, other := schema(t, url), schema(t, url)
	ledgers := []orbit.Ledger{
		open(t, url, pgledger.Options{Schema: one}), open(t, url, pgledger.Options{Schema: one, Name: `b'"; DROP`}), open(t, url, pgledger.Options{Schema: other}),
	}
	works(t, ledgers[0])
	for _, l := range ledgers[1:] {
		s, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		require.Zero(t, s.Revision())
	}
}

// TestLostEntries: a server that has lost entries, because it was restored from a backup, gets nothing that builds on them.
func TestLostEntries(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.LogOptions{Schema: schema(t, url)}
	ctx := t.Context()
	for _, lose := range []string{"DELETE FROM orbit.entry WHERE at = 2", "UPDATE orbit.entry SET data = 'another' WHERE at = 2", "DELETE FROM orbit.entry", "DELETE FROM orbit.log; DELETE FROM orbit.entry"} {
		o.Name += "next"
		log := openLog(t, url, o)
		for i, data := range []string{"first", "second"} {
			_, err := log.Append(ctx, logledger.Append{Index: logledger.Index(i + 1), Data: []byte(data)})
			require.NoError(t, err)
		}
		run(t, url, strings.ReplaceAll(lose, "orbit", strconv.Quote(o.Schema)))
		_, err := log.Append(ctx, logledger.Append{Index: 3, Data: []byte("third")})
		require.ErrorIs(t, err, logledger.ErrTaken, lose)
		_, err = log.Read(ctx, 2)
		require.ErrorIs(t, err, logledger.ErrFailed, lose)
	}
}

// TestNoNotifications: without notifications, as behind a proxy for transactions, the log asks for what is new.
func TestNoNotifications(t *testing.T) {
	url := sharedURL(t)
	o := pgledger.LogOptions{Schema: schema(t, url)}
	log := openLog(t, url, o)
	for deadline := time.After(time.Second); ; { // what is new at the beginning
		select {
		case <-log.Changed():
			continue
		case <-deadline:
		}
		break
	}
	run(t, url, fmt.Sprintf(`INSERT INTO %q.entry SELECT id, 1, 'entry' FROM %q.log`, o.Schema, o.Schema)) // tells nobody
	select {
	case <-log.Changed():
	case <-time.After(time.Minute):
		require.Fail(t, "the entry is not seen")
	}
}

// works commits through one ledger and sees it in all.
func works(t testing.TB, ledgers ...orbit.Ledger) {
	key := orbit.NewProposalID().String()
	rev, err := ledgers[0].Propose(t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: key, Value: "set"}}})
	require.NoError(t, err)
	for _, l := range ledgers {
		s, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.Revision(), rev)
		value, _ := s.Mark(key)
		require.Equal(t, "set", value)
	}
}
