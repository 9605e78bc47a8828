package diskledger_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
	"github.com/orbitsched/orbit/ledgertest"
	"github.com/orbitsched/orbit/logledger"
)

// open opens a ledger in a file system, and closes it at the end of the test.
func open(t testing.TB, fs vfs.FS, o diskledger.Options) *diskledger.Ledger {
	t.Helper()
	o.FS = fs
	l, err := diskledger.Open("ledger", o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestNeverOversubscribed: many goroutines propose at once, and the history of their commits, which ledgertest adds up by itself, never
// has more on a node than the node has.
func TestNeverOversubscribed(t *testing.T) {
	figures, err := ledgertest.Load{Operations: 1000}.Run(t.Context(), open(t, vfs.NewMem(), diskledger.Options{}))
	require.NoError(t, err)
	require.Positive(t, figures.Infeasible+figures.Conflicts, "nothing was refused, so nothing was tried")
}

// The ledger passes the suite for ledgers, on disk and in memory.
func TestSuite(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		ledgertest.Suite{Scale: 0.3}.Run(t, func(t *testing.T) orbit.Ledger {
			l, err := diskledger.Open(t.TempDir(), diskledger.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			return l
		})
	})
	t.Run("small", func(t *testing.T) {
		small := orbit.Limits{Commitments: 40, Preconditions: 20, Capsules: 30, GangMembers: 12, IDBytes: 60, SpecBytes: 300,
			ValueBytes: 50, History: 500, Terminal: 50, ProposalIDs: 300, PlacementIDs: 20}
		ledgertest.Suite{Seed: 2}.Run(t, func(t *testing.T) orbit.Ledger {
			return open(t, vfs.NewMem(), diskledger.Options{Bounds: small})
		})
	})
}

// The suite also passes if the ledger is closed and opened again between calls: nearly every proposal is judged by a ledger
// that has read its state from the disk.
func TestSuiteReopening(t *testing.T) {
	ledgertest.Suite{Seed: 3, Scale: 0.1}.Run(t, func(t *testing.T) orbit.Ledger {
		return newReopening(t, diskledger.Options{}, false)
	})
}

// The same if each state comes from a checkpoint. Rules that look back behind one end there, and say so; no other rule fails.
func TestSuiteReopeningCheckpoints(t *testing.T) {
	skip := map[string]string{"receipt": "who took the room is in the history"}
	failures := ledgertest.Suite{Seed: 4, Scale: 0.1, Skip: skip}.Check(t, func(t *testing.T) orbit.Ledger {
		return newReopening(t, diskledger.Options{}, true)
	})
	for rule, err := range failures {
		require.ErrorContains(t, err, orbit.ErrCompacted.Error(), rule)
	}
	for _, rule := range []string{"submit", "once", "resent", "window", "devices", "gang", "budgets", "remains", "nominations", "check"} {
		require.NotContains(t, failures, rule)
	}
}

// reopening is a ledger that is closed and opened again before proposals.
type reopening struct {
	options    diskledger.Options
	checkpoint bool

	mu  sync.RWMutex // held for writing while the ledger is opened again
	now *diskledger.Ledger
	rng *rand.Rand
}

// newReopening makes one, with a checkpoint before each closing or without.
func newReopening(t *testing.T, o diskledger.Options, checkpoint bool) *reopening {
	o.FS = vfs.NewMem()
	return &reopening{options: o, checkpoint: checkpoint, now: open(t, o.FS, o), rng: rand.New(rand.NewPCG(1, 1))}
}

// reopen closes the ledger and opens it again, two times of three: a caller whose context proposes whenever it is asked would
// find the ledger closed for ever.
func (r *reopening) reopen() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rng.IntN(3) == 0 {
		return
	}
	ctx := context.Background()
	before, err := r.now.Snapshot(ctx)
	must(err)
	if r.checkpoint {
		must(r.now.Checkpoint(ctx))
	}
	must(r.now.Close())
	r.now, err = diskledger.Open("ledger", r.options)
	must(err)
	after, err := r.now.Snapshot(ctx)
	must(err)
	if after.Revision() == before.Revision() && text(after) != text(before) { // other goroutines may have committed between
		panic("the state has changed")
	}
}

// must panics, which the suite reports.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// current returns the ledger, which stays open until release is called.
func (r *reopening) current() (l *diskledger.Ledger, release func()) {
	r.mu.RLock()
	return r.now, r.mu.RUnlock
}

func (r *reopening) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := r.ProposeBatch(ctx, []orbit.Proposal{p})
	return out[0].Revision, out[0].Err
}

func (r *reopening) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	_ = ctx.Err() // may call the ledger, so not below
	r.reopen()
	r.mu.RLock()
	l := r.now
	r.mu.RUnlock()
	out := l.ProposeBatch(ctx, batch)
	for i := range out { // it was closed meanwhile
		for errors.Is(out[i].Err, logledger.ErrClosed) && ctx.Err() == nil {
			r.mu.RLock()
			l := r.now
			r.mu.RUnlock()
			// Without the context's methods, which may close the ledger once more each time.
			out[i].Revision, out[i].Err = l.Propose(context.WithoutCancel(ctx), batch[i])
		}
	}
	return out
}

func (r *reopening) Snapshot(ctx context.Context) (s *orbit.State, err error) {
	for {
		l, release := r.current()
		release()
		if s, err = l.Snapshot(ctx); !errors.Is(err, logledger.ErrClosed) {
			return s, err
		}
	}
}

func (r *reopening) Changes(ctx context.Context, after orbit.Revision) (list []orbit.Change, err error) {
	for {
		l, release := r.current()
		release()
		if list, err = l.Changes(ctx, after); !errors.Is(err, logledger.ErrClosed) {
			return list, err
		}
	}
}

func (r *reopening) Wait(ctx context.Context, after orbit.Revision) (rev orbit.Revision, err error) {
	for {
		l, release := r.current()
		release()
		if rev, err = l.Wait(ctx, after); !errors.Is(err, logledger.ErrClosed) {
			return rev, err
		}
	}
}

func (r *reopening) Limits() orbit.Limits {
	l, release := r.current()
	defer release()
	return l.Limits()
}

// text returns the dump of a state.
func text(s *orbit.State) string {
	var out dumpText
	if err := s.Dump(&out); err != nil {
		panic(err)
	}
	return string(out)
}

type dumpText []byte

func (d *dumpText) Write(p []byte) (int, error) {
	*d = append(*d, p...)
	return len(p), nil
}
