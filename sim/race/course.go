package race

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/telemetry"
)

// course is one run of a race. Its driver grants steps: it takes the earliest event, lets that event's actor move until
// it stops again, and then checks the rules. The fields belong to the driver while it decides, and to the moving actor
// while it moves; never to both at once, so they need no lock.
type course struct {
	*Config
	decider *decider
	ledger  orbit.Ledger
	start   time.Time // the time of virtual time 0 by the clock of package time
	now     time.Duration
	step    int
	events  heap.Heap[event]
	serial  uint64
	actors  []*actor
	world   *world
	// stopped takes the moving actor when it stops.
	stopped chan *actor
	// asleep are the actors that wait for a newer revision, in the order in which they began to wait.
	asleep []*actor
	// quiet is the number of steps since the world last did something, or something went wrong.
	quiet int
	// calm is when something last went wrong, an engine began, or an event happened.
	calm time.Duration
	// silent says that no history is written.
	silent bool
	// over is the number of steps since nothing was left to do, ended is when that was.
	over  int
	ended time.Duration
	jobs  []*task
	// endless says that some job has Again, so that the run ends when all tasks of the other jobs have been placed.
	// awaited is the number of the other jobs with tasks that have never been placed.
	endless bool
	awaited int
	// jobOf has the job of each capsule.
	jobOf map[orbit.CapsuleID]*task
	board *telemetry.Board
	play  *livePlay // nil: no world of Liveness
	// planning is the number of engines that plan.
	planning atomic.Int32
	audit    *audit
	history  bytes.Buffer
	err      error
}

// event is an actor's next step. An event whose turn is not that of its actor is void, because a newer event has
// replaced it.
type event struct {
	at    time.Duration
	goOn  bool // the actor that has just moved goes on
	order uint64
	actor *actor
	turn  uint64
}

// Before orders events: the earliest first, then the actor that goes on, then the one that was planned first.
func (e event) Before(o event) bool {
	if e.at == o.at && e.goOn != o.goOn {
		return e.goOn
	}
	return cmp.Or(cmp.Compare(e.at, o.at), cmp.Compare(e.order, o.order)) < 0
}

// task is a job in the course of a run.
type task struct {
	*Job
	number    int
	placed    int // tasks that have been placed at least once
	more      int // tasks that were submitted in place of others that have ended
	submitted bool
	served    bool // all tasks have been placed at least once or, of a gang, the minimum
}

// newCourse makes a run: the ledger with its nodes, the actors, and the agenda of the world.
func newCourse(r *Config, d *decider) *course {
	c := &course{Config: r, decider: d, start: time.Now(), stopped: make(chan *actor), jobOf: map[orbit.CapsuleID]*task{}}
	c.ledger = &orbit.MemoryLedger{}
	if r.Ledger != nil {
		c.ledger = r.Ledger()
	}
	c.audit = newAudit(c)
	c.board, c.play = newBoard(c), newPlay(c)
	c.world = newWorld(c)
	for i := range r.Schedulers {
		c.actors = append(c.actors, newActor(c, &r.Schedulers[i], i+1))
	}
	c.world.prepare()
	for _, a := range c.actors {
		c.push(a, 0)
	}
	return c
}

// drive grants steps until the run is over.
func (c *course) drive() {
	for most := cmp.Or(c.Steps, 1_000_000); c.err == nil && c.step < most && !c.finished(); {
		e, ok := c.next()
		if !ok {
			break
		}
		if c.Until > 0 && e.at > c.Until {
			c.advance(c.Until)
			break
		}
		c.advance(e.at)
		c.step++
		c.quiet++
		c.grant(e.actor)
		c.audit.afterStep()
		c.checkBound()
		c.checkWaits()
	}
	c.checkDeadlock()
	c.end()
}

// next removes and returns the next event that is not void.
func (c *course) next() (event, bool) {
	for len(c.events) > 0 {
		e := c.events.Pop()
		if e.turn == e.actor.turn {
			return e, true
		}
	}
	return event{}, false
}

// push plans an actor's next step. It replaces the step that was planned before.
func (c *course) push(a *actor, at time.Duration) {
	c.serial++
	a.turn++
	c.events.Push(event{at: at, goOn: at == c.now && a.moving, order: c.serial, actor: a, turn: a.turn})
}

// advance moves virtual time on.
func (c *course) advance(at time.Duration) {
	if c.Sleep != nil && at > c.now {
		if d := time.Until(c.start.Add(at)); d > 0 { // an engine may have slept a little by itself
			c.Sleep(d)
		}
	}
	c.now = max(c.now, at)
}

// grant lets an actor move until it stops, and plans its next step.
func (c *course) grant(a *actor) {
	crash := a.fault.what == faultCrash
	if a.dozing {
		c.asleep = slices.DeleteFunc(c.asleep, func(b *actor) bool { return a == b })
	}
	switch {
	case a.gone:
		a.gone = false
		c.note(a, "starts anew")
		c.disturb()
		go a.live()
	case crash:
		c.note(a, "crashes before it can go on: "+a.where, a.args...)
		c.disturb()
		a.dead = true
		a.resume <- struct{}{}
	default:
		a.resume <- struct{}{}
	}
	a.moving = true
	c.await(a)
	a.moving = false
	c.wake()
}

// await waits until the moving actor has stopped, and plans its next step.
func (c *course) await(a *actor) {
	<-c.stopped
	if a.gone {
		a.dead = false
		c.push(a, c.now+a.fault.long)
		a.fault = fault{}
		return
	}
	var wait time.Duration
	calm, burst := c.Faults.Until > 0 && c.now >= c.Faults.Until, ""
	if c.play != nil {
		calm, burst = c.play.resting > 0, c.play.burst(a.name)
	}
	wait, a.fault = c.decider.decide(a.name, a.steps, a.kind, calm, burst)
	a.steps++
	switch {
	case a == c.world.actor && a.idle:
		c.world.plan()
	case a.dozing:
		a.hesitates = wait
		c.asleep = append(c.asleep, a)
		if a.deadline > 0 {
			c.push(a, max(a.deadline, c.now))
		} else {
			a.turn++
		}
	default:
		c.push(a, c.now+a.lasts+wait)
	}
}

// wake wakes the actors that wait for a revision that exists now.
func (c *course) wake() {
	for _, a := range c.asleep {
		if !a.woken && a.after < c.audit.newest {
			a.woken = true
			c.push(a, c.now+a.hesitates)
		}
	}
}

// afterwards is the number of steps for which a run goes on when nothing is left to do, because proposals may still be
// under way.
const afterwards = 1000

// finished reports whether the run is over: nothing is left to submit, to place or to end, or nothing happens any more
// except reports of nodes.
func (c *course) finished() bool {
	if c.play != nil {
		return c.play.over
	}
	if c.endless {
		return c.awaited == 0
	}
	if c.Until != 0 || c.world.left > 0 || c.audit.pending > 0 && !c.allAsleep() {
		c.over = 0
		return false
	}
	if c.over++; c.over == 1 {
		c.ended = c.now
	}
	return c.over > afterwards
}

// allAsleep reports whether all engines wait for a newer revision.
func (c *course) allAsleep() bool {
	for _, a := range c.actors {
		if !a.dozing || a.woken || a.gone || a.deadline > 0 {
			return false
		}
	}
	return true
}

// checkDeadlock fails the run if every engine waits although a capsule that is not placed would fit.
func (c *course) checkDeadlock() {
	if c.Bound > 0 && c.err == nil && c.allAsleep() {
		if id := c.audit.homeless(); id != "" {
			c.fail("none awake", "every engine waits, and %s would fit", id)
		}
	}
}

// checkBound checks liveness when Bound steps have passed since the last event of the world and the last fault.
func (c *course) checkBound() {
	if c.Bound == 0 || c.quiet <= c.Bound || c.Faults.Until == 0 && c.Faults.any() || c.now < c.Faults.Until {
		return
	}
	if id := c.audit.homeless(); id != "" {
		c.fail("not placed in time", "%s fits, and is not placed %d steps after the last event", id, c.quiet)
	}
	c.quiet = 0
}

// any reports whether anything may go wrong.
func (f Faults) any() bool {
	f.Delay, f.Longest, f.Until = 0, 0, 0
	return f != Faults{}
}

// end ends all actors, wherever they are, and then runs the final checks. It restores err, because an actor that ends
// may report a violation of its own.
func (c *course) end() {
	err := c.err
	for _, a := range append([]*actor{c.world.actor}, c.actors...) {
		if !a.gone {
			a.dead = true
			a.resume <- struct{}{}
			<-c.stopped
		}
	}
	if c.planning.Load() > 0 && c.Sleep != nil { // a plan that overruns sleeps, and must not outlive the bubble of the run
		c.Sleep(2 * planTimeoutLive)
	}
	if c.err = err; err == nil {
		c.audit.atEnd()
	}
}

// fail notes a broken promise. Only the first one counts.
func (c *course) fail(rule, format string, args ...any) {
	if c.err == nil {
		c.err = &violation{rule, fmt.Sprintf(format, args...)}
	}
}

// disturb notes that something goes wrong or happens to the world now.
func (c *course) disturb() { c.quiet, c.calm = 0, c.now }

// note writes a line of the history.
func (c *course) note(a *actor, format string, args ...any) {
	if c.silent {
		return
	}
	fmt.Fprintf(&c.history, "%10v  %-8s ", c.now, a.name)
	fmt.Fprintf(&c.history, format, args...)
	c.history.WriteByte('\n')
}

// background is the context of calls that are no step.
func background() context.Context { return context.Background() }
