package etcdledger

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Options say where a ledger is and how it works. The zero value is ready.
type Options struct {
	// Below it are all keys of the ledger; it ends in a slash, which is added where it is missing. Default
	// "orbit/". Other ledgers' prefixes may be below it, and other keys: what is not the ledger's it leaves alone.
	// The last element is not one of the letters that name records, as in "orbit/n/".
	Prefix string
	// What the ledger takes. Zero fields have the defaults of a server that takes MaxOps; larger values are cut
	// down to what fits. The process that makes the ledger decides; a process that asks for something else gets
	// ErrMismatch.
	Bounds orbit.Limits
	// Names for diagnoses; empty ones have a default. The process that makes the ledger decides.
	Dimensions [orbit.Dimensions]string
	// What the server takes in one transaction, its --max-txn-ops: 128, at least 32.
	MaxOps int
	// And in one request, its --max-request-bytes: 1.5 MiB.
	MaxBytes int
	// Transactions on their way at once: 16. Proposals that come meanwhile are packed into the next.
	InFlight int
	// For one request: 5 s.
	Timeout time.Duration
	// How long a commit is tried while etcd does not answer, and how long a read waits for the mirror: 10 s.
	Patience time.Duration
	// Snapshot does not ask etcd whether the mirror is behind. It then shows all that was committed by this
	// Ledger, and what others have committed as soon as the watch has brought it.
	Local bool
	// How often records of what is gone are deleted, see [Ledger.GC]: 1 min. Negative: never.
	GCInterval time.Duration
	// Told of everything that went wrong in the background: a watch that ended, a record that is damaged, a write
	// that is no commit. One call at a time; it must not block, nor call the ledger.
	OnError func(error)
}

// withDefaults returns a copy in which every field says what holds.
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
		o.OnError = func(error) {}
	}
	return o
}

// validate reports what cannot be worked with.
func (o *Options) validate() error {
	if o.MaxOps < leastOps {
		return fmt.Errorf("etcdledger: %w: MaxOps is %d; a ledger needs %d", orbit.ErrInvalid, o.MaxOps, leastOps)
	}
	if k := kind(path.Base(o.Prefix)); slices.Contains(kinds, k) {
		return fmt.Errorf("etcdledger: %w: prefix %q: what is below %q may be records of another ledger; choose another last element", orbit.ErrInvalid, o.Prefix, k+"/")
	}
	if o.MaxBytes < 1<<16 || o.MaxBytes > maxValue {
		return fmt.Errorf("etcdledger: %w: MaxBytes is %d; it must be %d to %d", orbit.ErrInvalid, o.MaxBytes, 1<<16, maxValue)
	}
	return nil
}
