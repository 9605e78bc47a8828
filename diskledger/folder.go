package diskledger

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
)

// The names of files: number.log and number.checkpoint. Either has .tmp after it until the file is complete.
const (
	lockName      = "LOCK"
	logEnd        = ".log"
	checkpointEnd = ".checkpoint"
	tmpEnd        = ".tmp"
)

// folder is the folder of a ledger, whose lock is held. Its methods return a [*DiskError].
type folder struct {
	fs   vfs.FS
	dir  string
	lock io.Closer
}

// openFolder makes the folder if create is set, and takes its lock. In the operating system's file system it first
// makes the path absolute and resolves links, because locks within one process are told apart by their paths.
func openFolder(fs vfs.FS, dir string, create bool) (*folder, error) {
	if dir == "" {
		return nil, fmt.Errorf("diskledger: %w: the folder's name is empty", orbit.ErrInvalid)
	}
	if create {
		if err := makeFolder(fs, dir); err != nil {
			return nil, err
		}
	} else if _, err := fs.Stat(dir); errors.Is(err, iofs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoLog, dir)
	} else if err != nil {
		return nil, diskError("open", dir, err)
	}
	if vfs.Root(fs) == vfs.Default {
		unique, err := filepath.Abs(dir)
		if err == nil {
			unique, err = filepath.EvalSymlinks(unique)
		}
		if err != nil {
			return nil, diskError("open", dir, err)
		}
		dir = unique
	}
	lock, err := fs.Lock(fs.PathJoin(dir, lockName))
	if err != nil {
		return nil, lockError(dir, err)
	}
	return &folder{fs, dir, lock}, nil
}

// makeFolder makes a folder and all missing parents, and waits until their names are on the disk.
func makeFolder(fs vfs.FS, dir string) error {
	var above []string
	for at := dir; ; at = fs.PathDir(at) {
		if _, err := fs.Stat(at); err == nil || at == fs.PathDir(at) {
			break
		}
		above = append(above, fs.PathDir(at))
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return diskError("mkdir", dir, err)
	}
	for _, parent := range above {
		if err := (&folder{fs: fs, dir: parent}).sync(); err != nil {
			return err
		}
	}
	return nil
}

// lockError returns ErrLocked if the lock is held by another ledger, and a [*DiskError] if the lock file cannot be
// made. File systems have no common error for a lock that is held, so lockError recognizes it by the kind of err.
func lockError(dir string, err error) error {
	var file *iofs.PathError
	var number syscall.Errno
	isTaken := !errors.As(err, &file) && (!errors.As(err, &number) || number == syscall.EAGAIN || number == syscall.EACCES)
	if isTaken {
		return fmt.Errorf("diskledger: %w: %s: %w", ErrLocked, dir, err)
	}
	return diskError("lock", dir, err)
}

// unlock gives the lock back.
func (f *folder) unlock() error { return diskError("close", f.path(lockName), f.lock.Close()) }

// path returns the path of a file.
func (f *folder) path(name string) string { return f.fs.PathJoin(f.dir, name) }

// listing has the files in a folder.
type listing struct {
	// logs and checkpoints are the sets of numbers of the logs and the checkpoints.
	logs, checkpoints map[uint64]bool
	// temporary are the names of files that were not finished.
	temporary []string
}

// list reads which files there are. Files with other names are ignored.
func (f *folder) list() (listing, error) {
	l := listing{logs: map[uint64]bool{}, checkpoints: map[uint64]bool{}}
	names, err := f.fs.List(f.dir)
	if err != nil {
		return l, diskError("list", f.dir, err)
	}
	for _, name := range names {
		if number, ok := numberOf(name, logEnd); ok {
			l.logs[number] = true
		} else if number, ok := numberOf(name, checkpointEnd); ok {
			l.checkpoints[number] = true
		} else if _, ok := numberOf(strings.TrimSuffix(name, tmpEnd), ""); ok && strings.HasSuffix(name, tmpEnd) {
			l.temporary = append(l.temporary, name)
		}
	}
	return l, nil
}

// nameOf returns the name of the file with a number; end is logEnd or checkpointEnd.
func nameOf(number uint64, end string) string { return fmt.Sprintf("%08d%s", number, end) }

// numberOf returns the number in a file's name, which must have that end. If end is empty, both logEnd and
// checkpointEnd are accepted.
func numberOf(name, end string) (uint64, bool) {
	digits, rest, _ := strings.Cut(name, ".")
	number, err := strconv.ParseUint(digits, 10, 64)
	rest = "." + rest
	isEnd := rest == end || end == "" && (rest == logEnd || rest == checkpointEnd)
	return number, err == nil && number > 0 && isEnd && nameOf(number, rest) == name
}

// create makes a file under a temporary name. Publish gives the file its name.
func (f *folder) create(name string) (*appender, error) {
	file, err := f.fs.Create(f.path(name+tmpEnd), "orbit-ledger")
	if err != nil {
		return nil, diskError("create", f.path(name+tmpEnd), err)
	}
	return newAppender(file, f.path(name)), nil
}

// publish gives a temporary file its name and waits until the name is on the disk. The file must have been synced.
// After an error the file may or may not have its name.
func (f *folder) publish(name string) error {
	if err := f.fs.Rename(f.path(name+tmpEnd), f.path(name)); err != nil {
		return diskError("rename", f.path(name), err)
	}
	return f.sync()
}

// sync waits until the names of all files in the folder are on the disk.
func (f *folder) sync() error {
	dir, err := f.fs.OpenDir(f.dir)
	if err != nil {
		return diskError("open", f.dir, err)
	}
	if err := dir.Sync(); err != nil {
		_ = dir.Close()
		return diskError("sync", f.dir, err)
	}
	return diskError("close", f.dir, dir.Close())
}

// remove removes files. It tries all of them and returns the first error.
func (f *folder) remove(names ...string) (first error) {
	for _, name := range names {
		if err := f.fs.Remove(f.path(name)); err != nil && !errors.Is(err, iofs.ErrNotExist) && first == nil {
			first = diskError("remove", f.path(name), err)
		}
	}
	return first
}
