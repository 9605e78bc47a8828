package orbit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
