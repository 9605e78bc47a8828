package sim

import (
	"context"
	"encoding/binary"
	"fmt"
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
	// Between passes it sleeps through what does not concern it; with classes aside, room does. Called: something
	// did.
	resting, aside, called bool

	// To crash when it moves next; it has crashed.
	dead, gone bool
	life       int
	engine     *orbit.Engine
	pause      time.Duration
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
		if round.Infeasible > 0 || round.Invalid > 0 {
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
	a.pause, a.seen, a.atLeast, a.resting, a.ids = 0, nil, 0, false, map[orbit.ProposalID]orbit.ProposalID{}
	a.engine = &orbit.Engine{
		Name: a.name, Ledger: a.gate(), Navigator: &thinker{actor: a, of: a.scheduler.Navigator()},
		MaxPlan: a.scheduler.MaxPlan, PlanTimeout: ages, ParkFor: ages,
	}
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
	a.where = format
	if len(args) > 0 {
		a.where = fmt.Sprintf(format, args...)
	}
	a.stopped <- a
	<-a.resume
	if a.dead {
		runtime.Goexit()
	}
	if a.fault.what != "" {
		a.quiet = 0
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

// rest waits as [orbit.Engine.Run] does: not at all while passes get on, then longer and longer, or until there is a
// change that may be work when nothing is pending.
func (a *actor) rest(ctx context.Context, round orbit.Round) {
	switch {
	case round.Committed > 0:
		a.pause = 0
	case round.Pending > 0 || round.Proposed > 0 || len(round.Errors) > 0:
		a.pause = min(max(2*a.pause, 10*time.Millisecond), time.Second)
		a.stopFor(a.pause, stepPass, "rest for %v", a.pause)
	default:
		a.pause = 0
		a.waitForWork(ctx, round)
	}
}

// waitForWork waits for a change that concerns the engine. If the ledger fails it looks again a little later.
func (a *actor) waitForWork(ctx context.Context, round orbit.Round) {
	ledger, seen := a.engine.Ledger, round.View
	a.resting, a.aside, a.called = true, round.Parked > 0, false
	defer func() { a.resting = false }()
	for {
		var cancel context.CancelFunc = func() {}
		waiting := ctx
		if end, ok := a.firstEnd(); ok { // of a hold
			waiting, cancel = context.WithDeadline(ctx, end)
		}
		_, err := ledger.Wait(waiting, seen)
		cancel()
		if err != nil {
			a.stopFor(10*time.Millisecond, stepPass, "look again")
			return
		}
		changes, err := ledger.Changes(ctx, seen)
		if err != nil {
			a.stopFor(10*time.Millisecond, stepPass, "look again")
			return
		}
		for i := range changes {
			if a.concerns(&changes[i]) {
				return
			}
			seen = max(seen, changes[i].Revision)
		}
		if len(changes) == 0 {
			a.fail("slept through", "%s was told of a revision after %d, and there are no changes after it", a.name, seen)
			return
		}
	}
}

// firstEnd returns when the first hold ends, if time passes for holds.
func (a *actor) firstEnd() (end time.Time, ok bool) {
	if a.Sleep == nil {
		return end, false
	}
	state, err := a.ledger.Snapshot(background())
	if err != nil {
		return end, false
	}
	for h := range state.Holds() {
		if !ok || h.Ends.Before(end) {
			end, ok = h.Ends, true
		}
	}
	return end, ok
}

// concerns reports whether a change may be work for the engine, or room for what it has put aside.
func (a *actor) concerns(c *orbit.Change) bool {
	switch do := c.Do.(type) {
	case orbit.Submit:
		return do.Owner == "" || do.Owner == a.name
	case orbit.Release:
		return a.aside || !do.Final && do.Capsule != ""
	case orbit.Assign, orbit.Hold:
		return true
	case orbit.Place, orbit.PutNode:
		return a.aside
	}
	return false
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
