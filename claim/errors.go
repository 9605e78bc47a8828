package claim

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What can become of a request or of a pool, to be tested with errors.Is. All come as an [*Error], to be read
// with errors.As. A source says of a claim: [orbit.ErrConflict] or [orbit.ErrUnknown], or anything else.
var (
	// ErrFull: the pool holds as many requests as it may. Try another pool, or later.
	ErrFull = errors.New("queue full")
	// ErrShutdown: the pool has been shut down, or its Run has ended.
	ErrShutdown = errors.New("pool shut down")
	// ErrEnded: the request's context ended, or its deadline passed, before it had a slot. What ended it is
	// found too: context.Canceled, or context.DeadlineExceeded.
	ErrEnded = errors.New("request ended")
	// ErrUnmatched: the request has ended before any idle slot had what it wants. ErrEnded is found too.
	ErrUnmatched = errors.New("no idle slot has")
	// ErrTimeout: the source has not said within Pool.Timeout whether the slot was claimed.
	ErrTimeout = errors.New("claim timed out")
	// ErrSource: the source failed, or panicked, or exited its goroutine. Its own error is found too.
	ErrSource = errors.New("source failed")
	// ErrHook: ScaleUp or OnStatus failed, or panicked, or exited its goroutine.
	ErrHook = errors.New("hook failed")
	// ErrLeak: a slot that may be claimed, and that no caller has, could not be given back.
	ErrLeak = errors.New("slot not given back")
	// ErrRan: Run was called a second time. Make another pool.
	ErrRan = errors.New("pool has been run already")
)

// Error says what became of a request, or what a pool could not do.
type Error struct {
	// One of the sentinels of this package.
	Kind error
	// The pool's name.
	Pool string
	// The slot that it was about; zero: none.
	Slot Slot
	// How long the request had waited, and how many conflicts it had met.
	Waited    time.Duration
	Conflicts int
	// What is behind it; nil: nothing.
	Cause error
}

// Error says what failed, and after what.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("claim: ")
	if e.Pool != "" {
		fmt.Fprintf(&b, "pool %q: ", e.Pool)
	}
	b.WriteString(e.Kind.Error())
	if e.Slot.Name != "" {
		fmt.Fprintf(&b, ": slot %q (uid %s)", e.Slot.Name, e.Slot.UID)
	}
	if e.Waited > 0 {
		fmt.Fprintf(&b, " after %v and %d conflicts", e.Waited, e.Conflicts)
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap makes errors.Is and errors.As find the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// unmatched is the cause of an [Error] whose request has met no slot that it wants. Its text is made when it is asked
// for, because the text of the cause is the importer's code.
type unmatched struct {
	want  string
	cause error
}

func (u *unmatched) Error() string   { return fmt.Sprintf("%v %s: %v", ErrUnmatched, u.want, u.cause) }
func (u *unmatched) Unwrap() []error { return []error{ErrUnmatched, u.cause} }
