package diskledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/logledger"
)

// kinds are the faults of a disk, and the error that each is.
var kinds = map[string]struct{ fault, is error }{
	"full":      {syscall.ENOSPC, diskledger.ErrFull},
	"read-only": {syscall.EROFS, diskledger.ErrReadOnly},
	"io":        {syscall.EIO, syscall.EIO},
	"short":     {errShort, io.ErrShortWrite},
}

// Each operation on the disk fails once, in each way, while a ledger commits, makes a checkpoint and commits again. The
// operations after it succeed again, which must not mislead: what is answered is there after a crash that loses everything
// that was not synced. After a write that failed because the disk was full the ledger goes on by itself, in another file. After
// any other failed operation on a log nothing is written to a log any more.
func TestFaultSweep(t *testing.T) {
	faults, stopped, revived := 0, 0, 0
	for name, kind := range kinds {
		for at := 0; ; at++ {
			var reached, hasStopped, hasRevived bool
			synctest.Test(t, func(t *testing.T) {
				reached, hasStopped, hasRevived = sweep(t, fmt.Sprintf("%s at %d", name, at), at, kind.fault, kind.is)
			})
			if !reached {
				break
			}
			faults++
			if hasStopped {
				stopped++
			}
			if hasRevived {
				revived++
			}
		}
	}
	t.Logf("%d faults, after %d the ledger has stopped, after %d it has gone on", faults, stopped, revived)
	require.Greater(t, stopped, 40)
	require.Greater(t, revived, 4)
}

// sweep plays the history with one fault, and reports whether the history has come so far, whether the ledger has stopped for
// good, and whether it has gone on after a proposal had failed.
func sweep(t *testing.T, where string, at int, fault, is error) (reached, stopped, revived bool) {
	mem := vfs.NewCrashableMem()
	var on string
	n := 0
	fs := &faultFS{FS: mem, before: func(op, file string) error {
		if n++; n != at+1 {
			return nil
		}
		reached = true
		if errors.Is(fault, errShort) && op != "write" {
			return nil
		}
		on = op + " " + file
		return fault
	}}
	answered, acks, failures := map[string]bool{}, 0, 0
	l, err := diskledger.Open("ledger", diskledger.Options{FS: fs, OnError: func(error) {}})
	if err != nil {
		typed(t, err, is, on, where)
	} else {
		for i := range 6 {
			if i == 3 {
				if err := l.Checkpoint(ctx); err != nil {
					typed(t, err, is, on, where)
				}
			}
			key := fmt.Sprint("k", i)
			_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark(key, 3000)}})
			if err == nil {
				require.False(t, stopped, "%s: answered after a failure", where)
				require.NoError(t, l.Health(), where)
				answered[key] = true
				acks++
				continue
			}
			typed(t, err, is, on, where)
			require.True(t, errors.Is(err, orbit.ErrUnavailable) || errors.Is(err, orbit.ErrUnknown) && failures == 0, where)
			require.Error(t, l.Health(), where)
			failures++
			goesOn := errors.Is(err, diskledger.ErrFull) && !errors.Is(l.Health(), logledger.ErrFailed)
			require.True(t, goesOn || errors.Is(l.Health(), logledger.ErrFailed), where)
			require.Equal(t, strings.HasPrefix(on, "create") || strings.HasPrefix(on, "write"), goesOn || !errors.Is(fault, syscall.ENOSPC) &&
				(strings.HasPrefix(on, "create") || strings.HasPrefix(on, "write")), "%s: %s", where, on)
			if stopped = !goesOn; goesOn {
				time.Sleep(2 * time.Second)
				require.NoError(t, l.Health(), "%s: %s", where, on)
				revived = true
			}
		}
		if stopped {
			_, err := l.Wait(ctx, orbit.Revision(acks))
			typed(t, err, is, on, where)
			require.ErrorIs(t, err, logledger.ErrFailed)
			s, err := l.Snapshot(ctx)
			require.NoError(t, err)
			require.Equal(t, orbit.Revision(acks), s.Revision(), where)
			for _, op := range fs.seen()[at+1:] { // nothing is tried again, nor written behind what failed
				require.NotContains(t, op, "rename", where)
				require.False(t, strings.Contains(op, ".log") && !strings.HasPrefix(op, "remove"), "%s: %s after %s", where, op, on)
			}
		}
		_ = l.Close()
	}
	for _, crashed := range []vfs.FS{mem.CrashClone(vfs.CrashCloneCfg{}), mem} {
		again, err := diskledger.Open("ledger", diskledger.Options{FS: crashed})
		require.NoError(t, err, where+", "+on)
		s, err := again.Snapshot(ctx)
		require.NoError(t, err)
		for key := range answered {
			_, found := s.Mark(key)
			require.NotZero(t, found, "%s, %s: %s was answered", where, on, key)
		}
		require.LessOrEqual(t, s.Revision(), orbit.Revision(acks+1), where)
		closed(t, again)
	}
	return reached, stopped, revived
}

// typed requires a DiskError of a kind, or that the ledger has stopped because of one.
func typed(t *testing.T, err, is error, on, where string) {
	t.Helper()
	var disk *diskledger.DiskError
	require.ErrorAs(t, err, &disk, "%s, %s", where, on)
	require.ErrorIs(t, err, is, "%s, %s", where, on)
	if strings.HasPrefix(on, "sync") {
		require.ErrorIs(t, err, diskledger.ErrSync, "%s, %s", where, on)
	}
	require.NotErrorIs(t, err, logledger.ErrCorrupt, where)
}

// While the disk is full nothing is committed, and Health says why. When there is room again, the ledger goes on by itself, with
// the proposal whose outcome was unknown and from where it was; and it opens so.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		fs := &faultFS{FS: disk}
		told := 0
		l := open(t, fs, diskledger.Options{OnError: func(err error) {
			told++
			require.ErrorIs(t, err, diskledger.ErrFull)
		}})
		_, err := l.Propose(ctx, node())
		require.NoError(t, err)
		require.NoError(t, l.Health())
		fs.set(func(op, _ string) error {
			if op == "write" {
				return syscall.ENOSPC
			}
			return nil
		})
		first := orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{mark("a", 1)}}
		_, err = l.Propose(ctx, first)
		require.ErrorIs(t, err, diskledger.ErrFull)
		require.ErrorIs(t, err, orbit.ErrUnknown)
		for range 3 {
			time.Sleep(time.Minute)
			require.ErrorIs(t, l.Health(), diskledger.ErrFull)
			require.NotErrorIs(t, l.Health(), logledger.ErrFailed)
			_, err = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark("b", 1)}})
			require.ErrorIs(t, err, diskledger.ErrFull)
			require.ErrorIs(t, err, orbit.ErrUnavailable)
			s, err := l.Snapshot(ctx)
			require.NoError(t, err)
			require.Equal(t, orbit.Revision(1), s.Revision())
		}
		require.Positive(t, told)
		fs.set(nil)
		time.Sleep(time.Second)
		require.NoError(t, l.Health())
		rev, err := l.Propose(ctx, first)
		require.NoError(t, err)
		require.Equal(t, orbit.Revision(2), rev)
		rev, err = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark("b", 1)}})
		require.NoError(t, err)
		require.Equal(t, orbit.Revision(3), rev)
		for _, fs := range []vfs.FS{disk.CrashClone(vfs.CrashCloneCfg{}), disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})} {
			found, err := inspect(fs, "ledger", nil)
			require.NoError(t, err)
			require.Equal(t, rev, found.State.Revision())
		}
		require.NoError(t, l.Checkpoint(ctx))
		require.NoError(t, l.Close())
	})
}

// A ledger that is closed while the disk is full says so, and opens when there is room.
func TestClosedWhileFull(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	l := open(t, fs, diskledger.Options{OnError: func(error) {}})
	fs.set(func(op, _ string) error {
		if op == "write" {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := l.Propose(ctx, node())
	require.ErrorIs(t, err, diskledger.ErrFull)
	require.ErrorIs(t, l.Close(), diskledger.ErrFull)
	fs.set(nil)
	again := open(t, fs, diskledger.Options{})
	rev, err := again.Propose(ctx, node())
	require.NoError(t, err)
	require.Equal(t, orbit.Revision(1), rev)
}

// A checkpoint that fails is told of, leaves no trace, and does not disturb commits; the next one succeeds.
func TestCheckpointFails(t *testing.T) {
	var told []error
	fs := &faultFS{FS: vfs.NewMem()}
	l := open(t, fs, diskledger.Options{OnError: func(err error) { told = append(told, err) }})
	fs.set(func(op, file string) error {
		if op == "write" && strings.Contains(file, "checkpoint") {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := l.Propose(ctx, node())
	require.NoError(t, err)
	require.ErrorIs(t, l.Checkpoint(ctx), diskledger.ErrFull)
	_, err = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{mark("a", 1)}})
	require.NoError(t, err)
	require.Len(t, told, 1)
	require.Equal(t, int64(1), l.Stats().CheckpointErrors)
	fs.set(nil)
	require.NoError(t, l.Checkpoint(ctx))
	names, err := fs.List("ledger")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"LOCK", "00000003.checkpoint"}, names)
}

// Without OnError a checkpoint that fails is told to the default log.
func TestCheckpointErrorsAreLogged(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	fs := &faultFS{FS: vfs.NewMem()}
	l := open(t, fs, diskledger.Options{})
	fs.set(func(op, file string) error {
		if op == "write" && strings.Contains(file, "checkpoint") {
			return syscall.ENOSPC
		}
		return nil
	})
	_, err := l.Propose(ctx, node())
	require.NoError(t, err)
	require.ErrorIs(t, l.Checkpoint(ctx), diskledger.ErrFull)
	slog.SetDefault(before)
	require.Contains(t, log.String(), "orbit: error of a ledger on a log")
	require.Contains(t, log.String(), "checkpoint")
}

// A disk that cannot be read is not taken for a damaged one.
func TestReadFails(t *testing.T) {
	fs := &faultFS{FS: vfs.NewMem()}
	closed(t, open(t, fs, diskledger.Options{}))
	for _, op := range []string{"read", "open"} {
		fs.set(func(is, _ string) error {
			if is == op {
				return syscall.EIO
			}
			return nil
		})
		_, err := diskledger.Open("ledger", diskledger.Options{FS: fs})
		require.ErrorIs(t, err, syscall.EIO)
		require.NotErrorIs(t, err, logledger.ErrCorrupt)
	}
	fs.set(func(is, _ string) error {
		if is == "lock" {
			return syscall.EROFS
		}
		return nil
	})
	_, err := diskledger.Open("ledger", diskledger.Options{FS: fs})
	require.ErrorIs(t, err, diskledger.ErrReadOnly)
	require.NotErrorIs(t, err, diskledger.ErrLocked)
}
