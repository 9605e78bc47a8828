package diskledger_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
)

// crash is the file system as it may be after a crash, with what had been answered before.
type crash struct {
	fs       *vfs.MemFS
	answered orbit.Revision
	where    string
}

// crasher takes a copy of the file system before each operation that changes it.
type crasher struct {
	mem      *vfs.MemFS
	rng      *rand.Rand
	answered atomic.Uint64
	mu       sync.Mutex
	crashes  []crash
}

// newCrasher returns an empty file system. Of what was written and not synced, a crash keeps each block with a probability of
// none, a half and one.
func newCrasher(seed uint64) (*crasher, vfs.FS) {
	c := &crasher{mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(seed, 0))}
	return c, errorfs.Wrap(c.mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
			c.crash(fmt.Sprintf("before operation %d on %s", op.Kind, op.Path))
		}
		return nil
	}))
}

// crash takes the copies.
func (c *crasher) crash(where string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered := orbit.Revision(c.answered.Load()) // before the copy is made
	for _, percent := range []int{0, 50, 100} {
		fs := c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: c.rng})
		c.crashes = append(c.crashes, crash{fs, answered, fmt.Sprintf("%s, crash %d, %d%%", where, len(c.crashes), percent)})
	}
}

// Random histories crash before each operation on the disk. Opened again, the ledger has a state that it had, not older than
// the last answer, whole, with revisions that follow one another; and it goes on from there.
func TestCrashes(t *testing.T) {
	points := 0
	rapid.Check(t, func(t *rapid.T) {
		steps := drawSteps(t, 12)
		c, fs := newCrasher(rapid.Uint64().Draw(t, "seed"))
		states := map[orbit.Revision]string{}
		l := play(t, fs, diskledger.Options{CheckpointEvery: rapid.SampledFrom([]int{1, 40, 1 << 20}).Draw(t, "checkpoint")},
			steps, func(s *orbit.State) {
				states[s.Revision()] = text(s)
				c.answered.Store(uint64(s.Revision()))
			})
		c.crash("at the end")
		require.NoError(t, l.Close())
		c.crash("after closing")
		points += len(c.crashes)
		for _, crash := range c.crashes {
			recovers(t, crash, states)
		}
	})
	t.Logf("%d crashes", points)
}

// recovers opens a ledger after a crash, twice, and commits in between.
func recovers(t require.TestingT, c crash, states map[orbit.Revision]string) {
	l, err := diskledger.Open("ledger", diskledger.Options{FS: c.fs})
	require.NoError(t, err, c.where)
	s, err := l.Snapshot(ctx)
	require.NoError(t, err, c.where)
	require.GreaterOrEqual(t, s.Revision(), c.answered, c.where)
	require.Contains(t, states, s.Revision(), c.where)
	require.Equal(t, states[s.Revision()], text(s), c.where)
	contiguous(t, l, c.where)
	rev, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark("after", 9)}})
	require.NoError(t, err, c.where)
	require.Equal(t, s.Revision()+1, rev, c.where)
	// Without Close, as after a second crash.
	again, err := diskledger.Open("ledger", diskledger.Options{FS: c.fs.CrashClone(vfs.CrashCloneCfg{})})
	require.NoError(t, err, c.where)
	s, err = again.Snapshot(ctx)
	require.NoError(t, err, c.where)
	require.Equal(t, rev, s.Revision(), c.where)
	require.NoError(t, again.Close(), c.where)
	require.NoError(t, l.Close(), c.where)
}

// contiguous requires that no revision is missing in the history.
func contiguous(t require.TestingT, l *diskledger.Ledger, where string) {
	s, err := l.Snapshot(ctx)
	require.NoError(t, err, where)
	for from := range s.Revision() {
		changes, err := l.Changes(ctx, from)
		if err != nil {
			require.ErrorIs(t, err, orbit.ErrCompacted, where)
			continue
		}
		last := from
		for _, c := range changes {
			require.True(t, c.Revision == last || c.Revision == last+1, where)
			last = c.Revision
		}
		require.Equal(t, s.Revision(), last, where)
		return
	}
}

// The same while eight goroutines commit, and checkpoints are made: what was answered to any of them is there, and a proposal
// of many marks is there whole or not at all.
func TestCrashesUnderLoad(t *testing.T) {
	c, fs := newCrasher(1)
	l := open(t, fs, diskledger.Options{CheckpointEvery: 40})
	var mu sync.Mutex
	answered := map[string]bool{}
	before := map[int]int{} // how many had been answered when crash number so was taken
	order := []string{}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 12 {
				key := fmt.Sprintf("g%d-%d", g, i)
				rev, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(key+"/a", 700), mark(key+"/b", 700), mark(key+"/c", 700)}})
				require.NoError(t, err)
				require.Positive(t, rev)
				mu.Lock()
				answered[key] = true
				order = append(order, key)
				c.mu.Lock()
				before[len(c.crashes)] = len(order)
				c.mu.Unlock()
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.NotZero(t, l.Stats().Checkpoints+l.Stats().Entries)
	closed(t, l)
	must := 0
	for i, crash := range c.crashes {
		must = max(must, before[i])
		l, err := diskledger.Open("ledger", diskledger.Options{FS: crash.fs})
		require.NoError(t, err, crash.where)
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		for _, key := range order[:must] {
			_, at := s.Mark(key + "/a")
			require.NotZero(t, at, "%s: %s was answered", crash.where, key)
		}
		counts := map[string]int{}
		for m := range s.Marks("g") {
			counts[strings.TrimRight(m, "abc")]++
		}
		for key, n := range counts {
			require.Equal(t, 3, n, "%s: %s", crash.where, key)
		}
		contiguous(t, l, crash.where)
		closed(t, l)
	}
	t.Logf("%d crashes", len(c.crashes))
}

// A process is killed when it has made the folder, and before the folder's name is on the disk. What the next one commits there is
// not lost in a crash of the machine.
func TestFolderThatWasNotSynced(t *testing.T) {
	mem := vfs.NewCrashableMem()
	require.NoError(t, mem.MkdirAll("ledger", 0o755))
	l := open(t, mem, diskledger.Options{})
	rev, err := l.Propose(ctx, node())
	require.NoError(t, err)
	found, err := inspect(mem.CrashClone(vfs.CrashCloneCfg{}), "ledger", nil)
	require.NoError(t, err)
	require.Equal(t, rev, found.State.Revision())
}

// A process is killed before a sync: of an entry, of a file that is new, or of the folder that has the file's new name. The next
// process finds what was written, because the operating system has it, and builds on it. So it must sync it first: what it
// shows, and what it commits behind that, is there after a failure of the power.
func TestKilledBeforeSync(t *testing.T) {
	for at := 0; ; at++ {
		where := fmt.Sprint("killed before sync ", at)
		disk := vfs.NewCrashableMem()
		if !killedBeforeSync(disk, at) {
			require.Greater(t, at, 10)
			return
		}
		l, err := diskledger.Open("ledger", diskledger.Options{FS: disk})
		require.NoError(t, err, where)
		seen, err := l.Snapshot(ctx)
		require.NoError(t, err, where)
		shown, err := inspect(disk.CrashClone(vfs.CrashCloneCfg{}), "ledger", nil)
		require.NoError(t, err, where)
		require.Equal(t, text(seen), text(shown.State), where)
		rev, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark("after", 1)}})
		require.NoError(t, err, where)
		found, err := inspect(disk.CrashClone(vfs.CrashCloneCfg{}), "ledger", nil)
		require.NoError(t, err, where)
		require.Equal(t, rev, found.State.Revision(), where)
		require.NoError(t, l.Close())
	}
}

// killedBeforeSync commits and makes checkpoints until a sync, after which no operation is done any more; it reports whether there
// was such a sync. Syncs of the folder count.
func killedBeforeSync(disk vfs.FS, at int) (killed bool) {
	syncs := 0
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			syncs++
		}
		if killed = killed || syncs > at; killed && op.Kind != errorfs.OpFileClose {
			return errors.New("killed")
		}
		return nil
	}))
	l, err := diskledger.Open("ledger", diskledger.Options{FS: fs, OnError: func(error) {}})
	if err != nil {
		return killed
	}
	for i := range 6 {
		_, _ = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(fmt.Sprint(i), 1)}})
		if i%2 == 1 {
			_ = l.Checkpoint(ctx)
		}
	}
	_ = l.Close()
	return killed
}
