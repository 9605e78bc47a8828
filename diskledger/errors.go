package diskledger

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// The errors of this package, to be tested with errors.Is. Others are those of package logledger.
var (
	// ErrLocked means that another process, or another Ledger of this process, has the folder open.
	ErrLocked = errors.New("the folder is in use by another ledger")
	// ErrFull means that the disk, or the quota on it, is full. It comes as a [*DiskError].
	ErrFull = errors.New("the disk is full")
	// ErrReadOnly means that the disk is mounted for reading only. It comes as a [*DiskError].
	ErrReadOnly = errors.New("the disk is read-only")
	// ErrSync means that the disk did not confirm a sync. It is then unknown which of the data the operating system has
	// kept, so a sync is never repeated. It comes as a [*DiskError].
	ErrSync = errors.New("the disk did not confirm a sync")
	// ErrNoLog: there is no log in the folder, or no folder, and LogOptions.Existing or LogOptions.ReadOnly is set.
	ErrNoLog = errors.New("diskledger: there is no log in this folder")
)

// errReadOnly is why a log refuses to write that was opened to be read.
var errReadOnly = errors.New("diskledger: the log was opened with LogOptions.ReadOnly")

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

// Error says which operation failed on which file, and why. It leaves out what the operating system's error repeats of that.
func (e *DiskError) Error() string {
	why := e.Err
	if path := (*fs.PathError)(nil); errors.As(e.Err, &path) && path.Path == e.File {
		why = path.Err
	}
	return fmt.Sprintf("diskledger: %s %s: %v", e.Op, e.File, why)
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

// corrupt returns an error that says what is wrong in a file; a negative offset means all of it.
func corrupt(path string, offset int64, why string) error {
	return &logledger.CorruptError{Place: logledger.Place{Name: path, Offset: offset}, Err: errors.New(why)}
}

// placed returns an error of reading a record with the place of the record: as a [*logledger.CorruptError], unless a newer version has
// written it.
func placed(file string, at int64, err error) error {
	if errors.Is(err, logledger.ErrVersion) {
		return fmt.Errorf("diskledger: %s at byte %d: %w", file, at, err)
	}
	return &logledger.CorruptError{Place: logledger.Place{Name: file, Offset: at}, Err: err}
}

// diskError returns err as a [*DiskError]; nil for nil.
func diskError(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &DiskError{Op: op, File: file, Err: err}
}

// isFullWrite reports whether a file could not be made or extended because the disk is full. Nothing that was synced before
// is in doubt then.
func isFullWrite(err error) bool {
	var disk *DiskError
	return errors.As(err, &disk) && (disk.Op == "write" || disk.Op == "create") && errors.Is(disk, ErrFull)
}

// unavailable returns an error as one after which nothing was done.
func unavailable(why error) error {
	return fmt.Errorf("diskledger: %w: %w", orbit.ErrUnavailable, why)
}

// failed returns an error as one after which nothing can be done any more until the folder is opened again.
func failed(why error) error { return fmt.Errorf("%w: %w", logledger.ErrFailed, why) }
