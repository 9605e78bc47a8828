package etcdledger

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orbitsched/orbit"
)

// The errors of a [Ledger] beyond those of [orbit.Ledger], for errors.Is.
var (
	// ErrCorrupt means that a record cannot be decoded or contradicts other records. The error is a [*CorruptError]. In the
	// answer of a call it also wraps [orbit.ErrUnavailable], because nothing was sent.
	ErrCorrupt = errors.New("corrupt record")
	// ErrClosed means that the ledger has been closed.
	ErrClosed = errors.New("ledger closed")
	// ErrMismatch means that the ledger below this prefix has other limits or dimensions than the Options.
	ErrMismatch = errors.New("the ledger has been made differently")
)

// CorruptError says which record is damaged.
type CorruptError struct {
	// Key is the record's key in etcd, or the ledger's prefix if the error concerns several records.
	Key string
	// Why says what is wrong with the record.
	Why string
}

// corrupt returns the error for a damaged record.
func (k keys) corrupt(r ref, why string) *CorruptError { return &CorruptError{Key: k.of(r), Why: why} }

// Error says what is wrong and what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("etcdledger: %v: key %q: %s; put the right value back, or see Repair", ErrCorrupt, e.Key, e.Why)
}

// Unwrap makes errors.Is find the sentinel.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// unavailable returns the error of a proposal that was not sent.
func unavailable(why error) error {
	return fmt.Errorf("etcdledger: %w, nothing was sent: %w", orbit.ErrUnavailable, why)
}

// unreachable returns the error of a read that failed.
func unreachable(why error) error {
	return fmt.Errorf("etcdledger: %w: %w", orbit.ErrUnavailable, why)
}

// unknown returns the error of a proposal that was sent and not answered.
func unknown(why error) error {
	return fmt.Errorf("etcdledger: %w: send the same proposal again: %w", orbit.ErrUnknown, why)
}

// errWatch means that the watch has not delivered a revision that etcd is known to have.
var errWatch = errors.New("the watch is behind")

// refused are the errors with which etcd refuses a transaction for good: nothing was applied, and sending it again
// would give the same error.
var refused = []error{
	rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge, rpctypes.ErrNoSpace,
	rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
	rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrEmptyKey,
}

// isRefused reports whether etcd has refused a transaction for good.
func isRefused(err error) bool {
	for _, no := range refused {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// isTooMuch reports whether etcd or the client has refused a transaction for its size, because the server accepts less than
// Options say. Nothing was applied, and a smaller transaction may be accepted.
func isTooMuch(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		strings.Contains(err.Error(), "message larger than max") // gRPC has no error value for it, only this text
}
