package logledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// Ledger is an [orbit.Ledger] and [orbit.Batcher] that is stored in a [Log]. Open one with [Open] in each process: all that
// are open on the same log are the same ledger. Its methods may be called from any goroutine.
//
// Propose, ProposeBatch and Snapshot are linearizable across all processes (Snapshot not with Options.Local). Changes and
// Wait show commits of this Ledger at once, and commits of other processes when the log has delivered them.
type Ledger struct {
	log     Log
	poster  Poster // log, if it is a Poster; else nil
	options Options
	self    WriterID
	// mostChanges is how many bytes the changes of one entry may have.
	mostChanges int
	// shown is the newest state that is in the log, as far as this process knows.
	shown atomic.Pointer[position]
	stats counters

	mu sync.Mutex // guards what follows
	// judge has the state after all proposals that were judged; their changes may not be in the log yet. It also keeps the
	// history.
	judge *orbit.MemoryLedger
	// open collects the proposals of the next entry.
	open *group
	// stale says that the open group has to be judged again, on a newer state, before it is appended. Until then what
	// arrives is not judged.
	stale bool
	// trouble is why nothing can be committed at present; nil: nothing is known to be wrong.
	trouble error
	// changed is closed when shown or trouble changes; nil: no call waits.
	changed chan struct{}

	// arrived has a token when something was added to open; due says that it must be appended now, and not only encoded.
	arrived chan struct{}
	due     atomic.Bool
	// asked has a token when a reader needs what is new in the log.
	asked chan struct{}
	// wanted takes requests for checkpoints, each with a channel for the answer.
	wanted chan chan error
	// life ends when all work in the background has to end, closing is closed by Close before that.
	life      context.Context
	kill      context.CancelFunc
	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	done      sync.WaitGroup
	w         writer
}

var (
	_ orbit.Ledger  = (*Ledger)(nil)
	_ orbit.Batcher = (*Ledger)(nil)
)

// position is a state and the index of the entry that led to it.
type position struct {
	index Index
	state *orbit.State
}

// group is the proposals whose changes make one entry.
type group struct {
	runs []*run
	// changes are those that judging the runs has made. They are not set while the group is stale.
	changes []orbit.Change
}

// run is some proposals of one call, judged under one hold of the lock.
type run struct {
	proposals []orbit.Proposal
	// out has the outcome of each proposal, as judged last. settled says which are final; nil: none.
	out     []orbit.Outcome
	settled []bool
	// done is closed when all outcomes are final.
	done chan struct{}
	// own says that the list of proposals is not the caller's.
	own bool
	// posted says that the proposals are in a post that is not settled. Only the writer uses it, and floor.
	posted bool
	// floor is one more than the index of the entry that a refusal must have seen; 0: not known.
	floor Index
}

// runLength is how many proposals of a batch are judged under one hold of the lock.
const runLength = 64

// groupLength is how many proposals of a batch make a group, which is appended while the rest of the batch is judged.
const groupLength = 4096

// Limits implements [orbit.Ledger]. The limits are the same in all processes.
func (l *Ledger) Limits() orbit.Limits { return l.shown.Load().state.Limits() }

// Propose implements [orbit.Ledger]. It answers when the outcome is final: a commit is in the log, and a refusal rests on
// a state that was the newest during the call. If the context ends before that, the error is orbit.ErrUnknown. While the
// store cannot be reached, the error is orbit.ErrUnavailable, or orbit.ErrUnknown if the proposal may have been committed: after
// Options.Patience, or at once if a proposal has waited that long in vain since the store has answered last. A proposal whose changes are larger than 512 MiB is orbit.ErrInvalid.
func (l *Ledger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := l.ProposeBatch(ctx, []orbit.Proposal{p})
	return out[0].Revision, out[0].Err
}

// ProposeBatch implements [orbit.Batcher]. All proposals of a batch, or each 4,096 of them, are in one entry.
func (l *Ledger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, 0, len(batch))
	var runs []*run
	for from := 0; from < len(batch); from += runLength {
		if err := ctx.Err(); err != nil {
			break
		}
		to := min(from+runLength, len(batch))
		runs = append(runs, l.submit(batch[from:to]))
		l.rouse(to/groupLength > from/groupLength)
	}
	l.rouse(true)
	for _, r := range runs {
		select {
		case <-r.done:
			out = append(out, r.out...)
		case <-ctx.Done():
			out = append(out, l.abandon(ctx, r)...)
		}
	}
	for len(out) < len(batch) {
		out = append(out, orbit.Outcome{Err: unavailable(ctx.Err())})
	}
	return out
}

// rouse wakes the writer, so that it encodes the changes of the open group and, if ends is set, appends the group.
func (l *Ledger) rouse(ends bool) {
	if ends {
		l.due.Store(true)
	}
	signal(l.arrived)
}

// signal puts a token into a channel that has room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// submit adds proposals to the open group, and judges them unless that would be in vain.
func (l *Ledger) submit(proposals []orbit.Proposal) *run {
	r := &run{proposals: proposals, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.trouble != nil {
		r.fail(unavailable(l.trouble))
		return r
	}
	l.open.runs = append(l.open.runs, r)
	if !l.stale {
		l.judgeRun(l.open, r)
	}
	return r
}

// judgeRun judges the proposals of a run that are not settled. It requires mu.
func (l *Ledger) judgeRun(g *group, r *run) {
	if r.settled == nil {
		var changes []orbit.Change
		r.out, changes = l.judge.Commit(r.proposals)
		g.changes = append(g.changes, changes...)
		return
	}
	for i := range r.proposals {
		if !r.settled[i] {
			out, changes := l.judge.Commit(r.proposals[i : i+1])
			r.out[i] = out[0]
			g.changes = append(g.changes, changes...)
		}
	}
}

// fail makes an error the outcome of all proposals that are not settled.
func (r *run) fail(err error) {
	if r.out == nil {
		r.out = make([]orbit.Outcome, len(r.proposals))
	}
	for i := range r.out {
		if r.settled == nil || !r.settled[i] {
			r.out[i] = orbit.Outcome{Err: err}
		}
	}
	close(r.done)
}

// abandon returns the outcomes of a run whose caller does not wait any longer. The proposals may still be committed, so the
// ledger keeps a copy of them.
func (l *Ledger) abandon(ctx context.Context, r *run) []orbit.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-r.done:
		return r.out
	default:
	}
	out := make([]orbit.Outcome, len(r.proposals))
	for i := range out {
		switch {
		case r.settled != nil && r.settled[i], r.out != nil && errors.Is(r.out[i].Err, orbit.ErrInvalid):
			out[i] = r.out[i]
		default:
			out[i].Err = unknown(ctx.Err())
		}
	}
	r.keep()
	for i := range r.proposals {
		r.proposals[i] = r.proposals[i].Clone()
	}
	return out
}

// keep makes the list of proposals the run's own, so that it may be written to. It requires mu.
func (r *run) keep() {
	if !r.own {
		r.proposals, r.own = append([]orbit.Proposal(nil), r.proposals...), true
	}
}

// Snapshot implements [orbit.Ledger]. It asks the log for the index of the newest entry, and waits until that has been
// applied. The error is orbit.ErrUnavailable if the store cannot be reached.
func (l *Ledger) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	if l.options.Local {
		return l.shown.Load().state, nil
	}
	var tail Index
	err := l.options.patiently(ctx, func() (err error) {
		if err = l.readable(ctx); err == nil {
			tail, err = l.log.Tail(ctx)
			l.compare(err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("logledger: snapshot: %w", unavailable(err))
	}
	for first := true; ; first = false {
		at, changed := l.position(tail)
		if at.index >= tail {
			return at.state, nil
		}
		if first {
			signal(l.asked)
		}
		select {
		case <-changed:
			if err := l.troubled(); err != nil {
				return nil, unavailable(err)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("logledger: snapshot: %w", ctx.Err())
		}
	}
}

// compare lets the writer ask the store as well if the answer to a read is news to it, so that Health and OnError tell of that.
func (l *Ledger) compare(err error) {
	if _, lost := l.w.outage.Now(); (err != nil) != (lost != nil) && l.troubled() == nil {
		signal(l.asked)
	}
}

// position returns the newest position that is shown and, if its index is below want, a channel that is closed when it
// has changed.
func (l *Ledger) position(want Index) (*position, <-chan struct{}) {
	if at := l.shown.Load(); at.index >= want {
		return at, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.shown.Load()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return at, l.changed
}

// troubled returns why nothing can be committed at present; nil: nothing is known to be wrong.
func (l *Ledger) troubled() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trouble
}

// readable returns an error if the context has ended, or the ledger is closed.
func (l *Ledger) readable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("logledger: read: %w", err)
	}
	select {
	case <-l.closing:
		return unavailable(ErrClosed)
	default:
		return nil
	}
}

// Changes implements [orbit.Ledger]. The history reaches back to the checkpoint that was read last, but has at most
// Limits().History changes. For changes before that the error is orbit.ErrCompacted.
func (l *Ledger) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	upTo := l.shown.Load().state.Revision()
	if upTo <= after {
		return nil, nil
	}
	return l.judge.Between(after, upTo)
}

// Wait implements [orbit.Ledger]. When the log has failed for good, the error is orbit.ErrUnavailable and [ErrFailed].
func (l *Ledger) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	for {
		if err := l.readable(ctx); err != nil {
			return 0, fmt.Errorf("wait for a revision after %d: %w", after, err)
		}
		rev, changed, err := l.waitOn(after)
		if changed == nil {
			return rev, err
		}
		select {
		case <-changed:
		case <-l.closing:
		case <-ctx.Done():
		}
	}
}

// waitOn returns the newest revision if it is above after, or an error if no such revision can come any more. Otherwise
// it returns a channel that is closed when it is time to ask again.
func (l *Ledger) waitOn(after orbit.Revision) (orbit.Revision, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rev := l.shown.Load().state.Revision(); rev > after {
		return rev, nil, nil
	}
	if errors.Is(l.trouble, ErrFailed) {
		return 0, nil, unavailable(l.trouble)
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return 0, l.changed, nil
}

// wake wakes the calls that wait for a newer state. It requires mu.
func (l *Ledger) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Health returns nil, or why the ledger can commit nothing at present, and since when. There is an error after a proposal has waited for
// Options.Patience in vain, and after a read has failed. A Snapshot reads, unless Options.Local is set. The ledger itself reads when
// the log says that there is something new, or that it has lost its connection. Then the ledger asks the store every second, and
// the first answer ends the error. An error that is [ErrFailed] stays until the ledger is closed and opened again.
func (l *Ledger) Health() error {
	trouble := l.troubled()
	if since, why := l.w.outage.Now(); why != nil && (trouble == nil || !lasting(trouble)) {
		return down(since, why)
	}
	return trouble
}

// down says that the store does not work, since when, and why.
func down(since time.Time, why error) error {
	return fmt.Errorf("logledger: the store has not worked since %s, and nothing is committed until it does: %w", since.Format(time.RFC3339), why)
}

// Close appends what was proposed before, within a second, and ends all work of the ledger; then it closes the log. Calls
// that still wait, and later ones, return orbit.ErrUnavailable, or orbit.ErrUnknown if their proposal may have been
// committed, with [ErrClosed]. A second Close returns what the first one returned.
func (l *Ledger) Close() error {
	l.closeOnce.Do(func() {
		close(l.closing)
		last := time.AfterFunc(time.Second, l.kill)
		defer last.Stop()
		l.done.Wait()
		l.closeErr = errors.Join(l.closeErr, l.log.Close())
	})
	return l.closeErr
}

// unavailable returns the error of a proposal that was not committed, and of a read that failed.
func unavailable(why error) error {
	if errors.Is(why, orbit.ErrUnavailable) {
		return why
	}
	return fmt.Errorf("logledger: %w, nothing was committed: %w", orbit.ErrUnavailable, why)
}

// unknown returns the error of a proposal that may or may not be in the log.
func unknown(why error) error {
	return fmt.Errorf("logledger: %w, send the same proposal again: %w", orbit.ErrUnknown, why)
}
