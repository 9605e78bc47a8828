package diskledger

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/orbitsched/orbit"
)

// The errors of this package, to be tested with errors.Is.
var (
	// ErrClosed means that the ledger has been closed. It comes together with orbit.ErrUnavailable or, for a proposal that
	// was judged and whose group was not written, with orbit.ErrUnknown.
	ErrClosed = errors.New("the ledger is closed")
	// ErrLocked means that another process, or another Ledger of this process, has the folder open.
	ErrLocked = errors.New("the folder is in use by another ledger")
	// ErrCorrupt means that a file is damaged or missing. It comes as a [*CorruptError], which names the place.
	ErrCorrupt = errors.New("damaged file")
	// ErrVersion means that a file has a format version that this package does not read.
	ErrVersion = errors.New("unknown format version")
	// ErrMismatch means that the ledger was made with other limits or dimensions than Options ask for.
	ErrMismatch = errors.New("made with other settings")
	// ErrFull means that the disk, or the quota on it, is full. It comes as a [*DiskError].
	ErrFull = errors.New("the disk is full")
	// ErrReadOnly means that the disk is mounted for reading only. It comes as a [*DiskError].
	ErrReadOnly = errors.New("the disk is read-only")
	// ErrSync means that the disk did not confirm a sync. It is then unknown which of the data the operating system has
	// kept, so a sync is never repeated. It comes as a [*DiskError].
	ErrSync = errors.New("the disk did not confirm a sync")
)

// DiskError is an operation on a file that failed. It wraps the operating system's error. errors.Is also finds ErrFull,
// ErrReadOnly or ErrSync in it if that was the cause.
type DiskError struct {
	// Op is the operation: "create", "write", "sync", "rename", "read", "open", "close", "list", "remove", "lock" or "mkdir".
	Op string
	// File is the path of the file or folder.
	File string
	// Err is the error of the operating system.
	Err error
}

// Error says which operation failed on which file, and why.
func (e *DiskError) Error() string {
	return fmt.Sprintf("diskledger: %s %s: %v", e.Op, e.File, e.Err)
}

// Unwrap returns the operating system's error.
func (e *DiskError) Unwrap() error { return e.Err }

// Is reports whether target is ErrFull, ErrReadOnly or ErrSync and names the cause of this error.
func (e *DiskError) Is(target error) bool {
	switch target {
	case ErrFull:
		return errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT)
	case ErrReadOnly:
		return errors.Is(e.Err, syscall.EROFS)
	case ErrSync:
		return e.Op == "sync"
	}
	return false
}

// CorruptError says where a file is damaged. It is ErrCorrupt for errors.Is.
type CorruptError struct {
	// File is the path of the file.
	File string
	// Offset is where the damaged record begins, in bytes from the beginning of the file.
	Offset int64
	// Why says what is wrong there.
	Why string
	// cause is the error that says what is wrong, if there is one.
	cause error
}

// Error names the place, what is wrong there, and what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("diskledger: %v: %s at byte %d: %s; restore the folder from a copy", ErrCorrupt, e.File, e.Offset, e.Why)
}

// Unwrap returns ErrCorrupt and, if there is one, the error behind it.
func (e *CorruptError) Unwrap() []error {
	if e.cause == nil {
		return []error{ErrCorrupt}
	}
	return []error{ErrCorrupt, e.cause}
}

// diskError returns err as a [*DiskError]; nil for nil.
func diskError(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &DiskError{Op: op, File: file, Err: err}
}

// unavailable returns the error of a proposal that was not committed, and of a read that failed.
func unavailable(why error) error {
	return fmt.Errorf("diskledger: %w, nothing was committed: %w", orbit.ErrUnavailable, why)
}

// unknown returns the error of a proposal that may or may not be on the disk.
func unknown(why error) error {
	return fmt.Errorf("diskledger: %w, send the same proposal again: %w", orbit.ErrUnknown, why)
}
