package claim

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors of the package, for errors.Is. Each of them comes in an [*Error], for errors.As. The errors that a source
// returns are described at [Source].
var (
	// ErrFull means that the pool holds Pool.Queue requests already. Try another pool, or try again later.
	ErrFull = errors.New("queue full")
	// ErrShutdown means that the pool has been shut down, or its Run has ended.
	ErrShutdown = errors.New("pool shut down")
	// ErrEnded means that the request's context ended, or its deadline passed, before it had a slot. The error also wraps
	// context.Canceled or context.DeadlineExceeded.
	ErrEnded = errors.New("request ended")
	// ErrUnmatched means that the request ended before there was an idle slot that matches its Want. The error also wraps
	// ErrEnded. Its text ends with the labels that are wanted.
	ErrUnmatched = errors.New("no idle slot has")
	// ErrTimeout means that the source has not answered within Pool.Timeout whether the slot was claimed.
	ErrTimeout = errors.New("claim timed out")
	// ErrSource means that the source failed, panicked or exited its goroutine. The error also wraps the source's own.
	ErrSource = errors.New("source failed")
	// ErrHook means that ScaleUp or OnStatus failed, or panicked, or exited its goroutine.
	ErrHook = errors.New("hook failed")
	// ErrLeak means that a slot may be claimed although no caller has it, and could not be given back. Look it up in the
	// source, and return it there.
	ErrLeak = errors.New("slot not given back")
	// ErrRan means that Run was called a second time. Make another pool.
	ErrRan = errors.New("pool has been run already")
)

// Error is the failure of a request or of a pool's own work.
type Error struct {
	// Kind is one of the errors above, such as ErrFull.
	Kind error
	// Pool is the pool's name.
	Pool string
	// Slot is the slot that the error is about; zero: none.
	Slot Slot
	// Waited is how long the request had waited, Conflicts how many of its claims were conflicts.
	Waited    time.Duration
	Conflicts int
	// Cause is the underlying error; nil: there is none.
	Cause error
}

// Error returns a text with the pool, the kind, the slot, the waiting time and the cause.
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

// Unwrap returns Kind and Cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// unmatched is the cause of an [Error] whose request ended without a matching slot. It formats its text on demand and
// not under the pool's lock, because the text of the inner cause comes from the importer's code.
type unmatched struct {
	want  string
	cause error
}

func (u *unmatched) Error() string   { return fmt.Sprintf("%v %s: %v", ErrUnmatched, u.want, u.cause) }
func (u *unmatched) Unwrap() []error { return []error{ErrUnmatched, u.cause} }
