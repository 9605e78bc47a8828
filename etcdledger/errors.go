package etcdledger

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/orbitsched/orbit"
)

// Errors of logs in etcd, to be tested with errors.Is.
var (
	// ErrOldFormat: a release that stored a key for each capsule has made what is below the prefix. No later release reads it. To
	// carry the ledger over, stop all processes, write [orbit.State.Dump] of a snapshot with that release, and store it below a new
	// prefix:
	//
	//	log, err := etcdledger.OpenLog(ctx, client, etcdledger.LogOptions{Prefix: "orbit-new/"})
	//	err = log.SaveCheckpoint(ctx, 0, func(w io.Writer) error { _, err := io.Copy(w, dump); return err })
	ErrOldFormat = errors.New("etcdledger: an earlier release has stored the ledger below this prefix as records. " +
		"To carry it over, write the State.Dump of it with that release, and store it with Log.SaveCheckpoint at index 0 below a new prefix")
	// ErrNoLog: there is no log below the prefix, and LogOptions.Existing is set.
	ErrNoLog = errors.New("etcdledger: there is no log below this prefix")
)

// errLost is why a log cannot be continued.
var errLost = errors.New("etcd does not have the entries that it has confirmed: was it restored from a backup, or was the prefix deleted?")

// nothingDone returns the error of a request of which it is certain that it has changed nothing.
func nothingDone(err error) error {
	if errors.Is(err, orbit.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", orbit.ErrUnavailable, err)
}

// denied are the errors with which etcd refuses a request whose user may not do this: it will refuse it again.
var denied = []error{
	rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthFailed, rpctypes.ErrInvalidAuthMgmt, rpctypes.ErrAuthNotEnabled,
}

// refused are other errors with which etcd says that it has changed nothing.
var refused = []error{
	rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge, rpctypes.ErrNoSpace, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrTooManyRequests,
}

// outcome returns the error of a write that has failed, so that it is orbit.ErrUnavailable only if nothing can have been done.
// Without an answer from etcd nobody knows.
func outcome(err error) error {
	if is(err, denied) || is(err, refused) {
		return nothingDone(err)
	}
	return err
}

// is reports whether an error is one of a list.
func is(err error, list []error) bool {
	for _, one := range list {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
