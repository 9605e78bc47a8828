package diskledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/orbitsched/orbit/logledger"
)

// Checkpoint implements [logledger.Log].
func (l *Log) Checkpoint(ctx context.Context) (logledger.Index, io.ReadCloser, error) {
	l.mu.Lock()
	number, at := l.checkpoint, l.at
	l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case number == 0:
		return 0, nil, logledger.ErrNoCheckpoint
	}
	s, err := l.openScanner(number, checkpointKind, checkpointEnd)
	if err != nil {
		return 0, nil, err
	}
	return at, &pieceReader{scanner: s}, nil
}

// pieceReader reads a checkpoint, which is divided into records, as one stream.
type pieceReader struct {
	*scanner
	// piece is where the record begins that was read last.
	piece int64
	// rest is the part of the last record that Read has not returned yet.
	rest []byte
	// err is the error that ended reading; nil: reading goes on.
	err error
}

// Read implements io.Reader.
func (r *pieceReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		if r.rest, r.err = r.next(); errors.Is(r.err, errTorn) {
			r.err = r.corrupt(r.end, errTorn.Error())
		}
		if r.err == nil {
			r.piece = r.at
		}
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, r.err
}

// Place implements [logledger.PlacedReader].
func (r *pieceReader) Place() logledger.Place { return logledger.Place{Name: r.path, Offset: r.piece} }

// Close closes the file. Before that it reads the rest, so that no damage behind the state is missed.
func (r *pieceReader) Close() error {
	_, err := io.Copy(io.Discard, r)
	return errors.Join(err, r.close())
}

// SaveCheckpoint implements [logledger.Log]. A checkpoint has the number of the log that is begun after it. The logs whose
// entries it includes are removed, and older checkpoints.
func (l *Log) SaveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	l.saving.Lock()
	defer l.saving.Unlock()
	number, err := l.nextCheckpoint(ctx, at)
	if err != nil {
		return err
	}
	if err := l.writeCheckpoint(header{Kind: checkpointKind, Number: number, Index: at}, &pieceWriter{ctx: ctx}, write); err != nil {
		return err
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.reading.Lock()
	defer l.reading.Unlock()
	if tail, _ := l.Tail(ctx); l.ended && l.out != nil && at == tail { // the checkpoint includes all that the file has
		err = l.out.close()
		l.out = nil
	}
	return errors.Join(err, l.forget(number, at))
}

// nextCheckpoint returns the number of a checkpoint after an index, and makes the next Append begin a log with it.
func (l *Log) nextCheckpoint(ctx context.Context, at logledger.Index) (uint64, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case l.refusal() != nil:
		return 0, l.refusal()
	case l.checkpoint > 0 && at <= l.at:
		return 0, logledger.ErrTaken
	case at < l.oldest:
		return 0, fmt.Errorf("diskledger: a checkpoint after entry %d of a log of version 1, which ends with entry %d", at, l.oldest)
	case at > l.tail:
		return 0, fmt.Errorf("diskledger: a checkpoint after entry %d; the newest entry is %d", at, l.tail)
	}
	l.ended = true
	return l.last + 1, nil
}

// pieceBytes is how many bytes each record of a checkpoint has, except the last one.
const pieceBytes = 1 << 18

// writeCheckpoint writes a checkpoint under a temporary name, and then publishes it.
func (l *Log) writeCheckpoint(h header, w *pieceWriter, write func(io.Writer) error) (err error) {
	name := nameOf(h.Number, checkpointEnd)
	if w.appender, err = l.create(name); err != nil {
		return err
	}
	if err = w.appendHeader(h); err == nil {
		pieces := bufio.NewWriterSize(w, pieceBytes)
		err = errors.Join(write(pieces), pieces.Flush())
	}
	if err == nil {
		err = w.sync()
	}
	if err = errors.Join(err, w.close()); err != nil {
		_ = l.remove(name + tmpEnd)
		return err
	}
	return l.publish(name)
}

// pieceWriter writes each piece of a checkpoint as a record, until its context ends.
type pieceWriter struct {
	*appender
	ctx context.Context
}

// Write implements io.Writer.
func (w *pieceWriter) Write(piece []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if err := w.append(piece); err != nil {
		return 0, err
	}
	return len(piece), nil
}

// forget makes a checkpoint that is on the disk the newest, and removes the files that it replaces. It requires writing and
// reading.
func (l *Log) forget(number uint64, at logledger.Index) error {
	l.dropReader()
	l.mu.Lock()
	l.checkpoint, l.at, l.oldest = number, at, 0
	for len(l.segments) > 0 && l.segments[0].last <= at && (l.out == nil || len(l.segments) > 1) {
		l.segments = l.segments[1:]
	}
	l.mu.Unlock()
	return l.clean()
}

// clean removes the files before the newest checkpoint and the logs that are needed.
func (l *Log) clean() error {
	l.mu.Lock()
	checkpoint, log := l.checkpoint, l.last+1
	if len(l.segments) > 0 {
		log = l.segments[0].number
	}
	l.mu.Unlock()
	files, err := l.list()
	if err != nil {
		return err
	}
	return l.remove(append(files.before(checkpoint, log), files.temporary...)...)
}

// before returns the checkpoints and the logs with lower numbers than these. Checkpoints come before the logs, so that the
// folder can be read if a crash interrupts their removal: no checkpoint is left without the logs after it.
func (l *listing) before(checkpoint, log uint64) (names []string) {
	for n := range l.checkpoints {
		if n < checkpoint {
			names = append(names, nameOf(n, checkpointEnd))
		}
	}
	for n := range l.logs {
		if n < log {
			names = append(names, nameOf(n, logEnd))
		}
	}
	return names
}
