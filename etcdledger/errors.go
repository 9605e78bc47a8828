package etcdledger

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orbitsched/orbit"
)

// Errors of a [Ledger] beyond those of [orbit.Ledger], to be tested with errors.Is.
var (
	// ErrCorrupt: a record cannot be decoded, or does not fit the others. It comes as a [*CorruptError]. As an
	// answer it is [orbit.ErrUnavailable] too: nothing was sent.
	ErrCorrupt = errors.New("corrupt record")
	// ErrClosed: the ledger has been closed.
	ErrClosed = errors.New("ledger closed")
	// ErrMismatch: the ledger below this prefix has other limits or dimensions than were asked for.
	ErrMismatch = errors.New("the ledger has been made differently")
)

// CorruptError says which record is damaged.
type CorruptError struct {
	// The key in etcd; the ledger's prefix if it is about several records.
	Key string
	// What is wrong with it.
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

// unavailable says that nothing was sent.
func unavailable(why error) error {
	return fmt.Errorf("etcdledger: %w, nothing was sent: %w", orbit.ErrUnavailable, why)
}

// unreachable says that nothing can be read.
func unreachable(why error) error {
	return fmt.Errorf("etcdledger: %w: %w", orbit.ErrUnavailable, why)
}

// unknown says that something was sent and no answer came.
func unknown(why error) error {
	return fmt.Errorf("etcdledger: %w: send the same proposal again: %w", orbit.ErrUnknown, why)
}

// errWatch: what is known to be there does not come.
var errWatch = errors.New("the watch is behind")

// refused are the answers of etcd after which nothing was applied, and the same would be answered again.
var refused = []error{
	rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey, rpctypes.ErrRequestTooLarge, rpctypes.ErrNoSpace,
	rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthToken,
	rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrEmptyKey,
}

// isRefused reports whether etcd has said no for good.
func isRefused(err error) bool {
	for _, no := range refused {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// isTooMuch reports whether etcd, or the client's own limit on what it sends, has refused a transaction for its
// size: the server takes less than Options say. Nothing was applied, and parts of it may be taken.
func isTooMuch(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		strings.Contains(err.Error(), "message larger than max") // gRPC has only this text for it
}
