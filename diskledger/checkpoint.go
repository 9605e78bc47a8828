package diskledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/orbitsched/orbit"
)

// background is the context of calls that neither wait nor have to end early.
var background = context.Background()

// checkpointResult is the result of an attempt to write a checkpoint.
type checkpointResult struct {
	number uint64
	// size is the size of the checkpoint's file; 0: the checkpoint is not on the disk. It may be above 0 beside an
	// error.
	size int64
	err  error
}

// considerCheckpoint begins a checkpoint if none is under way and one is due: a caller has asked for it, or the logs
// since the last checkpoint are large, or there are many of them.
func (l *Ledger) considerCheckpoint() {
	f := &l.log
	grown := f.since + f.size() - f.tried
	due := grown >= max(l.options.CheckpointBytes, f.checkpoint) || f.number >= f.base+l.options.logs && f.tried == 0
	if f.checkpoints != nil || len(f.next) == 0 && !due {
		return
	}
	f.asked, f.next = f.next, nil
	f.tried = f.since + f.size()
	if err := l.rotate(); err != nil {
		l.endCheckpoint(checkpointResult{err: err})
		return
	}
	number, state := f.number, l.shown.Load()
	f.checkpoints = make(chan checkpointResult, 1)
	l.done.Go(func() {
		size, err := l.folder.checkpoint(number, state, l.closing)
		f.checkpoints <- checkpointResult{number, size, err}
	})
}

// rotate begins a new log for the changes after the present state. The checkpoint of that state gets the log's number.
// If the new log certainly does not exist after an error, the old log is continued. If it may exist, nothing is
// committed any more.
func (l *Ledger) rotate() error {
	f := &l.log
	l.mu.Lock()
	failed := l.failed
	l.mu.Unlock()
	if failed != nil {
		return unavailable(failed)
	}
	next, err := l.folder.prepareLog(f.number+1, l.shown.Load().Revision(), f.size())
	if err != nil {
		return err
	}
	if err := l.folder.publish(nameOf(f.number+1, logEnd)); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fail(err)
		return errors.Join(err, next.close())
	}
	old := f.appender
	f.since += old.size()
	f.appender, f.number = next, f.number+1
	return old.close()
}

// endCheckpoint records the result of a checkpoint and reports it to the callers that have asked for the checkpoint.
func (l *Ledger) endCheckpoint(result checkpointResult) {
	f := &l.log
	f.checkpoints = nil
	if result.size > 0 {
		f.base, f.since, f.tried, f.checkpoint = result.number, 0, 0, result.size
		l.stats.checkpoints.Add(1)
	}
	if result.err != nil && !errors.Is(result.err, ErrClosed) {
		l.stats.checkpointErrors.Add(1)
		l.options.OnError(result.err)
	}
	for _, asked := range f.asked {
		asked <- result.err
	}
	f.asked = nil
}

// checkpoint writes a checkpoint and removes the files that it replaces. A size above 0 means that the checkpoint is on
// the disk, even if there is an error too. A panic becomes an error, because it would be in a goroutine of this
// package, where no importer can recover from it.
func (f *folder) checkpoint(number uint64, state *orbit.State, stop <-chan struct{}) (size int64, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("diskledger: checkpoint %d: panic: %v\n%s", number, p, debug.Stack())
		}
	}()
	if size, err = f.writeCheckpoint(number, state, stop); err != nil {
		return 0, err
	}
	files, err := f.list()
	if err != nil {
		return size, err
	}
	return size, f.remove(files.before(number)...)
}

// before returns the files that the checkpoint with a number replaces. Older checkpoints come before the logs, so that
// the folder can be read if a crash interrupts their removal: no checkpoint is left without the logs after it.
func (l *listing) before(number uint64) (names []string) {
	for n := range l.checkpoints {
		if n < number {
			names = append(names, nameOf(n, checkpointEnd))
		}
	}
	for n := range l.logs {
		if n < number {
			names = append(names, nameOf(n, logEnd))
		}
	}
	return names
}

// pieceBytes is how many bytes of a dump each record of a checkpoint has, except the last one.
const pieceBytes = 1 << 18

// writeCheckpoint writes a state under a temporary name, and then publishes it. It returns the size of the file.
func (f *folder) writeCheckpoint(number uint64, state *orbit.State, stop <-chan struct{}) (int64, error) {
	name := nameOf(number, checkpointEnd)
	file, err := f.create(name)
	if err != nil {
		return 0, err
	}
	a := newAppender(file, f.path(name))
	err = a.appendJSON(header{Kind: checkpointKind, Version: formatVersion, Number: number, Revision: state.Revision()})
	if err == nil {
		pieces := bufio.NewWriterSize(&pieceWriter{a, stop}, pieceBytes)
		err = errors.Join(state.Dump(pieces), pieces.Flush())
	}
	if err == nil {
		err = a.sync()
	}
	err = errors.Join(err, a.close())
	if err != nil {
		_ = f.remove(name + tmpEnd)
		return 0, err
	}
	return a.size(), f.publish(name)
}

// pieceWriter writes each piece of a dump as a record.
type pieceWriter struct {
	*appender
	stop <-chan struct{}
}

// Write implements io.Writer. It fails when the ledger is closed.
func (w *pieceWriter) Write(piece []byte) (int, error) {
	select {
	case <-w.stop:
		return 0, unavailable(ErrClosed)
	default:
	}
	if err := w.append(piece); err != nil {
		return 0, err
	}
	return len(piece), nil
}
