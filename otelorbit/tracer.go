// Package otelorbit traces the passes of engines with OpenTelemetry: each pass is a span, its stages are child spans,
// and each proposal of the pass is an event with its outcome.
//
//	tracer := &otelorbit.Tracer{}
//	engine := &orbit.Engine{Name: "web", Ledger: ledger, Navigator: &nav.Services{}, OnRound: tracer.Round}
//
// Spans of different passes are linked if their proposals competed or were the same:
//
//	pass of a ── link "lost to" ──────► pass of b, whose proposal was committed before one of a
//	pass of b ── link "won over" ─────► pass of a, if that was reported before the one of b
//	pass of a ── link "sent before" ──► earlier pass of a, which sent the same proposal and got no answer
//
// An engine without an OnRound spends no time on traces.
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

// Tracer makes spans of the rounds of engines. Set the fields before the first round; the zero value is ready. Use one
// Tracer for all engines of a process, so that it can link a pass that has lost to a commit to the pass that made the
// commit. Its method may be called from any goroutine.
type Tracer struct {
	// Provider makes the tracer; nil: the global provider of package otel at the first round.
	Provider trace.TracerProvider
	// Proposals is the largest number of proposals of a pass that have an event in its span; default 64. Proposals that
	// were not committed come first. The attribute orbit.left_out has the number of the others. By default the SDK
	// itself keeps at most 128 events and 128 links of a span.
	Proposals int
	// Remember is about the number of proposals that are remembered for links; default 16,384. A proposal takes some
	// 100 bytes.
	Remember int

	once   sync.Once
	tracer trace.Tracer

	mu sync.Mutex // guards the fields below
	// sent has, by proposal, the span of the pass that has sent it, if it was committed or its outcome is unknown.
	sent recent[trace.SpanContext]
	// lost has, by proposal, the span of a pass that has lost to it before the pass that sent it was reported.
	lost recent[trace.SpanContext]
}

// recent remembers a value for each of the newest proposals, about as many as the argument most of put says. It keeps
// two generations of half that size, and drops the older one when the newer is full.
type recent[V any] struct {
	new, old map[orbit.ProposalID]V
}

// put remembers a value for a proposal.
func (r *recent[V]) put(id orbit.ProposalID, v V, most int) {
	if r.new == nil || 2*len(r.new) >= most {
		r.new, r.old = map[orbit.ProposalID]V{}, r.new
	}
	r.new[id] = v
}

// get returns the value that is remembered for a proposal.
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
	if start.IsZero() { // the pass did not begin: the engine has a fault, or its last Plan was still running
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

// link identifies a link of a span: why there is one, and to which span.
type link struct {
	why string
	to  trace.SpanID
}

// links returns the links of a pass. If several proposals link it to the same pass for the same reason, they share one
// link, which has their number.
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

// lostTo returns the id of the proposal to which a proposal has lost; zero: it has not lost, or the ledger does not
// say.
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

// attributes returns the attributes of a pass.
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

// noted adds a note of the navigator to the attributes. The notes of a group become one attribute each.
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

// valid returns a text as valid UTF-8. Exporters would drop a span with any other text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// mostErrors is the largest number of errors of a pass that its span records.
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

// outcomeOf returns the name of the outcome of a proposal.
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

// settled returns the attributes of a proposal and its outcome.
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
