package logledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/orbitsched/orbit"
)

// This file copies a log to another one. A copy is a whole ledger from one moment on, and no ledger before that. For that the
// target first gets a checkpoint that no ledger opens (unfinished). Then it gets an empty entry, whose index is the base of the
// copy, and the entries after it. The last step is one checkpoint at the base: it replaces the first one, all or nothing.
//
// A copy that was interrupted is redone behind what it has left, with a base of its own. A checkpoint never replaces a later one,
// so a copy that is still under way then fails, because its base is earlier.

// CopyOptions are the settings of [Copy].
type CopyOptions struct {
	// Redo begins anew in a target with an unfinished copy. Whoever sets it makes sure that no other copy to the target is
	// under way: one that is will fail.
	Redo bool
	// Visit, if set, is called with each part of the source once it is in the target, and with the checkpoint before that. If
	// it returns an error, Copy stops and returns that error.
	Visit func(Part) error
}

// Copy copies a ledger from a log to an empty one: the newest checkpoint of the source, and the entries after it, under indices
// of the target. It verifies what it reads, and in the end what it has written. It returns what it has found in the source.
// What ledgers commit to the source meanwhile may be missing from the copy; so close them first. Nobody may open a ledger in the
// target before Copy has returned.
//
// The error is [ErrNotEmpty] if the target has anything in it, [ErrUnfinished] if that is an unfinished copy and Redo is not set,
// and that of [Inspect] on either log. After any error the target is empty or has an unfinished copy, which no ledger opens and
// which can be redone; only if the last step has had no answer it may be a whole copy.
func Copy(ctx context.Context, from, to Log, o CopyOptions) (Found, error) {
	c := copying{to: to, redo: o.Redo}
	found, err := Inspect(ctx, from, func(p Part) error {
		err := c.part(ctx, &p)
		if err == nil && o.Visit != nil {
			err = o.Visit(p)
		}
		return err
	})
	if err == nil {
		err = c.finish(ctx)
	}
	if err == nil {
		err = sameState(ctx, found.State, to)
	}
	if err != nil {
		return Found{}, err
	}
	return found, nil
}

// copying is a copy under way.
type copying struct {
	to   Log
	redo bool
	// state is the state of the checkpoint, which is stored last, at the index base.
	state *orbit.State
	base  Index
	// tail is the index of the newest entry of the target.
	tail Index
}

// part copies a part.
func (c *copying) part(ctx context.Context, p *Part) error {
	if p.State == nil {
		return c.append(ctx, p.Data)
	}
	if err := c.claim(ctx); err != nil {
		return err
	}
	c.state = p.State
	err := c.filler(ctx)
	c.base = c.tail
	return err
}

// claim makes the target one with an unfinished copy, so that no ledger and no other copy uses it.
func (c *copying) claim(ctx context.Context) error {
	isNew, err := c.look(ctx)
	if err == nil && !isNew {
		err = c.filler(ctx)
	}
	if err == nil {
		err = c.save(ctx, c.tail, func(w io.Writer) error {
			_, err := w.Write([]byte{unfinished})
			return err
		})
	}
	return err
}

// look reports whether the target is empty. The error is ErrNotEmpty if nothing may be copied to it.
func (c *copying) look(ctx context.Context) (isNew bool, err error) {
	err = insist(ctx, func() (err error) {
		if c.tail, err = c.to.Tail(ctx); err == nil {
			_, _, err = readCheckpoint(ctx, c.to)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrNoCheckpoint) && c.tail == 0:
		return true, nil
	case errors.Is(err, ErrUnfinished) && c.redo:
		return false, nil
	case err == nil, errors.Is(err, ErrNoCheckpoint), errors.Is(err, ErrCorrupt), errors.Is(err, ErrVersion):
		return false, ErrNotEmpty
	}
	return false, err
}

// filler appends an entry without changes. A checkpoint includes it, so it is not read again.
func (c *copying) filler(ctx context.Context) error {
	data, err := encodeEntry(&Entry{Writer: newWriterID()}, 0)
	if err != nil {
		return err
	}
	return c.append(ctx, data)
}

// append appends an entry.
func (c *copying) append(ctx context.Context, data []byte) error {
	err := insist(ctx, func() error {
		_, err := c.to.Append(ctx, Append{Index: c.tail + 1, Data: data})
		return err
	})
	if err == nil {
		c.tail++
	}
	return c.taken(err)
}

// save stores a checkpoint.
func (c *copying) save(ctx context.Context, at Index, write func(io.Writer) error) error {
	return c.taken(insist(ctx, func() error { return c.to.SaveCheckpoint(ctx, at, write) }))
}

// taken returns the error of a write to the target.
func (c *copying) taken(err error) error {
	if errors.Is(err, ErrTaken) {
		return fmt.Errorf("logledger: another process writes to the target of the copy: %w", err)
	}
	return err
}

// finish makes the target a ledger, and removes what is before it.
func (c *copying) finish(ctx context.Context) error {
	err := c.save(ctx, c.base, func(w io.Writer) error { return WriteCheckpoint(w, c.state) })
	if err == nil {
		err = insist(ctx, func() error { return c.to.Trim(ctx, c.base) })
	}
	return err
}

// sameState returns an error unless a log has a state.
func sameState(ctx context.Context, want *orbit.State, log Log) error {
	found, err := Inspect(ctx, log, nil)
	if err != nil {
		return fmt.Errorf("logledger: the copy, when it is read back: %w", err)
	}
	a, b := sha256.New(), sha256.New()
	if err := errors.Join(want.Dump(a), found.State.Dump(b)); err != nil {
		return err
	}
	if string(a.Sum(nil)) != string(b.Sum(nil)) {
		return fmt.Errorf("%w: the copy has another state when it is read back: revision %d, that of the source has %d", ErrCorrupt, found.State.Revision(), want.Revision())
	}
	return nil
}
