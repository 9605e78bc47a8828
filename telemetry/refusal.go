package telemetry

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/orbitsched/orbit"
)

// Why a board refuses a report, beside [orbit.ErrInvalid]; to be tested with errors.Is. The error is a
// [*Refusal], to be read with errors.As.
var (
	// ErrOutdated: the board knows a newer heartbeat of the node. Harmless: reports have overtaken each other.
	ErrOutdated = errors.New("outdated report")
	// ErrAhead: the heartbeat lies too far in the future. The node's clock is wrong.
	ErrAhead = errors.New("report from the future")
)

// Refusal says why a board has not taken a report. It changed nothing.
type Refusal struct {
	Kind    error // orbit.ErrInvalid, ErrOutdated or ErrAhead
	Node    orbit.NodeID
	At      time.Time // the report's heartbeat
	Against time.Time // what it was compared with: the known heartbeat, or the board's clock
	Reason  string    // what is malformed
}

// Error says what failed, by how much, and what to do.
func (r *Refusal) Error() string {
	switch {
	case errors.Is(r.Kind, ErrOutdated):
		return fmt.Sprintf("telemetry: %v of node %q: its heartbeat is %v older than the known one; "+
			"if the node's clock was set back, Forget it first", r.Kind, r.Node, r.Against.Sub(r.At))
	case errors.Is(r.Kind, ErrAhead):
		return fmt.Sprintf("telemetry: %v of node %q: its heartbeat is %v ahead of the board's clock; "+
			"set the node's clock, or allow more with Board.Ahead", r.Kind, r.Node, r.At.Sub(r.Against))
	}
	return fmt.Sprintf("telemetry: %v report of node %q: %s; correct the reporter", r.Kind, r.Node, r.Reason)
}

// Unwrap makes errors.Is find the kind.
func (r *Refusal) Unwrap() error { return r.Kind }

// invalid says what is malformed in a report, nil if nothing is. What is merely unlikely, as 130% load, is
// not the board's to judge.
func invalid(r *orbit.Report) *Refusal {
	reason := ""
	switch {
	case r.Node == "":
		reason = "it names no node"
	case r.At.IsZero():
		reason = "it has no heartbeat time"
	case math.IsNaN(r.CPUPercent) || math.IsInf(r.CPUPercent, 0) || r.CPUPercent < 0:
		reason = fmt.Sprintf("CPUPercent is %v", r.CPUPercent)
	case r.FreeSlots < 0:
		reason = fmt.Sprintf("FreeSlots is %d", r.FreeSlots)
	}
	for d, used := range r.Usage {
		if reason == "" && used < 0 {
			reason = fmt.Sprintf("Usage of dimension %d is %d", d, used)
		}
	}
	for template, n := range r.Warm {
		if reason == "" && n < 0 {
			reason = fmt.Sprintf("Warm[%q] is %d", template, n)
		}
	}
	if reason == "" {
		return nil
	}
	return &Refusal{Kind: orbit.ErrInvalid, Node: r.Node, At: r.At, Reason: reason}
}

// refuse counts a refusal.
func (s *Stats) refuse(kind error) {
	switch {
	case errors.Is(kind, ErrOutdated):
		s.Outdated++
	case errors.Is(kind, ErrAhead):
		s.Ahead++
	default:
		s.Invalid++
	}
}
