package agent

import (
	"context"
	"errors"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// This file defines the protocol between Client and Handler. A request is a JSON object sent by POST, and its path
// names the method of Control. An answer with status 200 has the result of the method, and one with status 422 a fault.
// Fields that the receiver does not know are ignored, so that agents and the control process can be upgraded in any
// order.

const (
	pathJoin    = "/join"
	pathLeave   = "/leave"
	pathReport  = "/report"
	pathWatch   = "/watch"
	pathConfirm = "/confirm"
	// maxRequest and maxAnswer are the greatest sizes of a request and of an answer, in bytes.
	maxRequest, maxAnswer = 16 << 20, 256 << 20
)

type joinRequest struct {
	Node   orbit.Node `json:"node"`
	Holder string     `json:"holder"`
}

type leaveRequest struct {
	Node orbit.NodeID   `json:"node"`
	Term orbit.Revision `json:"term"`
}

type watchRequest struct {
	Node  orbit.NodeID   `json:"node"`
	After orbit.Revision `json:"after"`
	// Wait is the longest time until the answer, in milliseconds; 0: no bound.
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

// fault is an error on the wire: its text, and the name of the error in kinds that it wraps; empty: it wraps none of
// them.
type fault struct {
	Text string `json:"error"`
	Kind string `json:"kind,omitempty"`
}

// kinds are the errors that both sides know, by name. faultOf takes the first that matches, so an error that another
// one may wrap comes after that one.
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
	{"running", lease.ErrRunning},
	{"unheard", lease.ErrUnheard},
	{"tooMany", lease.ErrTooMany},
	{"deadline", context.DeadlineExceeded},
	{"canceled", context.Canceled},
}

// faultOf returns the fault of an error; nil for a nil error.
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

// err returns the fault as an error; nil for a nil fault.
func (f *fault) err() error {
	if f == nil {
		return nil
	}
	return &remoteError{*f}
}

// remoteError is an error that the other side has returned.
type remoteError struct{ fault fault }

func (e *remoteError) Error() string { return e.fault.Text }

// Unwrap returns the error in kinds that the fault names, nil if there is none.
func (e *remoteError) Unwrap() error {
	for _, k := range kinds {
		if k.name == e.fault.Kind {
			return k.err
		}
	}
	return nil
}
