package lease

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// The errors of the package, for errors.Is. Each of them comes in an [*Error], for errors.As.
var (
	// ErrHeld means that another holder's term is live. Wait until Error.Until, and try again.
	ErrHeld = errors.New("lease is held")
	// ErrRunning means that the term of another run of the same holder is live and was refreshed lately; see
	// [Keeper.Acquire]. If that run has died, Error.Until is when this one can have the lease. If the error occurs again
	// after that time, the other run is alive, and one of the two is one too many.
	ErrRunning = errors.New("lease is held by another run of the holder")
	// ErrExpired means that the term is over, or is not the current one. It never becomes live again: acquire a new one.
	ErrExpired = errors.New("lease term is over")
	// ErrUnheard means that the term is newer than what this process has read of the ledger, or that other processes do
	// not know yet that it was refreshed. Try again after the next Step.
	ErrUnheard = errors.New("lease term not known here yet")
	// ErrCorrupt means that the row of the lease cannot be parsed, so that it is not held and cannot be acquired.
	// Delete the mark.
	ErrCorrupt = errors.New("lease row is corrupt")
	// ErrTooMany means that too many terms of the lease began in too short a time. Wait until Error.Until, and try again.
	ErrTooMany = errors.New("lease has begun too many terms")
)

// Error says what is wrong with a lease.
type Error struct {
	// Kind is ErrHeld, ErrRunning, ErrExpired, ErrUnheard, ErrCorrupt, ErrTooMany or orbit.ErrInvalid.
	Kind error
	// Term is the term that was asked for or refreshed; its Epoch is 0 if the caller named none.
	Term Term
	// Held is the term of the current holder.
	Held Term
	// Until is when Term.Holder can have the lease: for ErrHeld and ErrRunning if the term in Held is not refreshed.
	Until time.Time
	// Reason is a further explanation; it may be empty.
	Reason string
}

// Error says what failed, and what to do.
func (e *Error) Error() string {
	switch {
	case errors.Is(e.Kind, ErrHeld) && e.Reason != "":
		return fmt.Sprintf("%v: %q by %q under term %d: %s; try again at %v", e.Kind, e.Held.Name, e.Held.Holder, e.Held.Epoch, e.Reason, e.Until)
	case errors.Is(e.Kind, ErrHeld), errors.Is(e.Kind, ErrRunning):
		return fmt.Sprintf("%v: %q by %q under term %d, until %v if it is not refreshed; try again then",
			e.Kind, e.Held.Name, e.Held.Holder, e.Held.Epoch, e.Until)
	case errors.Is(e.Kind, ErrExpired):
		return fmt.Sprintf("%v: %q, term %d: %s; acquire a new term", e.Kind, e.Term.Name, e.Term.Epoch, e.Reason)
	case errors.Is(e.Kind, ErrUnheard):
		why := cmp.Or(e.Reason, "it is newer than what this process has read of the ledger")
		return fmt.Sprintf("%v: %q, term %d: %s; try again after the next Step", e.Kind, e.Term.Name, e.Term.Epoch, why)
	case errors.Is(e.Kind, ErrTooMany):
		return fmt.Sprintf("%v: %q; wait until %v, or allow more with Keeper.Terms", e.Kind, e.Term.Name, e.Until)
	}
	return fmt.Sprintf("lease %q: %v: %s", e.Term.Name, e.Kind, e.Reason)
}

// Unwrap returns Kind.
func (e *Error) Unwrap() error { return e.Kind }

// badLease returns an error if the name or the holder is not valid.
func badLease(name, holder string) error {
	if name == "" || holder == "" {
		return &Error{Kind: orbit.ErrInvalid, Term: Term{Name: name, Holder: holder}, Reason: "a lease needs a name and a holder"}
	}
	return nil
}
