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

// Kind is which method of a ledger was called.
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
	// Start and End are when the call began and ended, on one clock that all calls advance: a call whose End is before
	// another's Start was complete when that one began.
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

// Recorder stands between callers and the handles of one ledger and keeps all calls, so that afterwards
// [History.Check] can tell whether the ledger could have answered as it did. All methods may be called from any
// goroutine.
type Recorder struct {
	// Shared reports that other writers use the ledger, whose calls are not recorded.
	Shared bool

	ledger orbit.Ledger
	base   *orbit.State
	clock  atomic.Int64
	// Changes read so far.
	read atomic.Int64

	// Guards what follows.
	mu sync.Mutex
	// Proposals that are known to be committed, and how many changes they are.
	known     map[orbit.ProposalID]bool
	committed int
	handles   int
	calls     []Call
	snapshots int
	// Guards the history that was read so far.
	following sync.Mutex
	changes   []orbit.Change
	through   orbit.Revision
}

// NewRecorder returns one that begins with the state that there is now. L is where the history is read; handles
// for callers are made by Handle.
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

// begin starts the clock of a call.
func (r *Recorder) begin() int64 { return r.clock.Add(1) }

// end completes calls, all at one moment, and keeps them.
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
		}
	}
	r.calls = append(r.calls, calls...)
}

// keeps reports whether the next snapshot is kept: states share much, but not everything.
func (r *Recorder) keeps() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshots++
	return r.snapshots <= 300 || r.snapshots%50 == 0
}

// Follow reads the history as it grows, until the context ends. A run that commits more than the ledger's history
// keeps needs it, in a goroutine of its own; without it, History reads everything at the end. It returns nil when
// the context has ended, or an error when it could not keep up ([orbit.ErrCompacted]) or changes are missing. What
// is unavailable is tried again.
func (r *Recorder) Follow(ctx context.Context) error {
	for {
		told, err := r.ledger.Wait(ctx, r.reached())
		if err == nil {
			err = r.catchUp(ctx, told)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of the context is how it ends
		case errors.Is(err, orbit.ErrCompacted), errors.Is(err, errMissing):
			return fmt.Errorf("ledgertest: recorder at revision %d: %w", r.reached(), err)
		case err != nil:
			send.Pause(ctx, 5*time.Millisecond)
		}
	}
}

// reached is up to where the history has been read.
func (r *Recorder) reached() orbit.Revision {
	r.following.Lock()
	defer r.following.Unlock()
	return r.through
}

// errMissing: what the ledger has told of is not in its history. Asking again would be asking for ever.
var errMissing = errors.New("changes are missing")

// catchUp reads what is new, which must reach as far as the ledger has told of.
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
		r.read.Store(int64(len(r.changes)))
	}
	if r.through < told {
		return fmt.Errorf("%w: Wait tells of revision %d, and Changes ends with %d", errMissing, told, r.through)
	}
	return nil
}

// commits is how many proposals are known to be committed.
func (r *Recorder) commits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.known)
}

// behind is how many changes are known to be committed and have not been read.
func (r *Recorder) behind() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed - int(r.read.Load())
}

// History ends the recording: it returns all calls, the history since the recorder was made and the state now.
// Calls that are still going on are left out, so none should be. While the ledger is unavailable it tries again.
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
	for len(changes) > 0 && changes[len(changes)-1].Revision > final.Revision() { // others have committed meanwhile
		changes = changes[:len(changes)-1]
	}
	return History{Base: r.base, Changes: changes, Final: final, Calls: r.calls, Shared: r.Shared}, nil
}

// finish reads the history up to the state that there is now.
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
