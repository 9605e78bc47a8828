package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// What can be wrong with a lease; to be tested with errors.Is. The error is an [*Error], to be read with errors.As.
var (
	// ErrHeld: another holder's term is live. Wait until Error.Until, and try again.
	ErrHeld = errors.New("lease is held")
	// ErrExpired: the term is over, or is not the current one. It will never live again: acquire a new one.
	ErrExpired = errors.New("lease term is over")
	// ErrUnheard: the term is newer than what this process has read of the ledger. Try again after the next Step.
	ErrUnheard = errors.New("lease term not known here yet")
	// ErrCorrupt: the row of the lease cannot be read, so nobody holds it and nobody can acquire it. Delete the
	// mark.
	ErrCorrupt = errors.New("lease row is corrupt")
	// ErrTooMany: too many terms of the lease began in too short a time. Wait until Error.Until, and try again.
	ErrTooMany = errors.New("lease has begun too many terms")
)

// Error says what is wrong with a lease.
type Error struct {
	Kind error // ErrHeld, ErrExpired, ErrUnheard, ErrCorrupt, ErrTooMany or orbit.ErrInvalid
	// Whose: the term asked for or refreshed; its epoch is 0 if there is none.
	Term Term
	// Held: by whom, and until when if it is not refreshed.
	Held  Term
	Until time.Time
	// What else there is to say.
	Reason string
}

// Error says what failed, and what to do.
func (e *Error) Error() string {
	switch {
	case errors.Is(e.Kind, ErrHeld):
		return fmt.Sprintf("%v: %q by %q under term %d, until %v if it is not refreshed; try again then",
			e.Kind, e.Held.Name, e.Held.Holder, e.Held.Epoch, e.Until)
	case errors.Is(e.Kind, ErrExpired):
		return fmt.Sprintf("%v: %q, term %d: %s; acquire a new term", e.Kind, e.Term.Name, e.Term.Epoch, e.Reason)
	case errors.Is(e.Kind, ErrUnheard):
		return fmt.Sprintf("%v: %q, term %d; try again after the next Step", e.Kind, e.Term.Name, e.Term.Epoch)
	case errors.Is(e.Kind, ErrTooMany):
		return fmt.Sprintf("%v: %q; wait until %v, or allow more with Keeper.Terms", e.Kind, e.Term.Name, e.Until)
	}
	return fmt.Sprintf("lease %q: %v: %s", e.Term.Name, e.Kind, e.Reason)
}

// Unwrap makes errors.Is find the kind.
func (e *Error) Unwrap() error { return e.Kind }

// badLease refuses what cannot be a lease.
func badLease(name, holder string) error {
	if name == "" || holder == "" {
		return &Error{Kind: orbit.ErrInvalid, Term: Term{Name: name, Holder: holder}, Reason: "a lease needs a name and a holder"}
	}
	return nil
}
