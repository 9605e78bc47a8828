package diskledger

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Ledger is the type of a ledger in a folder.
type Ledger = logledger.Ledger

// Options are the settings of a [Ledger]. The zero value has the defaults of all fields.
type Options struct {
	// Bounds are the limits of a new ledger; zero fields have the defaults of orbit.Limits. A ledger that exists keeps the
	// limits that it was made with, and fields that are not zero and differ are refused with logledger.ErrMismatch.
	Bounds orbit.Limits
	// Dimensions are the names of the resource dimensions in diagnoses of a new ledger; empty ones have a default. Names that
	// are not empty and differ from those of an existing ledger are refused with logledger.ErrMismatch.
	Dimensions [orbit.Dimensions]string
	// CheckpointEvery is how many changes are appended between two checkpoints; default 262,144. If the state has more
	// capsules, their number counts instead. A smaller number makes opening faster, and writes more.
	CheckpointEvery int
	// FS is the file system; default [vfs.Default], the operating system's. Tests set a file system that fails or loses
	// writes.
	FS vfs.FS
	// OnError, if set, is called with the errors of the background: a checkpoint that failed, an entry that could not be
	// written. Calls do not overlap. It must not block or call the ledger. Nil: the errors are written to slog.Default(), at
	// most ten at once and one more every 10 s.
	OnError func(error)
}

// LogOptions are the settings of a [Log]. The zero value has the defaults of all fields.
type LogOptions struct {
	// FS is that of [Options].
	FS vfs.FS
	// Existing refuses to make a log, with [ErrNoLog].
	Existing bool
	// ReadOnly opens a log that is there, and changes nothing in the folder except its lock file. Writes to the log fail with
	// logledger.ErrFailed.
	ReadOnly bool
}

// Open opens the ledger in a folder. It makes the folder and an empty ledger if there is none. It reads the newest
// checkpoint and the changes that were committed since. One Ledger at a time can have a folder open.
//
// The error is ErrLocked if the folder is open already, in this process or another, a [*logledger.CorruptError] if a file is damaged or missing,
// logledger.ErrVersion if a newer version has written to it, logledger.ErrMismatch or orbit.ErrInvalid for options that do
// not fit, and a [*DiskError] if the disk fails. If a killed process has left an unfinished write, Open cuts it off: the
// proposals in that write were not answered.
//
// While the disk is full, proposals fail with orbit.ErrUnavailable and [ErrFull], and Ledger.Health says so; the ledger goes
// on by itself when there is room. Proposals that were being written when the disk became full get orbit.ErrUnknown. After
// any other failure of the disk the error is logledger.ErrFailed, too: close the ledger, and open it again when the disk
// works. Reads go on in both cases.
func Open(dir string, o Options) (*Ledger, error) {
	log, err := OpenLog(dir, LogOptions{FS: o.FS})
	if err != nil {
		return nil, err
	}
	// Nothing is waited for, because no disk comes back by itself within seconds; and no other process can have committed
	// anything that a snapshot would lack.
	l, err := logledger.Open(context.Background(), log, logledger.Options{
		Bounds: o.Bounds, Dimensions: o.Dimensions, CheckpointEvery: o.CheckpointEvery, OnError: o.OnError, Patience: -1, Local: true})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return l, nil
}
