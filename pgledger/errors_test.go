package pgledger_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/pgledger"
)

// closedPort returns an address on which no server listens.
func closedPort(t *testing.T) string {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// TestErrorsOfConnecting: an error of connecting is one line that names each address once, and is still that of the driver.
func TestErrorsOfConnecting(t *testing.T) {
	one, other := closedPort(t), closedPort(t)
	_, port, err := net.SplitHostPort(one)
	require.NoError(t, err)
	for hosts, want := range map[string]string{
		one:                 one + ": connection refused",
		one + "," + other:   one + ": connection refused; " + other + ": connection refused",
		"localhost:" + port: one + " (localhost): connection refused",
	} {
		_, err := pgledger.OpenLog(t.Context(), "postgres://orbit@"+hosts+"/orbit", pgledger.LogOptions{})
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		var connect *pgconn.ConnectError
		require.ErrorAs(t, err, &connect)
		require.NotContains(t, err.Error(), "\n")
		require.Contains(t, err.Error(), want)
		require.Equal(t, 1, strings.Count(err.Error(), one), err.Error())
	}
}

// TestErrorsOfSetup: what an administrator has to do is a sentence with SQL that does it.
func TestErrorsOfSetup(t *testing.T) {
	at := sharedURL(t)
	_, err := pgledger.OpenLog(t.Context(), at, pgledger.LogOptions{Configure: func(c *pgxpool.Config) { c.ConnConfig.Database = "none" }})
	require.ErrorIs(t, err, pgledger.ErrSetup)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	sql := fmt.Sprintf("CREATE DATABASE %q OWNER %q", "none", userOf(t, at))
	require.EqualError(t, err, `pgledger: open "orbit" in schema "orbit": database "none" does not exist; an administrator runs: `+sql)
	_, err = pgledger.OpenLog(t.Context(), at, pgledger.LogOptions{Configure: func(c *pgxpool.Config) { c.ConnConfig.User = "none" }})
	require.ErrorIs(t, err, pgledger.ErrSetup)
	require.ErrorContains(t, err, `pgledger: open "orbit" in schema "orbit": role "none" does not exist; give the right password, or an administrator runs: CREATE ROLE "none" LOGIN`)
	_, as := role(t, at)
	_, err = pgledger.OpenLog(t.Context(), at, pgledger.LogOptions{Schema: schema(t, at), Configure: as})
	require.ErrorIs(t, err, pgledger.ErrSetup)
	require.Regexp(t, `permission denied for database .*; an administrator runs, with the name of the role:\n.*CREATE SCHEMA`, err.Error())
}

// userOf returns the user in a URL.
func userOf(t *testing.T, of string) string {
	config, err := pgxpool.ParseConfig(of)
	require.NoError(t, err)
	return config.ConnConfig.User
}

// TestErrorsOfURLs: a text that is no URL of Postgres is told how one begins; another mistake is not.
func TestErrorsOfURLs(t *testing.T) {
	const begins = "a URL begins with postgres://"
	_, err := pgledger.OpenLog(t.Context(), "postgre://x", pgledger.LogOptions{})
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.ErrorContains(t, err, begins)
	_, err = pgledger.OpenLog(t.Context(), "postgres://host:port", pgledger.LogOptions{})
	require.ErrorIs(t, err, orbit.ErrInvalid)
	require.NotContains(t, err.Error(), begins)
	var parse *pgconn.ParseConfigError
	require.ErrorAs(t, err, &parse)
}
