package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// The reasons for which a board refuses a report, besides [orbit.ErrInvalid], [lease.ErrExpired] and
// [lease.ErrUnheard]. Test for them with errors.Is. Each of them comes in a [*Refusal], for errors.As.
var (
	// ErrOutdated means that the board knows a newer report of the node. It is harmless: a later report has arrived
	// first. If the node's clock was set back, the board takes its reports again after at most 10 s.
	ErrOutdated = errors.New("outdated report")
	// ErrOversized means that the report has too many words, or too long ones.
	ErrOversized = errors.New("oversized report")
	// ErrFull means that the board takes no more nodes.
	ErrFull = errors.New("report of one node too many")
	// ErrFlood means that the node has sent too many reports in too short a time. Wait, and send the next one.
	ErrFlood = errors.New("too many reports")
)

// Refusal says why a board has refused a report. A refused report changes nothing.
type Refusal struct {
	// Kind is one of the errors that [Board.Report] lists.
	Kind error
	// Node is the node that the report is about.
	Node orbit.NodeID
	// At is the report's heartbeat.
	At time.Time
	// Against is the known heartbeat, of [ErrOutdated].
	Against time.Time
	// Term is the epoch of the term that the report names.
	Term orbit.Revision
	// Current is the epoch of the node's live term; 0: there is none.
	Current orbit.Revision
	// Reason says what is malformed or too large.
	Reason string
}

// Error says what failed, by how much, and what to do.
func (r *Refusal) Error() string {
	what := fmt.Sprintf("telemetry: %v of node %q: ", r.Kind, r.Node)
	switch {
	case errors.Is(r.Kind, ErrOutdated):
		return what + fmt.Sprintf("its heartbeat is %v older than the known one; "+
			"if the node's clock was set back, its reports are taken again after at most 10 s", r.Against.Sub(r.At))
	case errors.Is(r.Kind, ErrFlood):
		return what + r.Reason + "; report less often, or allow more with Board.PerSecond"
	case errors.Is(r.Kind, ErrFull):
		return what + r.Reason + "; Forget those that have left, or allow more with Board.MaxNodes"
	case errors.Is(r.Kind, ErrOversized):
		return what + r.Reason + "; say less, or allow more with Board.MaxWords"
	case errors.Is(r.Kind, lease.ErrExpired):
		return fmt.Sprintf("telemetry: report of node %q under term %d: %v: %s; acquire a new term", r.Node, r.Term, r.Kind, r.Reason)
	case errors.Is(r.Kind, lease.ErrUnheard):
		return fmt.Sprintf("telemetry: report of node %q under term %d: %v; send it again", r.Node, r.Term, r.Kind)
	}
	return fmt.Sprintf("telemetry: %v report of node %q: %s; correct the reporter", r.Kind, r.Node, r.Reason)
}

// Unwrap returns Kind.
func (r *Refusal) Unwrap() error { return r.Kind }

// malformed returns a refusal if a report is wrong in itself. It examines no more words than the board accepts.
func (b *Board) malformed(r *orbit.Report) *Refusal {
	if why := b.oversized(r); why != "" {
		return &Refusal{Kind: ErrOversized, Node: r.Node[:min(len(r.Node), maxWordBytes)], At: r.At, Reason: why}
	}
	if why := invalid(r); why != "" {
		return &Refusal{Kind: orbit.ErrInvalid, Node: r.Node, At: r.At, Reason: why}
	}
	return nil
}

// oversized returns what a report has too much of; "": nothing.
func (b *Board) oversized(r *orbit.Report) string {
	most := cmp.Or(b.MaxWords, defaultWords)
	if n := len(r.Templates) + len(r.Warm) + len(r.Volumes); most > 0 && n > most {
		return fmt.Sprintf("%d templates and volumes, of at most %d", n, most)
	}
	longest := len(r.Node)
	for template := range r.Warm {
		longest = max(longest, len(template))
	}
	for _, words := range [][]string{r.Templates, r.Volumes} {
		for _, word := range words {
			longest = max(longest, len(word))
		}
	}
	if longest > maxWordBytes {
		return fmt.Sprintf("a word of %d bytes, of at most %d", longest, maxWordBytes)
	}
	return ""
}

// invalid returns what is malformed in a report; "": nothing. It accepts values that are merely unlikely, such as a
// load of 130%.
func invalid(r *orbit.Report) string {
	switch {
	case r.Node == "":
		return "it names no node"
	case r.At.IsZero():
		return "it has no heartbeat time"
	case math.IsNaN(r.CPUPercent) || math.IsInf(r.CPUPercent, 0) || r.CPUPercent < 0:
		return fmt.Sprintf("CPUPercent is %v", r.CPUPercent)
	case r.FreeSlots < 0:
		return fmt.Sprintf("FreeSlots is %d", r.FreeSlots)
	}
	for d, used := range r.Usage {
		if used < 0 {
			return fmt.Sprintf("Usage of dimension %d is %d", d, used)
		}
	}
	for template, n := range r.Warm {
		if n < 0 {
			return fmt.Sprintf("Warm[%q] is %d", template, n)
		}
	}
	return ""
}

// of returns the counter of a refusal's kind.
func (s *Stats) of(r *Refusal) *uint64 {
	for _, count := range []struct {
		kind error
		of   *uint64
	}{
		{ErrOutdated, &s.Outdated}, {ErrFlood, &s.Flooded}, {ErrFull, &s.Full},
		{ErrOversized, &s.Oversized}, {lease.ErrUnheard, &s.Unheard},
	} {
		if errors.Is(r.Kind, count.kind) {
			return count.of
		}
	}
	switch {
	case !errors.Is(r.Kind, lease.ErrExpired):
		return &s.Invalid
	case r.Current != 0:
		return &s.OldTerm
	}
	return &s.Unleased
}
