package diskledger

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/orbitsched/orbit"
)

// Ledger is an [orbit.Ledger] and [orbit.Batcher] that is stored in a folder. Open it with [Open]. Its methods may be called
// from any goroutine. It is linearizable: a proposal is answered when it is on the disk, and readers see what is on the disk.
//
// After a write or a sync of the log has failed, nothing is committed any more: proposals fail with orbit.ErrUnavailable and
// the [*DiskError], as does Wait. Snapshot and Changes still return what is on the disk. When the disk works again, close the
// ledger and open it anew.
type Ledger struct {
	options Options
	folder  *folder
	// start is the state that Open has read, and the first state of judge.
	start *orbit.State
	// older has the changes after olderFloor up to start, newest last. Judge has only the changes after start.
	older      []orbit.Change
	olderFloor orbit.Revision
	// shown is the newest state that is on the disk.
	shown atomic.Pointer[orbit.State]
	stats counters

	mu sync.Mutex // guards what follows
	// judge holds the state after every proposal that was judged. Its newest changes may not be on the disk yet.
	judge *orbit.MemoryLedger
	// judged is judge's revision.
	judged orbit.Revision
	// open collects the changes of the next group. flying is the group that is being written; nil: none.
	open, flying *group
	// failed is the error after which nothing is committed any more; nil: none.
	failed error
	// changed is closed when shown changes or the ledger fails; nil: no call waits.
	changed chan struct{}

	// arrived has a token when changes may have been added to open. The goroutine of run, which writes groups, waits
	// for it.
	arrived chan struct{}
	// due says that run must write the open group. Otherwise run only encodes its changes, while the rest of a batch is
	// judged.
	due atomic.Bool
	// wanted takes requests for checkpoints, each with a channel for the answer.
	wanted chan chan error
	// Close closes the channel closing once, and then waits for the goroutines that done counts.
	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	done      sync.WaitGroup
	log       logFile
}

var (
	_ orbit.Ledger  = (*Ledger)(nil)
	_ orbit.Batcher = (*Ledger)(nil)
)

// group is the changes that are written with one sync.
type group struct {
	changes []orbit.Change
	// done is closed when the group is on the disk, or err says why it is not.
	done chan struct{}
	err  error
}

// newGroup returns an empty group.
func newGroup() *group { return &group{done: make(chan struct{})} }

// Open opens the ledger in a folder. It makes the folder and an empty ledger if there is none. It reads the newest
// checkpoint and the changes that were committed since. One Ledger at a time can have a folder open.
//
// The error is ErrLocked if another process has the folder open, a [*CorruptError] if a file is damaged or missing,
// ErrVersion if a file was written by a newer package, ErrMismatch or orbit.ErrInvalid for options that do not fit, and
// a [*DiskError] if the disk fails. If a killed process has left an unfinished write, Open cuts it off: the proposals
// in that write were not answered.
func Open(dir string, o Options) (*Ledger, error) {
	o = o.withDefaults()
	empty, err := o.empty()
	if err != nil {
		return nil, err
	}
	folder, err := openFolder(o.FS, dir, true)
	if err != nil {
		return nil, err
	}
	l, err := open(folder, &o, empty)
	if err != nil {
		return nil, errors.Join(err, folder.unlock())
	}
	l.done.Go(l.run)
	return l, nil
}

// open reads a folder and begins a new log in it.
func open(f *folder, o *Options, empty *orbit.State) (*Ledger, error) {
	r := &recovery{folder: f}
	if err := r.read(); err != nil {
		return nil, err
	}
	if err := f.remove(r.files.temporary...); err != nil {
		return nil, err
	}
	if r.state == nil {
		// The folder's entry in its parent must be on the disk before anything is committed in the folder. Sync it also
		// if the folder was there: an earlier Open may have made it and been killed before its own sync.
		if err := (&folder{fs: f.fs, dir: f.fs.PathDir(f.dir)}).sync(); err != nil {
			return nil, err
		}
		size, err := f.writeCheckpoint(1, empty, nil)
		if err != nil {
			return nil, err
		}
		r.state, r.base, r.checkpointBytes = empty, 1, size
	} else if err := o.agrees(r.state); err != nil {
		return nil, err
	}
	l := &Ledger{
		options: *o, folder: f, start: r.state, older: r.history, olderFloor: r.floor,
		judge: &orbit.MemoryLedger{Start: r.state}, judged: r.state.Revision(), open: newGroup(),
		arrived: make(chan struct{}, 1), wanted: make(chan chan error), closing: make(chan struct{}),
	}
	l.shown.Store(r.state)
	l.stats.recovered, l.stats.cut = r.changes, r.cut
	l.log = logFile{number: r.last, base: r.base, since: r.logBytes, checkpoint: r.checkpointBytes}
	if err := f.remove(r.files.before(r.base)...); err != nil {
		return nil, err
	}
	var err error
	l.log.appender, err = f.beginLog(r.last+1, r.state.Revision(), r.end)
	l.log.number++
	return l, err
}

// Limits returns the ledger's limits.
func (l *Ledger) Limits() orbit.Limits { return l.start.Limits() }

// Propose implements [orbit.Ledger]. It answers when the proposal is on the disk. A refusal waits until the commits
// that caused it are on the disk. If the context ends before that, a proposal may still be committed, and the error is
// orbit.ErrUnknown; for a refused proposal it is orbit.ErrUnavailable. After the disk has failed, the error is
// orbit.ErrUnknown for proposals that were accepted and not yet confirmed by the disk, and orbit.ErrUnavailable for all
// others, with the [*DiskError].
func (l *Ledger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := l.ProposeBatch(ctx, []orbit.Proposal{p})
	return out[0].Revision, out[0].Err
}

// runLength is how many proposals of a batch are judged under one hold of the lock.
const runLength = 64

// groupLength is how many proposals of a batch make a group, which is written while the rest of the batch is judged.
// Smaller groups would need more syncs for a batch. They would also need more snapshots of the judge's state, and after
// each snapshot commits copy more.
const groupLength = 4096

// ProposeBatch implements [orbit.Batcher]. The whole batch needs one sync, or one for each 4,096 proposals.
func (l *Ledger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, 0, len(batch))
	history := l.Limits().History
	var waits []wait
	for len(batch) > 0 {
		if err := ctx.Err(); err != nil {
			for range batch {
				out = append(out, orbit.Outcome{Err: unavailable(err)})
			}
			break
		}
		n, changes := 1, len(batch[0].Do) // the changes of a run must not exceed the judge's history, from which they are read
		for n < min(len(batch), runLength) && changes+len(batch[n].Do) <= history {
			changes += len(batch[n].Do)
			n++
		}
		outcomes, g := l.judgeRun(batch[:n])
		waits = append(waits, wait{g, len(out), len(out) + n})
		out = append(out, outcomes...)
		batch = batch[n:]
		l.rouse(len(out)/groupLength > (len(out)-n)/groupLength)
	}
	l.rouse(true)
	for _, w := range waits {
		w.settle(ctx, out[w.from:w.to])
	}
	return out
}

// rouse wakes run, so that it encodes the changes in the open group and, if ends is set, writes the group.
func (l *Ledger) rouse(ends bool) {
	if ends {
		l.due.Store(true)
	}
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// wait names the outcomes from (inclusive) to (exclusive) of a batch that are final when group is on the disk. If group
// is nil, they are final at once.
type wait struct {
	group    *group
	from, to int
}

// settle waits until the group is on the disk. If the group cannot be written, or ctx ends first, settle replaces the
// outcomes that depend on the group by errors.
func (w wait) settle(ctx context.Context, out []orbit.Outcome) {
	if w.group == nil {
		return
	}
	var why error
	select {
	case <-w.group.done:
		why = w.group.err
	case <-ctx.Done():
		why = ctx.Err()
	}
	if why == nil {
		return
	}
	for i := range out {
		switch {
		case out[i].Err == nil:
			out[i] = orbit.Outcome{Err: unknown(why)}
		case !errors.Is(out[i].Err, orbit.ErrInvalid): // a refusal may rest on a commit that is not on the disk
			out[i].Err = unavailable(why)
		}
	}
}

// judgeRun judges a run of proposals. It returns the outcomes, and the group that must be on the disk before they are
// final. Under the lock it calls no method of a caller's context, because such a method may call the ledger.
func (l *Ledger) judgeRun(run []orbit.Proposal) ([]orbit.Outcome, *group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		out := make([]orbit.Outcome, len(run))
		for i := range out {
			out[i].Err = unavailable(l.failed)
		}
		return out, nil
	}
	out := l.judge.ProposeBatch(background, run)
	changes, err := l.judge.Changes(background, l.judged)
	if err != nil { // cannot happen: a run's changes fit into the history
		l.fail(err)
	}
	if len(changes) > 0 {
		l.open.changes = append(l.open.changes, changes...)
		l.judged = changes[len(changes)-1].Revision
	}
	for i := range out {
		l.attribute(out[i].Err)
	}
	if len(l.open.changes) > 0 {
		return out, l.open
	}
	return out, l.flying
}

// attribute completes the receipt of a conflict. If the commit to which the proposal has lost is not newer than start,
// judge does not know that commit's id, so attribute looks it up in older.
func (l *Ledger) attribute(err error) {
	var r *orbit.Rejection
	if !errors.As(err, &r) || !r.TakenBy.IsZero() || !errors.Is(err, orbit.ErrConflict) {
		return
	}
	if i := firstAfter(l.older, r.TakenAt-1); i < len(l.older) && r.TakenAt > 0 && l.older[i].Revision == r.TakenAt {
		r.TakenBy = l.older[i].ID
	}
}

// Snapshot implements [orbit.Ledger]. It neither waits nor reads the disk. Its only errors are those of the context, and
// ErrClosed with orbit.ErrUnavailable.
func (l *Ledger) Snapshot(ctx context.Context) (*orbit.State, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	return l.shown.Load(), nil
}

// readable returns an error if the ledger cannot be read: its context has ended, or the ledger is closed.
func (l *Ledger) readable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("diskledger: read: %w", err)
	}
	select {
	case <-l.closing:
		return unavailable(ErrClosed)
	default:
		return nil
	}
}

// Changes implements [orbit.Ledger]. The history reaches back to the checkpoint that Open has read, but has at most
// Limits().History changes. For changes before that the error is orbit.ErrCompacted.
func (l *Ledger) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	upTo := l.shown.Load().Revision()
	switch {
	case upTo <= after:
		return nil, nil
	case after < l.olderFloor:
		return nil, orbit.ErrCompacted
	}
	newer, err := l.judge.Changes(background, max(after, l.start.Revision()))
	if err != nil {
		return nil, err
	}
	n := firstAfter(newer, upTo)
	newer = newer[:n:n]
	if after >= l.start.Revision() {
		return newer, nil
	}
	older := l.older[firstAfter(l.older, after):]
	if len(older)+len(newer) > l.Limits().History {
		return nil, orbit.ErrCompacted
	}
	return append(older[:len(older):len(older)], newer...), nil
}

// firstAfter returns the index of the first change that is newer than a revision.
func firstAfter(changes []orbit.Change, rev orbit.Revision) int {
	return sort.Search(len(changes), func(i int) bool { return changes[i].Revision > rev })
}

// Wait implements [orbit.Ledger]. After the disk has failed it returns orbit.ErrUnavailable with the [*DiskError].
func (l *Ledger) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("diskledger: wait for a revision after %d: %w", after, err)
		}
		rev, changed, err := l.waitOn(after)
		if changed == nil {
			return rev, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// waitOn returns the newest revision if it is above after, or an error if no such revision can come any more. Otherwise
// it returns a channel that is closed when it is time to ask again.
func (l *Ledger) waitOn(after orbit.Revision) (orbit.Revision, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	rev := l.shown.Load().Revision()
	switch {
	case errors.Is(l.failed, ErrClosed), l.failed != nil && rev <= after:
		return 0, nil, unavailable(l.failed)
	case rev > after:
		return rev, nil, nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return 0, l.changed, nil
}

// Checkpoint writes the state to a checkpoint and removes the older files, so that the next Open is fast. The ledger
// also makes checkpoints by itself (Options.CheckpointBytes). Commits go on meanwhile. If the context ends first,
// Checkpoint returns its error, and the checkpoint is finished in the background.
func (l *Ledger) Checkpoint(ctx context.Context) error {
	result := make(chan error, 1)
	select {
	case l.wanted <- result:
	case <-l.closing:
		return unavailable(ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("diskledger: checkpoint: %w", ctx.Err())
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("diskledger: checkpoint: %w", ctx.Err())
	}
}

// Close writes the changes of all judged proposals, closes the files and unlocks the folder. It abandons a checkpoint
// that is under way. Later calls of methods that return an error fail with ErrClosed; a second Close returns what the
// first one returned.
func (l *Ledger) Close() error {
	l.closeOnce.Do(func() {
		close(l.closing)
		l.done.Wait()
		l.closeErr = errors.Join(l.closeErr, l.folder.unlock())
	})
	return l.closeErr
}
