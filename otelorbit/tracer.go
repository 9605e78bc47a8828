// Package otelorbit traces the passes of engines with OpenTelemetry: each pass is a span, its stages are spans within it, and each
// proposal of the pass is an event that says what became of it.
//
//	tracer := &otelorbit.Tracer{}
//	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: tracer.Round}
//
// Spans of different passes are linked by what their proposals have to do with each other:
//
//	pass of a ── link "lost to" ──────► pass of b, whose proposal was committed before one of a
//	pass of b ── link "won over" ─────► pass of a, if that was reported before the one of b
//	pass of a ── link "sent before" ──► earlier pass of a, which sent the same proposal and got no answer
//
// An engine without an OnRound does nothing for traces.
package otelorbit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitsched/orbit"
)

// Tracer makes spans of the rounds of engines. Set the fields before the first round; the zero value is ready. One Tracer serves
// all engines of a process, so that it can link the spans of those that lose a race to the spans of those that win it. Its method
// may be called from any goroutine.
type Tracer struct {
	// Provider makes the tracer; nil: the global one of package otel at the first round.
	Provider trace.TracerProvider
	// Proposals is the largest number of proposals of a pass that have an event in its span, those that were not committed first;
	// default 64. How many others there are is in the attribute orbit.left_out. The SDK itself keeps at most 128 events, and
	// as many links, unless it is told otherwise.
	Proposals int
	// Remember is about how many proposals are remembered for links; default 16,384. A proposal takes some 100 bytes.
	Remember int

	once   sync.Once
	tracer trace.Tracer

	// Guards what follows.
	mu sync.Mutex
	// The spans of the passes that have sent a proposal, committed or of unknown outcome.
	sent recent[trace.SpanContext]
	// The span of a pass that has lost to a proposal of which no span is known yet.
	lost recent[trace.SpanContext]
}

// recent remembers values by proposal: the newest, about as many as most says.
type recent[V any] struct {
	new, old map[orbit.ProposalID]V
}

// put remembers a value.
func (r *recent[V]) put(id orbit.ProposalID, v V, most int) {
	if r.new == nil || 2*len(r.new) >= most {
		r.new, r.old = map[orbit.ProposalID]V{}, r.new
	}
	r.new[id] = v
}

// get returns what is remembered of a proposal.
func (r *recent[V]) get(id orbit.ProposalID) (v V, ok bool) {
	if v, ok = r.new[id]; !ok {
		v, ok = r.old[id]
	}
	return v, ok
}

// Round makes a span of a pass. Set it as the OnRound of each engine, or call it from an OnRound of your own.
func (t *Tracer) Round(round orbit.Round) {
	t.once.Do(func() {
		provider := t.Provider
		if provider == nil {
			provider = otel.GetTracerProvider()
		}
		t.tracer = provider.Tracer("github.com/orbitsched/orbit/otelorbit")
	})
	start := round.Start
	if start.IsZero() { // the pass has not begun
		start = time.Now()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, span := t.tracer.Start(context.Background(), "orbit.pass", trace.WithTimestamp(start), trace.WithNewRoot(),
		trace.WithLinks(t.links(&round)...), trace.WithAttributes(attributes(&round)...))
	end := start
	for _, stage := range []struct {
		name  string
		lasts time.Duration
	}{{"orbit.view", round.Viewing}, {"orbit.plan", round.Planning}, {"orbit.propose", round.Proposing}} {
		from := end
		end = end.Add(stage.lasts)
		if stage.lasts > 0 && span.IsRecording() {
			_, s := t.tracer.Start(ctx, stage.name, trace.WithTimestamp(from))
			s.End(trace.WithTimestamp(end))
		}
	}
	if span.IsRecording() {
		t.tell(span, &round, end)
	}
	if span.SpanContext().IsSampled() {
		t.remember(span.SpanContext(), &round)
	}
	span.End(trace.WithTimestamp(end))
}

// link is why a span has a link to another.
type link struct {
	why string
	to  trace.SpanID
}

// links finds the spans that a pass has to do with. There is one link for all proposals that two passes have in common.
func (t *Tracer) links(round *orbit.Round) (out []trace.Link) {
	at, counts := map[link]int{}, []int{}
	add := func(why string, to trace.SpanContext, known bool) {
		key := link{why, to.SpanID()}
		i, again := at[key]
		switch {
		case !known:
			return
		case !again:
			i = len(out)
			at[key] = i
			out, counts = append(out, trace.Link{SpanContext: to}), append(counts, 0)
		}
		counts[i]++
		out[i].Attributes = []attribute.KeyValue{attribute.String("orbit.link", why), attribute.Int("orbit.proposals", counts[i])}
	}
	for i := range round.Settled {
		s := &round.Settled[i]
		if lost := lostTo(s); !lost.IsZero() {
			to, known := t.sent.get(lost)
			add("lost to", to, known)
			continue
		}
		before, known := t.sent.get(s.Proposal.ID)
		add("sent before", before, known)
		if s.Outcome.Err == nil {
			over, known := t.lost.get(s.Proposal.ID)
			add("won over", over, known)
		}
	}
	return out
}

// remember keeps the span of a pass for the links of others.
func (t *Tracer) remember(span trace.SpanContext, round *orbit.Round) {
	most := cmp.Or(max(t.Remember, 0), 16_384)
	for i := range round.Settled {
		s := &round.Settled[i]
		if lost := lostTo(s); !lost.IsZero() {
			if _, known := t.sent.get(lost); !known {
				t.lost.put(lost, span, most)
			}
		} else if (s.Outcome.Err == nil || errors.Is(s.Outcome.Err, orbit.ErrUnknown)) && !s.Proposal.ID.IsZero() {
			t.sent.put(s.Proposal.ID, span, most)
		}
	}
}

// lostTo returns the proposal that a conflict was lost to; zero: there was none, or it is not known.
func lostTo(s *orbit.Settled) orbit.ProposalID {
	if r := rejectionOf(s); r != nil && errors.Is(r.Kind, orbit.ErrConflict) {
		return r.TakenBy
	}
	return orbit.ProposalID{}
}

// rejectionOf returns the receipt of a proposal that was refused; nil: it was not.
func rejectionOf(s *orbit.Settled) (r *orbit.Rejection) {
	errors.As(s.Outcome.Err, &r)
	return r
}

// attributes says what a pass did.
func attributes(round *orbit.Round) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("orbit.engine", valid(round.Engine)), attribute.Int64("orbit.view", int64(round.View)),
		attribute.Int("orbit.pending", round.Pending), attribute.Int("orbit.proposed", round.Proposed),
		attribute.Int("orbit.committed", round.Committed), attribute.Int("orbit.conflicts", round.Conflicts),
		attribute.Int("orbit.infeasible", round.Infeasible), attribute.Int("orbit.invalid", round.Invalid),
		attribute.Int("orbit.unknown", round.Unknown), attribute.Int("orbit.failed", round.Failed),
		attribute.Int("orbit.unplaced", len(round.Unplaced)), attribute.Int("orbit.parked", round.Parked),
	}
	for _, note := range round.Notes {
		out = noted(out, "orbit.note.", note)
	}
	return out
}

// noted adds a note of the navigator, and the notes of a group.
func noted(out []attribute.KeyValue, prefix string, a slog.Attr) []attribute.KeyValue {
	name := valid(prefix + a.Key)
	switch a.Value.Kind() {
	case slog.KindInt64:
		return append(out, attribute.Int64(name, a.Value.Int64()))
	case slog.KindUint64:
		return append(out, attribute.Int64(name, int64(min(a.Value.Uint64(), 1<<63-1))))
	case slog.KindFloat64:
		return append(out, attribute.Float64(name, a.Value.Float64()))
	case slog.KindDuration:
		return append(out, attribute.Float64(name, a.Value.Duration().Seconds()))
	case slog.KindBool:
		return append(out, attribute.Bool(name, a.Value.Bool()))
	case slog.KindString:
		return append(out, attribute.String(name, valid(a.Value.String())))
	case slog.KindGroup:
		for _, inner := range a.Value.Group() {
			out = noted(out, name+".", inner)
		}
	}
	return out
}

// valid makes a text that exporters take, because one that is no UTF-8 would make them drop the span.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// mostErrors is how many errors of a pass its span records.
const mostErrors = 16

// tell adds the proposals and the errors of a pass to its span.
func (t *Tracer) tell(span trace.Span, round *orbit.Round, at time.Time) {
	left := cmp.Or(max(t.Proposals, 0), 64)
	for _, committed := range []bool{false, true} {
		for i := range round.Settled {
			s := &round.Settled[i]
			if (s.Outcome.Err == nil) != committed {
				continue
			}
			if left--; left >= 0 {
				span.AddEvent(outcomeOf(s), trace.WithTimestamp(at), trace.WithAttributes(settled(s)...))
			}
		}
	}
	if left < 0 {
		span.SetAttributes(attribute.Int("orbit.left_out", -left))
	}
	for i, err := range slices.DeleteFunc(slices.Clone(round.Errors), func(err error) bool { return err == nil }) {
		said := err.Error()
		if said != valid(said) {
			err = errors.New(valid(said))
		}
		if i == 0 {
			first, _, _ := strings.Cut(valid(said), "\n")
			span.SetStatus(codes.Error, first)
		}
		if i < mostErrors {
			span.RecordError(err, trace.WithTimestamp(at))
		}
	}
}

// outcomeOf names what became of a proposal.
func outcomeOf(s *orbit.Settled) string {
	err := s.Outcome.Err
	switch {
	case err == nil:
		return "committed"
	case errors.Is(err, orbit.ErrConflict):
		return "conflict"
	case errors.Is(err, orbit.ErrInfeasible):
		return "infeasible"
	case errors.Is(err, orbit.ErrInvalid):
		return "invalid"
	case errors.Is(err, orbit.ErrUnknown):
		return "unknown"
	}
	return "failed"
}

// settled describes a proposal and what became of it.
func settled(s *orbit.Settled) []attribute.KeyValue {
	out := []attribute.KeyValue{attribute.String("orbit.proposal", s.Proposal.ID.String()), attribute.Int("orbit.commitments", len(s.Proposal.Do))}
	for _, do := range s.Proposal.Do {
		if place, ok := do.(orbit.Place); ok {
			out = append(out, attribute.String("orbit.capsule", valid(string(place.Capsule))), attribute.String("orbit.node", valid(string(place.Node))))
			break
		}
	}
	if s.Outcome.Err == nil {
		return append(out, attribute.Int64("orbit.revision", int64(s.Outcome.Revision)))
	}
	out = append(out, attribute.String("orbit.reason", valid(s.Outcome.Err.Error())))
	if r := rejectionOf(s); r != nil {
		if r.Bet != nil {
			out = append(out, attribute.String("orbit.bet", strings.TrimPrefix(fmt.Sprintf("%T", r.Bet), "orbit.")))
		}
		out = append(out, attribute.Int64("orbit.revision", int64(r.At)))
		if !r.TakenBy.IsZero() {
			out = append(out, attribute.String("orbit.taken_by", r.TakenBy.String()), attribute.Int64("orbit.taken_at", int64(r.TakenAt)))
		}
	}
	return out
}
