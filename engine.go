package orbit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit/internal/herd"
	"github.com/orbitsched/orbit/internal/rate"
)

// Engine runs a navigator: view, plan, propose, and again. It is a struct literal; Ledger and Navigator must be set,
// everything else has a default. Set the fields before first use.
//
// At most one Plan runs at a time. A view is at least as new as every rejection and every commit of the engine's own. A
// conflict is silent, and its capsule is planned again in the next pass; every other error is counted and reported. A
// navigator that panics, exits its goroutine, overruns its deadline or returns nonsense loses its own pass and nothing
// else. What waiting work may rely on is in the package's documentation, under Waiting work.
type Engine struct {
	// Name is the owner name by which capsules are assigned to this engine, and its rounds carry it. Engines whose
	// proposals collide choose different nodes first, by a hash of their names ([View.Part]), so give each engine a
	// name of its own.
	Name string
	// Ledger is the ledger that the engine reads and proposes to. Required.
	Ledger Ledger
	// Navigator plans for the engine. Required; a navigator belongs to one engine.
	Navigator Navigator
	// Telemetry is the source of node reports for the views; nil: none.
	Telemetry Telemetry
	// MaxPlan is the maximum number of capsules planned in one pass; default 1,000.
	MaxPlan int
	// PlanTimeout is the deadline of one Plan; default 10 s. A Plan that returns within a further tenth of it is not
	// late: its results count.
	PlanTimeout time.Duration
	// ParkFor is the time after which a class that fits nowhere is tried again although no change could help it;
	// default 30 s. One capsule of the class is tried; if it is placed, the whole class is planned again. Where many
	// classes are due at a time, each pass tries some of them.
	ParkFor time.Duration
	// WaitToBegin is how long a placement of this engine's work waits until capsules have stopped that have left its node
	// ([State.Waiting]). After that the engine releases it to pending, as soon as another node could start it at once;
	// the navigator then places it anew. Default 1 minute; negative: it waits for as long as it takes.
	WaitToBegin time.Duration
	// Aging lets waiting work rise in the order of planning. The zero value lets nothing rise, so work may wait for as
	// long as work of higher priority keeps coming.
	Aging Aging
	// Backoff sets the waits after passes without progress; the zero value has the defaults.
	Backoff Backoff
	// OnRound is called by Run, from Run's goroutine, after every pass that was not idle; nil: not called.
	OnRound func(Round)
	// OnError is called by Run, from Run's goroutine, with each of Round.Errors; conflicts are never among them. Nil:
	// they are written to slog.Default(), also if OnRound is set. The log takes at most 10 errors of an engine at once
	// and one more every 10 s; a line says how many were left out before it.
	OnError func(error)

	once sync.Once
	// Held during a Pass, and whenever waiting code reads or refreshes the view.
	mu sync.Mutex
	// The faults of the fields as one error; nil: none.
	fault error
	view  View
	from  source
	pace  pace
	ids   idSource

	claims claims
	// Run is at work.
	inRun atomic.Bool
	// What Running reports: Run is at work, or Pass was called after it last returned.
	running atomic.Bool
	nudges  nudges
	// One element for each goroutine that waits for reports; nil: none has yet.
	listening chan struct{}

	// Decides claims instead of the navigator, so that no two engines of a population own the same work; nil: the
	// engine is in no population.
	population atomic.Pointer[claimShare]
	// The revision that the next view must have reached.
	atLeast Revision
	// The proposals with an unknown outcome; how many passes have sent them again; and whether they are being sent
	// again now.
	unsettled []Proposal
	tries     int
	settling  bool
	// Tells, while a plan is sent, mistakes from proposals that rest on missing ones.
	rehearsal rehearsal
	// The classes whose proposals have lost their bets in this pass, and the highest priority of all that have.
	losers []loser
	lostAt int64
	// The last pass tried no parked classes again, because work had to wait for that of other engines.
	barred bool
	// How many parked classes a pass tries again.
	share retryShare
	waits waitingPlacements
	// Why pending work waits, and what the last view showed, for readers beside a pass.
	reasons reasonBook
	shown   atomic.Pointer[View]
	// The counts of answers of the last plan that have perhaps not been read.
	unread []*fitCount
	// The last pass made progress and left work: the next one follows at once.
	sweeping bool
	// The last pass took a full batch and made no progress: the next one plans the work behind that batch.
	stuck bool
	// How many passes in a row have lost all bets of a full batch.
	beaten int
	// Work or room has come since all ready work was last planned.
	unswept bool
	// The last view could not be built.
	blind bool
	// When the last pass that has begun ended, in nanoseconds since 1970; 0: none has.
	passed atomic.Int64
	// The channel on which the verdict of a Plan arrives that has overrun its deadline and still runs; nil: none does.
	late <-chan callResult
	// Errors from outside a pass, which the next round reports.
	carried []error
	log     rate.Log
}

// ErrNavigator is wrapped by the error that an engine reports when its navigator panics, exits its goroutine or
// overruns its deadline.
var ErrNavigator = errors.New("navigator failed")

// init checks the fields and makes the engine ready, once.
func (e *Engine) init() {
	e.once.Do(func() {
		if e.fault = e.check(); e.fault != nil {
			return
		}
		e.from = source{ledger: e.Ledger, telemetry: e.Telemetry, owns: e.owns, holds: true}
		e.pace = pace{Backoff: e.Backoff.withDefaults(), rng: newRand()}
		e.view.queue.aging = e.Aging.book()
		e.view.queue.parked.reasons = &e.reasons
		e.ids = newIDSource()
		e.from.made = func(id ProposalID) bool { return bytes.HasPrefix(id[:], e.ids.prefix[:]) }
		e.view.spread.Seed = herd.Hash(e.Name)
	})
}

// check returns every fault of the fields in one error.
func (e *Engine) check() error {
	faults := append(e.Backoff.faults(), e.Aging.faults()...)
	if e.Ledger == nil {
		faults = append(faults, "Ledger is nil; use &orbit.MemoryLedger{} for one process")
	}
	if e.Navigator == nil {
		faults = append(faults, "Navigator is nil")
	}
	if e.MaxPlan < 0 || e.PlanTimeout < 0 || e.ParkFor < 0 {
		faults = append(faults, "MaxPlan, PlanTimeout and ParkFor must not be negative")
	}
	if len(faults) > 0 {
		return invalidf("engine %q: %s", e.Name, strings.Join(faults, "; "))
	}
	return nil
}

// Run calls Pass until ctx ends, and then returns nil. Between passes it waits. The wait is zero while there is more
// work than one pass takes and passes make progress. Else it lasts as long as Backoff says, or until there is work for
// this engine, room for a class that it has parked, or a hold to end. Run refuses, with an error that wraps ErrInvalid,
// to start with a fault in the fields, or while another Run of the engine is at work.
func (e *Engine) Run(ctx context.Context) error {
	if e.init(); e.fault != nil {
		return e.fault
	}
	if !e.inRun.CompareAndSwap(false, true) {
		return invalidf("engine %q runs already", e.Name)
	}
	e.running.Store(true)
	defer e.inRun.Store(false)
	defer e.running.Store(false)
	for ctx.Err() == nil {
		round := e.Pass(ctx)
		if e.OnRound != nil && (round.active() || len(round.Errors) > 0 && ctx.Err() == nil) {
			e.OnRound(round)
		}
		if ctx.Err() == nil {
			e.report(ctx, round.Errors)
		}
		e.waitForChange(ctx, round)
	}
	return nil
}

// Pass does one round: view, plan, propose. Passes of one engine run one after another.
func (e *Engine) Pass(ctx context.Context) Round {
	round := Round{Engine: e.Name, By: e}
	if e.init(); e.fault != nil {
		round.Errors = append(round.Errors, e.fault)
		return round
	}
	e.running.Store(true)
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() { e.reasons.passed(round.trouble) }()
	round.Errors, e.carried = e.carried, nil
	if !e.planReturned() {
		round.fail(fmt.Errorf("orbit: engine %q: %w: its last Plan still runs; nothing is planned until it returns", e.Name, ErrNavigator))
		return round
	}
	start := time.Now()
	round.Start = start
	defer func() { e.passed.Store(time.Now().UnixNano()) }()
	if !e.refreshView(ctx, &round, start) {
		return round
	}
	round.Errors = append(round.Errors, e.claims.takeFaults()...)
	settled := e.resendUnknown(ctx, &round)
	if settled {
		e.endRooms(ctx, &round, start)
	}
	if settled && e.view.Revision() < e.atLeast { // the proposals just sent have changed the state, so plan on a newer view
		settled = e.refreshView(ctx, &round, start)
	}
	round.Viewing = time.Since(start)
	if settled {
		e.planAndPropose(ctx, &round)
	} else if round.trouble == nil {
		round.trouble = errResend
	}
	e.endPass()
	round.Parked = len(e.view.queue.parked.spots)
	if e.OnRound != nil {
		round.State = e.view.state
	}
	return round
}

// LastPass returns when the last pass ended, also one that found nothing to do; zero: none has. Run begins a pass at
// least each Backoff.Max, so a time that gets older while the engine is [Engine.Running] says that a pass is stuck, such
// as in a Plan that does not return. It may be called from any goroutine, and never waits for a pass.
func (e *Engine) LastPass() time.Time {
	if at := e.passed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Running reports whether the engine plans in this process: Run is at work, or Pass was called and no Run has returned
// since. An engine that stands by, because another process runs one with its name, does not run. Running may be called
// from any goroutine, and never waits for a pass.
func (e *Engine) Running() bool { return e.running.Load() }

// planAndPropose is the second half of a pass: it takes a batch from the queue, has it planned and sends the proposals.
func (e *Engine) planAndPropose(ctx context.Context, round *Round) {
	start, most := time.Now(), cmp.Or(e.MaxPlan, 1000)
	queue := &e.view.queue
	queue.turn(most, e.view.state, e.stuck)
	queue.recall()
	pending := e.takeBatch(start, most)
	e.stuck = false
	round.Viewing += time.Since(start)
	if round.Pending = len(pending); round.Pending == 0 {
		return
	}
	start = time.Now()
	plan, unfit, err := e.plan(ctx, slices.Clone(pending)) // a copy, because the navigator may change the slice
	if err != nil {
		round.fail(err)
	}
	round.Planning = time.Since(start)
	round.Notes, round.Unplaced = plan.Notes, plan.Unplaced
	e.share.adapt(round.Planning)
	aside := e.park(pending, unfit, plan.Proposals)
	e.noteLeftOut(pending, &plan, err != nil)
	proposed, conflicts := round.Proposed, round.Conflicts
	permitted := e.permitted(plan.Proposals, pending, round)
	e.beginRehearsal(permitted, round.View)
	e.proposePlan(ctx, pending, permitted, round)
	e.view.NoteOutcomes(round.Proposed-proposed, round.Conflicts-conflicts-e.rehearsal.excused)
	e.rehearsal = rehearsal{}
	round.Proposing = time.Since(start) - round.Planning
	round.progress = round.progress || e.stillAside(aside)
	if e.beaten++; round.Conflicts == 0 || round.progress {
		e.beaten = 0
	}
	e.stuck = !round.progress && len(pending) == most && (e.beaten == 0 || e.beaten > mostBeaten)
}

// mostBeaten is how many times in a row a full batch that lost all its bets is planned again before the work behind it
// is. Until then work of lower priority does not take the room that the batch could use.
const mostBeaten = 8

// planReturned reports whether no Plan is running. It clears the record of a late Plan that has returned.
func (e *Engine) planReturned() bool {
	if e.late == nil {
		return true
	}
	select {
	case <-e.late: // the results of the late Plan are dropped
		e.late = nil
		return true
	default:
		return false
	}
}

// refreshView refreshes the view and records its revision in the round. If that fails, it adds the error to the round
// and reports false.
func (e *Engine) refreshView(ctx context.Context, round *Round, now time.Time) bool {
	err := e.catchUp(ctx, now)
	if e.blind = err != nil; e.blind {
		round.fail(fmt.Errorf("orbit: engine %q: view: %w", e.Name, err))
		return false
	}
	round.View = e.view.Revision()
	e.show()
	if e.nudges.take() {
		e.view.queue.unparkAll()
	}
	if _, err := e.outdate(ctx); err != nil {
		round.Errors = append(round.Errors, err)
	}
	round.roused = round.roused || e.view.queue.roused
	e.view.queue.roused = false
	return e.late == nil
}

// catchUp refreshes the view until it has reached the newest revision that the ledger has named in an answer to this
// engine.
func (e *Engine) catchUp(ctx context.Context, now time.Time) error {
	if e.claims.recovered() {
		if m := e.population.Load(); m != nil {
			m.table.forget()
		}
		e.view.state = nil // rebuild it, because capsules that Claims denied meanwhile may be this engine's
	}
	if _, err := e.view.refresh(ctx, &e.from, now); err != nil {
		return err
	}
	if e.view.Revision() >= e.atLeast {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.planTimeout())
	defer cancel()
	for e.view.Revision() < e.atLeast {
		seen := e.view.Revision()
		if _, err := e.Ledger.Wait(ctx, seen); err != nil {
			return err
		}
		if _, err := e.view.refresh(ctx, &e.from, now); err != nil {
			return err
		}
		if e.view.Revision() == seen {
			sleep(ctx, time.Millisecond) // the snapshots of this ledger lag behind its Wait
		}
	}
	return nil
}

// Nudge tells the engine of a change that the ledger does not show, for example of something that a filter or a score
// of its navigator reads. All parked classes are planned again in the next pass, and Run begins that pass at once,
// whatever its backoff. Nudge may be called from any goroutine, also by the navigator, and returns at once. Several
// nudges before the next pass count as one.
func (e *Engine) Nudge() { e.nudges.add() }

// nudges record the calls of Nudge since the last pass.
type nudges struct {
	// Guards what follows.
	mu   sync.Mutex
	some bool
	// Work of this engine need not wait for that of another any longer, so the next pass begins at once.
	roused bool
	// Ends the current wait of Run; nil: Run does not wait.
	wake func()
}

func (n *nudges) add() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.some = true; n.wake != nil {
		n.wake()
	}
}

// rouse begins the next pass at once, without a nudge.
func (n *nudges) rouse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.roused = true; n.wake != nil {
		n.wake()
	}
}

// take reports whether there were nudges, and clears them.
func (n *nudges) take() (some bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	some, n.some, n.roused = n.some, false, false
	return some
}

// interrupt sets the function that ends the current wait; nil: there is no wait any more. It reports false if there is
// a nudge or a rouse already, so that the wait need not begin.
func (n *nudges) interrupt(wake func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wake = wake
	return !n.some && !n.roused
}

// mine reports whether a pending capsule is this engine's.
func (e *Engine) mine(c *Capsule) bool { return e.owns(c.Owner(), c.Spec) }

// owns reports whether pending work with this owner and spec is this engine's: the owner is this engine, or there is no
// owner and the engine claims the work.
func (e *Engine) owns(owner string, spec *Spec) bool {
	if owner != "" {
		return owner == e.Name
	}
	key := claim{spec.Module, spec.Class}
	if m := e.population.Load(); m != nil {
		return m.table.find(key) == m.number
	}
	return e.ask(key)
}

func (e *Engine) parkFor() time.Duration { return cmp.Or(e.ParkFor, 30*time.Second) }

// planTimeout is the deadline of one call into the navigator.
func (e *Engine) planTimeout() time.Duration { return cmp.Or(e.PlanTimeout, 10*time.Second) }

// report passes errors to OnError, or writes them to the log.
func (e *Engine) report(ctx context.Context, errs []error) {
	for _, err := range errs {
		if e.OnError != nil {
			e.OnError(err)
		} else {
			e.log.Error(ctx, "orbit: error in a pass", err, slog.String("engine", e.Name))
		}
	}
}
