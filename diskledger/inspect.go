package diskledger

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
)

// Entry is a part of a folder that [Inspect] has read: a file, or one group of changes in a log.
type Entry struct {
	// File is the path of the file.
	File string
	// Offset is where a group begins, in bytes; 0 for a file.
	Offset int64
	// Checkpoint says that the file is a checkpoint; others are logs.
	Checkpoint bool
	// Bytes is the size of a file; 0 for a group.
	Bytes int64
	// Revision is the revision of the state in a checkpoint, or of the state that a log continues; 0 for a group.
	Revision orbit.Revision
	// Changes are the changes of a group; nil for a file. They must not be modified.
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
// if it is not nil, is called with each file and each group in order; if it returns an error, Inspect stops and returns
// that error. A nil fs means [vfs.Default]. The other errors are those of [Open]; entries that were visited before an
// error are valid. The error is orbit.ErrInvalid if the folder has no ledger.
func Inspect(fs vfs.FS, dir string, visit func(Entry) error) (found Found, err error) {
	if fs == nil {
		fs = vfs.Default
	}
	f, err := openFolder(fs, dir, false)
	if err != nil {
		return Found{}, err
	}
	defer func() { err = errors.Join(err, f.unlock()) }()
	r := recovery{folder: f, visit: visit}
	if err := r.read(); err != nil {
		return Found{}, err
	}
	if r.state == nil {
		return Found{}, fmt.Errorf("diskledger: %w: there is no ledger in %s", orbit.ErrInvalid, f.dir)
	}
	if err := r.state.Verify(); err != nil {
		return Found{}, &CorruptError{File: f.dir, Why: err.Error(), cause: err}
	}
	return Found{State: r.state, Changes: r.changes, Cut: r.cut}, nil
}
