package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/internal/pgserver"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// etcd and postgres are the servers of all tests. Each is started when a test needs it.
var (
	etcd struct {
		once sync.Once
		c    *cluster.Cluster
		err  error
	}
	postgres struct {
		once sync.Once
		url  string
		s    *pgserver.Server
		err  error
	}
	// serial counts prefixes and schemas, so that each test has some of its own.
	serial atomic.Int64
)

// TestMain makes of the test's program an etcd, too.
func TestMain(m *testing.M) {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve})
	code := m.Run()
	var err error
	if etcd.c != nil {
		err = etcd.c.Close()
	}
	if postgres.s != nil {
		err = errors.Join(err, postgres.s.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(code)
}

// inEtcd returns the name of a log in etcd that is not there yet, its prefix, and a client.
func inEtcd(t *testing.T) (log, prefix string, client *clientv3.Client) {
	etcd.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		etcd.c, etcd.err = cluster.Start(ctx, cluster.Options{NoSync: true})
	})
	require.NoError(t, etcd.err)
	client, err := etcd.c.Client()
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	prefix = fmt.Sprintf("test-%d", serial.Add(1))
	return "etcd:" + strings.Join(etcd.c.Endpoints(), ",") + "/" + prefix, prefix + "/", client
}

// inPostgres returns the name of a log in Postgres that is not there yet, the URL of the database, and the schema. The server is
// that in ORBIT_POSTGRES, or one that is started for the tests. Without either the test is skipped.
func inPostgres(t *testing.T) (log, database, schema string) {
	postgres.once.Do(func() {
		if postgres.url = os.Getenv("ORBIT_POSTGRES"); postgres.url != "" {
			return
		}
		if postgres.s, postgres.err = pgserver.New(); postgres.err == nil {
			postgres.url = postgres.s.URL("postgres")
		}
	})
	pgserver.Require(t, postgres.err)
	schema = fmt.Sprintf("orbitlog test %d/%d", os.Getpid(), serial.Add(1))
	t.Cleanup(func() { sql(t, fmt.Sprintf(`DROP SCHEMA IF EXISTS %q CASCADE`, schema)) })
	joint := "?"
	if strings.Contains(postgres.url, "?") {
		joint = "&"
	}
	return postgres.url + joint + url.Values{"schema": {schema}, "name": {"a log"}}.Encode(), postgres.url, schema
}

// sql runs SQL.
func sql(t *testing.T, statement string) {
	conn, err := pgx.Connect(context.Background(), postgres.url)
	require.NoError(t, err)
	_, err = conn.Exec(context.Background(), statement)
	require.NoError(t, errors.Join(err, conn.Close(context.Background())), statement)
}

// A rich ledger goes from each store to each other one, and its state stays the same to the letter. Then it goes on there.
func TestCopyBetweenStores(t *testing.T) {
	dir, want := stored(t, "v2")
	first := "file:" + dir
	inEtcd1, prefix, client := inEtcd(t)
	inEtcd2, _, _ := inEtcd(t)
	inPostgres1, database, schema := inPostgres(t)
	inPostgres2, _, _ := inPostgres(t)
	last := filepath.Join(t.TempDir(), "last")
	chain := []string{first, inEtcd1, inPostgres1, inPostgres2, inEtcd2, "file:" + last}
	for i, to := range chain[1:] {
		require.Contains(t, fails(t, notDone, "verify", to), "there is no ledger")
		require.Contains(t, ok(t, "copy", chain[i], to), "copy: ok\n")
		require.Equal(t, want, ok(t, "state", to), to)
		require.Equal(t, changes(ok(t, "print", first)), changes(ok(t, "print", to)))
		for _, from := range chain[:i+1] {
			require.Contains(t, fails(t, notDone, "copy", from, to), "has a ledger already")
		}
	}
	ctx := t.Context()
	file, err := diskledger.Open(last, diskledger.Options{})
	require.NoError(t, err)
	kept, err := etcdledger.Open(ctx, client, etcdledger.Options{Prefix: prefix})
	require.NoError(t, err)
	table, err := pgledger.Open(ctx, database, pgledger.Options{Schema: schema, Name: "a log"})
	require.NoError(t, err)
	for _, l := range []*logledger.Ledger{file, kept, table} {
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		rev, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "new", Value: "v"}}})
		require.NoError(t, err)
		require.Equal(t, s.Revision()+1, rev)
		require.NoError(t, l.Close())
	}
}

// changes returns what was printed without the comments.
func changes(printed string) (lines []string) {
	for line := range strings.Lines(printed) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A copy that was interrupted is none, in each store, and is redone.
func TestCopyBetweenStoresInterrupted(t *testing.T) {
	dir, want := stored(t, "v2")
	inEtcd, _, _ := inEtcd(t)
	interrupt(t, "file:"+dir, inEtcd)
	redone(t, "file:"+dir, inEtcd, want)
	inPostgres, _, _ := inPostgres(t)
	interrupt(t, inEtcd, inPostgres)
	redone(t, inEtcd, inPostgres, want)
}

// A log that is open in a process is verified and compacted beside it, and the process goes on.
func TestBesideALedger(t *testing.T) {
	inEtcd, prefix, client := inEtcd(t)
	inPostgres, database, schema := inPostgres(t)
	ctx := t.Context()
	kept, err := etcdledger.Open(ctx, client, etcdledger.Options{Prefix: prefix})
	require.NoError(t, err)
	table, err := pgledger.Open(ctx, database, pgledger.Options{Schema: schema, Name: "a log"})
	require.NoError(t, err)
	for log, l := range map[string]*logledger.Ledger{inEtcd: kept, inPostgres: table} {
		commit := func(n int) {
			for i := range n {
				_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint(i), Value: "v"}}})
				require.NoError(t, err)
			}
		}
		commit(5)
		require.Contains(t, ok(t, "verify", log), "the checkpoint has the first 0 entries; 5 more with 5 changes come after it\n0 posts that no entry has settled\n")
		require.Contains(t, ok(t, "compact", log), "the checkpoint has the first 5 entries; 0 more with 0 changes come after it\n")
		commit(5)
		require.Contains(t, ok(t, "verify", log), "revision 10, 0 nodes, 0 capsules\nthe checkpoint has the first 5 entries; 5 more with 5 changes come after it\n")
		require.NoError(t, l.Close())
	}
}

// The key or the row of what is damaged is named.
func TestDamageInStores(t *testing.T) {
	dir := small(t)
	for _, damage := range []string{"entry", "line", "checkpoint"} {
		log, prefix, client := inEtcd(t)
		ok(t, "copy", "file:"+dir, log)
		under := map[string]string{"entry": "entry/", "line": "entry/", "checkpoint": "blob/checkpoint/"}[damage]
		got, err := client.Get(t.Context(), prefix+under, clientv3.WithPrefix())
		require.NoError(t, err)
		last := got.Kvs[len(got.Kvs)-1]
		value := string(last.Value)
		if damage == "line" {
			value = "no version"
		} else {
			value = value[:len(value)-5]
		}
		_, err = client.Put(t.Context(), string(last.Key), value)
		require.NoError(t, err)
		require.Contains(t, fails(t, unsound, "verify", log), fmt.Sprintf("damaged: key %q: ", last.Key))
	}
	for table, row := range map[string]string{"entry": "log = 1, at = 2", "checkpoint": "log = 1, at = 1, maker = "} {
		log, _, schema := inPostgres(t)
		ok(t, "copy", "file:"+dir, log)
		sql(t, fmt.Sprintf(`UPDATE %q.%s SET data = substr(data, 1, length(data) - 5)`, schema, table))
		require.Contains(t, fails(t, unsound, "verify", log), fmt.Sprintf("damaged: table %q.%q, row %s", schema, table, row))
	}
}

// Servers that do not answer, and passwords that are wrong, are no damage, and what to do is said.
func TestUnreachable(t *testing.T) {
	for _, log := range []string{"etcd:http://127.0.0.1:1", "postgres://me:secret@127.0.0.1:1/db"} {
		problem := fails(t, notDone, "verify", log)
		require.Contains(t, problem, "see that the store runs")
		require.NotContains(t, problem, "secret")
	}
}
