package race

import (
	"cmp"
	"context"
	"encoding/binary"
	"runtime"
	"time"

	"github.com/orbitsched/orbit"
)

// actor is who takes steps: an engine, or the world. It runs in a goroutine of its own (and the goroutine in which
// its engine plans), which moves only between a grant and the next stop.
type actor struct {
	*course
	name      string
	number    int
	scheduler *Scheduler // nil: the world
	resume    chan struct{}
	// Stops so far.
	steps int
	// Its newest event.
	turn   uint64
	moving bool

	// Where it has stopped, what is going to happen to it there, and how long it has to do with that.
	kind  stepKind
	where string
	args  []any
	fault fault
	lasts time.Duration
	// Nothing to do until the agenda says so.
	idle bool
	// It waits for a revision after this one, at most until the deadline (0: for ever), and takes its time when
	// there is one.
	dozing    bool
	after     orbit.Revision
	deadline  time.Duration
	hesitates time.Duration
	woken     bool
	// It waits between two passes, for a change that its engine wakes for.
	resting bool

	// To crash when it moves next; it has crashed.
	dead, gone bool
	life       int
	// When it began.
	began  time.Duration
	engine *orbit.Engine
	// The last snapshot it was given, what its next view must have reached, and the view of the pass it is in.
	seen    *orbit.State
	atLeast orbit.Revision
	// Names for the ids of its engine's proposals that are the same in every run.
	ids    map[orbit.ProposalID]orbit.ProposalID
	count  uint64
	tally  Tally
	losing bool // the pass has lost a proposal
}

type actorKey struct{}

// newActor returns one that has not begun.
func newActor(c *course, s *Scheduler, number int) *actor {
	a := &actor{course: c, scheduler: s, number: number, resume: make(chan struct{}), gone: true}
	if s != nil {
		a.name = s.Name
		a.tally.Name = s.Name
	}
	return a
}

// live is an engine's life, until it crashes.
func (a *actor) live() {
	defer a.bye()
	a.begin()
	ctx := context.WithValue(background(), actorKey{}, a)
	for {
		a.stop(stepPass, "begin a pass")
		a.losing = false
		round := a.engine.Pass(ctx)
		if a.dead { // while it planned
			runtime.Goexit()
		}
		if a.losing {
			a.tally.Lost++
		}
		a.note(a, "ends its pass: %s", round)
		if (round.Infeasible > 0 || round.Invalid > 0) && !a.scheduler.careless {
			a.fail("navigator's mistake", "%s", round)
		}
		a.rest(ctx, round)
	}
}

// bye lets the driver know that the goroutine has ended.
func (a *actor) bye() {
	a.gone, a.dozing = true, false
	a.stopped <- a
}

// ages is longer than any race.
const ages = 100 * 365 * 24 * time.Hour

// begin makes a new engine.
func (a *actor) begin() {
	a.life++
	a.began = a.now
	a.seen, a.atLeast, a.resting, a.ids = nil, 0, false, map[orbit.ProposalID]orbit.ProposalID{}
	a.engine = &orbit.Engine{
		Name: a.name, Ledger: a.gate(), Navigator: &thinker{actor: a, of: a.scheduler.Navigator()},
		MaxPlan: a.scheduler.MaxPlan, PlanTimeout: ages, ParkFor: cmp.Or(a.scheduler.ParkFor, ages), Backoff: a.scheduler.Backoff,
	}
	a.engine.Backoff.Jitter = -1 // which would be random
	if a.board != nil {
		a.engine.Telemetry = &hearing{a}
	}
}

// stop ends a step. It returns when the next one is granted, with what goes wrong with that, or never.
func (a *actor) stop(kind stepKind, format string, args ...any) fault {
	return a.stopFor(0, kind, format, args...)
}

// stopFor stops for a time at least.
func (a *actor) stopFor(d time.Duration, kind stepKind, format string, args ...any) fault {
	if a.dead {
		runtime.Goexit()
	}
	if a.scheduler == nil && kind == stepInside {
		kind = stepWorld // the world does not crash
	}
	a.kind, a.lasts = kind, d
	a.where, a.args = format, args
	a.stopped <- a
	<-a.resume
	if a.dead {
		runtime.Goexit()
	}
	if a.fault.what != "" {
		a.disturb()
	}
	return a.fault
}

// doze stops until there is a revision after this one, or the deadline. It reports whether there is one.
func (a *actor) doze(after orbit.Revision, deadline time.Duration) bool {
	a.dozing, a.after, a.deadline, a.woken = true, after, deadline, false
	a.stop(stepPass, "sleep until there is a revision after %d", after)
	a.dozing = false
	return a.woken
}

// rest waits in virtual time as [orbit.Engine.Run] does, by the engine's own steps. One thing differs: after a pass with
// nothing to do the backoff does not end the wait, for an engine that looks again each second hides a lost wake-up.
func (a *actor) rest(ctx context.Context, round orbit.Round) {
	backoff, due := a.engine.Pause(round)
	if backoff == 0 {
		return
	}
	if round.View == 0 { // no view: nothing to compare changes with
		a.stopFor(backoff, stepPass, "rest for %v", backoff)
		return
	}
	wait := &waiting{Context: ctx, actor: a}
	if round.Pending > 0 || round.Proposed > 0 || len(round.Errors) > 0 {
		wait.end = a.now + backoff
	}
	if until := due.Sub(a.start); a.Sleep != nil && !due.IsZero() && until < ages/2 && (wait.end == 0 || until < wait.end) {
		wait.end = max(until, 1)
	}
	a.resting = true
	defer func() { a.resting = false }()
	for changes, err := range orbit.Follow(wait, a.engine.Ledger, round.View) {
		if err != nil {
			a.stopFor(backoff, stepPass, "look again")
			return
		}
		if a.engine.Wake(wait, changes) {
			return
		}
	}
}

// waiting is the context of a wait that ends at a virtual time; 0: never.
type waiting struct {
	context.Context
	actor *actor
	end   time.Duration
}

// Deadline returns the end by the clock of package time, as the gate reads it.
func (w *waiting) Deadline() (time.Time, bool) { return w.actor.start.Add(w.end), w.end > 0 }

// Err reports whether the end has come.
func (w *waiting) Err() error {
	if w.end > 0 && w.actor.now >= w.end {
		return context.DeadlineExceeded
	}
	return w.Context.Err()
}

// rename returns the name of an id that is the same in every run.
func (a *actor) rename(id orbit.ProposalID) orbit.ProposalID {
	if known, ok := a.ids[id]; ok {
		return known
	}
	name := a.nextID()
	a.ids[id] = name
	return name
}

// nextID returns a new id: who, and the how-manieth.
func (a *actor) nextID() (id orbit.ProposalID) {
	a.count++
	binary.BigEndian.PutUint64(id[:], uint64(a.number)+1)
	binary.BigEndian.PutUint64(id[8:], a.count)
	return id
}
