package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Kind says which method of a ledger was called.
type Kind int

// Propose, Snapshot, Changes and Wait are the recorded methods. A batch is recorded as one call of Propose for each
// proposal.
const (
	Propose Kind = iota
	Snapshot
	Changes
	Wait
)

// String returns the name of the method.
func (k Kind) String() string { return [...]string{"Propose", "Snapshot", "Changes", "Wait"}[k] }

// Call is one call of a ledger's method, and its answer.
type Call struct {
	// Handle is the number of the handle that was called, from 0 in the order in which handles were made.
	Handle int
	// Kind is the method that was called.
	Kind Kind
	// Start and End are the times at which the call began and ended, on a logical clock that all calls advance. A call
	// whose End is before the Start of another call was complete when that call began.
	Start, End int64
	// Proposal is the argument of Propose.
	Proposal orbit.Proposal
	// After is the revision that Changes or Wait was called with.
	After orbit.Revision
	// Revision is the revision that Propose or Wait returned, or the revision of the state that Snapshot returned.
	Revision orbit.Revision
	// State is the state that Snapshot returned; nil for most calls if there are many snapshots.
	State *orbit.State
	// Changes are the changes that Changes returned.
	Changes []orbit.Change
	// Err is the error that the call returned.
	Err error
}

// Recorder stands between callers and the handles of one ledger and keeps all calls, so that [History.Check] can judge the
// answers afterwards. All methods may be called from any goroutine.
type Recorder struct {
	// Shared says that other writers use the ledger whose calls are not recorded.
	Shared bool

	ledger orbit.Ledger
	base   *orbit.State
	clock  atomic.Int64
	read   atomic.Int64 // the number of changes that have been read, without evictions that a commit may leave out

	mu sync.Mutex // guards the fields from here to snapshots
	// known are the proposals that are known to be committed. committed is the number of their commitments, without
	// evictions that a commit may leave out.
	known     map[orbit.ProposalID]bool
	committed int
	handles   int
	calls     []Call
	snapshots int

	following sync.Mutex // guards changes and through
	changes   []orbit.Change
	through   orbit.Revision // the revision up to which the history has been read
}

// NewRecorder returns a recorder that begins with the present state of the ledger. It reads the history from l. Callers use
// handles that Handle returns.
func NewRecorder(ctx context.Context, l orbit.Ledger) (*Recorder, error) {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("ledgertest: recorder: %w", err)
	}
	return &Recorder{ledger: l, base: s, through: s.Revision(), known: map[orbit.ProposalID]bool{}}, nil
}

// Handle returns a ledger that passes calls on to l, which is the recorder's ledger or another handle on it, and
// records them. It is an [orbit.Batcher] if l is one. A proposal without an id is given one, as an engine does.
func (r *Recorder) Handle(l orbit.Ledger) orbit.Ledger {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &recorded{Ledger: l, recorder: r, number: r.handles}
	r.handles++
	if b, ok := l.(orbit.Batcher); ok {
		return &recordedBatcher{h, b}
	}
	return h
}

// begin returns the start of a call.
func (r *Recorder) begin() int64 { return r.clock.Add(1) }

// end completes calls, all at the same time, and keeps them.
func (r *Recorder) end(calls ...Call) {
	now := r.clock.Add(1)
	for i := range calls {
		calls[i].End = now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range calls {
		if p := &calls[i].Proposal; calls[i].Kind == Propose && calls[i].Err == nil && !r.known[p.ID] {
			r.known[p.ID] = true
			r.committed += len(p.Do)
			for _, c := range p.Do {
				r.committed -= mayBeSpared(c)
			}
		}
	}
	r.calls = append(r.calls, calls...)
}

// keeps reports whether to keep the state of the next snapshot. To save memory, not all states are kept.
func (r *Recorder) keeps() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshots++
	return r.snapshots <= 300 || r.snapshots%50 == 0
}

// Follow reads the history as it grows, until ctx ends. Run it in a goroutine of its own if more is committed than the
// ledger's history keeps; otherwise History can read everything at the end. It returns nil when ctx has ended, and an error
// if it could not keep up ([orbit.ErrCompacted]) or changes are missing. While the ledger is unavailable it tries again.
func (r *Recorder) Follow(ctx context.Context) error {
	for {
		told, err := r.ledger.Wait(ctx, r.reached())
		if err == nil {
			err = r.catchUp(ctx, told)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // Follow is meant to run until ctx ends
		case errors.Is(err, orbit.ErrCompacted), errors.Is(err, errMissing):
			return fmt.Errorf("ledgertest: recorder at revision %d: %w", r.reached(), err)
		case err != nil:
			send.Pause(ctx, 5*time.Millisecond)
		}
	}
}

// reached returns the revision up to which the history has been read.
func (r *Recorder) reached() orbit.Revision {
	r.following.Lock()
	defer r.following.Unlock()
	return r.through
}

// errMissing means that Wait has returned a revision that Changes does not have. A repetition would not help.
var errMissing = errors.New("changes are missing")

// catchUp reads new changes. They must reach the revision that Wait has returned.
func (r *Recorder) catchUp(ctx context.Context, told orbit.Revision) error {
	r.following.Lock()
	defer r.following.Unlock()
	list, err := r.ledger.Changes(ctx, r.through)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		r.changes = append(r.changes, list...)
		r.through = list[len(list)-1].Revision
		for i := range list {
			r.read.Add(int64(1 - mayBeSpared(list[i].Do)))
		}
	}
	if r.through < told {
		return fmt.Errorf("%w: Wait tells of revision %d, and Changes ends with %d", errMissing, told, r.through)
	}
	return nil
}

// mayBeSpared returns 1 for an eviction to make way, otherwise 0. A commit may leave such an eviction out if the victim
// is spared, so its proposer does not know whether the history has it.
func mayBeSpared(c orbit.Commitment) int {
	if e, ok := c.(orbit.Evict); ok && (e.For != "" || e.ForGang != "") {
		return 1
	}
	return 0
}

// commits returns the number of proposals that are known to be committed.
func (r *Recorder) commits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}

// behind returns the number of changes that are known to be committed and have not been read, without evictions that a
// commit may leave out.
func (r *Recorder) behind() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed - int(r.read.Load())
}

// History ends the recording. It returns all calls, the history since the recorder was made, and the present state.
// Calls that have not returned are left out. While the ledger is unavailable it tries again.
func (r *Recorder) History(ctx context.Context) (History, error) {
	final, err := r.finish(ctx)
	for errors.Is(err, orbit.ErrUnavailable) && ctx.Err() == nil {
		send.Pause(ctx, 5*time.Millisecond)
		final, err = r.finish(ctx)
	}
	if err != nil {
		return History{}, fmt.Errorf("ledgertest: recorder: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.following.Lock()
	defer r.following.Unlock()
	changes := r.changes
	for len(changes) > 0 && changes[len(changes)-1].Revision > final.Revision() { // commits of others after the snapshot
		changes = changes[:len(changes)-1]
	}
	return History{Base: r.base, Changes: changes, Final: final, Calls: r.calls, Shared: r.Shared}, nil
}

// finish takes a snapshot and reads the history up to it.
func (r *Recorder) finish(ctx context.Context) (*orbit.State, error) {
	final, err := r.ledger.Snapshot(ctx)
	for err == nil && r.reached() < final.Revision() {
		var told orbit.Revision
		if told, err = r.ledger.Wait(ctx, r.reached()); err == nil {
			err = r.catchUp(ctx, told)
		}
	}
	return final, err
}
