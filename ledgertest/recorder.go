package ledgertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// Kind is which method of a ledger was called.
type Kind int

// The methods. A batch is recorded as one call of Propose for each proposal.
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
	// Which handle was called, from 0 in the order in which they were made.
	Handle int
	Kind   Kind
	// When it began and ended, on one clock that all calls advance: a call that ended before another began was complete.
	Start, End int64
	// What was proposed.
	Proposal orbit.Proposal
	// What Changes and Wait were asked for.
	After orbit.Revision
	// The answer: of Propose and Wait what they returned, of Snapshot the state's revision.
	Revision orbit.Revision
	State    *orbit.State
	Changes  []orbit.Change
	Err      error
}

// Recorder stands between callers and the handles of one ledger and keeps all calls, so that afterwards [History.Check]
// can tell whether the ledger could have answered as it did. All methods may be called from any goroutine.
type Recorder struct {
	// Others write to the ledger, too, who are not recorded.
	Shared bool

	ledger orbit.Ledger
	base   *orbit.State
	clock  atomic.Int64
	// How many commitments are known to be committed.
	committed atomic.Int64
	// Changes read so far.
	read atomic.Int64

	// Guards what follows.
	mu      sync.Mutex
	handles int
	calls   []Call
	// Guards the history that was read so far.
	following sync.Mutex
	changes   []orbit.Change
	through   orbit.Revision
}

// NewRecorder returns one that begins with the state that there is now. L is where the history is read; handles for
// callers are made by Handle.
func NewRecorder(ctx context.Context, l orbit.Ledger) (*Recorder, error) {
	s, err := l.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("ledgertest: recorder: %w", err)
	}
	return &Recorder{ledger: l, base: s, through: s.Revision()}, nil
}

// Handle returns a ledger that passes calls on to l, which is the recorder's ledger or another handle on it, and records
// them. It is an [orbit.Batcher] if l is one. A proposal without an id is given one, as an engine does.
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
		if calls[i].Kind == Propose && calls[i].Err == nil {
			r.committed.Add(int64(len(calls[i].Proposal.Do)))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, calls...)
}

// Follow reads the history as it grows, until the context ends. A run that commits more than the ledger's history keeps
// needs it, in a goroutine of its own; without it, History reads everything at the end. It returns nil when the
// context has ended, or [orbit.ErrCompacted] when it could not keep up. What is unavailable is tried again.
func (r *Recorder) Follow(ctx context.Context) error {
	for {
		_, err := r.ledger.Wait(ctx, r.reached())
		if err == nil {
			err = r.catchUp(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, orbit.ErrCompacted):
			return fmt.Errorf("ledgertest: recorder at revision %d: %w", r.reached(), err)
		case err != nil:
			sleep(ctx, 5*time.Millisecond)
		}
	}
}

// reached is up to where the history has been read.
func (r *Recorder) reached() orbit.Revision {
	r.following.Lock()
	defer r.following.Unlock()
	return r.through
}

// catchUp reads what is new.
func (r *Recorder) catchUp(ctx context.Context) error {
	r.following.Lock()
	defer r.following.Unlock()
	list, err := r.ledger.Changes(ctx, r.through)
	if err != nil || len(list) == 0 {
		return err
	}
	r.changes = append(r.changes, list...)
	r.through = list[len(list)-1].Revision
	r.read.Store(int64(len(r.changes)))
	return nil
}

// behind is how many changes are known to be committed and have not been read.
func (r *Recorder) behind() int { return int(r.committed.Load() - r.read.Load()) }

// History ends the recording: it returns all calls, the history since the recorder was made and the state now. Calls
// that are still going on are left out, so none should be.
func (r *Recorder) History(ctx context.Context) (History, error) {
	final, err := r.ledger.Snapshot(ctx)
	for err == nil && r.reached() < final.Revision() {
		if _, err = r.ledger.Wait(ctx, r.reached()); err == nil {
			err = r.catchUp(ctx)
		}
	}
	if err != nil {
		return History{}, fmt.Errorf("ledgertest: recorder: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.following.Lock()
	defer r.following.Unlock()
	return History{Base: r.base, Changes: r.changes, Final: final, Calls: r.calls, Shared: r.Shared}, nil
}

// recorded is one handle.
type recorded struct {
	orbit.Ledger
	recorder *Recorder
	number   int
}

// recordedBatcher is one that takes batches.
type recordedBatcher struct {
	*recorded
	batcher orbit.Batcher
}

// call is a new call, that begins now. Where the ledger panics its outcome is unknown.
func (l *recorded) call(kind Kind) *Call {
	return &Call{Handle: l.number, Kind: kind, Start: l.recorder.begin(), Err: errPanicked}
}

var errPanicked = fmt.Errorf("%w: the call has panicked", orbit.ErrUnknown)

// Propose implements [orbit.Ledger].
func (l *recorded) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if p.ID.IsZero() {
		p.ID = orbit.NewProposalID()
	}
	c := l.call(Propose)
	c.Proposal = p
	defer func() { l.recorder.end(*c) }()
	c.Revision, c.Err = l.Ledger.Propose(ctx, p)
	return c.Revision, c.Err
}

// ProposeBatch implements [orbit.Batcher].
func (l *recordedBatcher) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	batch = append([]orbit.Proposal(nil), batch...)
	calls := make([]Call, len(batch))
	begin := l.recorder.begin()
	for i := range batch {
		if batch[i].ID.IsZero() {
			batch[i].ID = orbit.NewProposalID()
		}
		calls[i] = Call{Handle: l.number, Kind: Propose, Start: begin, Proposal: batch[i], Err: errPanicked}
	}
	defer func() { l.recorder.end(calls...) }()
	out := l.batcher.ProposeBatch(ctx, batch)
	for i := range calls {
		if calls[i].Err = errLeftOut; i < len(out) {
			calls[i].Revision, calls[i].Err = out[i].Revision, out[i].Err
		}
	}
	return out
}

var errLeftOut = errors.New("the ledger has left the proposal out of its answer")

// Snapshot implements [orbit.Ledger].
func (l *recorded) Snapshot(ctx context.Context) (*orbit.State, error) {
	c := l.call(Snapshot)
	defer func() { l.recorder.end(*c) }()
	c.State, c.Err = l.Ledger.Snapshot(ctx)
	if c.State != nil {
		c.Revision = c.State.Revision()
	}
	return c.State, c.Err
}

// Changes implements [orbit.Ledger].
func (l *recorded) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	c := l.call(Changes)
	c.After = after
	defer func() { l.recorder.end(*c) }()
	c.Changes, c.Err = l.Ledger.Changes(ctx, after)
	return c.Changes, c.Err
}

// Wait implements [orbit.Ledger].
func (l *recorded) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	c := l.call(Wait)
	c.After = after
	defer func() { l.recorder.end(*c) }()
	c.Revision, c.Err = l.Ledger.Wait(ctx, after)
	return c.Revision, c.Err
}
