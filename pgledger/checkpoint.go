package pgledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// A checkpoint is stored in parts, each by a statement of its own, so that no request is large. Nobody sees it until one
// statement makes it the newest.

// partBytes is how large a part of a checkpoint is. trimEntries is how many entries one statement removes.
const (
	partBytes   = 1 << 20
	trimEntries = 1000
)

// checkpoint names a checkpoint.
type checkpoint struct {
	at, maker int64
	parts     int
}

// newest returns the newest checkpoint.
func (h *Log) newest(ctx context.Context) (c checkpoint, err error) {
	var standby bool
	var at, maker *int64
	var parts *int
	err = h.row(ctx, h.sql.checkpoint, []any{h.id}, &standby, &at, &maker, &parts)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return c, fmt.Errorf("%w: %w", logledger.ErrFailed, errLost)
	case err != nil:
		return c, err
	case standby:
		return c, nothingDone(errStandby)
	case at == nil || maker == nil || parts == nil:
		return c, logledger.ErrNoCheckpoint
	}
	return checkpoint{*at, *maker, *parts}, nil
}

// Checkpoint implements [logledger.Log]. Each part is read when it is needed.
func (h *Log) Checkpoint(ctx context.Context) (logledger.Index, io.ReadCloser, error) {
	c, err := h.newest(ctx)
	if err != nil {
		return 0, nil, fmt.Errorf("pgledger: find the newest checkpoint: %w", err)
	}
	return logledger.Index(c.at), &parts{log: h, ctx: ctx, of: c}, nil
}

// parts reads the parts of a checkpoint.
type parts struct {
	log  *Log
	ctx  context.Context
	of   checkpoint
	next int
	rest []byte
}

// Read implements io.Reader.
func (p *parts) Read(to []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.next == p.of.parts {
			return 0, io.EOF
		}
		err := p.log.row(p.ctx, p.log.sql.part, []any{p.log.id, p.of.at, p.of.maker, p.next}, &p.rest)
		if errors.Is(err, pgx.ErrNoRows) {
			err = logledger.ErrTrimmed
		}
		if err != nil {
			return 0, fmt.Errorf("pgledger: read part %d of checkpoint %d: %w", p.next, p.of.at, err)
		}
		p.next++
	}
	n := copy(to, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Place implements [logledger.PlacedReader]. It names the row of the part that was read last.
func (p *parts) Place() logledger.Place {
	return p.log.place("checkpoint", fmt.Sprintf("log = %d, at = %d, maker = %d, part = %d", p.log.id, p.of.at, p.of.maker, max(p.next, 1)-1))
}

// Close implements io.Closer.
func (p *parts) Close() error { return nil }

// SaveCheckpoint implements [logledger.Log].
func (h *Log) SaveCheckpoint(ctx context.Context, at logledger.Index, write func(io.Writer) error) error {
	c := checkpoint{int64(min(at, math.MaxInt64)), rand.Int64(), 0}
	there, err := h.newest(ctx)
	if err == nil && there.at >= c.at {
		return logledger.ErrTaken
	}
	if err == nil || errors.Is(err, logledger.ErrNoCheckpoint) {
		err = h.store(ctx, &c, write)
	}
	if err != nil && !errors.Is(err, logledger.ErrTaken) {
		return fmt.Errorf("pgledger: store checkpoint %d: %w", at, err)
	}
	return err
}

// store stores the parts of a checkpoint, and makes it the newest one. If that is not to be, it removes the parts.
func (h *Log) store(ctx context.Context, c *checkpoint, write func(io.Writer) error) error {
	w := &partWriter{log: h, ctx: ctx, to: c}
	err := write(w)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		taken := true
		err = h.rows(ctx, h.sql.switchTo, []any{h.id, c.at, c.maker, c.parts}, func(pgx.Rows) error {
			taken = false
			return nil
		})
		if err == nil && !taken || err != nil && !errors.Is(err, orbit.ErrUnavailable) {
			return err // it is the newest, or may still become so
		}
	}
	if err == nil {
		err = logledger.ErrTaken
	}
	if left := h.rows(context.WithoutCancel(ctx), h.sql.removeParts, []any{h.id, c.at, c.maker}, nil); left != nil {
		h.options.OnError(left)
	}
	return err
}

// partWriter stores parts of a checkpoint.
type partWriter struct {
	log *Log
	ctx context.Context
	to  *checkpoint
	buf []byte
}

// Write implements io.Writer.
func (w *partWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		take := min(len(p), partBytes-len(w.buf))
		w.buf, p, n = append(w.buf, p[:take]...), p[take:], n+take
		if len(w.buf) == partBytes {
			err = w.flush()
		}
	}
	return n, err
}

// flush stores what was written as a part.
func (w *partWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.log.rows(w.ctx, w.log.sql.addPart, []any{w.log.id, w.to.at, w.to.maker, w.to.parts, w.buf}, nil)
	w.to.parts++
	w.buf = w.buf[:0]
	return err
}

// Trim implements [logledger.Log]. It removes entries from the oldest on, which appendSQL relies on.
func (h *Log) Trim(ctx context.Context, upTo logledger.Index) error {
	h.mu.Lock()
	from := h.trimmed
	h.mu.Unlock()
	var oldest, newest *int64
	if err := h.row(ctx, h.sql.bounds, []any{h.id, from}, &oldest, &newest); err != nil {
		return fmt.Errorf("pgledger: trim: %w", err)
	}
	if oldest == nil || newest == nil {
		return nil
	}
	last := min(int64(min(upTo, math.MaxInt64)), *newest-1)
	for from = *oldest; from <= last; from += trimEntries {
		if err := h.rows(ctx, h.sql.trim, []any{h.id, from, min(from+trimEntries-1, last)}, nil); err != nil {
			return fmt.Errorf("pgledger: trim: %w", err)
		}
		h.mu.Lock()
		h.trimmed = min(from+trimEntries, last+1)
		h.mu.Unlock()
	}
	return nil
}
