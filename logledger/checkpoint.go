package logledger

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// checkpointer is what a writer knows about checkpoints.
type checkpointer struct {
	// since counts the changes since a checkpoint was due last, after the entry at lastDue. All ledgers count the same entries,
	// so they agree on when one is due; who has appended that entry makes it. due says that it is this ledger's turn. before
	// is the lastDue before lastDue.
	since           int64
	lastDue, before Index
	due             bool
	// results delivers the result of the checkpoint that is being made; nil: none is being made.
	results chan error
	// asked are the calls of Checkpoint that wait for the checkpoint under way, next those that wait for the one after it.
	asked, next []chan error
}

// count counts the changes of the entry at an index.
func (l *Ledger) count(at Index, e *Entry) {
	l.w.since += int64(len(e.Changes))
	if l.w.since >= int64(max(l.options.CheckpointEvery, l.shown.Load().state.CapsuleCount())) {
		l.w.since, l.w.due = 0, e.Writer == l.self
		l.w.before, l.w.lastDue = l.w.lastDue, at
	}
}

// considerCheckpoint begins a checkpoint if one is due, or asked for, and none is under way.
func (l *Ledger) considerCheckpoint() {
	if l.w.results != nil || !l.w.due && len(l.w.next) == 0 {
		return
	}
	l.w.due, l.w.asked, l.w.next = false, l.w.next, nil
	at, before, results := l.shown.Load(), l.w.before, make(chan error, 1)
	l.w.results = results
	l.done.Go(func() { results <- l.makeCheckpoint(at, before) })
}

// makeCheckpoint stores a state, and removes the entries up to the checkpoint before it: those after that one stay a while
// longer, for ledgers that are behind. A panic becomes an error, because no importer could recover from it.
func (l *Ledger) makeCheckpoint(at *position, before Index) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("logledger: checkpoint %d: panic: %v\n%s", at.index, p, debug.Stack())
		}
	}()
	if err := saveCheckpoint(l.life, l.log, at); err != nil && !errors.Is(err, ErrTaken) {
		return fmt.Errorf("logledger: checkpoint %d: %w", at.index, err)
	}
	return l.log.Trim(l.life, before)
}

// endCheckpoint records the result of a checkpoint, and reports it to the calls that have asked for it.
func (l *Ledger) endCheckpoint(err error) {
	l.w.results = nil
	if err == nil {
		l.stats.checkpoints.Add(1)
	} else if l.life.Err() == nil {
		l.stats.checkpointErrors.Add(1)
		l.options.OnError(err)
	}
	for _, asked := range l.w.asked {
		asked <- err
	}
	l.w.asked = nil
}

// endCheckpoints ends the checkpoint under way, and all that were asked for, when the ledger is closed.
func (l *Ledger) endCheckpoints() {
	if l.w.results != nil {
		l.endCheckpoint(<-l.w.results)
	}
	for _, result := range l.w.next {
		result <- unavailable(ErrClosed)
	}
	l.w.next = nil
}

// Checkpoint stores the state as a checkpoint, so that the next Open is fast. The ledger also makes checkpoints by itself
// (Options.CheckpointEvery). Commits go on meanwhile. If the context ends first, Checkpoint returns its error, and the
// checkpoint is finished in the background.
func (l *Ledger) Checkpoint(ctx context.Context) error {
	result := make(chan error, 1)
	select {
	case l.wanted <- result:
	case <-l.closing:
		return unavailable(ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("logledger: checkpoint: %w", ctx.Err())
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("logledger: checkpoint: %w", ctx.Err())
	}
}
