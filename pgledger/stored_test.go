package pgledger_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
	"github.com/orbitsched/orbit/pgledger"
)

// testdata/v1.sql makes the tables of version 1 with a log that a release has stored there, v1.dump is the state in it.

// store writes it anew. When the version changes, first give it a new name: what a release has stored stays.
var store = flag.Bool("store", false, "write testdata/v1.sql and v1.dump anew")

// What a release has stored is read as it was meant, and a ledger goes on there.
func TestStored(t *testing.T) {
	url := sharedURL(t)
	in := func(schema string) logtest.Stored {
		return logtest.Stored{Large: 9000, Open: func(tb testing.TB) logledger.Poster { // larger than a page of Postgres
			return openLog(tb, url, pgledger.LogOptions{Schema: schema, Name: "stored"})
		}}
	}
	if *store {
		name := schema(t, url)
		storeLog(t, url, name, in(name))
	}
	sql, err := os.ReadFile("testdata/v1.sql")
	require.NoError(t, err)
	for _, table := range []string{"format", "log", "entry", "post", "checkpoint"} {
		require.Contains(t, string(sql), "INSERT INTO orbit."+table)
	}
	want, err := os.ReadFile("testdata/v1.dump")
	require.NoError(t, err)
	name := schema(t, url)
	quoted := pgx.Identifier{name}.Sanitize()
	run(t, url, "CREATE SCHEMA "+quoted+";\n"+strings.ReplaceAll(string(sql), "orbit.", quoted+"."))
	in(name).Check(t, string(want))
}

// rows are queries of the statements that insert the rows of the tables.
var rows = []string{
	`SELECT format('INSERT INTO orbit.log OVERRIDING SYSTEM VALUE VALUES (%s, %L, %s, %s, %s);', id, name, checkpoint, maker, parts) FROM orbit.log`,
	`SELECT format('INSERT INTO orbit.entry VALUES (%s, %s, %L);', log, at, data) FROM orbit.entry ORDER BY at`,
	`SELECT format('INSERT INTO orbit.post OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s, %s, %L);', log, since, id, writer, number, data) FROM orbit.post ORDER BY id`,
	`SELECT format('INSERT INTO orbit.checkpoint VALUES (%s, %s, %s, %s, %L);', log, at, maker, part, data) FROM orbit.checkpoint`,
	`SELECT format('SELECT setval(pg_get_serial_sequence(''orbit.post'', ''id''), %s);', max(id)) FROM orbit.post`,
	`SELECT format('SELECT setval(pg_get_serial_sequence(''orbit.log'', ''id''), %s);', max(id)) FROM orbit.log`,
}

// storeLog writes v1.sql and v1.dump.
func storeLog(t *testing.T, url, schema string, s logtest.Stored) {
	dump, err := os.Open("../diskledger/testdata/v2.dump") // a state with every kind of record
	require.NoError(t, err)
	state := new(orbit.State)
	require.NoError(t, state.Restore(dump))
	require.NoError(t, dump.Close())
	s.Make(t, state)
	found, err := logledger.Inspect(t.Context(), s.Open(t), nil)
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, found.State.Dump(&text))
	tables, err := os.ReadFile("tables.sql")
	require.NoError(t, err)
	out := bytes.NewBuffer(tables)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	quoted := pgx.Identifier{schema}.Sanitize() + "."
	for _, query := range rows {
		got, err := conn.Query(t.Context(), strings.ReplaceAll(query, "FROM orbit.", "FROM "+quoted))
		require.NoError(t, err)
		statements, err := pgx.CollectRows(got, pgx.RowTo[string])
		require.NoError(t, err)
		fmt.Fprintln(out, strings.Join(statements, "\n"))
	}
	require.NoError(t, conn.Close(context.Background()))
	require.NoError(t, os.WriteFile("testdata/v1.dump", text.Bytes(), 0o644))
	require.NoError(t, os.WriteFile("testdata/v1.sql", out.Bytes(), 0o644))
}
