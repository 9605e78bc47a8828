package diskledger

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// Options are the settings of a [Ledger]. The zero value has the defaults of all fields.
type Options struct {
	// Bounds are the limits of a new ledger; zero fields have the defaults of orbit.Limits. A ledger that exists keeps the
	// limits that it was made with, and fields that are not zero and differ are refused with ErrMismatch. History must be at
	// least Commitments.
	Bounds orbit.Limits
	// Dimensions are the names of the resource dimensions in diagnoses of a new ledger; empty ones have a default. Names that
	// are not empty and differ from those of an existing ledger are refused with ErrMismatch.
	Dimensions [orbit.Dimensions]string
	// CheckpointBytes is how many bytes are appended to the log between two checkpoints; default 32 MiB. If the last
	// checkpoint is larger, its size counts instead. A smaller number makes opening faster, and makes the ledger write
	// more.
	CheckpointBytes int64
	// FS is the file system; default [vfs.Default], the operating system's. Tests set a file system that fails or loses
	// writes.
	FS vfs.FS
	// OnError, if set, is called with the errors of checkpoints in the background. After such an error the ledger goes
	// on with its log, and makes the next checkpoint later. The call comes from the goroutine that writes, so it must
	// not block or call the ledger. Nil: they are written to slog.Default(), at most ten at once and one more every 10
	// s.
	OnError func(error)

	// logs is how many logs there may be since a checkpoint before the next one is made; default 16. Each Open begins a log.
	logs uint64
}

// withDefaults returns a copy with the defaults filled in.
func (o Options) withDefaults() Options {
	o.CheckpointBytes = cmp.Or(max(o.CheckpointBytes, 0), 32<<20)
	o.logs = cmp.Or(o.logs, 16)
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.OnError == nil {
		var log rate.Log
		o.OnError = func(err error) { log.Error(context.Background(), "orbit: error of a ledger on disk", err) }
	}
	return o
}

// empty returns the state of a new ledger.
func (o *Options) empty() (*orbit.State, error) {
	bounds := o.Bounds
	filled := (&orbit.MemoryLedger{Bounds: bounds}).Limits()
	if bounds.Commitments <= 0 && filled.Commitments > filled.History {
		bounds.Commitments = filled.History
		filled = (&orbit.MemoryLedger{Bounds: bounds}).Limits()
	}
	if filled.Commitments > filled.History {
		return nil, fmt.Errorf("diskledger: %w: Bounds.History is %d, less than the %d commitments that one proposal may have; raise it",
			orbit.ErrInvalid, filled.History, filled.Commitments)
	}
	return (&orbit.MemoryLedger{Bounds: filled, Dimensions: o.Dimensions}).Snapshot(background)
}

// agrees returns an error if a setting that is not zero differs from that of an existing ledger.
func (o *Options) agrees(s *orbit.State) error {
	asked, there := reflect.ValueOf(o.Bounds), reflect.ValueOf(s.Limits())
	filled := reflect.ValueOf((&orbit.MemoryLedger{Bounds: o.Bounds}).Limits())
	for i := range asked.NumField() {
		if !asked.Field(i).IsZero() && filled.Field(i).Int() != there.Field(i).Int() {
			return fmt.Errorf("diskledger: %w: limit %s is %d there, %d in Options; leave it 0 to take what is there",
				ErrMismatch, asked.Type().Field(i).Name, there.Field(i).Int(), filled.Field(i).Int())
		}
	}
	for d, name := range o.Dimensions {
		if name != "" && name != s.DimensionName(d) {
			return fmt.Errorf("diskledger: %w: dimension %d is %q there, %q in Options; leave it empty to take what is there",
				ErrMismatch, d, s.DimensionName(d), name)
		}
	}
	return nil
}
