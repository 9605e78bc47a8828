package etcdledger

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Options are the settings of a [Ledger]. The zero value has the defaults of all fields.
type Options struct {
	// Prefix is the prefix of all keys of the ledger; default "orbit/". A missing slash at its end is added. A prefix with
	// nothing below it is a new, empty ledger.
	Prefix string
	// Bounds are the limits of a new ledger; zero fields have the defaults of orbit.Limits. A ledger that exists keeps the
	// limits that it was made with, and fields that are not zero and differ are refused with [logledger.ErrMismatch].
	Bounds orbit.Limits
	// Dimensions are the names of the resource dimensions in diagnoses of a new ledger; empty ones have a default. Names that
	// are not empty and differ from those of an existing ledger are refused with [logledger.ErrMismatch].
	Dimensions [orbit.Dimensions]string
	// MaxBytes is how many bytes the servers accept in one request, their --max-request-bytes; default 1.5 MiB, at least 64
	// KiB and at most 16 MiB. What is larger is stored in parts. Above 2 MiB, the client's MaxCallSendMsgSize must be raised, too.
	MaxBytes int
	// Timeout is how long the ledger waits for the answer to one request to etcd; default 5 s.
	Timeout time.Duration
	// Patience is how long a call waits while etcd cannot be reached; default 10 s, negative: not at all. Once a proposal has
	// waited that long in vain, further ones fail at once until etcd answers. So pause before you try again; engines do. Each
	// Snapshot waits.
	Patience time.Duration
	// Local makes Snapshot return the newest state that this process knows, without asking etcd whether there is a newer
	// one. It then shows all commits of this ledger, and those of other processes when they have been delivered.
	Local bool
	// CheckpointEvery is how many changes are appended between two checkpoints; default 262,144. If the state has more
	// capsules, their number counts instead. A smaller number makes opening faster, and writes more.
	CheckpointEvery int
	// OnError, if set, is called with the errors of the background: a checkpoint that failed, an etcd that cannot be
	// reached, no watch of one that can. Calls do not overlap. It must not block or call the ledger. An outage is told once, and
	// its end, as [logledger.ErrBack]. Nil: the errors are written to slog.Default(), at most ten at once and one more every 10 s.
	OnError func(error)
}

// LogOptions are the settings of a [Log]. The zero value has the defaults of all fields.
type LogOptions struct {
	// Prefix, MaxBytes and Timeout are those of [Options].
	Prefix   string
	MaxBytes int
	Timeout  time.Duration
	// Existing refuses to make a log, with [ErrNoLog]. A user who may only read can open a log with it.
	Existing bool
	// OnError, if set, is called when the watch is lost although etcd answers, with [logledger.ErrBack] when there is one again, and
	// when a post cannot be read. Calls may overlap. It must not block.
	OnError func(error)
}

// leastBytes and mostBytes bound MaxBytes.
const (
	leastBytes = 1 << 16
	mostBytes  = 16 << 20
)

// withDefaults returns a copy with the defaults filled in.
func (o LogOptions) withDefaults() LogOptions {
	o.Prefix = cmp.Or(o.Prefix, "orbit/")
	if !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	o.MaxBytes = cmp.Or(o.MaxBytes, 3<<19)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 5*time.Second)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return o
}

// check returns an error if a field has an invalid value.
func (o *LogOptions) check() error {
	if o.MaxBytes < leastBytes || o.MaxBytes > mostBytes {
		return fmt.Errorf("etcdledger: %w: MaxBytes is %d; it must be %d to %d", orbit.ErrInvalid, o.MaxBytes, leastBytes, mostBytes)
	}
	return nil
}

// partBytes is how many bytes of data are stored under one key. The rest of a request has keys and what is removed.
func (o *LogOptions) partBytes() int { return o.MaxBytes / 4 * 3 }

// log returns the settings of the log.
func (o *Options) log() LogOptions {
	return LogOptions{Prefix: o.Prefix, MaxBytes: o.MaxBytes, Timeout: o.Timeout, OnError: o.OnError}
}

// ledger returns the settings that are not those of the log.
func (o *Options) ledger() logledger.Options {
	return logledger.Options{
		Bounds: o.Bounds, Dimensions: o.Dimensions, Patience: o.Patience, Local: o.Local, CheckpointEvery: o.CheckpointEvery, OnError: o.OnError,
	}
}
