package otelorbit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/otelorbit"
)

var ctx = context.Background()

// traced returns a tracer and what has been exported by it so far.
func traced(options ...sdk.TracerProviderOption) (*otelorbit.Tracer, func() tracetest.SpanStubs) {
	out := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(append(options, sdk.WithSyncer(out))...)
	return &otelorbit.Tracer{Provider: provider}, out.GetSpans
}

func commit(t testing.TB, l orbit.Ledger, do ...orbit.Commitment) {
	t.Helper()
	_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	require.NoError(t, err)
}

func node(id orbit.NodeID, cpu int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: cpu}}}
}

func waits(id orbit.CapsuleID, module string) orbit.Submit {
	return orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{Module: module, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}}
}

// planner places all of its module on one node; before that it calls a function.
type planner struct {
	module string
	node   orbit.NodeID
	before func()
}

func (p *planner) Claims(module string, _ orbit.AppClass) bool { return module == p.module }

func (p *planner) Plan(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	if p.before != nil {
		p.before()
	}
	for _, c := range pending {
		plan.Proposals = append(plan.Proposals, orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: p.node}}})
	}
	time.Sleep(time.Millisecond)
	plan.Notes = []slog.Attr{slog.Int("n", len(pending))}
	return plan, nil
}

func passes(spans tracetest.SpanStubs) (out tracetest.SpanStubs) {
	for _, s := range spans {
		if s.Name == "orbit.pass" {
			out = append(out, s)
		}
	}
	return out
}

func value(attributes []attribute.KeyValue, key string) any {
	for _, a := range attributes {
		if string(a.Key) == key {
			return a.Value.AsInterface()
		}
	}
	return nil
}

// A pass is a root span, from when it began for as long as its stages took, which are spans within it; its proposals are events.
func TestSpanOfAPass(t *testing.T) {
	tracer, spans := traced()
	l := &orbit.MemoryLedger{}
	large := orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: &orbit.Spec{Module: "m", Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 2}}}}
	commit(t, l, node("n", 1), large, waits("a", "m"))
	e := &orbit.Engine{Name: "e", Ledger: l, OnRound: tracer.Round, Navigator: &planner{module: "m", node: "n"}}
	began := time.Now()
	round := e.Pass(ctx)
	ended := time.Now()
	tracer.Round(round)
	all := spans()
	require.Len(t, all, 4)
	pass := all[3]
	assert.False(t, pass.StartTime.Before(began) || pass.EndTime.After(ended))
	at := pass.StartTime
	for i, name := range []string{"orbit.view", "orbit.plan", "orbit.propose"} {
		assert.Equal(t, name, all[i].Name)
		assert.Equal(t, pass.SpanContext.SpanID(), all[i].Parent.SpanID())
		assert.True(t, at.Equal(all[i].StartTime), "stages follow each other")
		at = all[i].EndTime
	}
	assert.True(t, at.Equal(pass.EndTime))
	assert.GreaterOrEqual(t, all[1].EndTime.Sub(all[1].StartTime), time.Millisecond)
	assert.False(t, pass.Parent.IsValid())
	assert.Empty(t, pass.Links)
	for key, want := range map[string]any{"orbit.engine": "e", "orbit.view": int64(round.View), "orbit.pending": int64(2), "orbit.proposed": int64(2),
		"orbit.committed": int64(1), "orbit.conflicts": int64(0), "orbit.infeasible": int64(1), "orbit.note.n": int64(2), "orbit.left_out": nil} {
		assert.Equal(t, want, value(pass.Attributes, key), key)
	}
	require.Len(t, pass.Events, 3)
	assert.Equal(t, []string{"infeasible", "committed", "exception"}, []string{pass.Events[0].Name, pass.Events[1].Name, pass.Events[2].Name})
	assert.Equal(t, codes.Error, pass.Status.Code)
	done := pass.Events[1].Attributes
	assert.Equal(t, []any{"a", "n", round.Settled[1].Proposal.ID.String(), int64(round.Settled[1].Outcome.Revision)},
		[]any{value(done, "orbit.capsule"), value(done, "orbit.node"), value(done, "orbit.proposal"), value(done, "orbit.revision")})
	assert.Contains(t, value(pass.Events[0].Attributes, "orbit.reason"), "infeasible")
}

// Who loses a race is linked to who has won it, whichever of them is reported first, once for all proposals.
func TestLinksOfARace(t *testing.T) {
	for _, winnerFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("winner first ", winnerFirst), func(t *testing.T) {
			tracer, spans := traced()
			l := &orbit.MemoryLedger{}
			commit(t, l, node("n", 2), waits("a", "slow"), waits("b", "slow"), waits("c", "fast"), waits("d", "fast"))
			fast := &orbit.Engine{Name: "fast", Ledger: l, OnRound: tracer.Round, Navigator: &planner{module: "fast", node: "n"}}
			var won orbit.Round
			slow := &orbit.Engine{Name: "slow", Ledger: l, OnRound: tracer.Round, Navigator: &planner{module: "slow", node: "n", before: func() { won = fast.Pass(ctx) }}}
			lost := slow.Pass(ctx)
			require.Equal(t, []int{2, 2}, []int{won.Committed, lost.Conflicts})
			if winnerFirst {
				tracer.Round(won)
				tracer.Round(lost)
			} else {
				tracer.Round(lost)
				tracer.Round(won)
			}
			both := passes(spans())
			require.Len(t, both, 2)
			first, second := both[0], both[1]
			assert.Empty(t, first.Links)
			require.Len(t, second.Links, 1)
			assert.True(t, second.Links[0].SpanContext.Equal(first.SpanContext))
			if winnerFirst {
				assert.Equal(t, []any{"lost to", int64(2)}, []any{value(second.Links[0].Attributes, "orbit.link"), value(second.Links[0].Attributes, "orbit.proposals")})
				receipt := second.Events[0]
				assert.Equal(t, "conflict", receipt.Name)
				assert.Equal(t, won.Settled[1].Proposal.ID.String(), value(receipt.Attributes, "orbit.taken_by"))
				assert.Equal(t, int64(won.Settled[1].Outcome.Revision), value(receipt.Attributes, "orbit.taken_at"))
				assert.Equal(t, codes.Unset, second.Status.Code, "a conflict is no error")
			} else {
				assert.Equal(t, "won over", value(second.Links[0].Attributes, "orbit.link"))
			}
		})
	}
}

// lossy commits proposals, and loses the answer to the first.
type lossy struct {
	*orbit.MemoryLedger
	lost bool
}

func (l *lossy) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := l.MemoryLedger.ProposeBatch(ctx, batch)
	if !l.lost {
		l.lost, out[0] = true, orbit.Outcome{Err: fmt.Errorf("gone: %w", orbit.ErrUnknown)}
	}
	return out
}

// A pass that sends a proposal again is linked to the one that sent it first.
func TestLinkOfWhatIsSentAgain(t *testing.T) {
	tracer, spans := traced()
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 2), waits("a", "m"))
	e := &orbit.Engine{Name: "e", Ledger: &lossy{MemoryLedger: l}, OnRound: tracer.Round, Navigator: &planner{module: "m", node: "n"}}
	tracer.Round(e.Pass(ctx))
	tracer.Round(e.Pass(ctx))
	both := passes(spans())
	require.Len(t, both, 2)
	assert.Equal(t, "unknown", both[0].Events[0].Name)
	require.Len(t, both[1].Links, 1)
	assert.True(t, both[1].Links[0].SpanContext.Equal(both[0].SpanContext))
	assert.Equal(t, "sent before", value(both[1].Links[0].Attributes, "orbit.link"))
	assert.Equal(t, "committed", both[1].Events[0].Name)
	assert.Equal(t, codes.Error, both[0].Status.Code)
}

// settled makes an outcome of a proposal.
func settled(id byte, err error) orbit.Settled {
	return orbit.Settled{Proposal: orbit.Proposal{ID: orbit.ProposalID{id}}, Outcome: orbit.Outcome{Err: err, Revision: 1}}
}

// A span says what was not committed first, as much as there is room for, and how much there is not.
func TestEventsAreBounded(t *testing.T) {
	tracer, spans := traced()
	tracer.Proposals = 3
	refused := func(kind error) error { return &orbit.Rejection{Kind: kind, Bet: orbit.MarkAt{}, Reason: "no"} }
	tracer.Round(orbit.Round{Engine: "e\xff", Start: time.Now(), Settled: []orbit.Settled{settled(1, nil), settled(2, nil), settled(3, refused(orbit.ErrInvalid)), settled(4, errors.New("failed\xff")), settled(5, nil)},
		Errors: append(make([]error, 1), errors.New("first\nline"), errors.New("second\xff"))})
	pass := spans()[0]
	var names []string
	for _, e := range pass.Events {
		names = append(names, e.Name)
	}
	assert.Equal(t, []string{"invalid", "failed", "committed", "exception", "exception"}, names)
	assert.Equal(t, int64(2), value(pass.Attributes, "orbit.left_out"))
	assert.Equal(t, "MarkAt", value(pass.Events[0].Attributes, "orbit.bet"))
	for _, as := range [][]attribute.KeyValue{pass.Attributes, pass.Events[1].Attributes, pass.Events[4].Attributes} {
		for _, a := range as {
			assert.True(t, utf8.ValidString(a.Value.String()), "%v", a)
		}
	}
	assert.Equal(t, codes.Error, pass.Status.Code)
}

// Notes of all kinds are attributes; what has no kind is left out.
func TestNotes(t *testing.T) {
	tracer, spans := traced()
	tracer.Round(orbit.Round{Notes: []slog.Attr{slog.Int("i", -1), slog.Uint64("u", 1<<64-1), slog.Float64("f", 0.5), slog.Duration("d", time.Second), slog.Bool("b", true),
		slog.String("s", "x\xff"), slog.Any("g", slog.GroupValue(slog.Int("in", 2))), slog.Any("a", struct{}{}), slog.Time("t", time.Now()), {}}})
	got := map[string]any{}
	for _, a := range spans()[0].Attributes {
		if name, ok := strings.CutPrefix(string(a.Key), "orbit.note."); ok {
			got[name] = a.Value.AsInterface()
		}
	}
	assert.Equal(t, map[string]any{"i": int64(-1), "u": int64(1<<63 - 1), "f": 0.5, "d": 1.0, "b": true, "s": "x\ufffd", "g.in": int64(2)}, got)
}

// Only so many proposals are remembered, the newest.
func TestRemembersTheNewest(t *testing.T) {
	tracer, spans := traced()
	tracer.Remember = 100
	for i := range 255 {
		tracer.Round(orbit.Round{Settled: []orbit.Settled{settled(byte(i+1), nil)}})
	}
	links := func(id byte) int {
		tracer.Round(orbit.Round{Settled: []orbit.Settled{{Outcome: orbit.Outcome{Err: &orbit.Rejection{Kind: orbit.ErrConflict, TakenBy: orbit.ProposalID{id}}}}}})
		all := spans()
		return len(all[len(all)-1].Links)
	}
	assert.Equal(t, 1, links(255))
	assert.Equal(t, 1, links(210))
	assert.Equal(t, 0, links(100))
}

// What is not sampled has no events, is not remembered, and costs little.
func TestUnsampled(t *testing.T) {
	tracer, spans := traced(sdk.WithSampler(sdk.NeverSample()))
	round := orbit.Round{Settled: []orbit.Settled{settled(1, nil)}, Errors: []error{loud{t}}}
	tracer.Round(round)
	assert.Empty(t, spans())
	tracer, spans = traced(sdk.WithSampler(&later{}))
	tracer.Round(round)
	tracer.Round(orbit.Round{Settled: []orbit.Settled{settled(1, nil)}})
	require.Len(t, spans(), 1)
	assert.Empty(t, spans()[0].Links, "no link leads to a span that was not exported")
}

// later samples all but the first span.
type later struct{ begun bool }

func (l *later) ShouldSample(sdk.SamplingParameters) (r sdk.SamplingResult) {
	if l.begun {
		r.Decision = sdk.RecordAndSample
	}
	l.begun = true
	return r
}

func (*later) Description() string { return "later" }

// loud is an error whose text must not be asked for.
type loud struct{ t *testing.T }

func (l loud) Error() string {
	l.t.Error("its text was asked for")
	return ""
}

// Without a provider spans go to the global one, and the engines of a population share one tracer.
func TestGlobalProvider(t *testing.T) {
	before := otel.GetTracerProvider()
	defer otel.SetTracerProvider(before)
	out := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(out)))
	tracer, l := &otelorbit.Tracer{}, &orbit.MemoryLedger{}
	population := &orbit.Population{}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := range 3 {
		module := fmt.Sprint("m", i)
		commit(t, l, node(orbit.NodeID(module), 50))
		for c := range 50 {
			commit(t, l, waits(orbit.CapsuleID(fmt.Sprint(module, "-", c)), module))
		}
		population.Engines = append(population.Engines, &orbit.Engine{Name: module, Ledger: l, OnRound: tracer.Round, MaxPlan: 7,
			Navigator: &owner{&nav.Services{}, module}})
	}
	go func() {
		for s, err := l.Snapshot(ctx); err == nil && s.PendingCount() > 0; s, err = l.Snapshot(ctx) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		cancel()
	}()
	require.NoError(t, population.Run(ctx))
	var committed, links int
	ids := map[trace.SpanID]bool{}
	for _, s := range passes(out.GetSpans()) {
		committed += int(value(s.Attributes, "orbit.committed").(int64))
		ids[s.SpanContext.SpanID()] = true
		for _, l := range s.Links {
			links++
			assert.True(t, ids[l.SpanContext.SpanID()], "links lead to spans that there are")
		}
	}
	assert.Equal(t, 150, committed)
	t.Log("links:", links)
}

// owner claims all of one module.
type owner struct {
	orbit.Navigator
	module string
}

func (o *owner) Claims(module string, _ orbit.AppClass) bool { return module == o.module }

// The program in the README compiles, and the page is short.
func TestReadme(t *testing.T) { harness.Readme(t) }
