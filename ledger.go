package orbit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger is the referee: the consistent plane that holds the promises. All its methods may be called from any
// goroutine. It enforces these rules by itself, whatever a proposer says:
//
//  1. no dimension of a node and no device instance is ever over its capacity, holds included;
//  2. a capsule is placed at most once at a time, and only if it is submitted and pending;
//  3. the node exists, is schedulable, and meets the capsule's requirements on labels and devices;
//  4. a gang's first placement holds at least every role's minimum, or nothing;
//  5. a rejected proposal changes nothing;
//  6. a capsule is taken off its node by choice only as [Evict] and [Release] say, and only if that leaves as many
//     healthy members as each [Budget] asks for.
type Ledger interface {
	// Propose is a compare-and-swap on the world. It returns the revision of the commit; for a proposal that was
	// committed before, the revision of that commit; for one without an id that changes nothing ([PutNode]), the newest
	// revision. Errors: a *Rejection that is ErrConflict, ErrInfeasible or
	// ErrInvalid; ErrUnknown, after which the same proposal may be sent again; ErrUnavailable.
	Propose(ctx context.Context, p Proposal) (Revision, error)
	// Snapshot returns the whole state at one revision, which is not older than any commit that completed before the
	// call.
	Snapshot(ctx context.Context) (*State, error)
	// Changes returns the history after a revision, oldest first; nil: nothing new. The slice is shared: read it, never
	// write it. The error is ErrCompacted if the history no longer reaches back that far: take a snapshot.
	Changes(ctx context.Context, after Revision) ([]Change, error)
	// Wait returns the current revision as soon as it is newer than after, or the context's error.
	Wait(ctx context.Context, after Revision) (Revision, error)
	// Limits returns the limits within which the ledger accepts proposals, so that a navigator can plan within them.
	Limits() Limits
}

// HealthOf returns nil, or why a ledger can commit nothing at present, such as a full disk or a database that does not
// answer. It asks the ledger's method Health() error, which ledgers that last have; it returns nil for a ledger without
// one. A ledger that commits nothing may still be read.
func HealthOf(l Ledger) error {
	if h, ok := l.(interface{ Health() error }); ok {
		return h.Health()
	}
	return nil
}

// Follow yields the changes that are committed after a revision, in order, batch by batch, and waits for more. When ctx
// has ended, the iteration ends without an error. Any other error is the last thing that it yields. After
// [ErrCompacted] take a snapshot, and follow from its revision. If the ledger's Changes lag behind its Wait, Follow
// asks again after a millisecond.
func Follow(ctx context.Context, ledger Ledger, after Revision) iter.Seq2[[]Change, error] {
	return func(yield func([]Change, error) bool) {
		for {
			_, err := ledger.Wait(ctx, after)
			var changes []Change
			if err == nil {
				changes, err = ledger.Changes(ctx, after)
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(nil, err)
				return
			case len(changes) == 0:
				sleep(ctx, time.Millisecond)
			default:
				after = changes[len(changes)-1].Revision
				if !yield(changes, nil) {
					return
				}
			}
		}
	}
}

// Batcher is a ledger that takes many independent proposals in one call. Each has an outcome of its own; if one fails,
// the others are not affected. An [Engine] uses it if its ledger has it.
type Batcher interface {
	// ProposeBatch returns one outcome for each proposal, in their order.
	ProposeBatch(ctx context.Context, batch []Proposal) []Outcome
}

// Outcome is the result of one proposal of a batch: what [Ledger.Propose] would have returned for it.
type Outcome struct {
	// Revision is the revision of the commit; zero if Err is set.
	Revision Revision
	// Err is why the proposal was not committed, or nil.
	Err error
}

// MemoryLedger is the ledger of one process. It is linearizable. A commit is one short critical section in which no
// user code runs: check, build, publish; after the unlock it wakes the waiting calls. The ledger has no clock. The zero
// value is an empty ledger; set the fields before first use.
type MemoryLedger struct {
	// Bounds are the limits of the ledger; zero fields have the defaults of Limits. They have no effect if Start is
	// set.
	Bounds Limits
	// Dimensions are the names of the resource dimensions in diagnoses; empty ones have a default.
	Dimensions [Dimensions]string
	// Start is the state from which the ledger continues, within its limits and with its names; nil: an empty one.
	Start *State

	once   sync.Once
	limits Limits
	// The revision of live, for readers that do not take the lock.
	rev atomic.Uint64
	// The newest snapshot.
	frozen atomic.Pointer[State]

	// Guards what follows.
	mu sync.Mutex
	// The current state. It is written in place where no snapshot shares the memory (copy-on-write).
	live *State
	// The write-set, which is empty between commits.
	tx tx
	// The newest changes that led to live.
	history history
	// Closed by the next commit; nil: no call waits.
	wake chan struct{}
	// The revision at which wake was made.
	waited Revision
	// Takes the sum that ahead.read returns, so that the compiler does not remove the reads.
	sink uint32
}

// init makes the zero value ready, once.
func (l *MemoryLedger) init() {
	l.once.Do(func() {
		if l.Start != nil {
			l.live = l.Start.thaw()
		} else {
			l.live = newState(l.Bounds, l.Dimensions)
		}
		l.limits = l.live.limits
		l.rev.Store(uint64(l.live.rev))
		l.history = history{limit: l.limits.History, floor: l.live.rev}
	})
}

// Limits implements [Ledger].
func (l *MemoryLedger) Limits() Limits {
	l.init()
	return l.limits
}

// Propose implements [Ledger]. Its only errors are rejections, and ErrUnavailable if the context has ended before the
// call.
func (l *MemoryLedger) Propose(ctx context.Context, p Proposal) (Revision, error) {
	l.init()
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("orbit: %w, nothing was sent: %w", ErrUnavailable, err)
	}
	c := cloners.Get().(*cloner)
	defer c.giveBack()
	c.proposal(&p)
	if err := p.check(&l.limits); err != nil {
		return 0, err
	}
	rev, wake, err := l.commitLocked(&p)
	if wake != nil {
		close(wake)
	}
	return rev, err
}

// commitLocked is the critical section of a commit. The caller closes the returned channel, if it is not nil, after the
// unlock.
func (l *MemoryLedger) commitLocked(p *Proposal) (Revision, chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rev, err := l.commit(p, nil)
	return rev, l.takeWake(), err
}

// batchRun is the number of proposals of a batch that are committed before the lock is released for others.
const batchRun = 64

// ProposeBatch implements [Batcher]. It takes the lock once for each run of 64 proposals, and not for each proposal.
func (l *MemoryLedger) ProposeBatch(ctx context.Context, batch []Proposal) []Outcome {
	l.init()
	out := make([]Outcome, len(batch))
	for from := 0; from < len(batch); from += batchRun {
		to := min(from+batchRun, len(batch))
		l.proposeRun(ctx, batch[from:to], out[from:to], nil)
	}
	return out
}

// proposeRun commits one run of a batch. It copies and checks the proposals before it takes the lock, and does not
// commit malformed ones. It appends the changes of what it commits to made, if that is not nil.
func (l *MemoryLedger) proposeRun(ctx context.Context, run []Proposal, out []Outcome, made *[]Change) {
	var ready [batchRun]Proposal
	copy(ready[:], run)
	c := cloners.Get().(*cloner)
	defer c.giveBack()
	c.proposals(ready[:len(run)])
	for i := range run {
		if err := ctx.Err(); err != nil {
			out[i].Err = fmt.Errorf("orbit: %w, nothing was sent: %w", ErrUnavailable, err)
		} else {
			out[i].Err = ready[i].check(&l.limits)
		}
	}
	var soon ahead
	soon.plan(ready[:len(run)])
	if wake := l.commitRunLocked(ready[:len(run)], out, &soon, made); wake != nil {
		close(wake)
	}
}

// commitRunLocked is the critical section of a run. The caller closes the returned channel, if it is not nil, after the
// unlock.
func (l *MemoryLedger) commitRunLocked(run []Proposal, out []Outcome, soon *ahead, made *[]Change) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sink = soon.read(l.live)
	for i := range run {
		if out[i].Err == nil {
			out[i].Revision, out[i].Err = l.commit(&run[i], made)
		}
	}
	return l.takeWake()
}

// commit judges a prepared proposal and publishes it. It appends the changes to made, if that is not nil. It requires mu.
func (l *MemoryLedger) commit(p *Proposal, made *[]Change) (Revision, error) {
	defer l.tx.reset()
	for _, bet := range p.If {
		if in, ok := bet.(GroupIn); ok {
			l.live.divide(in.Group, in.Level)
		}
	}
	rev := l.live.rev + 1
	done, err := l.tx.run(l.live, rev, p)
	if err != nil {
		return 0, l.attribute(err)
	}
	if done != 0 {
		if !l.history.repeats(p, done) {
			return 0, &Rejection{Kind: ErrInvalid, Do: -1, At: l.live.rev, Reason: fmt.Sprintf("proposal id %s was committed at revision %d with other commitments; "+
				"give each proposal an id of its own", p.ID, done)}
		}
		return done, nil
	}
	if len(l.tx.p.Do) == 0 { // nothing changes, and there is no id to remember
		return l.live.rev, nil
	}
	l.live.publish(&l.tx)
	l.history.append(rev, &l.tx)
	if made != nil {
		*made = l.tx.appendChanges(*made)
	}
	l.rev.Store(uint64(rev))
	return rev, nil
}

// attribute adds to a conflict the id of the proposal that made the change which the loser collided with, if the
// history still has it. It requires mu.
func (l *MemoryLedger) attribute(err error) error {
	if r := (*Rejection)(nil); errors.As(err, &r) && errors.Is(r.Kind, ErrConflict) {
		r.TakenBy = l.history.idAt(r.TakenAt)
	}
	return err
}

// takeWake returns the channel that the caller closes after it unlocks mu; nil: no call waits, or there is no newer
// revision. It requires mu.
func (l *MemoryLedger) takeWake() chan struct{} {
	if l.wake == nil || l.live.rev == l.waited {
		return nil
	}
	wake := l.wake
	l.wake = nil
	return wake
}

// Snapshot implements [Ledger]. It returns the same *State again until the next commit.
func (l *MemoryLedger) Snapshot(ctx context.Context) (*State, error) {
	l.init()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("orbit: snapshot: %w", err)
	}
	if s := l.frozen.Load(); s != nil && uint64(s.rev) == l.rev.Load() {
		return s, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.frozen.Load(); s != nil && s.rev == l.live.rev {
		return s, nil
	}
	s := l.live.freeze()
	l.frozen.Store(s)
	return s, nil
}

// Changes implements [Ledger].
func (l *MemoryLedger) Changes(ctx context.Context, after Revision) ([]Change, error) {
	l.init()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("orbit: changes: %w", err)
	}
	if Revision(l.rev.Load()) <= after {
		return nil, nil
	}
	newer, err := l.newer(after)
	if err != nil {
		return nil, err
	}
	return newer.changes(), nil
}

// newer finds the changes after a revision. The lock is held only for the search: the caller reads, or copies, the
// changes without it.
func (l *MemoryLedger) newer(after Revision) (span, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history.after(after)
}

// Wait implements [Ledger].
func (l *MemoryLedger) Wait(ctx context.Context, after Revision) (Revision, error) {
	l.init()
	for {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("orbit: wait for a revision after %d: %w", after, err)
		}
		rev, wake := l.waitOn(after)
		if rev > after {
			return rev, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
		}
	}
}

// waitOn returns the current revision and, if it is not newer than after, a channel that the next commit closes.
func (l *MemoryLedger) waitOn(after Revision) (Revision, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live.rev > after {
		return l.live.rev, nil
	}
	if l.wake == nil {
		l.wake = make(chan struct{})
		l.waited = l.live.rev
	}
	return l.live.rev, l.wake
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// CatchUp returns the ledger's state (now) and the changes that lead to it from s. If nothing is newer, now is s itself
// and there are no changes. Whole reports that the changes are not known, because s is nil or the history no longer
// reaches back to s: then anything may be different.
func (s *State) CatchUp(ctx context.Context, ledger Ledger) (now *State, changes []Change, whole bool, err error) {
	now, news, whole, err := s.catchUp(ctx, ledger)
	return now, news.changes(), whole, err
}

// catchUp is CatchUp, with the changes in a span, which does not copy them.
func (s *State) catchUp(ctx context.Context, ledger Ledger) (now *State, news span, whole bool, err error) {
	now, err = ledger.Snapshot(ctx)
	switch {
	case err != nil:
		return nil, span{}, false, err
	case s == nil:
		return now, span{}, true, nil
	case now.rev <= s.rev:
		return s, span{}, false, nil
	}
	if here, ok := ledger.(*MemoryLedger); ok { // not a type that embeds one, which may override Changes
		news, err = here.newer(s.rev)
	} else {
		news.list, err = ledger.Changes(ctx, s.rev)
	}
	switch {
	case errors.Is(err, ErrCompacted):
		return now, span{}, true, nil
	case err != nil:
		return nil, span{}, false, err
	}
	return now, news.upTo(now.rev), false, nil // the next call returns what is committed after the snapshot
}
