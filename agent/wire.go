package agent

import (
	"context"
	"errors"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// This file has what a Client and a Handler send to each other: JSON objects by POST. The path says which method of Control is meant.
// An answer of status 200 has its result, one of status 422 a fault.
// A field that the other side does not know is ignored, so that agents and control are upgraded in any order.

const (
	pathJoin    = "/join"
	pathReport  = "/report"
	pathWatch   = "/watch"
	pathConfirm = "/confirm"
	// The most bytes of a request and of an answer.
	maxRequest, maxAnswer = 16 << 20, 256 << 20
)

type joinRequest struct {
	Node   orbit.Node `json:"node"`
	Holder string     `json:"holder"`
}

type watchRequest struct {
	Node  orbit.NodeID   `json:"node"`
	After orbit.Revision `json:"after"`
	// How many milliseconds the answer may take; 0: no bound.
	Wait int64 `json:"wait,omitempty"`
}

type confirmRequest struct {
	Node orbit.NodeID   `json:"node"`
	Term orbit.Revision `json:"term"`
	Said []Statement    `json:"said"`
}

// outcome is an orbit.Outcome.
type outcome struct {
	Revision orbit.Revision `json:"revision,omitempty"`
	Failure  *fault         `json:"failure,omitempty"`
}

// fault is an error: its text, and which of those that are known to both sides it wraps.
type fault struct {
	Text string `json:"error"`
	Kind string `json:"kind,omitempty"`
}

// kinds are the errors that are the same on both sides, those that others wrap last.
var kinds = []struct {
	name string
	err  error
}{
	{"invalid", orbit.ErrInvalid},
	{"conflict", orbit.ErrConflict},
	{"infeasible", orbit.ErrInfeasible},
	{"unknown", orbit.ErrUnknown},
	{"unavailable", orbit.ErrUnavailable},
	{"expired", lease.ErrExpired},
	{"held", lease.ErrHeld},
	{"unheard", lease.ErrUnheard},
	{"tooMany", lease.ErrTooMany},
	{"deadline", context.DeadlineExceeded},
	{"canceled", context.Canceled},
}

// faultOf returns what is sent for an error, nil for none.
func faultOf(err error) *fault {
	if err == nil {
		return nil
	}
	f := &fault{Text: err.Error()}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			f.Kind = k.name
			break
		}
	}
	return f
}

// err returns the error that was sent.
func (f *fault) err() error {
	if f == nil {
		return nil
	}
	return &remoteError{*f}
}

// remoteError is an error of the other side.
type remoteError struct{ fault fault }

func (e *remoteError) Error() string { return e.fault.Text }

// Unwrap returns the error that both sides know.
func (e *remoteError) Unwrap() error {
	for _, k := range kinds {
		if k.name == e.fault.Kind {
			return k.err
		}
	}
	return nil
}
