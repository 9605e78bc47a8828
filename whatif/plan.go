package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// Trial has the schedulers that plan on the fork. The zero Trial has none: it shows only the effects of the commitments
// themselves.
type Trial struct {
	// Navigators are the schedulers to try; each gets an engine of its own. A navigator belongs to one engine, so it
	// must not be used by another engine at the same time.
	Navigators []orbit.Navigator
	// Engines makes further engines, for schedulers that need a name, telemetry or options; nil: none. The fork must be
	// their only ledger. The trial calls their Pass and never their Run.
	Engines func(fork orbit.Ledger) []*orbit.Engine
	// Step, if set, is called after each round of passes. Use it for parts that are no engines, for example to call
	// Pass of a nav.Drain on the fork.
	Step func(ctx context.Context, fork orbit.Ledger) error
	// Rounds is how often each engine passes at most; default 1,000. If the bound is reached, the Report's Resting is
	// false.
	Rounds int
}

// Plan tries the commitments with these navigators; see [Trial.Plan].
func Plan(ctx context.Context, state *orbit.State, navigators []orbit.Navigator, do ...orbit.Commitment) (*Report, error) {
	return (&Trial{Navigators: navigators}).Plan(ctx, state, do...)
}

// Plan commits the commitments on a fork of the state, as one proposal, and lets all engines pass in turn until they
// commit nothing more. Without commitments it shows what the engines would do in the state as it is. The trial does not
// wait, so effects that need time, such as the end of a hold, do not happen.
//
// The error is the ledger's refusal of the commitments ([*orbit.Rejection]), the context's error, or the error of Step.
// The state, and the ledger that it comes from, do not change.
func (t *Trial) Plan(ctx context.Context, state *orbit.State, do ...orbit.Commitment) (*Report, error) {
	if state == nil {
		return nil, errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	ledger := newFork(state)
	if len(do) > 0 {
		if _, err := ledger.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), View: state.Revision(), Do: do}); err != nil {
			return nil, err
		}
	}
	r := &Report{Before: state}
	if err := t.run(ctx, ledger, r); err != nil {
		return nil, err
	}
	after, err := ledger.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	r.After, r.sent = after, ledger.sent
	r.compare()
	return r, nil
}

// run lets the engines pass until they rest.
func (t *Trial) run(ctx context.Context, ledger *fork, r *Report) error {
	var engines []*orbit.Engine
	for i, n := range t.Navigators {
		engines = append(engines, &orbit.Engine{Name: fmt.Sprintf("whatif-%d", i+1), Ledger: ledger, Navigator: n})
	}
	if t.Engines != nil {
		engines = append(engines, t.Engines(ledger)...)
	}
	r.why = map[orbit.CapsuleID]error{}
	most := cmp.Or(max(0, t.Rounds), 1000)
	resting, err := settle(ctx, engines, most, func() int { return len(ledger.sent) }, func(round *orbit.Round) { r.note(round) }, func() error {
		if r.Rounds++; t.Step == nil {
			return nil
		}
		if err := t.Step(ctx, ledger); err != nil {
			return fmt.Errorf("whatif: Trial.Step: %w", err)
		}
		return nil
	})
	r.Resting = resting
	return err
}

// settle lets engines pass in turn, with step after each round, until two rounds in a row have committed nothing, or
// until most rounds are done; then it reports false.
func settle(ctx context.Context, engines []*orbit.Engine, most int, commits func() int, note func(*orbit.Round), step func() error) (resting bool, err error) {
	// One idle round is not enough: a pass that commits nothing may learn something that the next pass acts on, such as
	// a lost bet.
	for idle, rounds := 0, 0; idle < 2; rounds++ {
		if rounds == most {
			return false, nil
		}
		before := commits()
		for _, e := range engines {
			round := e.Pass(ctx)
			note(&round)
			if err := ctx.Err(); err != nil {
				return false, err
			}
		}
		if err := step(); err != nil {
			return false, err
		}
		if idle++; commits() > before {
			idle = 0
		}
	}
	return true, nil
}

// Report is the result of a trial. It is read-only, and may be read from any goroutine.
type Report struct {
	// Before is the state at the beginning of the trial, and After the state at its end.
	Before, After *orbit.State
	// Placed lists capsules that are on a node and were not before.
	Placed []Placement
	// Moved lists capsules that are on another node than before.
	Moved []Placement
	// Displaced lists capsules that were on a node and are pending now.
	Displaced []Placement
	// Ended lists capsules that were on a node or pending and have been released for good.
	Ended []Placement
	// Unplaced lists all capsules that are pending at the end, in the order of [orbit.State.Pending]. Each has the last
	// reason that an engine of the trial gave.
	Unplaced []orbit.Unplaced
	// Rounds is how often each engine has passed.
	Rounds int
	// Conflicts and Infeasible count the proposals that were refused, as [orbit.Round] does.
	Conflicts, Infeasible int
	// Errors are all errors of the passes except conflicts.
	Errors []error
	// Resting says that the engines had nothing more to do. False: the trial was stopped after Trial.Rounds.
	Resting bool

	sent []committed
	why  map[orbit.CapsuleID]error
}

// Placement is a capsule with its nodes before and after the trial.
type Placement struct {
	// Capsule is the capsule.
	Capsule orbit.CapsuleID
	// From is the node that it was on before the trial; empty: none.
	From orbit.NodeID
	// To is the node that it is on after the trial; empty: none.
	To orbit.NodeID
	// For is the capsule for which this capsule was last evicted in the trial; empty: it was not evicted for a capsule.
	For orbit.CapsuleID
	// ForGang is the gang for which this capsule was last evicted; empty: it was not evicted for a gang.
	ForGang orbit.GangID
}

var errUnclaimed = errors.New("no navigator of the trial has planned it")

// note adds the counts, errors and reasons of a round to the report.
func (r *Report) note(round *orbit.Round) {
	r.Conflicts += round.Conflicts
	r.Infeasible += round.Infeasible
	r.Errors = append(r.Errors, round.Errors...)
	for _, u := range round.Unplaced {
		if u.Capsule != nil {
			r.why[u.Capsule.ID] = u.Why
		}
	}
}

// compare fills in the lists of the report from the states before and after, for the capsules that the proposals name.
func (r *Report) compare() {
	touched := map[orbit.CapsuleID]Placement{}
	touch := func(id orbit.CapsuleID) {
		if _, ok := touched[id]; !ok && id != "" {
			touched[id] = Placement{Capsule: id}
		}
	}
	for i := range r.sent {
		for _, do := range r.sent[i].Do {
			switch do := do.(type) {
			case orbit.Place:
				touch(do.Capsule)
			case orbit.Release:
				touch(do.Capsule)
			case orbit.Evict:
				touched[do.Capsule] = Placement{Capsule: do.Capsule, For: do.For, ForGang: do.ForGang}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(touched)) {
		r.sort(touched[id])
	}
	for _, c := range r.After.Pending() {
		r.Unplaced = append(r.Unplaced, orbit.Unplaced{Capsule: c, Why: cmp.Or(r.why[c.ID], errUnclaimed)})
	}
}

// sort adds a capsule to the list that says what has become of it. A capsule on the same node as before is in no list.
func (r *Report) sort(p Placement) {
	before, after := r.Before.Capsule(p.Capsule), r.After.Capsule(p.Capsule)
	if before != nil {
		p.From = before.Node
	}
	if after != nil {
		p.To = after.Node
	}
	switch {
	case after == nil || after.Released():
		if before != nil && !before.Released() {
			r.Ended = append(r.Ended, p)
		}
	case p.From == p.To:
	case p.From == "":
		r.Placed = append(r.Placed, p)
	case p.To == "":
		r.Displaced = append(r.Displaced, p)
	default:
		r.Moved = append(r.Moved, p)
	}
}

// Proposals returns copies of the proposals that were committed on the fork, in that order. The first has the
// commitments that Plan was called with, if there were any.
func (r *Report) Proposals() []orbit.Proposal {
	out := make([]orbit.Proposal, len(r.sent))
	for i := range r.sent {
		out[i] = r.sent[i].Clone()
	}
	return out
}

// listed is how many entries of a list String prints.
const listed = 10

// String returns the outcome in a few lines, for an operator.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at revision %d: %d placed, %d moved, %d displaced, %d ended, %d left unplaced; %d proposals, %d conflicts, %d rounds",
		r.Before.Revision(), len(r.Placed), len(r.Moved), len(r.Displaced), len(r.Ended), len(r.Unplaced), len(r.sent), r.Conflicts, r.Rounds)
	if !r.Resting {
		b.WriteString(", stopped before the navigators came to rest")
	}
	list(&b, r.Placed, func(p Placement) string { return fmt.Sprintf("+ %s on %s", p.Capsule, p.To) })
	list(&b, r.Moved, func(p Placement) string { return fmt.Sprintf("~ %s from %s to %s", p.Capsule, p.From, p.To) })
	list(&b, r.Displaced, func(p Placement) string {
		text := fmt.Sprintf("- %s off %s", p.Capsule, p.From)
		if by := cmp.Or(string(p.For), string(p.ForGang)); by != "" {
			text += ", makes way for " + by
		}
		return text
	})
	list(&b, r.Ended, func(p Placement) string { return fmt.Sprintf("x %s", p.Capsule) })
	list(&b, r.Unplaced, func(u orbit.Unplaced) string { return fmt.Sprintf("? %s waits: %v", u.Capsule.ID, u.Why) })
	for _, err := range r.Errors[:min(len(r.Errors), listed)] {
		fmt.Fprintf(&b, "\n  ! %v", err)
	}
	return b.String()
}

// list prints the first entries of a list, one a line, and the number of the others.
func list[T any](b *strings.Builder, of []T, line func(T) string) {
	for _, x := range of[:min(len(of), listed)] {
		b.WriteString("\n  " + line(x))
	}
	if more := len(of) - listed; more > 0 {
		fmt.Fprintf(b, "\n    and %d more", more)
	}
}
