package logledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/orbitsched/orbit"
)

// Open opens the ledger in a log, makes it if the log is empty, and follows it until Close. The context is used by Open only.
// The ledger closes the log; after an error the caller does.
//
// The error is orbit.ErrUnavailable if the store cannot be reached, [ErrMismatch] if the ledger was made with other limits or
// dimensions, [ErrVersion] if a newer version has written to it, and [ErrCorrupt] if something in it is damaged.
func Open(ctx context.Context, log Log, o Options) (*Ledger, error) {
	o = o.withDefaults()
	at, err := begin(ctx, log, &o)
	if err != nil {
		return nil, err
	}
	if err := o.agrees(at.state); err != nil {
		return nil, err
	}
	l := newLedger(log, o, at)
	if err := o.patiently(ctx, func() error { return l.readAll(ctx) }); err != nil {
		l.kill()
		return nil, err
	}
	l.done.Go(l.run)
	return l, nil
}

// newLedger returns a ledger that continues from a position, and does nothing yet.
func newLedger(log Log, o Options, at *position) *Ledger {
	l := &Ledger{
		log: log, options: o, self: newWriterID(), mostChanges: mostChanges, judge: &orbit.MemoryLedger{Start: at.state}, open: &group{},
		arrived: make(chan struct{}, 1), asked: make(chan struct{}, 1), wanted: make(chan chan error), closing: make(chan struct{}),
	}
	l.poster, _ = log.(Poster)
	l.life, l.kill = context.WithCancel(context.Background())
	l.shown.Store(at)
	l.w.index, l.w.lastDue, l.w.before = at.index, at.index, at.index
	l.w.expected, l.w.shares = map[WriterID]bool{}, map[WriterID]int{}
	return l
}

// Patiently opens the log of a store by open, and tries again while the error is orbit.ErrUnavailable and not said to be final,
// for as long as patience says, which is read as [Options.Patience] is.
func Patiently[L any](ctx context.Context, patience time.Duration, open func() (log L, final bool, err error)) (log L, err error) {
	o := Options{Patience: patience}.withDefaults()
	final := false
	waited := o.patiently(ctx, func() error {
		if log, final, err = open(); final || !errors.Is(err, orbit.ErrUnavailable) {
			return nil // try no more
		}
		return err
	})
	if waited != nil {
		err = waited
	}
	return log, err
}

// patiently calls f until it succeeds, or fails with an error that will not pass, or the patience is over. If the context ends
// before, the error says that and what was wrong last.
func (o *Options) patiently(ctx context.Context, f func() error) error {
	until, last := time.Now().Add(o.Patience), error(nil)
	for backoff := 5 * time.Millisecond; ; backoff = min(2*backoff, maxBackoff) {
		err := f()
		if err == nil || lasting(err) {
			return err
		}
		if ctx.Err() != nil && last != nil {
			return unavailable(fmt.Errorf("%w; last: %w", ctx.Err(), last))
		}
		if ctx.Err() != nil || time.Now().Add(backoff).After(until) {
			return unavailable(err)
		}
		last = err
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
		}
	}
}

// lasting reports whether trying again is of no use.
func lasting(err error) bool {
	for _, target := range []error{ErrClosed, ErrFailed, ErrVersion, ErrCorrupt, ErrMismatch, ErrUnfinished, orbit.ErrInvalid} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// begin returns the state in the newest checkpoint. If there is none, it makes one of an empty state.
func begin(ctx context.Context, log Log, o *Options) (at *position, err error) {
	err = o.patiently(ctx, func() error {
		for {
			if at, _, err = readCheckpoint(ctx, log); !errors.Is(err, ErrNoCheckpoint) {
				return err
			}
			empty, err := o.empty()
			if err != nil {
				return err
			}
			if err := saveCheckpoint(ctx, log, &position{0, empty}); err != nil && !errors.Is(err, ErrTaken) {
				return err
			}
		}
	})
	return at, err
}

// readAll applies the entries after the checkpoint. Nothing else runs yet.
func (l *Ledger) readAll(ctx context.Context) error {
	for {
		page, err := l.log.Read(ctx, l.w.index)
		if errors.Is(err, ErrTrimmed) {
			page.More, err = true, l.jump()
		}
		if err == nil {
			err = l.apply(page.Entries)
		}
		if err != nil || !page.More { // not until there is nothing new: others may be faster
			l.w.posts, l.stats.recovered = page.Posts, l.w.since
			return err
		}
	}
}

// checkpointVersion is the version of the checkpoints that this package writes, and the highest that it reads.
const checkpointVersion = 1

// unfinished is the first byte, and the only one, of the checkpoint of a log to which something is being copied.
const unfinished = 0

// stored says how a checkpoint is stored.
type stored struct {
	place Place
	bytes int64
}

// readCheckpoint restores the newest checkpoint. It tries again if a newer one replaces it meanwhile.
func readCheckpoint(ctx context.Context, log Log) (*position, stored, error) {
	for {
		index, r, err := log.Checkpoint(ctx)
		if err != nil {
			return nil, stored{}, err
		}
		in := &stickyReader{r: r}
		state, err := RestoreCheckpoint(in)
		there := stored{placeOf(r, index), 0}
		err = errors.Join(err, r.Close())
		if there.bytes = in.n; errors.Is(err, ErrTrimmed) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, there, fmt.Errorf("checkpoint %d: %w", index, located(there.place, err))
		}
		return &position{index, state}, there, nil
	}
}

// placeOf returns where a checkpoint is that is being read.
func placeOf(r io.Reader, at Index) Place {
	if p, ok := r.(PlacedReader); ok {
		return p.Place()
	}
	return Place{Name: fmt.Sprintf("checkpoint %d", at), Offset: -1}
}

// RestoreCheckpoint reads the state in a checkpoint, as [Log.Checkpoint] returns it. The error is [ErrVersion] if a newer
// version wrote it, [ErrUnfinished] if it belongs to a copy that was not finished, [ErrCorrupt] if it is damaged, or that of
// reading.
//
// A checkpoint is a byte with its version, and a dump compressed by zstd. In diskledger's format 1 it is the dump itself.
func RestoreCheckpoint(stored io.Reader) (*orbit.State, error) {
	in := &stickyReader{r: stored}
	b := bufio.NewReaderSize(in, 1<<16)
	first, err := b.Peek(1)
	if err != nil {
		return nil, corruptUnless(in.err, err)
	}
	var dump io.Reader = b
	if first[0] == unfinished {
		return nil, ErrUnfinished
	}
	if first[0] != '{' {
		if first[0] > checkpointVersion {
			return nil, fmt.Errorf("%w: it needs version %d, this is version %d", ErrVersion, first[0], checkpointVersion)
		}
		_, _ = b.Discard(1)
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUncompressed))
		if err != nil {
			return nil, corrupt(err)
		}
		defer z.Close()
		dump = z
	}
	state := new(orbit.State)
	if err := state.Restore(dump); err != nil {
		return nil, corruptUnless(in.err, err)
	}
	return state, nil
}

// stickyReader counts bytes, and keeps the error that ended reading, because a decompressor hides it.
type stickyReader struct {
	r   io.Reader
	n   int64 // bytes that were read
	err error
}

// Read implements io.Reader.
func (s *stickyReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// corruptUnless returns the error of the store, if there was one; else it calls the checkpoint damaged because of err.
func corruptUnless(store, err error) error {
	if store != nil {
		return store
	}
	return corrupt(err)
}

// saveCheckpoint stores a state as a checkpoint.
func saveCheckpoint(ctx context.Context, log Log, at *position) error {
	return log.SaveCheckpoint(ctx, at.index, func(w io.Writer) error { return WriteCheckpoint(w, at.state) })
}

// WriteCheckpoint writes a state as a checkpoint, for [Log.SaveCheckpoint]. [RestoreCheckpoint] is its inverse.
func WriteCheckpoint(w io.Writer, state *orbit.State) error {
	if _, err := w.Write([]byte{checkpointVersion}); err != nil {
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(z, 1<<16)
	return errors.Join(state.Dump(b), b.Flush(), z.Close())
}
