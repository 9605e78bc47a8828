package diskledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/orbitsched/orbit/logledger"
)

// Log is a log in a folder. It holds the folder's lock, so only one Log is open at a time. Its methods may be called from any
// goroutine. A group of commits is one entry, which is written with one write and one sync.
//
// There are several log files, one after the other; [segment] describes one. A file is begun when there is an entry for it:
// by the first Append, by the first one after a checkpoint, so that the files before can be removed, and by the first one
// after a failed write. The header of a file says how many bytes of the file before are valid.
type Log struct {
	*folder
	// readOnly refuses all writes.
	readOnly bool
	// changed never gets a value: no other process can append.
	changed chan struct{}

	// saving is held while a checkpoint is written, reading while files are read or removed. Reading also guards reader, a log
	// that Read has read in part (nil: none), and shown.
	saving, reading sync.Mutex
	reader          *scanner
	// shown says where the entries are that the latest Read has returned.
	shown struct {
		path    string
		after   logledger.Index
		offsets []int64
	}

	writing sync.Mutex // held while files change; guards what follows
	// out is the file that is written, the last of the segments; nil: Append has to begin another one.
	out *appender
	// ended says that Append has to begin another file although out is sound.
	ended bool
	// err is why the last Append has failed; nil: it has not. If it is ErrFailed, nothing is written any more.
	err error

	mu sync.Mutex // guards what follows; never held during an operation on a file
	// segments are the log files, without gaps. tail is the index of the newest entry, last the number of the newest log.
	segments []segment
	tail     logledger.Index
	last     uint64
	// checkpoint is the number of the newest checkpoint, 0: there is none; at is its index.
	checkpoint uint64
	at         logledger.Index
	// oldest is the index of the last entry in files of version 1, 0: there is none. The next checkpoint must include it.
	oldest logledger.Index
	// cut is the length in bytes of an unfinished write that was found behind the newest entry.
	cut int64
}

var _ logledger.Placer = (*Log)(nil)

// segment is one log file.
type segment struct {
	number uint64
	// after is the index of the entry before its first one, last that of its last one.
	after, last logledger.Index
	// end is how many of its bytes are valid.
	end int64
}

// Append implements [logledger.Log]. The entry is on the disk when it returns. After a write that has failed because the disk
// is full, the file is given up at its last synced length, and the next Append begins another one. After any other error
// nothing is written any more: after a failed sync, a second one can succeed although the data is lost.
func (l *Log) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err)
	}
	if err := l.refusal(); err != nil {
		return nil, err
	}
	if tail, _ := l.Tail(ctx); a.Index != tail+1 {
		return nil, logledger.ErrTaken
	}
	l.err = l.write(a)
	return nil, l.err
}

// refusal returns why nothing can be written; nil: it can. It requires writing.
func (l *Log) refusal() error {
	switch {
	case errors.Is(l.err, logledger.ErrFailed):
		return l.err
	case l.readOnly:
		return failed(errReadOnly)
	}
	return nil
}

// write writes an entry. It requires writing.
func (l *Log) write(a logledger.Append) error {
	if l.out == nil || l.ended {
		if err := l.begin(); isFullWrite(err) {
			return unavailable(err)
		} else if err != nil {
			return failed(err)
		}
	}
	if err := l.out.appendIndexed(entryRecord, a.Index, a.Data); isFullWrite(err) {
		_ = l.out.close() // what was written behind the last synced entry is not read again once another file is begun
		l.out = nil
		return err
	} else if err != nil {
		return failed(err)
	}
	if err := l.out.sync(); err != nil {
		return failed(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = a.Index
	s := &l.segments[len(l.segments)-1]
	s.last, s.end = a.Index, l.out.size()
	return nil
}

// begin begins another log file. It requires writing.
func (l *Log) begin() error {
	l.mu.Lock()
	h := header{Kind: logKind, Number: l.last + 1, Index: l.tail, Checkpoint: l.checkpoint}
	if n := len(l.segments); n > 0 {
		h.Previous = l.segments[n-1].end
	}
	l.mu.Unlock()
	name := nameOf(h.Number, logEnd)
	out, err := l.create(name)
	if err != nil {
		return err
	}
	if err = out.appendHeader(h); err == nil {
		err = out.sync()
	}
	if err != nil {
		_ = out.close()
		_ = l.remove(name + tmpEnd)
		return err
	}
	if err := l.publish(name); err != nil {
		return errors.Join(err, out.close())
	}
	if l.out != nil {
		_ = l.out.close() // all that was written to it was synced
	}
	l.out, l.ended = out, false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = h.Number
	l.segments = append(l.segments, segment{h.Number, l.tail, l.tail, out.size()})
	return nil
}

// pageBytes is how many bytes of entries a page has, until its last entry is added.
const pageBytes = 1 << 20

// Read implements [logledger.Log].
func (l *Log) Read(ctx context.Context, after logledger.Index) (page logledger.Page, err error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	s, tail, err := l.find(ctx, after)
	if err != nil || after >= tail {
		return page, err
	}
	in, err := l.scannerAt(s, after)
	if err != nil {
		return page, err
	}
	l.shown.path, l.shown.after, l.shown.offsets = in.path, after, nil
	for size := 0; size < pageBytes; {
		data, err := in.entry(s.end)
		if err == nil {
			page.Entries, l.shown.offsets = append(page.Entries, data), append(l.shown.offsets, in.at)
			size += len(data)
			continue
		}
		if errors.Is(err, io.EOF) && in.last != s.last {
			err = in.corrupt(in.end, fmt.Sprintf("it ends with entry %d; the next log says that it ends with entry %d", in.last, s.last))
		}
		l.dropReader()
		if !errors.Is(err, io.EOF) {
			return logledger.Page{}, err
		}
		break
	}
	page.More = after+logledger.Index(len(page.Entries)) < tail
	return page, nil
}

// Place implements [logledger.Placer]. It names the file of the entry, and where in it the entry begins.
func (l *Log) Place(at logledger.Index) logledger.Place {
	l.reading.Lock()
	defer l.reading.Unlock()
	if n := at - l.shown.after - 1; at > l.shown.after && n < logledger.Index(len(l.shown.offsets)) {
		return logledger.Place{Name: l.shown.path, Offset: l.shown.offsets[n]}
	}
	return logledger.Place{Name: fmt.Sprintf("entry %d in %s", at, l.dir), Offset: -1}
}

// Unfinished returns how many bytes of an unfinished write were found behind the newest entry when the log was opened. They are
// from a process that was killed before it had answered.
func (l *Log) Unfinished() int64 { return l.cut }

// find returns the segment with the entry after an index, and the index of the newest entry.
func (l *Log) find(ctx context.Context, after logledger.Index) (segment, logledger.Index, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil || after >= l.tail {
		return segment{}, l.tail, err
	}
	for _, s := range l.segments {
		if s.after <= after && after < s.last {
			return s, l.tail, nil
		}
	}
	return segment{}, 0, logledger.ErrTrimmed
}

// scannerAt returns a scanner of a segment whose next entry is the one after an index. It requires reading.
func (l *Log) scannerAt(s segment, after logledger.Index) (*scanner, error) {
	if in := l.reader; in != nil && in.header.Number == s.number && in.last == after && in.end < s.end && in.size >= s.end {
		return in, nil
	}
	l.dropReader()
	in, err := l.openScanner(s.number, logKind, logEnd)
	if err != nil {
		return nil, err
	}
	l.reader, in.last = in, s.after
	for in.last < after {
		if _, err := in.entry(s.end); err != nil {
			if errors.Is(err, io.EOF) {
				err = in.corrupt(in.end, fmt.Sprintf("it ends with entry %d; the next log says that it ends with entry %d", in.last, s.last))
			}
			l.dropReader()
			return nil, err
		}
	}
	return in, nil
}

// dropReader closes the file that Read has open. It requires reading.
func (l *Log) dropReader() {
	if l.reader != nil {
		_ = l.reader.close() // it was only read
		l.reader = nil
	}
}

// Tail implements [logledger.Log].
func (l *Log) Tail(ctx context.Context) (logledger.Index, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail, ctx.Err()
}

// Changed implements [logledger.Log].
func (l *Log) Changed() <-chan struct{} { return l.changed }

// Trim implements [logledger.Log]. It has nothing to do, because SaveCheckpoint removes what the checkpoint includes: there
// is no other process that could be behind.
func (l *Log) Trim(ctx context.Context, _ logledger.Index) error { return ctx.Err() }

// Close implements [logledger.Log]. It writes the closing record and unlocks the folder. It returns the error of the last
// Append, too.
func (l *Log) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if errors.Is(l.err, logledger.ErrClosed) {
		return nil
	}
	err := l.err
	if l.out != nil && err == nil {
		tail, _ := l.Tail(context.Background())
		if err = l.out.appendIndexed(closingRecord, tail, nil); err == nil {
			err = l.out.sync()
		}
	}
	if l.out != nil {
		err = errors.Join(err, l.out.close())
	}
	l.out, l.err = nil, failed(logledger.ErrClosed)
	l.reading.Lock()
	defer l.reading.Unlock()
	l.dropReader()
	return errors.Join(err, l.unlock())
}
