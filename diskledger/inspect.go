package diskledger

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// background is the context of calls that neither wait nor have to end early.
var background = context.Background()

// Entry is a part of a folder that [Inspect] has read: a file, or one entry of a log, which is a group of commits.
type Entry struct {
	// File is the path of the file.
	File string
	// Offset is where an entry begins, in bytes; 0 for a file.
	Offset int64
	// Checkpoint says that the file is a checkpoint; others are logs.
	Checkpoint bool
	// Bytes is the size of a file; 0 for an entry.
	Bytes int64
	// Index is the index of an entry, of the last entry that a checkpoint includes, or of the entry before a log.
	Index logledger.Index
	// Changes are the changes of an entry; nil for a file. They must not be modified.
	Changes []orbit.Change
}

// Found is what [Inspect] has found in a folder.
type Found struct {
	// State is the state after the last change, which passes [orbit.State.Verify].
	State *orbit.State
	// Changes is how many changes the logs have after the checkpoint.
	Changes int64
	// Cut is how many bytes at the end of the last log belong to an unfinished write.
	Cut int64
}

// Inspect reads the folder of a ledger that no process has open, and changes nothing in it except its lock file. Visit,
// if it is not nil, is called with each file and each entry in order; if it returns an error, Inspect stops and returns
// that error. A nil fs means [vfs.Default]. The other errors are those of [Open]; entries that were visited before an
// error are valid. The error is orbit.ErrInvalid if the folder has no ledger.
func Inspect(fs vfs.FS, dir string, visit func(Entry) error) (found Found, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	if visit == nil {
		visit = ignore
	}
	f, err := openFolder(fs, dir, false)
	if err != nil {
		return Found{}, err
	}
	defer func() { err = errors.Join(err, f.unlock()) }()
	l, err := loadLog(f, false)
	if err != nil {
		return Found{}, err
	}
	return l.inspect(visit)
}

// ignore visits an entry, and does nothing with it.
func ignore(Entry) error { return nil }
