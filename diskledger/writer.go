package diskledger

import (
	"cmp"
	"errors"

	"github.com/orbitsched/orbit"
)

// logFile is the log that is written. Only the goroutine of [Ledger.run] uses it.
type logFile struct {
	*appender
	// number is the number of the log, base is the number of the newest checkpoint.
	number, base uint64
	// since is the size in bytes of the earlier logs that follow the newest checkpoint, checkpoint is the size of that
	// checkpoint.
	since, checkpoint int64
	// text has the encoded changes of the next group, as far as they are encoded; encoded is how many these are.
	text    []byte
	encoded int
	// checkpoints delivers the result of the checkpoint that is being written; nil: none is being written.
	checkpoints chan checkpointResult
	// asked are the calls of Checkpoint that wait for the checkpoint under way, next are those that wait for the one
	// after it.
	asked, next []chan error
	// tried is how many bytes the logs had when a checkpoint was last begun; 0 after it succeeded. After a failure the
	// next attempt waits until the logs have grown again from there.
	tried int64
}

// run writes groups until the ledger is closed. It is the only goroutine that writes to the log.
func (l *Ledger) run() {
	for {
		l.considerCheckpoint()
		select {
		case <-l.arrived:
			l.write()
		case result := <-l.wanted:
			l.log.next = append(l.log.next, result)
		case result := <-l.log.checkpoints:
			l.endCheckpoint(result)
		case <-l.closing:
			l.finish()
			return
		}
	}
}

// write encodes the changes of the open group. If the group is due, write also writes it to the log, shows its state to
// readers and wakes the proposers that wait for it. The next group is collected while write waits for the disk.
func (l *Ledger) write() {
	due := l.due.Swap(false)
	l.mu.Lock()
	g, failed := l.open, l.failed
	collected := g.changes
	l.mu.Unlock()
	if failed != nil || len(collected) == 0 {
		return
	}
	err := l.log.encode(collected) // without the lock, so that the rest of the batch is judged meanwhile
	if err == nil && !due {
		return
	}
	l.mu.Lock()
	state, snapshotErr := l.judge.Snapshot(background)
	l.open, l.flying = newGroup(), g
	l.mu.Unlock()
	if err = cmp.Or(err, snapshotErr); err == nil {
		err = l.log.commit(g)
	}
	if err == nil {
		l.stats.groups.Add(1)
		l.stats.changes.Add(int64(len(g.changes)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.fail(err)
		return
	}
	l.flying = nil
	l.shown.Store(state)
	close(g.done)
	l.wake()
}

// wake wakes the calls of Wait. It requires mu.
func (l *Ledger) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// fail ends all commits. The group that is being written may or may not be on the disk; the open group is not. Nothing
// is tried again, because after a failed sync a second one may succeed although the data is lost. It requires mu.
func (l *Ledger) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed = err
	for _, g := range []*group{l.flying, l.open} {
		if g != nil {
			g.err = err
			close(g.done)
		}
	}
	l.flying, l.open = nil, newGroup()
	l.wake()
}

// encode adds to text those changes of the next group that are not encoded yet. Its argument is all changes that the
// group has so far.
func (f *logFile) encode(changes []orbit.Change) error {
	for ; f.encoded < len(changes); f.encoded++ {
		text, err := appendChange(f.text, &changes[f.encoded])
		if err != nil {
			return err
		}
		text = append(text, '\n')
		f.text = text
	}
	return nil
}

// commit writes one group as one record, and waits until it is on the disk.
func (f *logFile) commit(g *group) error {
	if err := f.encode(g.changes); err != nil {
		return err
	}
	err := f.append(f.text)
	f.text, f.encoded = f.text[:0], 0
	if err != nil {
		return err
	}
	return f.sync()
}

// beginLog makes a new log. Its header records previous, the number of valid bytes in the log before it. After an
// error the new log may or may not exist, so nothing may be appended to the previous log any more.
func (f *folder) beginLog(number uint64, after orbit.Revision, previous int64) (*appender, error) {
	a, err := f.prepareLog(number, after, previous)
	if err != nil {
		return nil, err
	}
	if err := f.publish(nameOf(number, logEnd)); err != nil {
		_ = a.close()
		return nil, err
	}
	return a, nil
}

// prepareLog makes a log under a temporary name, with its header on the disk. Publish gives the log its name.
func (f *folder) prepareLog(number uint64, after orbit.Revision, previous int64) (*appender, error) {
	name := nameOf(number, logEnd)
	file, err := f.create(name)
	if err != nil {
		return nil, err
	}
	a := newAppender(file, f.path(name))
	err = a.appendJSON(header{logKind, formatVersion, number, after, previous})
	if err == nil {
		err = a.sync()
	}
	if err != nil {
		_ = a.close()
		_ = f.remove(name + tmpEnd)
		return nil, err
	}
	return a, nil
}

// finish writes the changes of the proposals that were judged before Close, and then the closing record, which shows
// that none of them is missing.
func (l *Ledger) finish() {
	l.due.Store(true)
	l.write()
	if l.log.checkpoints != nil {
		l.endCheckpoint(<-l.log.checkpoints)
	}
	l.mu.Lock()
	failed := l.failed
	l.fail(ErrClosed)
	l.mu.Unlock()
	for _, result := range l.log.next {
		result <- unavailable(ErrClosed)
	}
	if failed != nil {
		l.closeErr = errors.Join(failed, l.log.close())
		return
	}
	err := l.log.appendJSON(closing{l.shown.Load().Revision()})
	if err == nil {
		err = l.log.sync()
	}
	l.closeErr = errors.Join(err, l.log.close())
}
