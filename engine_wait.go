package orbit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// rest waits for the time that Pause returns, or until a change concerns this engine. Other changes do not end the
// wait, and rest reads each of them without refreshing the view.
func (e *Engine) rest(ctx context.Context, round Round) {
	backoff, due := e.Pause(round)
	if backoff == 0 {
		return
	}
	end := time.Now().Add(backoff)
	if !due.IsZero() && due.Before(end) {
		end = due
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if !e.nudges.interrupt(cancel) {
		return
	}
	defer e.nudges.interrupt(nil)
	seen, sees, late := e.outlook()
	if late != nil { // that Plan reads the view until it returns
		select {
		case <-late:
			e.forgive()
		case <-ctx.Done():
		}
		return
	}
	if !sees {
		<-ctx.Done()
		return
	}
	e.awaitReports(ctx, cancel)
	for changes, err := range Follow(ctx, e.Ledger, seen) {
		switch {
		case errors.Is(err, ErrCompacted):
			return
		case err != nil: // the ledger is unavailable: the next pass reports it
			<-ctx.Done()
		case e.Wake(ctx, changes):
			return
		}
	}
}

// Pause returns how Run waits after a round until it passes again: for the backoff; or until the instant at which a hold
// ends or a class has been parked long enough, if that is earlier (zero: nothing is due); or until Wake reports true. The
// backoff is zero if there is more work and the round got on with it; and also if the round has no place for a full batch,
// as long as there is work behind that batch which has not been planned since it came. Each call makes the next backoff
// longer, so call it once after each Pass. Pause and Wake serve callers that wait by another clock than Run's, such as package sim/race.
func (e *Engine) Pause(round Round) (backoff time.Duration, due time.Time) {
	if e.init(); e.fault != nil {
		return time.Second, time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if round.fresh || round.roused {
		e.pace.reset()
	}
	e.unswept = (e.unswept || round.roused) && len(e.view.queue.ready) > 0
	behind := e.unswept && e.stuck && round.Pending > 0 && len(round.Errors) == 0
	if e.sweeping = (round.progress || behind) && len(e.view.queue.ready) > 0; e.sweeping {
		return 0, time.Time{}
	}
	return e.pace.next(), e.due()
}

// outdate takes back the parked classes whose answers rest on a version that has changed. It reports whether there were any.
func (e *Engine) outdate(ctx context.Context) (woken bool, err error) {
	if len(e.view.queue.parked.rests) == 0 {
		return false, nil
	}
	sources := slices.Collect(maps.Keys(e.view.queue.parked.rests))
	versions := make(chan []uint64, 1)
	v, late := contain(ctx, e.planTimeout(), func(context.Context) error {
		var out []uint64
		for _, on := range sources {
			out = append(out, on.Version(&e.view))
		}
		versions <- out
		return nil
	})
	if e.late = late; v.err != nil {
		return false, fmt.Errorf("orbit: engine %q: version of a filter: %w", e.Name, v.err)
	}
	for i, now := range <-versions {
		woken = e.view.queue.outdate(sources[i], now) || woken
	}
	return woken, nil
}

// awaitReports ends a wait when a report comes that something which waits may fit by, if telemetry has a method Wait. While
// reports come that help nothing, it looks at them no more often than the first wait of the back-off.
func (e *Engine) awaitReports(ctx context.Context, wake func()) {
	waiter, ok := e.Telemetry.(interface {
		Wait(ctx context.Context, after uint64) error
	})
	if !ok {
		return
	}
	if e.listening.Add(1) > mostListening {
		e.listening.Add(-1)
		return
	}
	go guard.Call(func() error {
		for {
			version, waits := e.heard()
			if !waits {
				return nil
			}
			if err := waiter.Wait(ctx, version); err != nil || ctx.Err() != nil {
				return err
			}
			woken, err := e.hear(ctx)
			if woken {
				wake()
			}
			if woken || err != nil {
				return err // the next pass finds the error again, and reports it
			}
			sleep(ctx, e.pace.Initial)
		}
	}, func(err error) {
		e.listening.Add(-1)
		if guard.Crashed(err) {
			e.carry(fmt.Errorf("orbit: engine %q: waiting for reports: %w", e.Name, err))
		}
	})
}

// mostListening is how many calls of Wait may not have returned though their wait is over.
const mostListening = 4

// carry keeps an error for the next round.
func (e *Engine) carry(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.carried) < maxErrors {
		e.carried = append(e.carried, err)
	}
}

// heard returns the version of the telemetry that the view has, and whether something waits for more.
func (e *Engine) heard() (version uint64, waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.view.version, e.view.queue.parked.any() && e.late == nil
}

// hear takes in new reports, and reports whether what waits may fit now.
func (e *Engine) hear(ctx context.Context) (woken bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil || e.late != nil {
		return false, ctx.Err()
	}
	e.view.now = time.Now()
	return e.view.refreshTelemetry(ctx, &e.from, e.view.now)
}

// due returns when the engine must pass even if no change concerns it: when a hold ends, or when a class has been parked for
// ParkFor. Zero means never.
func (e *Engine) due() (at time.Time) {
	if e.late != nil || e.blind {
		return at
	}
	if len(e.view.ends) > 0 {
		at = e.view.ends[0].at
	}
	if lapse := e.view.lapse(); !lapse.IsZero() && (at.IsZero() || lapse.Before(at)) {
		at = lapse
	}
	if e.parkFor() < e.pace.Initial || len(e.unsettled) > 0 { // else the engine would pass all the time
		return at
	}
	if end, ok := e.view.queue.parked.due(); ok && (at.IsZero() || end.Before(at)) {
		at = end
	}
	return at
}

// outlook returns the revision that the view has reached, whether it could be built, and the Plan that is
// late, if one is.
func (e *Engine) outlook() (seen Revision, sees bool, late <-chan verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.view.state == nil || e.blind {
		return 0, false, e.late
	}
	return e.view.Revision(), true, e.late
}

// forgive clears the record of a late Plan that has returned.
func (e *Engine) forgive() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late = nil
}

// Wake reports whether what was committed after the last Pass ends the wait for the next one: it brings work for this
// engine, or room for what it has parked, or it is a hold or a nomination that ends before the deadline of ctx. To see whether there is
// room, Wake may bring the engine's view up to date. It reports false while there is no view, or a Plan still reads it.
func (e *Engine) Wake(ctx context.Context, changes []Change) bool {
	if e.init(); e.fault != nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.blind || e.view.state == nil || !e.planReturned() {
		return false
	}
	deadline, bounded := ctx.Deadline()
	for i := range changes {
		if _, ok := changes[i].Do.(Assign); ok && bytes.HasPrefix(changes[i].ID[:], e.ids.prefix[:]) {
			continue // its own doing; the next pass sees it
		}
		if h, ok := changes[i].Do.(Hold); ok && (!bounded || h.Ends.Before(deadline)) {
			return true // it ends before this wait does
		}
		if n, ok := changes[i].Do.(Nominate); ok && len(n.Parts) > 0 && (!bounded || n.Ends.Before(deadline)) {
			return true
		}
		if put, ok := changes[i].Do.(PutNode); ok {
			if n := e.view.state.Node(put.Node.ID); n != nil && n.nominated != nil {
				return true // it may not be able to serve any more
			}
		}
		switch work, room := e.classifyChange(&changes[i]); {
		case work:
			return true
		case room:
			woken, err := e.view.refresh(ctx, &e.from, time.Now())
			if !woken && err == nil {
				woken, err = e.outdate(ctx)
			}
			if err != nil && ctx.Err() == nil && len(e.carried) < maxErrors { // not the end of the rest itself
				e.carried = append(e.carried, fmt.Errorf("orbit: engine %q: view: %w", e.Name, err))
			}
			if woken || err != nil { // all later changes are in the view, or have yet to be looked at
				return true
			}
			if e.view.Revision() < changes[i].Revision { // a stale snapshot cannot say that there is no room
				e.atLeast = max(e.atLeast, changes[i].Revision)
				return true
			}
		}
	}
	return false
}

// classifyChange reports, from a change alone, whether it is work for this engine, and whether it may free capacity for
// a parked class.
func (e *Engine) classifyChange(c *Change) (work, room bool) {
	p := &e.view.queue.parked
	aside := len(p.spots) > 0 || len(p.waiting) > 0 && !e.from.made(c.ID)
	switch do := c.Do.(type) {
	case Submit:
		if do.Gang == nil {
			return e.owns(do.Owner, do.Spec), false
		}
		for i := range do.Gang.Roles {
			if e.owns(do.Owner, do.Gang.Roles[i].Spec) {
				return true, false
			}
		}
	case Assign:
		c := e.view.state.Capsule(do.Capsule)
		return c == nil || e.owns(do.Owner, c.Spec), false
	case Release:
		if do.Capsule != "" && !do.Final && e.minds(do.Capsule) {
			return true, false
		}
		return false, aside
	case Evict:
		return e.minds(do.Capsule), aside
	case Resize:
		return do.Since == 0 && e.minds(do.Capsule), aside
	case Confirm: // what has stopped may be placed on nodes without an agent
		return do.Stopped && e.minds(do.Capsule), false
	case PutNode, PutBudget, RemoveBudget:
		return false, aside
	case Protect:
		return false, aside && do.For == 0
	case RemoveNode, Hold, Mark:
		return false, len(p.rests) > 0
	case Nominate:
		return false, aside
	case Place, Adopt: // it may have ended a nomination
		return false, len(p.ties)+len(p.rests) > 0 || aside && e.view.state.nominations.Len() > 0
	}
	return false, false
}

// minds reports whether a capsule is the engine's own, or may be: it was submitted after the view.
func (e *Engine) minds(id CapsuleID) bool {
	c := e.view.state.Capsule(id)
	return c == nil || e.mine(c)
}

// Backoff is how long an engine waits between passes: Initial after a pass that committed something, or that found new
// work, or capacity for what it had parked, in the ledger; then Factor times as long after each that did not, up to
// Max. The zero value works.
type Backoff struct {
	// Initial is the first wait; default 10 ms.
	Initial time.Duration
	// Max is the longest wait; default 1 s.
	Max time.Duration
	// Factor is the growth from one wait to the next; default 2.
	Factor float64
	// Jitter is the largest fraction of a wait by which it is randomly shortened; default 0.2, negative: none.
	Jitter float64
}

// withDefaults returns a copy in which every field says what holds.
func (b Backoff) withDefaults() Backoff {
	if b.Initial == 0 {
		b.Initial = min(10*time.Millisecond, cmp.Or(b.Max, time.Second))
	}
	b.Max = max(cmp.Or(b.Max, time.Second), b.Initial)
	b.Factor = cmp.Or(b.Factor, 2)
	b.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	return b
}

// faults says everything that is wrong with b.
func (b Backoff) faults() []string {
	var out []string
	if b.Initial < 0 || b.Max < 0 {
		out = append(out, "Backoff: Initial and Max must not be negative")
	}
	if b.Factor != 0 && !(b.Factor >= 1 && !math.IsInf(b.Factor, 1)) {
		out = append(out, "Backoff: Factor must be at least 1")
	}
	if b.Jitter > 1 || math.IsNaN(b.Jitter) {
		out = append(out, "Backoff: Jitter must be at most 1")
	}
	return out
}

// pace is a backoff in use.
type pace struct {
	Backoff
	// The wait before jitter; 0: none yet.
	base time.Duration
	rng  *rand.Rand
}

// reset makes the next wait the initial one.
func (p *pace) reset() { p.base = 0 }

// next returns how long to wait now, and grows.
func (p *pace) next() time.Duration {
	switch {
	case p.base == 0:
		p.base = p.Initial
	case float64(p.base)*p.Factor >= float64(p.Max):
		p.base = p.Max
	default:
		p.base = time.Duration(float64(p.base) * p.Factor)
	}
	return p.base - time.Duration(p.rng.Float64()*p.Jitter*float64(p.base))
}

// newRand returns a source for jitter.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }
