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

// waitForChange waits for the time that Pause returns, or until a change concerns this engine. It reads every other change
// without refreshing the view, and goes on waiting.
func (e *Engine) waitForChange(ctx context.Context, round Round) {
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
	seen, sees, late := e.viewSeen()
	if late != nil { // the late Plan reads the view until it returns
		select {
		case <-late:
			e.clearLate()
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
		case len(changes) > 0:
			e.strict().looked(changes[len(changes)-1].Revision, time.Now())
		}
	}
}

// Pause returns how long Run waits after a round. The wait ends after the backoff; or as soon as Wake reports true; or
// at due, if that is earlier (zero: nothing is due). At due a hold or a nomination ends, a capsule that has failed may be
// planned again, a placement has waited long enough to begin, or a class has been parked long enough. The backoff is zero if work is left and the round made progress. It is also zero if the
// round placed nothing of a full batch while the work behind that batch has not been planned since work or room last
// came. Each call makes the next backoff longer, so call Pause once after each Pass. Pause and Wake serve callers that
// wait by another clock than Run does, such as package sim/race.
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

// outdate unparks the classes whose answers rest on a version that has changed ([NoFit.DependsOn]). It reports whether
// there were any. It calls Version, which is user code, under the guard of callGuarded.
func (e *Engine) outdate(ctx context.Context) (woken bool, err error) {
	if len(e.view.queue.parked.rests) == 0 {
		return false, nil
	}
	sources := slices.Collect(maps.Keys(e.view.queue.parked.rests))
	versions := make(chan []uint64, 1)
	v, late := callGuarded(ctx, e.planTimeout(), func(context.Context) error {
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

// awaitReports starts a goroutine that calls wake when a report arrives by which parked or waiting work may fit. It
// does nothing if the telemetry has no method Wait. After a report that helps nothing, it pauses for the first wait of
// the backoff before it looks again. While mostListening earlier calls of Wait have not returned, it waits for one of
// them; if that takes longer than hungAfter, the next round reports it.
func (e *Engine) awaitReports(ctx context.Context, wake func()) {
	waiter, ok := e.Telemetry.(interface {
		Wait(ctx context.Context, after uint64) error
	})
	if !ok {
		return
	}
	if e.listening == nil {
		e.listening = make(chan struct{}, mostListening)
	}
	go guard.Call(func() error {
		if !e.reserveListener(ctx) {
			return nil
		}
		defer func() { <-e.listening }()
		for {
			version, waits := e.telemetrySeen()
			if !waits {
				return nil
			}
			if err := waiter.Wait(ctx, version); err != nil || ctx.Err() != nil {
				return err
			}
			woken, err := e.readReports(ctx)
			if woken {
				wake()
			}
			if woken || err != nil {
				return err // the next pass meets the same error and reports it
			}
			sleep(ctx, e.pace.Initial)
		}
	}, func(err error) {
		if guard.Crashed(err) {
			e.carry(fmt.Errorf("orbit: engine %q: waiting for reports: %w", e.Name, err))
		}
	})
}

// reserveListener waits until fewer than mostListening goroutines are in a call of Wait, and reserves the place of one of them. It
// returns false if ctx ends before. On a busy machine a call may return a little after its context has ended, so a call
// counts as hung only after hungAfter.
func (e *Engine) reserveListener(ctx context.Context) bool {
	hung := time.NewTimer(hungAfter)
	defer hung.Stop()
	for {
		select {
		case e.listening <- struct{}{}:
			return true
		case <-ctx.Done():
			return false
		case <-hung.C:
			e.carry(fmt.Errorf("orbit: engine %q: %d calls of the telemetry's Wait have not returned %v after their contexts have ended; reports wake nothing until one of them returns",
				e.Name, mostListening, hungAfter))
		}
	}
}

const (
	// mostListening is the maximum number of goroutines of one engine that are in a call of Wait, those included that have
	// not returned although their wait is over.
	mostListening = 4
	hungAfter     = time.Second
)

// carry keeps an error for the next round.
func (e *Engine) carry(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.carried) < maxErrors {
		e.carried = append(e.carried, err)
	}
}

// telemetrySeen returns the version of the telemetry that the view has, and whether any class is parked or waits for room.
func (e *Engine) telemetrySeen() (version uint64, waits bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.view.version, e.view.queue.parked.any() && e.late == nil
}

// readReports stores new reports in the view, and reports whether parked or waiting work may fit now.
func (e *Engine) readReports(ctx context.Context) (woken bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil || e.late != nil {
		return false, ctx.Err()
	}
	e.view.now = time.Now()
	return e.view.refreshTelemetry(ctx, &e.from, e.view.now)
}

// due returns the instant at which the engine must pass even if no change concerns it: a hold, a protection or a
// nomination ends, a capsule that has failed may be planned again, a placement has waited long enough to begin, or a class
// has been parked for ParkFor. Zero: there is none.
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
	if wait := e.waits.lookAgain(); !wait.IsZero() && (at.IsZero() || wait.Before(at)) {
		at = wait
	}
	if q := &e.view.queue; len(q.delayed) > 0 && (at.IsZero() || q.delayed[0].at.Time().Before(at)) {
		at = q.delayed[0].at.Time()
	}
	wait := e.strict().due()
	if !wait.IsZero() && (at.IsZero() || wait.Before(at)) {
		at = wait
	}
	if e.parkFor() < e.pace.Initial || len(e.unsettled) > 0 || e.barred { // a pass for each class that is due would leave no pause
		return at
	}
	if end, ok := e.view.queue.parked.due(); ok && (at.IsZero() || end.Before(at)) {
		at = end
	}
	return at
}

// viewSeen returns the revision of the view, whether there is a view that could be built, and the channel of the late
// Plan; nil: no Plan is late.
func (e *Engine) viewSeen() (seen Revision, sees bool, late <-chan callResult) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.view.state == nil || e.blind {
		return 0, false, e.late
	}
	return e.view.Revision(), true, e.late
}

// clearLate clears the record of a late Plan that has returned.
func (e *Engine) clearLate() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late = nil
}

// Wake reports whether changes that were committed after the last Pass end the wait for the next one. They do if they
// bring work for this engine or free capacity for a class that it has parked, if they make a hold or a nomination that
// ends before the deadline of ctx, or if they change a node on which room is nominated. To find out whether a parked
// class fits, Wake may refresh the engine's view. It reports false while there is no view, and while a late Plan still
// reads the view.
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
			continue // a commit of this engine; the next pass sees it
		}
		if h, ok := changes[i].Do.(Hold); ok && (!bounded || h.Ends.Before(deadline)) {
			return true // it ends before this wait, so the next wait must know its end
		}
		if n, ok := changes[i].Do.(Nominate); ok && len(n.Parts) > 0 && (!bounded || n.Ends.Before(deadline)) {
			return true
		}
		if put, ok := changes[i].Do.(PutNode); ok {
			if n := e.view.state.Node(put.Node.ID); n != nil && n.nominated != nil {
				return true // the node may no longer serve the nomination
			}
		}
		switch f := effectOf(changes[i].Do); {
		case e.brings(&changes[i], &f):
			return true
		case e.frees(&changes[i], &f):
			woken, err := e.view.refresh(ctx, &e.from, time.Now())
			if !woken && err == nil {
				woken, err = e.outdate(ctx)
			}
			if err != nil && ctx.Err() == nil && len(e.carried) < maxErrors { // an error that is not just the end of this wait
				e.carried = append(e.carried, fmt.Errorf("orbit: engine %q: view: %w", e.Name, err))
			}
			if woken || err != nil { // the next pass reads the later changes
				return true
			}
			if e.view.Revision() < changes[i].Revision { // a snapshot older than the change does not show the room
				e.atLeast = max(e.atLeast, changes[i].Revision)
				return true
			}
		}
	}
	return false
}

// brings reports, from a change alone, whether it brings work for this engine.
func (e *Engine) brings(c *Change, f *effect) bool {
	if do, ok := c.Do.(Submit); ok {
		for spec := range do.work {
			if do.Join || e.owns(do.Owner, spec) {
				return true
			}
		}
		return false
	}
	if do, ok := c.Do.(Assign); ok {
		c := e.view.state.Capsule(do.Capsule)
		return c == nil || e.owns(do.Owner, c.Spec)
	}
	waits := cmp.Or(f.waits, f.stops) // a capsule that has stopped may be placed on nodes without an agent
	return waits != "" && e.mayOwn(waits)
}

// frees reports, from a change alone, whether it may let a parked or waiting class fit.
func (e *Engine) frees(c *Change, f *effect) bool {
	p := &e.view.queue.parked
	aside := len(p.spots) > 0 || len(p.waiting) > 0 && !e.from.made(c.ID)
	switch {
	case len(p.rests) > 0: // an answer rests on more than the nodes, perhaps on this
		return true
	case f.heals != "" && len(p.kept) > 0:
		return true
	case f.arrives != "": // it may have ended a nomination
		return len(p.ties) > 0 || aside && e.view.state.nominations.Len() > 0 || p.placed[f.node]
	}
	if c := e.view.state.Capsule(f.heals); aside && c != nil && c.Spec.Surge { // it may have surged, and given room back elsewhere
		return true
	}
	return aside && (f.gives || f.victims || f.describes) // a domain that leaves counts no more for rules Even
}

// mayOwn reports whether a capsule is, or may be, the engine's own. It may be if the view does not have it, because it
// was submitted after the view.
func (e *Engine) mayOwn(id CapsuleID) bool {
	c := e.view.state.Capsule(id)
	return c == nil || e.mine(c)
}

// Backoff is how long an engine waits between passes. The wait is Initial after a pass that committed something new, or
// that found new work in the ledger or room for parked work. It grows by Factor after each other pass, up to Max. The
// zero value has the defaults.
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

// withDefaults returns a copy with the defaults filled in.
func (b Backoff) withDefaults() Backoff {
	if b.Initial == 0 {
		b.Initial = min(10*time.Millisecond, cmp.Or(b.Max, time.Second))
	}
	b.Max = max(cmp.Or(b.Max, time.Second), b.Initial)
	b.Factor = cmp.Or(b.Factor, 2)
	b.Jitter = max(0, cmp.Or(b.Jitter, 0.2))
	return b
}

// faults returns a text for each fault of b.
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

// pace is a backoff in use: the waits so far decide the next one.
type pace struct {
	Backoff
	// The wait before jitter; 0: none yet.
	base time.Duration
	rng  *rand.Rand
}

// reset makes the next wait the initial one.
func (p *pace) reset() { p.base = 0 }

// next returns the next wait, with jitter, and makes the one after it longer.
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

// newRand returns a source of random numbers for the jitter.
func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }
