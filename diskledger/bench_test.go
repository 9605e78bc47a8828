package diskledger_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/internal/scale"
)

// BenchmarkCommits compares placements that are committed to a folder on disk with the same in memory, by so many proposers at once
// and in batches, and with a bare loop that writes and syncs as many bytes as the log takes for one. With a delay each sync takes
// a millisecond more. In read, a snapshot of the ledger in memory is taken before each batch, as an engine does before each plan. The ledger on
// disk takes one for each batch by itself.
func BenchmarkCommits(b *testing.B) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		for _, shape := range []struct{ proposers, batch int }{{1, 1}, {8, 1}, {16, 1}, {64, 1}, {128, 1}, {1, 1000}} {
			name := fmt.Sprintf("delay=%v/proposers=%d/batch=%d", delay, shape.proposers, shape.batch)
			b.Run("disk/"+name, func(b *testing.B) {
				fs := &faultFS{FS: vfs.Default, quiet: true}
				if delay > 0 {
					fs.before = func(op, _ string) error {
						if op == "sync" {
							time.Sleep(delay)
						}
						return nil
					}
				}
				l, err := diskledger.Open(b.TempDir(), diskledger.Options{FS: fs, CheckpointEvery: 1 << 40})
				require.NoError(b, err)
				defer closed(b, l)
				places(b, l, shape.proposers, shape.batch, &fs.syncs)
			})
			if delay == 0 {
				b.Run("memory/"+name, func(b *testing.B) { places(b, &orbit.MemoryLedger{}, shape.proposers, shape.batch, nil) })
			}
			if delay == 0 && shape.batch > 1 {
				b.Run("read/"+name, func(b *testing.B) { places(b, readLedger{&orbit.MemoryLedger{}}, shape.proposers, shape.batch, nil) })
			}
		}
	}
	b.Run("bare", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "bare"))
		require.NoError(b, err)
		defer f.Close()
		record := make([]byte, 166) // as long as the record of one placement
		for b.Loop() {
			_, err := f.Write(record)
			require.NoError(b, err)
			require.NoError(b, f.Sync())
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	})
}

// readLedger is a ledger in memory that takes a snapshot before each batch.
type readLedger struct{ *orbit.MemoryLedger }

func (l readLedger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	if _, err := l.Snapshot(ctx); err != nil {
		panic(err)
	}
	return l.MemoryLedger.ProposeBatch(ctx, batch)
}

// places commits b.N placements, each a proposal of its own.
func places(b *testing.B, l interface {
	orbit.Ledger
	orbit.Batcher
}, proposers, batch int, syncs *atomic.Int64) {
	ids := submitted(b, l, b.N)
	var next atomic.Int64
	var all sync.WaitGroup
	before := int64(0)
	if syncs != nil {
		before = syncs.Load()
	}
	b.ResetTimer()
	for range proposers {
		all.Go(func() {
			run := make([]orbit.Proposal, 0, batch)
			for {
				from := int(next.Add(int64(batch))) - batch
				if from >= b.N {
					return
				}
				run = run[:0]
				for i := from; i < min(from+batch, b.N); i++ {
					run = append(run, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{
						orbit.Place{Capsule: ids[i], Node: orbit.NodeID(fmt.Sprint("node-", i%1000)), At: orbit.Instant(1_767_225_600_000_000_000 + i*1_000_000)}}})
				}
				for _, out := range l.ProposeBatch(ctx, run) {
					if out.Err != nil {
						panic(out.Err)
					}
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	if syncs != nil {
		b.ReportMetric(float64(syncs.Load()-before)/float64(b.N), "syncs/commit")
	}
}

// submitted makes 1,000 nodes and n capsules.
func submitted(t testing.TB, l orbit.Ledger, n int) (ids []orbit.CapsuleID) {
	var do []orbit.Commitment
	for i := range 1000 {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("node-", i)), Capacity: orbit.Resources{orbit.CPU: 1 << 40, orbit.Memory: 1 << 50}}})
	}
	for i := range n {
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("capsule-", i)))
	}
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
	for class := range 1000 {
		spec := &orbit.Spec{Module: fmt.Sprint("module-", class), Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1, orbit.Memory: 1 << 20}}}
		some := ids[n*class/1000 : n*(class+1)/1000]
		if len(some) == 0 {
			continue
		}
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: some, Spec: spec, At: 1_767_225_600_000_000_000}}})
		require.NoError(t, err)
	}
	return ids
}

// BenchmarkOpen opens a ledger with placed capsules: from a checkpoint, and from a log.
func BenchmarkOpen(b *testing.B) {
	n := scale.Of(20_000, 1_000_000)
	for _, from := range []string{"checkpoint", "log"} {
		b.Run(fmt.Sprintf("%s/capsules=%d", from, n), func(b *testing.B) {
			dir := b.TempDir()
			l, err := diskledger.Open(dir, diskledger.Options{CheckpointEvery: 1 << 40})
			require.NoError(b, err)
			ids := submitted(b, l, n)
			for from := 0; from < n; from += 1000 {
				var run []orbit.Proposal
				for i := from; i < min(from+1000, n); i++ {
					run = append(run, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{
						orbit.Place{Capsule: ids[i], Node: orbit.NodeID(fmt.Sprint("node-", i%1000)), At: orbit.Instant(1_767_225_600_000_000_000 + i*1_000_000)}}})
				}
				l.ProposeBatch(ctx, run)
			}
			if from == "checkpoint" {
				begin := time.Now()
				require.NoError(b, l.Checkpoint(ctx))
				b.Logf("the checkpoint took %v", time.Since(begin))
			}
			closed(b, l)
			for b.Loop() {
				l, err := diskledger.Open(dir, diskledger.Options{CheckpointEvery: 1 << 40})
				require.NoError(b, err)
				b.StopTimer()
				s, err := l.Snapshot(ctx)
				require.NoError(b, err)
				require.Equal(b, n, s.CapsuleCount()-s.PendingCount())
				closed(b, l)
				b.StartTimer()
			}
		})
	}
}
