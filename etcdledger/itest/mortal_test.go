package itest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	sample "github.com/orbitsched/orbit/internal/scale"
)

// mortal is a ledger on disk whose machine crashes and comes back. What had not been answered then gets no answer.
type mortal struct {
	mu   sync.Mutex // guards what is below, and keeps answers and crashes apart
	l    *diskledger.Ledger
	disk *vfs.MemFS
	life int
}

// rise opens the ledger on what is left of a disk, whose syncs take some time.
func (m *mortal) rise(disk *vfs.MemFS) (err error) {
	m.disk = disk
	m.life++
	slow := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData {
			time.Sleep(500 * time.Microsecond)
		}
		return nil
	}))
	m.l, err = diskledger.Open("ledger", diskledger.Options{FS: slow, CheckpointEvery: 40})
	return err
}

// crash crashes the machine and starts it again. Of what was not synced, each block is kept or lost.
func (m *mortal) crash(rng *rand.Rand) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.l
	err := m.rise(m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng}))
	go func() { _ = last.Close() }() // what it writes now is on no disk
	return err
}

// use calls the ledger of this life, and reports whether it was still that when it had answered.
func (m *mortal) use(call func(*diskledger.Ledger)) bool {
	m.mu.Lock()
	l, life := m.l, m.life
	m.mu.Unlock()
	call(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life == life
}

func (m *mortal) Propose(ctx context.Context, p orbit.Proposal) (rev orbit.Revision, err error) {
	if !m.use(func(l *diskledger.Ledger) { rev, err = l.Propose(ctx, p) }) {
		return 0, fmt.Errorf("crash: %w", orbit.ErrUnknown)
	}
	return rev, err
}

func (m *mortal) Snapshot(ctx context.Context) (state *orbit.State, err error) {
	if !m.use(func(l *diskledger.Ledger) { state, err = l.Snapshot(ctx) }) || err != nil { // also that of a context that has ended
		return nil, errors.Join(orbit.ErrUnavailable, err)
	}
	return state, nil
}

func (m *mortal) Limits() orbit.Limits { return orbit.Limits{} }

func (m *mortal) Changes(context.Context, orbit.Revision) ([]orbit.Change, error) {
	return nil, orbit.ErrCompacted
}

func (m *mortal) Wait(context.Context, orbit.Revision) (orbit.Revision, error) {
	return 0, orbit.ErrUnavailable
}

// A ledger on disk is linearizable under load, however often its machine crashes, whatever is left of what was not synced, and
// whatever became of proposals that got no answer. That is about 200 times, and 2,000 with -tags stress.
func TestDiskIsLinearizable(t *testing.T) {
	t.Parallel()
	crashes := 0
	for seed := range uint64(scale(t, sample.Of(30, 300))) {
		m, rng := &mortal{}, rand.New(rand.NewPCG(seed, 7))
		require.NoError(t, m.rise(vfs.NewCrashableMem()))
		w := newWitnesses(t, m)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				if err := m.crash(rng); err != nil {
					t.Error(err)
					return
				}
				crashes++
			}
		})
		w.run(within(t, time.Minute), 6, 40, seed)
		stop()
		all.Wait()
		w.check(porcupine.Ok)
		require.Zero(t, w.kinds[audit.Invalid]+w.kinds[audit.Other])
		require.NoError(t, m.l.Close())
	}
	t.Logf("%d crashes", crashes)
}
