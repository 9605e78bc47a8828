package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/internal/pgserver"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/pgledger"
)

// speedStore is a store in which logs are measured: open opens the log with this name, as another process would.
type speedStore struct {
	name    string
	clients []int
	open    func(b *testing.B, name string) logledger.Log
}

// speedStores starts an etcd of one member that syncs, and a Postgres.
func speedStores(b *testing.B) []speedStore {
	c, err := cluster.Start(b.Context(), cluster.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	dirs := b.TempDir()
	stores := []speedStore{
		{"disk", []int{1}, func(b *testing.B, name string) logledger.Log {
			log, err := diskledger.OpenLog(dirs+"/"+name, diskledger.LogOptions{})
			require.NoError(b, err)
			return log
		}},
		{"etcd", []int{1, 4}, func(b *testing.B, name string) logledger.Log {
			client, err := c.Client()
			require.NoError(b, err)
			b.Cleanup(func() { _ = client.Close() })
			log, err := etcdledger.OpenLog(b.Context(), client, etcdledger.LogOptions{Prefix: name + "/"})
			require.NoError(b, err)
			return log
		}},
	}
	url := os.Getenv("ORBIT_POSTGRES")
	if url == "" {
		s, err := pgserver.New("max_connections=200")
		if errors.Is(err, pgserver.ErrMissing) && os.Getenv("ORBIT_REQUIRE_POSTGRES") == "" {
			b.Log("without Postgres:", err)
			return stores
		}
		require.NoError(b, err)
		b.Cleanup(func() { _ = s.Close() })
		url = s.URL("postgres")
	}
	return append(stores, speedStore{"postgres", []int{1, 4}, func(b *testing.B, name string) logledger.Log {
		log, err := pgledger.OpenLog(b.Context(), url, pgledger.LogOptions{Schema: "speed " + name})
		require.NoError(b, err)
		return log
	}})
}

// BenchmarkStores measures placements a second through ledgers in each store, beside appends to the bare log. Each client is a
// ledger of its own, as a process has; fairness is the placements of the slowest client beside those of the fastest. Opening
// reads a log of so many placed capsules, from its entries and from a checkpoint.
func BenchmarkStores(b *testing.B) {
	stores := speedStores(b)
	for _, shape := range []struct {
		name         string
		calls, batch int
	}{{"bare", 0, 0}, {"calls=1", 1, 1}, {"calls=16", 16, 1}, {"calls=128", 128, 1}, {"batches=1000", 1, 1000}} {
		for _, clients := range []int{1, 4} {
			for _, s := range stores {
				if !slices.Contains(s.clients, clients) || shape.calls == 0 && clients > 1 {
					continue
				}
				b.Run(fmt.Sprintf("%s/clients=%d/%s", shape.name, clients, s.name), func(b *testing.B) {
					if shape.calls == 0 {
						bareAppends(b, s.open(b, fresh()))
						return
					}
					speedOf(b, s, clients, shape.calls, shape.batch)
				})
			}
		}
	}
	for _, s := range stores {
		b.Run("open/"+s.name, func(b *testing.B) { opening(b, s) })
	}
}

// fresh returns the name of a log that is not there yet.
func fresh() string { return fmt.Sprintf("log-%d-%d", os.Getpid(), serial.Add(1)) }

// bareAppends appends entries that are as long as that of one placement, one after another.
func bareAppends(b *testing.B, log logledger.Log) {
	data := []byte(strings.Repeat("x", 120))
	for i := logledger.Index(1); b.Loop(); i++ {
		_, err := log.Append(b.Context(), logledger.Append{Index: i, Data: data})
		require.NoError(b, err)
	}
	perSecond(b, b.N)
	require.NoError(b, log.Close())
}

// perSecond reports a rate in place of a time.
func perSecond(b *testing.B, n int) {
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "each/s")
	b.ReportMetric(0, "ns/op")
}

// ledgers opens ledgers on a new log, with 1,000 nodes and n pending capsules.
func (s *speedStore) ledgers(b *testing.B, clients, n int) (list []*logledger.Ledger) {
	name := fresh()
	for range clients {
		l, err := logledger.Open(b.Context(), s.open(b, name), logledger.Options{CheckpointEvery: 1 << 40})
		require.NoError(b, err)
		list = append(list, l)
	}
	var p orbit.Proposal
	for i := range speedNodes {
		p.Do = append(p.Do, orbit.PutNode{Node: orbit.Node{ID: speedNode(i), Capacity: orbit.Resources{orbit.CPU: 1 << 40}}})
	}
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
	var ids []orbit.CapsuleID
	for i := range n {
		ids = append(ids, speedCapsule(i))
	}
	for some := range slices.Chunk(ids, 20_000) {
		p.Do = append(p.Do, orbit.Submit{IDs: some, Spec: spec})
		_, err := list[0].Propose(b.Context(), p)
		require.NoError(b, err)
		p.Do = nil
	}
	for _, l := range list {
		_, err := l.Snapshot(b.Context())
		require.NoError(b, err)
	}
	return list
}

const speedNodes = 1000

func speedNode(i int) orbit.NodeID       { return orbit.NodeID(fmt.Sprintf("node-%04d", i%speedNodes)) }
func speedCapsule(i int) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprintf("capsule-%07d", i)) }

// speedOf places b.N capsules: each client makes so many calls at once, each with so many proposals, and takes the next ones when
// one is answered.
func speedOf(b *testing.B, s speedStore, clients, calls, batch int) {
	list := s.ledgers(b, clients, b.N)
	var next atomic.Int64
	placed := make([]atomic.Int64, clients)
	var wg sync.WaitGroup
	b.ResetTimer()
	for k, l := range list {
		for range calls {
			wg.Go(func() {
				for {
					from := int(next.Add(int64(batch))) - batch
					to := min(from+batch, b.N)
					if from >= to {
						return
					}
					placed[k].Add(int64(placeAll(b, l, from, to)))
				}
			})
		}
	}
	wg.Wait()
	b.StopTimer()
	perSecond(b, b.N)
	least, most := placed[0].Load(), placed[0].Load()
	for k := range placed {
		least, most = min(least, placed[k].Load()), max(most, placed[k].Load())
	}
	if clients > 1 {
		b.ReportMetric(float64(least)/float64(max(most, 1)), "fairness")
	}
	for _, l := range list {
		state, err := l.Snapshot(b.Context())
		require.NoError(b, err)
		require.Zero(b, state.PendingCount())
		require.NoError(b, l.Close())
	}
}

// placeAll places capsules with one call, and returns how many it has placed.
func placeAll(b *testing.B, l *logledger.Ledger, from, to int) (n int) {
	batch := make([]orbit.Proposal, 0, to-from)
	for i := from; i < to; i++ {
		batch = append(batch, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Place{Capsule: speedCapsule(i), Node: speedNode(i)}}})
	}
	for _, out := range l.ProposeBatch(b.Context(), batch) {
		if out.Err != nil {
			b.Error(out.Err)
			continue
		}
		n++
	}
	return n
}

// opening opens a ledger of many placed capsules, from its entries alone and from a checkpoint.
func opening(b *testing.B, s speedStore) {
	n := scale.Of(10_000, 1_000_000)
	l := s.ledgers(b, 1, n)[0]
	for from := 0; from < n; from += 1000 {
		placeAll(b, l, from, min(from+1000, n))
	}
	require.NoError(b, l.Close())
	open := func(metric string) *logledger.Ledger {
		start := time.Now()
		l, err := logledger.Open(b.Context(), s.open(b, fmt.Sprintf("log-%d-%d", os.Getpid(), serial.Load())), logledger.Options{CheckpointEvery: 1 << 40})
		require.NoError(b, err)
		b.ReportMetric(time.Since(start).Seconds(), metric)
		return l
	}
	for b.Loop() {
		l := open("s/log")
		require.NoError(b, l.Checkpoint(context.Background()))
		require.NoError(b, l.Close())
		require.NoError(b, open("s/checkpoint").Close())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(n), "capsules")
}
