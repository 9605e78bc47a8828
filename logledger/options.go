package logledger

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// Options are the settings of a [Ledger]. The zero value has the defaults of all fields.
type Options struct {
	// Bounds are the limits of a new ledger; zero fields have the defaults of orbit.Limits. A ledger that exists keeps the
	// limits that it was made with, and fields that are not zero and differ are refused with [ErrMismatch].
	Bounds orbit.Limits
	// Dimensions are the names of the resource dimensions in diagnoses of a new ledger; empty ones have a default. Names that
	// are not empty and differ from those of an existing ledger are refused with [ErrMismatch].
	Dimensions [orbit.Dimensions]string
	// Patience is how long a call waits while the store cannot be reached; default 10 s, negative: not at all. Once a proposal has
	// waited that long in vain, further ones fail at once until the store answers. So pause before you try again; engines do. Each
	// Snapshot waits.
	Patience time.Duration
	// Local makes Snapshot return the newest state that this process knows, without asking the store whether there is a
	// newer one. It then shows all commits of this ledger, and those of other processes when they have been delivered.
	Local bool
	// CheckpointEvery is how many changes are appended between two checkpoints; default 262,144. If the state has more
	// capsules, their number counts instead. A smaller number makes opening faster, and writes more.
	CheckpointEvery int
	// OnError, if set, is called with the errors of the background: a checkpoint that failed, a store that cannot be
	// reached, an entry that cannot be read. Calls do not overlap. It must not block or call the ledger. An outage is
	// told once, and its end, as [ErrBack]. Nil: the errors are written to slog.Default(), at most ten at once and one more
	// every 10 s.
	OnError func(error)
}

// withDefaults returns a copy with the defaults filled in.
func (o Options) withDefaults() Options {
	o.Patience = cmp.Or(o.Patience, 10*time.Second)
	o.CheckpointEvery = cmp.Or(max(o.CheckpointEvery, 0), 1<<18)
	o.OnError = rate.Reporter(o.OnError, "orbit: error of a ledger on a log")
	return o
}

// empty returns the state of a new ledger.
func (o *Options) empty() (*orbit.State, error) {
	return (&orbit.MemoryLedger{Bounds: o.Bounds, Dimensions: o.Dimensions}).Snapshot(context.Background())
}

// agrees returns an error if a setting that is not zero differs from that of an existing ledger.
func (o *Options) agrees(s *orbit.State) error {
	asked, there := reflect.ValueOf(o.Bounds), reflect.ValueOf(s.Limits())
	filled := reflect.ValueOf((&orbit.MemoryLedger{Bounds: o.Bounds}).Limits())
	for i := range asked.NumField() {
		if !asked.Field(i).IsZero() && filled.Field(i).Int() != there.Field(i).Int() {
			return fmt.Errorf("%w: limit %s is %d there, %d in Options; leave it 0 to take what is there",
				ErrMismatch, asked.Type().Field(i).Name, there.Field(i).Int(), filled.Field(i).Int())
		}
	}
	for d, name := range o.Dimensions {
		if name != "" && name != s.DimensionName(d) {
			return fmt.Errorf("%w: dimension %d is %q there, %q in Options; leave it empty to take what is there",
				ErrMismatch, d, s.DimensionName(d), name)
		}
	}
	return nil
}
