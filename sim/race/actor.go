package race

import (
	"cmp"
	"context"
	"encoding/binary"
	"runtime"
	"time"

	"github.com/orbitsched/orbit"
)

// actor takes steps: it is an engine or the world. It runs in a goroutine of its own, and its engine plans in a second
// one. They move only between a grant of the driver and the next stop.
type actor struct {
	*course
	name      string
	number    int
	scheduler *Scheduler    // nil: the world
	resume    chan struct{} // takes a token when the driver grants a step
	// steps is the number of stops so far.
	steps int
	// turn is the turn of the actor's newest event.
	turn   uint64
	moving bool

	// kind, where and args say at which step the actor has stopped. fault is what goes wrong with that step, and lasts
	// is how long the step takes at least.
	kind  stepKind
	where string
	args  []any
	fault fault
	lasts time.Duration
	// idle says that the world has nothing to do before the next entry of its agenda.
	idle bool
	// dozing says that the actor waits for a revision newer than after, at most until the deadline (0: for ever). woken
	// says that there is such a revision; the actor then goes on after the time hesitates.
	dozing    bool
	after     orbit.Revision
	deadline  time.Duration
	hesitates time.Duration
	woken     bool
	// resting says that the engine waits between two passes for a change that wakes it.
	resting bool

	// dead says that the actor crashes when it moves next; gone says that its goroutine has ended or not begun.
	dead, gone bool
	// life counts the engines that the actor has had.
	life int
	// began is when the present engine began.
	began  time.Duration
	engine *orbit.Engine
	// seen is the last snapshot that the engine was given; atLeast is the revision that its next view must have
	// reached.
	seen    *orbit.State
	atLeast orbit.Revision
	// ids has, for the ids of the engine's proposals, ids that are the same in every run.
	ids    map[orbit.ProposalID]orbit.ProposalID
	count  uint64
	tally  Tally
	losing bool // a proposal of the present pass has lost to another commit
}

// actorKey is the key of the actor in the contexts of its engine.
type actorKey struct{}

// newActor returns an actor that has not begun; s is nil for the world.
func newActor(c *course, s *Scheduler, number int) *actor {
	a := &actor{course: c, scheduler: s, number: number, resume: make(chan struct{}), gone: true}
	if s != nil {
		a.name = s.Name
		a.tally.Name = s.Name
	}
	return a
}

// live runs passes of an engine until it crashes.
func (a *actor) live() {
	defer a.bye()
	a.begin()
	ctx := context.WithValue(background(), actorKey{}, a)
	for {
		a.stop(stepPass, "begin a pass")
		a.losing = false
		round := a.engine.Pass(ctx)
		a.planning.Load() // orders this goroutine after one whose plan overruns, which has seen what the driver wrote
		if a.dead {       // it crashed while it planned
			runtime.Goexit()
		}
		if a.losing {
			a.tally.Lost++
		}
		a.note(a, "ends its pass: %s", round)
		if a.play != nil {
			a.play.heard(&round)
		} else if (round.Infeasible > 0 || round.Invalid > 0) && !a.scheduler.careless {
			a.fail("navigator's mistake", "%s", round)
		}
		a.rest(ctx, round)
	}
}

// bye tells the driver that the goroutine has ended.
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
		Name: a.name, Ledger: a.gate(),
		MaxPlan: a.scheduler.MaxPlan, PlanTimeout: cmp.Or(a.scheduler.planTimeout, ages), ParkFor: cmp.Or(a.scheduler.ParkFor, ages), Backoff: a.scheduler.Backoff,
	}
	a.engine.Backoff.Jitter = -1 // none, because it would be random
	if a.scheduler.make != nil {
		a.engine.Navigator = &thinker{actor: a, of: a.scheduler.make(a.course)}
	} else {
		a.engine.Navigator = &thinker{actor: a, of: a.scheduler.Navigator()}
	}
	if a.board != nil {
		a.engine.Telemetry = hearing{a.board, a}
	}
}

// stop ends a step and waits until the driver grants the next one. It returns the fault of that next step. If the actor
// crashes there, stop does not return.
func (a *actor) stop(kind stepKind, format string, args ...any) fault {
	return a.stopFor(0, kind, format, args...)
}

// stopFor is stop for at least the time d.
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

// rest waits in virtual time as [orbit.Engine.Run] does, with the engine's own Pause and Wake. One thing differs: after
// a pass with nothing to do, the backoff does not end the wait, because an engine that looks again every second would
// hide a lost wake-up.
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
	if round.Pending > 0 || round.Proposed > 0 || len(round.Errors) > 0 || a.play != nil { // a new report alone wakes no engine
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

// Deadline returns the end by the clock of package time; doze.Done converts it back to virtual time.
func (w *waiting) Deadline() (time.Time, bool) { return w.actor.start.Add(w.end), w.end > 0 }

// Err reports whether the end has come.
func (w *waiting) Err() error {
	if w.end > 0 && w.actor.now >= w.end {
		return context.DeadlineExceeded
	}
	return w.Context.Err()
}

// rename returns, for an id that the engine has made, an id that is the same in every run.
func (a *actor) rename(id orbit.ProposalID) orbit.ProposalID {
	if known, ok := a.ids[id]; ok {
		return known
	}
	name := a.nextID()
	a.ids[id] = name
	return name
}

// nextID returns a new id, which consists of the actor's number and a count.
func (a *actor) nextID() (id orbit.ProposalID) {
	a.count++
	binary.BigEndian.PutUint64(id[:], uint64(a.number)+1)
	binary.BigEndian.PutUint64(id[8:], a.count)
	return id
}
