package logledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// Part is a part of a log that [Inspect] has read: its checkpoint, or an entry after that. Nobody may write to it.
type Part struct {
	// Index is that of the entry, or of the last entry that the checkpoint includes.
	Index Index
	// Place is where the part begins in the store.
	Place Place
	// Bytes is how large the part is as it is stored.
	Bytes int64
	// Revision is that of the state after the part.
	Revision orbit.Revision
	// State is the state in the checkpoint; nil: the part is an entry.
	State *orbit.State
	// Data and Entry are the entry, as it is stored and decoded. They are not set for a checkpoint.
	Data  []byte
	Entry Entry
}

// Found is what [Inspect] has found in a log.
type Found struct {
	// State is the state after the newest entry, which passes [orbit.State.Verify].
	State *orbit.State
	// Index is that of the newest entry, Checkpoint that of the newest checkpoint.
	Index, Checkpoint Index
	// Entries and Changes are how many there are after the checkpoint.
	Entries, Changes int64
	// Posts is how many posts wait to be settled by an entry.
	Posts int
}

// Inspect reads a log without changing it: the newest checkpoint, then each entry after it, up to one that was the newest
// during the call. It applies the entries, and verifies the state after them. Visit, if it is not nil, is called with each
// part in order; if it returns an error, Inspect stops and returns that error. While the store cannot be reached, Inspect
// tries again for 10 s.
//
// The error is a [*CorruptError] if something is damaged, [ErrNoCheckpoint] if the log has no ledger, [ErrUnfinished] if a copy
// to it was not finished, [ErrVersion] if a newer version has written to it, [ErrTrimmed] if entries were removed before they
// were read, because ledgers go on (then try again), and orbit.ErrUnavailable. Parts that were visited before are valid.
func Inspect(ctx context.Context, log Log, visit func(Part) error) (found Found, err error) {
	r := reading{log: log, visit: visit}
	if visit == nil {
		r.visit = func(Part) error { return nil }
	}
	if err := r.checkpoint(ctx); err != nil {
		return Found{}, err
	}
	for more := true; more; {
		if more, err = r.page(ctx); err != nil {
			return Found{}, err
		}
	}
	if r.found.State, err = r.judge.Snapshot(ctx); err != nil {
		return Found{}, err
	}
	if err := r.found.State.Verify(); err != nil {
		return Found{}, &CorruptError{Place{fmt.Sprintf("the state after entry %d", r.found.Index), -1}, err}
	}
	return r.found, nil
}

// reading is a log that is being inspected.
type reading struct {
	log   Log
	visit func(Part) error
	judge *orbit.MemoryLedger
	rev   orbit.Revision
	found Found
}

// checkpoint reads the newest checkpoint.
func (r *reading) checkpoint(ctx context.Context) error {
	var at *position
	var there stored
	err := insist(ctx, func() (err error) {
		at, there, err = readCheckpoint(ctx, r.log)
		return err
	})
	if err != nil {
		return err
	}
	r.found.Index, r.found.Checkpoint, r.rev = at.index, at.index, at.state.Revision()
	r.judge = &orbit.MemoryLedger{Start: at.state}
	return r.visit(Part{Index: at.index, Place: Place{there.place.Name, -1}, Bytes: there.bytes, Revision: r.rev, State: at.state})
}

// page reads the next entries, and reports whether there are more.
func (r *reading) page(ctx context.Context) (more bool, err error) {
	var page Page
	err = insist(ctx, func() (err error) {
		page, err = r.log.Read(ctx, r.found.Index)
		return err
	})
	if errors.Is(err, ErrTrimmed) {
		return false, r.missing(ctx)
	}
	for i := 0; err == nil && i < len(page.Entries); i++ {
		err = r.entry(page.Entries[i])
	}
	r.found.Posts = len(page.Posts)
	return page.More, err
}

// missing returns the error for an entry that is not there. If a newer checkpoint includes it, the log is sound.
func (r *reading) missing(ctx context.Context) error {
	at, in, err := r.log.Checkpoint(ctx)
	if err != nil {
		return err
	}
	_ = in.Close() // nothing was read from it
	if at > r.found.Index {
		return fmt.Errorf("entry %d: %w; try again", r.found.Index+1, ErrTrimmed)
	}
	return &CorruptError{Place{fmt.Sprintf("entry %d", r.found.Index+1), -1}, errors.New("it is missing")}
}

// entry applies an entry.
func (r *reading) entry(data []byte) error {
	at := r.found.Index + 1
	e, err := DecodeEntry(data)
	if err == nil {
		r.rev, err = e.Continue(r.rev)
	}
	if err == nil {
		if err = r.judge.Apply(e.Changes); err != nil {
			err = fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	if err != nil {
		return placed(r.log, at, err)
	}
	r.found.Index = at
	r.found.Entries++
	r.found.Changes += int64(len(e.Changes))
	part := Part{Index: at, Place: Place{Offset: -1}, Bytes: int64(len(data)), Revision: r.rev, Data: data, Entry: e}
	if p, ok := r.log.(Placer); ok {
		part.Place = p.Place(at)
	}
	return r.visit(part)
}

// insist calls f again and again while the store cannot be reached, for 10 s at most, and returns its last error.
func insist(ctx context.Context, f func() error) (err error) {
	o := Options{Patience: 10 * time.Second}
	_ = o.patiently(ctx, func() error {
		if err = f(); errors.Is(err, orbit.ErrUnavailable) {
			return err
		}
		return nil
	})
	return err
}
