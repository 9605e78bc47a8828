package pgledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Options are the settings of a [Ledger]. The zero value has the defaults of all fields.
type Options struct {
	// Schema is the schema with the tables; default "orbit". Open makes it if the role may.
	Schema string
	// Name tells apart the ledgers in one schema; default "orbit". A name that is not there yet is a new, empty ledger.
	Name string
	// Configure, if set, may change what was read from the URL before the first connection is made: a certificate, a
	// password that expires (BeforeConnect), another dialer, a tracer.
	Configure func(*pgxpool.Config)
	// Bounds are the limits of a new ledger; zero fields have the defaults of orbit.Limits. A ledger that exists keeps the
	// limits that it was made with, and fields that are not zero and differ are refused with [logledger.ErrMismatch].
	Bounds orbit.Limits
	// Dimensions are the names of the resource dimensions in diagnoses of a new ledger; empty ones have a default. Names that
	// are not empty and differ from those of an existing ledger are refused with [logledger.ErrMismatch].
	Dimensions [orbit.Dimensions]string
	// Timeout is how long the ledger waits for the answer to one request to the server; default 5 s.
	Timeout time.Duration
	// Patience is how long a call waits while the server cannot be reached; default 10 s, negative: not at all. Once a proposal has
	// waited that long in vain, further ones fail at once until the server answers. So pause before you try again; engines do. Each
	// Snapshot waits.
	Patience time.Duration
	// Local makes Snapshot return the newest state that this process knows, without asking the server whether there is a
	// newer one. It then shows all commits of this ledger, and those of other processes when they have been delivered.
	Local bool
	// CheckpointEvery is how many changes are appended between two checkpoints; default 262,144. If the state has more
	// capsules, their number counts instead. A smaller number makes opening faster, and writes more.
	CheckpointEvery int
	// OnError, if set, is called with the errors of the background: a checkpoint that failed, a server that cannot be
	// reached, no notifications from one that can. Calls do not overlap. It must not block or call the ledger. An outage is told
	// once, and its end, as [logledger.ErrBack]. Nil: the errors are written to slog.Default(), at most ten at once and one more
	// every 10 s.
	OnError func(error)
}

// LogOptions are the settings of a [Log]. The zero value has the defaults of all fields.
type LogOptions struct {
	// Schema, Name, Configure and Timeout are those of [Options].
	Schema, Name string
	Configure    func(*pgxpool.Config)
	Timeout      time.Duration
	// Existing refuses to make a log, with [ErrNoLog]. A role that may only read can open a log with it.
	Existing bool
	// OnError, if set, is called when there are no notifications although the server answers, and with [logledger.ErrBack] when there
	// are again, by one goroutine. It must not block.
	OnError func(error)
}

// withDefaults returns a copy with the defaults filled in, or an error if a field has an invalid value.
func (o LogOptions) withDefaults() (LogOptions, error) {
	o.Schema, o.Name = cmp.Or(o.Schema, "orbit"), cmp.Or(o.Name, "orbit")
	o.Timeout = cmp.Or(max(o.Timeout, 0), 5*time.Second)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	if len(o.Schema) > mostIdentifier || !plain(o.Schema) || !plain(o.Name) {
		return o, fmt.Errorf("pgledger: %w: Schema is %q, of at most %d bytes, and Name is %q; they must be valid UTF-8 without zero bytes",
			orbit.ErrInvalid, o.Schema, mostIdentifier, o.Name)
	}
	return o, nil
}

// mostIdentifier is how many bytes Postgres keeps of an identifier.
const mostIdentifier = 63

// ledger returns the settings that are not those of the log.
func (o *Options) ledger() logledger.Options {
	return logledger.Options{
		Bounds: o.Bounds, Dimensions: o.Dimensions, Patience: o.Patience, Local: o.Local, CheckpointEvery: o.CheckpointEvery, OnError: o.OnError,
	}
}

// plain reports whether a text can be stored as one.
func plain(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }
