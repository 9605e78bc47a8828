package etcdledger

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/rate"
)

// Options are the settings of a [Ledger]. The zero value has the defaults of all fields.
type Options struct {
	// Prefix is the prefix of all keys of the ledger; default "orbit/". A missing slash at its end is added. Other keys and
	// other ledgers may be below it, because the ledger ignores keys that are not its own. Its last element must not be one
	// of the letters that name records, as in "orbit/n/".
	Prefix string
	// Bounds are the ledger's limits. Zero fields have the defaults of a server that accepts MaxOps; larger values are
	// reduced to what fits. The process that makes the ledger decides, and later processes with other values get
	// ErrMismatch.
	Bounds orbit.Limits
	// Dimensions are the names of the dimensions in error texts and notes; empty names have a default. The process that makes
	// the ledger decides.
	Dimensions [orbit.Dimensions]string
	// MaxOps is how many operations the server accepts in one transaction, its --max-txn-ops; default 128, at least 32. Set
	// it when the server's setting is changed.
	MaxOps int
	// MaxBytes is how many bytes the server accepts in one request, its --max-request-bytes; default 1.5 MiB. Set it when the
	// server's setting is changed.
	MaxBytes int
	// InFlight is how many transactions may be under way at the same time; default 16. Further proposals wait and are
	// packed into the next transactions, so a smaller number makes larger transactions.
	InFlight int
	// Timeout is how long the ledger waits for the answer to one request to etcd; default 5 s.
	Timeout time.Duration
	// Patience is how long a commit is tried while etcd does not answer, and how long a read waits for the mirror; default
	// 10 s.
	Patience time.Duration
	// Local makes Snapshot return the mirror without asking etcd for newer commits. It then shows all commits of this Ledger,
	// and those of other processes as soon as the watch has delivered them.
	Local bool
	// GCInterval is how often [Ledger.GC] runs; default 1 min, negative: never.
	GCInterval time.Duration
	// OnError, if set, is called with the errors of background goroutines: a watch that ended, a damaged record, a
	// write below the prefix that is no commit. Calls do not overlap. It must not block or call the ledger. Nil: the
	// errors are written to slog.Default(), at most ten at once and one more every 10 s.
	OnError func(error)
}

// withDefaults returns a copy with the defaults filled in.
func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, "orbit/")
	if !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	o.MaxOps = cmp.Or(o.MaxOps, defaultMaxOps)
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.InFlight = cmp.Or(max(o.InFlight, 0), 16)
	o.Timeout = cmp.Or(max(o.Timeout, 0), 5*time.Second)
	o.Patience = cmp.Or(max(o.Patience, 0), 10*time.Second)
	o.GCInterval = cmp.Or(o.GCInterval, time.Minute)
	if o.OnError == nil {
		var log rate.Log
		o.OnError = func(err error) { log.Error(context.Background(), "orbit: error of a ledger in etcd", err) }
	}
	return o
}

// validate returns an error if a field has an invalid value.
func (o *Options) validate() error {
	if o.MaxOps < leastOps {
		return fmt.Errorf("etcdledger: %w: MaxOps is %d; a ledger needs at least %d", orbit.ErrInvalid, o.MaxOps, leastOps)
	}
	if k := kind(path.Base(o.Prefix)); slices.Contains(kinds, k) {
		return fmt.Errorf("etcdledger: %w: Prefix is %q, and another ledger keeps its records below %q; choose another last element", orbit.ErrInvalid, o.Prefix, k+"/")
	}
	if o.MaxBytes < 1<<16 || o.MaxBytes > maxValue {
		return fmt.Errorf("etcdledger: %w: MaxBytes is %d; it must be %d to %d", orbit.ErrInvalid, o.MaxBytes, 1<<16, maxValue)
	}
	return nil
}
