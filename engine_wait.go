package orbit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// rest waits until the time has passed or something has happened that concerns this engine. Commits that do
// not concern it do not end the wait, and cost it a glance at the change, not a view.
func (e *Engine) rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	seen, sees, late := e.outlook()
	if late != nil { // the view is its until it returns
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
	for changes, err := range Follow(ctx, e.Ledger, seen) {
		if errors.Is(err, ErrCompacted) {
			return
		}
		if err != nil {
			<-ctx.Done() // the ledger is unavailable: the next pass will say so
			return
		}
		if e.concerned(ctx, changes) {
			return
		}
	}
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

// forgive forgets a late Plan that has returned.
func (e *Engine) forgive() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.late = nil
}

// concerned reports whether changes bring work for this engine, or room for what it has put aside.
func (e *Engine) concerned(ctx context.Context, changes []Change) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.planReturned() { // of a Pass that was given up: the view is its
		return false
	}
	deadline, _ := ctx.Deadline()
	for i := range changes {
		if _, ok := changes[i].Do.(Assign); ok && bytes.HasPrefix(changes[i].ID[:], e.ids.prefix[:]) {
			continue // its own doing; the next pass sees it
		}
		if h, ok := changes[i].Do.(Hold); ok && h.Ends.Before(deadline) {
			return true // it ends before this wait does
		}
		switch work, room := e.glance(&changes[i]); {
		case work:
			return true
		case room:
			woken, err := e.view.refresh(ctx, &e.from, time.Now())
			if err != nil && ctx.Err() == nil && len(e.carried) < maxErrors { // not the end of the rest itself
				e.carried = append(e.carried, fmt.Errorf("orbit: engine %q: view: %w", e.Name, err))
			}
			if woken || err != nil { // all later changes are in the view, or have yet to be looked at
				return true
			}
		}
	}
	return false
}

// glance tells, from a change alone, whether it is work for this engine, and whether it might be room for
// what it has put aside.
func (e *Engine) glance(c *Change) (work, room bool) {
	aside := len(e.view.queue.parked) > 0
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
		c := e.view.state.Capsule(do.Capsule)
		if do.Capsule != "" && !do.Final && (c == nil || e.mine(c)) {
			return true, false // nil: submitted after the view
		}
		return false, aside
	case PutNode:
		return false, aside
	case Place:
		return false, len(e.view.queue.ties) > 0
	}
	return false, false
}

// Backoff is how long an engine waits between passes: Initial after a pass that committed something, or that
// found new work, or room for what it had put aside, in the ledger; then Factor times as long after each that
// did not, up to Max. The zero value works.
type Backoff struct {
	// Default 10 ms.
	Initial time.Duration
	// Default 1 s.
	Max time.Duration
	// Default 2.
	Factor float64
	// A wait is shortened by a random part of itself up to this; default 0.2, negative: none.
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
