package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// What else a [Gateway] says, to be tested with errors.Is.
var (
	// ErrStart: the node failed to start the sandbox, and so did the next best one, or there was none. The
	// error is a [*StartError]. Test for it before the others: where there was no next best node, the error is
	// what says why, too.
	ErrStart = errors.New("start failed")
	// ErrTaken: there is a capsule of this id, or was a while ago, or another create of it is under way, or it
	// has been moved meanwhile. Choose another id.
	ErrTaken = errors.New("capsule id is taken")
	// ErrNoCapsule: the ledger has no record of a capsule of this id.
	ErrNoCapsule = errors.New("no such capsule")
	// ErrLeftBehind: what was committed could not be undone in time. The capsule may be in the ledger: Delete
	// it.
	ErrLeftBehind = errors.New("capsule may be left behind")
)

// StartError says which nodes failed to start a sandbox. It wraps what both said.
type StartError struct {
	// Node is the node that was chosen first.
	Node orbit.NodeID
	// Err is the error with which Node failed.
	Err error
	// Retry is the next best node, on which the gateway tried again; empty if there was none.
	Retry orbit.NodeID
	// RetryErr is the error with which Retry failed, or why there was no retry: the context's error if that had ended,
	// nil if Start panicked.
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

// Unwrap makes errors.Is find ErrStart and what both nodes said.
func (e *StartError) Unwrap() []error {
	if e.RetryErr == nil {
		return []error{ErrStart, e.Err}
	}
	return []error{ErrStart, e.Err, e.RetryErr}
}

// PanicError is a panic of Gateway.Start.
type PanicError struct{ Value any }

// Error says what it panicked with.
func (e *PanicError) Error() string {
	return fmt.Sprintf("Gateway.Start panicked: %s; correct it", guard.Text(e.Value))
}

// unsettled is the error of a proposal whose outcome is not known when the context ends.
func unsettled(ctx context.Context, err error) error {
	if errors.Is(err, orbit.ErrUnknown) {
		return fmt.Errorf("%w; %w", err, ctx.Err())
	}
	return fmt.Errorf("%w: %w; %w", orbit.ErrUnknown, err, ctx.Err())
}
