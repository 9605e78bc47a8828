package itest

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/internal/pgserver"
)

// mortalStore is a store of ledgers that can be killed and paused.
type mortalStore interface {
	// addresses are where it is reached.
	addresses() []string
	// site returns the place of a ledger with a name, for a process that reaches the store over these addresses.
	site(name string, over []string) site
	// kill kills what the name in the tally says, with SIGKILL or as a crash does. Call restart next.
	kill(rng *rand.Rand) (what string, restart func())
	// pause stops what the name in the tally says, with SIGSTOP. Call resume next.
	pause(rng *rand.Rand) (what string, resume func())
}

// etcdStore is an etcd of three members, in processes of their own.
type etcdStore struct {
	t *testing.T
	*cluster.Cluster
}

func newEtcdStore(t *testing.T) mortalStore { return etcdStore{t, start(t, fast)} }

func (s etcdStore) addresses() (out []string) {
	for _, endpoint := range s.Endpoints() {
		out = append(out, strings.TrimPrefix(endpoint, "http://"))
	}
	return out
}

func (s etcdStore) site(name string, over []string) site { return site{Name: name, Etcd: over} }

// victims are the leader, or all members.
func (s etcdStore) victims(rng *rand.Rand) (what string, members []int) {
	if rng.IntN(2) == 0 {
		return "all members", []int{0, 1, 2}
	}
	leader, err := s.Leader(within(s.t, time.Minute))
	require.NoError(s.t, err)
	return "the leader", []int{leader}
}

// each does the same with several members at once.
func (s etcdStore) each(members []int, do func(int) error) {
	done := make(chan error)
	for _, i := range members {
		go func() { done <- do(i) }()
	}
	for range members {
		require.NoError(s.t, receive(s.t, done))
	}
}

func (s etcdStore) kill(rng *rand.Rand) (string, func()) {
	what, members := s.victims(rng)
	s.each(members, s.Kill)
	return "kill " + what, func() {
		s.each(members, func(i int) error { return s.Restart(within(s.t, time.Minute), i) })
	}
}

func (s etcdStore) pause(rng *rand.Rand) (string, func()) {
	what, members := s.victims(rng)
	s.each(members, s.Pause)
	return "pause " + what, func() { s.each(members, s.Resume) }
}

// postgresStore is a Postgres server.
type postgresStore struct {
	t *testing.T
	*pgserver.Server
}

func newPostgresStore(t *testing.T) mortalStore {
	// A commit that does not ask for the disk would be lost in a crash.
	return postgresStore{t, pgserver.ForTest(t, "synchronous_commit=off", "wal_writer_delay=10s", "max_connections=200")}
}

func (s postgresStore) addresses() []string { return []string{s.Address()} }

func (s postgresStore) site(name string, over []string) site {
	return site{Name: name, Postgres: over[0]}
}

func (s postgresStore) kill(rng *rand.Rand) (string, func()) {
	what, with := "kill the server", syscall.SIGKILL
	if rng.IntN(3) == 0 {
		what, with = "crash the server", syscall.SIGQUIT
	}
	require.NoError(s.t, s.Stop(with))
	return what, func() { require.NoError(s.t, s.Start()) }
}

func (s postgresStore) pause(*rand.Rand) (string, func()) {
	return "pause the server", s.Pause()
}
