package diskledger_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
)

// gate lets a test hold the syncs of the logs.
type gate chan struct{}

func (g gate) before(op, file string) error {
	if op == "sync" && strings.HasSuffix(file, ".log.tmp") {
		<-g
	}
	return nil
}

// However many proposals arrive while a group is being synced, they share the next sync. None is answered and nothing is shown
// before the sync is done. (A log is synced under the name that it was made with. The first commit begins it, so its header is synced, too.)
func TestGroups(t *testing.T) {
	for _, proposers := range []int{1, 8, 64} {
		synctest.Test(t, func(t *testing.T) {
			fs := &faultFS{FS: vfs.NewMem()}
			l := open(t, fs, diskledger.Options{})
			hold := make(gate)
			fs.set(hold.before)
			syncs := fs.syncs.Load()
			var all sync.WaitGroup
			var mu sync.Mutex
			answered := 0
			propose := func(key string) {
				all.Go(func() {
					_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(key, 1)}})
					require.NoError(t, err)
					mu.Lock()
					defer mu.Unlock()
					answered++
				})
			}
			sees := func(n int) {
				synctest.Wait()
				require.Equal(t, n, answered)
				s, err := l.Snapshot(ctx)
				require.NoError(t, err)
				require.Equal(t, orbit.Revision(n), s.Revision())
				list, err := l.Changes(ctx, 0)
				require.NoError(t, err)
				require.Len(t, list, n)
			}
			propose("first")
			sees(0)
			for i := range proposers {
				propose(fmt.Sprint(i))
			}
			sees(0)
			waited := make(chan orbit.Revision, 1)
			go func() {
				rev, _ := l.Wait(ctx, 0)
				waited <- rev
			}()
			synctest.Wait()
			require.Empty(t, waited)
			hold <- struct{}{} // the header of the log
			sees(0)
			hold <- struct{}{}
			sees(1)
			require.Equal(t, orbit.Revision(1), <-waited)
			hold <- struct{}{}
			sees(proposers + 1)
			require.Equal(t, int64(3), fs.syncs.Load()-syncs)
			require.Equal(t, int64(2), l.Stats().Entries)
			require.Equal(t, int64(proposers+1), l.Stats().Changes)
			fs.set(nil)
			all.Wait()
			closed(t, l)
		})
	}
}

// One proposer after another needs a sync each; a batch needs one; refusals and what is proposed again need none.
func TestSyncs(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	l := open(t, fs, diskledger.Options{})
	syncs := fs.syncs.Load()
	p := node()
	p.ID = orbit.NewProposalID()
	for range 3 {
		rev, err := l.Propose(ctx, p)
		require.NoError(t, err)
		require.Equal(t, orbit.Revision(1), rev)
		_, err = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "nobody", Node: "n"}}})
		require.ErrorIs(t, err, orbit.ErrInfeasible)
		_, err = l.Propose(ctx, orbit.Proposal{})
		require.ErrorIs(t, err, orbit.ErrInvalid)
	}
	require.Equal(t, int64(2), fs.syncs.Load()-syncs) // the first one begins the log
	for i := range 5 {
		_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(fmt.Sprint(i), 1)}})
		require.NoError(t, err)
	}
	require.Equal(t, int64(7), fs.syncs.Load()-syncs)
	for n, want := range map[int]int64{200: 1, 1000: 1, 9000: 3} {
		syncs = fs.syncs.Load()
		for _, out := range l.ProposeBatch(ctx, marks(n)) {
			require.NoError(t, out.Err)
		}
		require.LessOrEqual(t, fs.syncs.Load()-syncs, want)
	}
}

// A batch needs one sync also where its proposals are so large that few are judged at once.
func TestSyncsOfLargeProposals(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	fs.before = func(op, _ string) error {
		if op == "sync" {
			time.Sleep(time.Millisecond) // so that more groups would get ready meanwhile
		}
		return nil
	}
	l := open(t, fs, diskledger.Options{Bounds: orbit.Limits{History: 100}})
	var batch []orbit.Proposal
	for i := range 500 {
		var p orbit.Proposal
		for j := range 60 {
			p.Do = append(p.Do, mark(fmt.Sprint(i, "-", j), 1))
		}
		batch = append(batch, p)
	}
	_, err := l.Propose(ctx, node()) // begins the log
	require.NoError(t, err)
	syncs := fs.syncs.Load()
	for _, out := range l.ProposeBatch(ctx, batch) {
		require.NoError(t, out.Err)
	}
	require.Equal(t, int64(1), fs.syncs.Load()-syncs)
	closed(t, l)
}

// marks returns a batch of proposals that each set a mark.
func marks(n int) (batch []orbit.Proposal) {
	for i := range n {
		batch = append(batch, orbit.Proposal{Do: []orbit.Commitment{mark(fmt.Sprint("batch-", i), 1)}})
	}
	return batch
}

// endsSoon is a context that has ended when it was asked a few times.
type endsSoon struct {
	context.Context
	asked *int
}

func (c endsSoon) Err() error {
	if *c.asked++; *c.asked > 3 {
		return context.Canceled
	}
	return nil
}

// What was judged of a batch before its context ended is written, although nobody proposes anything more.
func TestBatchCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, vfs.NewMem(), diskledger.Options{})
		out := l.ProposeBatch(endsSoon{ctx, new(int)}, marks(1000))
		rev := orbit.Revision(0)
		for i := range out {
			if out[i].Err == nil {
				rev = max(rev, out[i].Revision)
			} else {
				require.ErrorIs(t, out[i].Err, orbit.ErrUnavailable)
			}
		}
		require.Positive(t, rev)
		require.ErrorIs(t, out[len(out)-1].Err, orbit.ErrUnavailable)
		synctest.Wait()
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		require.Equal(t, rev, s.Revision())
		closed(t, l)
	})
}

// A refusal that rests on what is not on the disk is not answered before that is; after the disk has failed it is no refusal.
func TestRefusalWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &faultFS{FS: vfs.NewMem()}
		l := open(t, fs, diskledger.Options{})
		hold := make(chan error)
		fs.set(func(op, file string) error {
			if op == "sync" && strings.HasSuffix(file, ".log.tmp") {
				return <-hold
			}
			return nil
		})
		results := make(chan error, 2)
		go func() {
			_, err := l.Propose(ctx, node())
			results <- err
		}()
		synctest.Wait()
		go func() {
			_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "nobody", Node: "n"}}})
			results <- err
		}()
		synctest.Wait()
		require.Empty(t, results)
		hold <- fmt.Errorf("the cable is out")
		for range 2 {
			err := <-results
			require.ErrorIs(t, err, diskledger.ErrSync)
			require.NotErrorIs(t, err, orbit.ErrInfeasible)
		}
		fs.set(nil)
		require.Error(t, l.Close())
	})
}

// Commits go on while a checkpoint is being written, however long that takes.
func TestCheckpointBeside(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	l := open(t, fs, diskledger.Options{})
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	fs.set(func(op, file string) error {
		if op == "write" && strings.HasSuffix(file, ".checkpoint.tmp") {
			once.Do(func() { close(held) })
			<-release
		}
		return nil
	})
	_, err := l.Propose(ctx, node())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.Checkpoint(ctx) }()
	<-held
	for i := range 100 {
		_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(fmt.Sprint(i), 100)}})
		require.NoError(t, err)
	}
	require.Empty(t, done)
	close(release)
	require.NoError(t, <-done)
	before, err := l.Snapshot(ctx)
	require.NoError(t, err)
	closed(t, l)
	again := open(t, fs, diskledger.Options{})
	after, err := again.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, text(before), text(after))
	require.Equal(t, int64(100), again.Stats().Recovered)
}

// Eight goroutines commit while checkpoints are made one after another.
func TestCheckpointsUnderLoad(t *testing.T) {
	fs := vfs.NewMem()
	l := open(t, fs, diskledger.Options{CheckpointEvery: 20, OnError: func(err error) { t.Error(err) }})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 150 {
				_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{mark(fmt.Sprintf("g%d-%d", g, i%20), i)}})
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	more := 0
	for ; l.Stats().Checkpoints < 2; more++ { // on a busy machine the load may end before two are written
		_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{mark("more", more)}})
		require.NoError(t, err)
	}
	require.NoError(t, l.Checkpoint(ctx))
	require.Greater(t, l.Stats().Checkpoints, int64(2))
	before, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, orbit.Revision(1200+more), before.Revision())
	closed(t, l)
	again := open(t, fs, diskledger.Options{})
	after, err := again.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, text(before), text(after))
	require.Zero(t, again.Stats().Recovered)
	names, err := fs.List("ledger")
	require.NoError(t, err)
	require.Len(t, names, 2, "%v", names) // the lock and a checkpoint
}

// Close gives up a checkpoint, answers what was judged, and ends every call.
func TestClose(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	l := open(t, fs, diskledger.Options{})
	waits := make(chan error, 1)
	go func() {
		_, err := l.Wait(ctx, 100)
		waits <- err
	}()
	_, err := l.Propose(ctx, node())
	require.NoError(t, err)
	time.Sleep(10 * time.Millisecond)
	closed(t, l)
	closed(t, l)
	require.ErrorIs(t, <-waits, logledger.ErrClosed)
	_, err = l.Propose(ctx, node())
	require.ErrorIs(t, err, logledger.ErrClosed)
	require.ErrorIs(t, err, orbit.ErrUnavailable)
	_, err = l.Snapshot(ctx)
	require.ErrorIs(t, err, logledger.ErrClosed)
	_, err = l.Changes(ctx, 0)
	require.ErrorIs(t, err, logledger.ErrClosed)
	require.ErrorIs(t, l.Checkpoint(ctx), logledger.ErrClosed)
}

// A ledger keeps the limits and names that it was made with.
func TestSettings(t *testing.T) {
	fs := vfs.NewMem()
	_, err := diskledger.Open("", diskledger.Options{FS: fs})
	require.ErrorIs(t, err, orbit.ErrInvalid)
	names := [orbit.Dimensions]string{4: "licences"}
	l := open(t, fs, diskledger.Options{Bounds: orbit.Limits{History: 10}, Dimensions: names})
	require.NoError(t, l.Checkpoint(ctx))
	closed(t, l)
	l = open(t, fs, diskledger.Options{})
	require.Equal(t, 10, l.Limits().History)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.Equal(t, "licences", s.DimensionName(4))
	closed(t, l)
	closed(t, open(t, fs, diskledger.Options{Bounds: orbit.Limits{History: 10}, Dimensions: names}))
	_, err = diskledger.Open("ledger", diskledger.Options{FS: fs, Bounds: orbit.Limits{History: 12}})
	require.ErrorIs(t, err, logledger.ErrMismatch)
	_, err = diskledger.Open("ledger", diskledger.Options{FS: fs, Dimensions: [orbit.Dimensions]string{4: "seats"}})
	require.ErrorIs(t, err, logledger.ErrMismatch)
	closed(t, open(t, fs, diskledger.Options{})) // the refusals have given the lock back
}

// What was judged before Close is written and answered.
func TestCloseWrites(t *testing.T) {
	for range 20 { // the goroutine that writes sees either of two events first
		synctest.Test(t, func(t *testing.T) {
			fs := &faultFS{FS: vfs.NewMem()}
			l := open(t, fs, diskledger.Options{})
			hold := make(gate)
			fs.set(hold.before)
			results := make(chan error, 3)
			for i := range 2 {
				go func() {
					_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(fmt.Sprint(i), 1)}})
					results <- err
				}()
				synctest.Wait()
			}
			go func() { results <- l.Close() }()
			synctest.Wait()
			require.Empty(t, results)
			fs.set(nil)
			close(hold)
			for range 3 {
				require.NoError(t, <-results)
			}
		})
	}
}

// A ledger that is opened again knows as many changes of its log as its limits say, without a gap, and says that older ones are gone.
func TestHistoryOfALog(t *testing.T) {
	const history = 3
	for _, changes := range []int{2, history, 5, 2*history + 1, 20} {
		fs := vfs.NewMem()
		l := open(t, fs, diskledger.Options{Bounds: orbit.Limits{History: history}})
		for _, out := range l.ProposeBatch(ctx, marks(changes)) {
			require.NoError(t, out.Err)
		}
		closed(t, l)
		l = open(t, fs, diskledger.Options{Bounds: orbit.Limits{History: history}})
		for after := range changes {
			got, err := l.Changes(ctx, orbit.Revision(after))
			if changes-after > history {
				require.ErrorIs(t, err, orbit.ErrCompacted)
				continue
			}
			require.NoError(t, err)
			require.Len(t, got, changes-after)
			require.Equal(t, orbit.Revision(after+1), got[0].Revision)
		}
		closed(t, l)
	}
}
