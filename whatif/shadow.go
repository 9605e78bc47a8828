package whatif

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
)

// Shadow tries an engine beside a real one and commits nothing. For each pass of the real engine, the shadow's engine
// passes once on the very state that the real engine has planned on, with a queue of its own. Shadow then compares both
// plans capsule by capsule. The shadow's proposals are judged on a fork of that state, which is then dropped. So its
// next pass begins at the real state again.
//
//	real engine ── Round (state, proposals) ─► Shadow ─► its engine passes on that state ─► Report
//
// The real engine hands over its rounds and never waits for the shadow. Set the fields before the first call; methods
// may be called from any goroutine. In a [World], by contrast, the engines go on from their own placements.
type Shadow struct {
	// Ledger is the real ledger. It is only read. Required.
	Ledger orbit.Ledger
	// Engine makes the engine to try. The engine must use the ledger that Engine is called with, which never writes to
	// the real one. Give the engine the real engine's name, because work may be assigned to that name, and a navigator
	// of its own. Required.
	Engine func(ledger orbit.Ledger) *orbit.Engine
	// Scores rate the placements of both engines, by name: for example the score of the real navigator and that of the
	// shadow's. Nil: only agreement is counted. They are called from one goroutine at a time.
	Scores map[string]orbit.Score
	// Telemetry has the nodes' reports for the scores; nil: scores get the zero report.
	Telemetry orbit.Telemetry

	once    sync.Once
	queue   chan orbit.Round
	dropped atomic.Int64
	running atomic.Bool

	passing sync.Mutex // held during a pass; guards pin and engine
	pin     *pinned
	engine  *orbit.Engine

	mu  sync.Mutex // guards sum
	sum ShadowReport
}

// ShadowReport compares passes of a shadow with the real ones.
type ShadowReport struct {
	// Passes counts the passes that were compared.
	Passes int
	// Dropped counts the rounds that were not compared, because the shadow was too slow.
	Dropped int
	// Refused counts the proposals of the shadow that the ledger would have refused.
	Refused int
	// Planning and ShadowPlanning are the total times that the real engine and the shadow's engine took to plan.
	Planning, ShadowPlanning time.Duration
	// Errors are the latest errors of the shadow's passes, at most 16.
	Errors []error
	// Differences are the latest capsules that were placed differently, at most 16.
	Differences []Difference
	Tally
}

// Difference is a capsule that a shadow places differently.
type Difference struct {
	// View is the revision that both planned on.
	View orbit.Revision
	// Capsule is the capsule.
	Capsule orbit.CapsuleID
	// Real and Shadow are the nodes; empty: the plan did not place it.
	Real, Shadow orbit.NodeID
}

// kept is how many entries the lists of a report have at most.
const kept = 16

// String returns the comparison in a few lines.
func (r *ShadowReport) String() string {
	return fmt.Sprintf("%d passes compared, %d dropped, %d proposals refused, %d errors; plans took %v, shadow %v\n%s",
		r.Passes, r.Dropped, r.Refused, len(r.Errors), r.Planning, r.ShadowPlanning, &r.Tally)
}

// waiting is how many rounds may wait for the shadow; further ones are dropped.
const waiting = 16

func (s *Shadow) init() {
	s.once.Do(func() { s.queue = make(chan orbit.Round, waiting) })
}

// Round hands over a round of the real engine to Run, and returns at once. If the shadow is too slow, Round drops the
// round and counts it in ShadowReport.Dropped. Set it as the OnRound of the real engine, or call it from an OnRound of
// your own.
func (s *Shadow) Round(round orbit.Round) {
	s.init()
	select {
	case s.queue <- round:
	default:
		s.dropped.Add(1)
	}
}

// Run compares the rounds that are handed over, until ctx ends; then it returns nil. It returns an error at once if a
// required field is missing, or if another call of Run has not returned.
func (s *Shadow) Run(ctx context.Context) error {
	s.init()
	if err := s.check(); err != nil {
		return err
	}
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("whatif: the shadow runs already")
	}
	defer s.running.Store(false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case round := <-s.queue:
			if _, err := s.Pass(ctx, round); err != nil && ctx.Err() == nil {
				s.note(&ShadowReport{Errors: []error{err}})
			}
		}
	}
}

func (s *Shadow) check() error {
	if s.Ledger == nil || s.Engine == nil {
		return errors.New("whatif: a Shadow needs the Ledger that it reads, and Engine, which makes the engine that is tried")
	}
	return nil
}

// Pass compares one round of the real engine with a pass of the shadow's engine. It returns the comparison and adds it
// to the report. Run calls it for each round.
func (s *Shadow) Pass(ctx context.Context, round orbit.Round) (*ShadowReport, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if round.State == nil {
		return nil, errors.New("whatif: the round has no State; pass on what the OnRound of an engine is given")
	}
	s.passing.Lock()
	defer s.passing.Unlock()
	tried := newRecorder(round.State, raters{s.Scores, s.Telemetry})
	if err := s.prepare(tried); err != nil {
		return nil, err
	}
	mine := s.engine.Pass(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	actual := newRecorder(round.State, tried.raters)
	for i := range round.Settled {
		if p := &round.Settled[i].Proposal; p.View == round.View { // another view: it was planned in an earlier pass and sent again
			_, _ = actual.Propose(ctx, *p) // compares plans, not outcomes: a proposal that lost to another engine may be committed here
		}
	}
	r := &ShadowReport{Passes: 1, Refused: s.pin.refused, Planning: round.Planning, ShadowPlanning: mine.Planning, Errors: mine.Errors}
	r.Evicted, r.ShadowEvicted = actual.evicted, tried.evicted
	r.compare(round.View, actual.placed, tried.placed)
	s.note(r)
	return r, nil
}

// prepare moves the shadow's ledger to the state that the real engine has planned on. It makes the engine on first use,
// and again if the revision has gone back.
func (s *Shadow) prepare(tried *recorder) error {
	if s.pin != nil && tried.Start.Revision() < s.pin.state.Revision() {
		s.pin = nil // the ledger has begun anew
	}
	if s.pin == nil {
		s.pin = &pinned{real: s.Ledger, state: tried.Start}
		s.engine = s.Engine(s.pin)
		if s.engine == nil || s.engine.Ledger != orbit.Ledger(s.pin) {
			s.pin = nil
			return errors.New("whatif: Shadow.Engine must return an engine on the very ledger that it is given; another one might be written to")
		}
	}
	s.pin.set(tried)
	return nil
}

// compare counts the placements of both plans, and lists the capsules that were placed differently.
func (r *ShadowReport) compare(view orbit.Revision, actual, shadow map[orbit.CapsuleID]choice) {
	differ := func(id orbit.CapsuleID) {
		if len(r.Differences) < kept {
			r.Differences = append(r.Differences, Difference{view, id, actual[id].node, shadow[id].node})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(actual)) {
		theirs := actual[id]
		mine, placed := shadow[id]
		switch {
		case !placed:
			r.OnlyReal++
			differ(id)
		default:
			if r.both(theirs, mine); theirs.node != mine.node {
				differ(id)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(shadow)) {
		if _, placed := actual[id]; !placed {
			r.OnlyShadow++
			differ(id)
		}
	}
}

// note adds a comparison to the report.
func (s *Shadow) note(r *ShadowReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.Passes += r.Passes
	s.sum.Refused += r.Refused
	s.sum.Planning += r.Planning
	s.sum.ShadowPlanning += r.ShadowPlanning
	s.sum.Errors = latest(s.sum.Errors, r.Errors)
	s.sum.Differences = latest(s.sum.Differences, r.Differences)
	s.sum.add(&r.Tally)
}

// latest returns the last entries of both lists, in a new one.
func latest[T any](old, more []T) []T {
	all := append(append([]T(nil), old...), more...)
	return all[max(0, len(all)-kept):]
}

// Report returns the comparison of all passes so far. It is a copy.
func (s *Shadow) Report() *ShadowReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.sum
	r.Tally = s.sum.clone()
	r.Dropped = int(s.dropped.Load())
	return &r
}

// pinned is a ledger whose state is fixed at a state of the real ledger until set moves it. It judges proposals on a
// fork and answers as if they were committed, but its state does not change.
type pinned struct {
	real orbit.Ledger

	mu      sync.Mutex // guards the fields below
	state   *orbit.State
	fork    *recorder // judges the proposals
	refused int
}

// set moves the ledger to the state that a fork starts from.
func (p *pinned) set(fork *recorder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.fork, p.refused = fork.Start, fork, 0
}

func (p *pinned) at() *orbit.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Propose implements [orbit.Ledger]. If the fork accepts the proposal, Propose returns the revision of the fixed state.
// To the engine this is a commit that its view includes already, so the engine does not wait for a newer state.
func (p *pinned) Propose(ctx context.Context, proposal orbit.Proposal) (orbit.Revision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.fork.Propose(ctx, proposal)
	if err == nil {
		return p.state.Revision(), nil
	}
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) {
		p.refused++
		here := *r // revisions of the fork mean nothing to the engine
		here.At, here.TakenAt = min(r.At, p.state.Revision()), min(r.TakenAt, p.state.Revision())
		err = &here
	}
	return 0, err
}

// Snapshot implements [orbit.Ledger].
func (p *pinned) Snapshot(ctx context.Context) (*orbit.State, error) { return p.at(), ctx.Err() }

// Changes implements [orbit.Ledger]. It may return changes that are newer than the fixed state; a view ignores changes
// that are newer than its snapshot.
func (p *pinned) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if p.at().Revision() <= after {
		return nil, ctx.Err()
	}
	return p.real.Changes(ctx, after)
}

// Wait implements [orbit.Ledger].
func (p *pinned) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	if at := p.at().Revision(); at > after {
		return at, nil
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// Limits implements [orbit.Ledger].
func (p *pinned) Limits() orbit.Limits { return p.at().Limits() }
