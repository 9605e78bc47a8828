package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// Further errors of a [Gateway], to be tested with errors.Is.
var (
	// ErrStart: the node failed to start the sandbox, and the next best node failed too, or there was none. The error
	// is a [*StartError]. Test for ErrStart before the other errors: if there was no next best node, the error also
	// wraps the reason for that.
	ErrStart = errors.New("start failed")
	// ErrTaken: a capsule of this id exists, or did a while ago, or another create of it is under way, or the capsule
	// has been moved meanwhile. Choose another id.
	ErrTaken = errors.New("capsule id is taken")
	// ErrNoCapsule: the ledger has no record of a capsule of this id.
	ErrNoCapsule = errors.New("no such capsule")
	// ErrLeftBehind: the create could not be undone in time. The capsule may be in the ledger: call Delete.
	ErrLeftBehind = errors.New("capsule may be left behind")
)

// StartError says which nodes failed to start a sandbox. It wraps the errors of both.
type StartError struct {
	// Node is the node that was chosen first.
	Node orbit.NodeID
	// Err is the error with which Node failed.
	Err error
	// Retry is the next best node, on which the gateway tried again; empty if there was none.
	Retry orbit.NodeID
	// RetryErr is the error with which Retry failed, or the reason why there was no retry: the context's error if it
	// had ended; nil if Start panicked.
	RetryErr error
}

// Error reads like `start failed on node "a": 503; then on node "b": 503`.
func (e *StartError) Error() string {
	switch {
	case e.RetryErr == nil:
		return fmt.Sprintf("%v on node %q: %v", ErrStart, e.Node, e.Err)
	case e.Retry == "":
		return fmt.Sprintf("%v on node %q: %v; no retry: %v", ErrStart, e.Node, e.Err, e.RetryErr)
	}
	return fmt.Sprintf("%v on node %q: %v; then on node %q: %v", ErrStart, e.Node, e.Err, e.Retry, e.RetryErr)
}

// Unwrap makes errors.Is find ErrStart and the errors of both nodes.
func (e *StartError) Unwrap() []error {
	if e.RetryErr == nil {
		return []error{ErrStart, e.Err}
	}
	return []error{ErrStart, e.Err, e.RetryErr}
}

// PanicError is a panic of Gateway.Start.
type PanicError struct{ Value any }

// Error returns a text with the value of the panic.
func (e *PanicError) Error() string {
	return fmt.Sprintf("Gateway.Start panicked: %s; correct it", guard.Text(e.Value))
}

// unsettled returns the error for a proposal whose outcome is unknown when the context ends.
func unsettled(ctx context.Context, err error) error {
	if errors.Is(err, orbit.ErrUnknown) {
		return fmt.Errorf("%w; %w", err, ctx.Err())
	}
	return fmt.Errorf("%w: %w; %w", orbit.ErrUnknown, err, ctx.Err())
}
