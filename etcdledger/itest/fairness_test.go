package itest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/etcdledger/itest/process"
	sample "github.com/orbitsched/orbit/internal/scale"
)

// racer is a process that commits as fast as it can.
type racer struct {
	*process.Process
	ready  chan struct{}
	counts chan int64
}

// heard handles an event of the process.
func (r *racer) heard(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		return
	}
	if e.Ready {
		close(r.ready)
	}
	if e.Count != nil {
		r.counts <- *e.Count
	}
}

// startRacers starts four processes with a ledger each in a store, and returns when they are about to commit.
func startRacers(t *testing.T, s mortalStore, workers int) (racers []*racer) {
	for i := range clients {
		one := &racer{ready: make(chan struct{}), counts: make(chan int64, 1)}
		at := s.site("race", s.addresses())
		at.Timeout, at.Patience = 5*time.Second, 10*time.Second
		var err error
		one.Process, err = process.Start(racerRole, clientConfig{Site: at, Seed: uint64(i), Workers: workers}, one.heard)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, one.Stop(10*time.Second)) })
		racers = append(racers, one)
	}
	for _, one := range racers {
		receive(t, one.ready)
	}
	return racers
}

// counts returns how many commits each racer has made.
func counts(t *testing.T, racers []*racer) (out []int64) {
	for _, one := range racers {
		require.NoError(t, one.Tell("count"))
	}
	for _, one := range racers {
		out = append(out, receive(t, one.counts))
	}
	return out
}

// fair measures how evenly four processes at full speed share a store, as the commits of the slowest divided by those of the
// fastest in a window, and requires that nobody is starved: that each has made a tenth of the fastest's commits at some time.
func fair(t *testing.T, s mortalStore) {
	racers := startRacers(t, s, 16)
	counts(t, racers) // now they begin
	require.Eventually(t, func() bool { return slices.Min(counts(t, racers)) > 0 }, time.Minute, time.Millisecond)
	begin := counts(t, racers)
	var shares []float64
	last := begin
	for range sample.Of(1, 5) {
		time.Sleep(time.Duration(sample.Of(1, 3)) * time.Second)
		now := counts(t, racers)
		shares = append(shares, share(last, now))
		t.Logf("in this window %v", difference(last, now))
		last = now
	}
	slices.Sort(shares)
	t.Logf("slowest/fastest: median %.2f of %.2f", shares[len(shares)/2], shares)
	require.Eventually(t, func() bool { return share(begin, counts(t, racers)) >= 0.1 }, time.Minute, 100*time.Millisecond, "a process is starved")
}

// difference returns what has come to counts.
func difference(from, to []int64) (out []int64) {
	for i := range from {
		out = append(out, to[i]-from[i])
	}
	return out
}

// share is what has come to the count of the slowest, divided by what has come to that of the fastest.
func share(from, to []int64) float64 {
	d := difference(from, to)
	return float64(slices.Min(d)) / float64(max(1, slices.Max(d)))
}

// Four processes that commit to one etcd as fast as they can get about as many commits each. With -tags stress the figure is the
// median of five windows.
func TestFairOnEtcd(t *testing.T) {
	t.Parallel()
	fair(t, newEtcdStore(t))
}

// The same holds for Postgres.
func TestFairOnPostgres(t *testing.T) {
	t.Parallel()
	fair(t, newPostgresStore(t))
}
