package shard

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
)

// Run steps until ctx ends, and then returns nil. Between steps it waits for a change that concerns it, or until
// something is to be tried again; while there is more to do than one step takes it does not wait. It refuses, with an
// error that wraps [orbit.ErrInvalid], to run with a fault in the fields.
func (d *Dispatcher) Run(ctx context.Context) error {
	d.init()
	if err := d.check(); err != nil {
		return err
	}
	trouble := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		round := d.Step(ctx)
		if d.Hook != nil && round.active() && ctx.Err() == nil {
			d.Hook(round)
		}
		if unreachable(round.Errors) {
			trouble = min(max(2*trouble, 10*time.Millisecond), time.Second)
			pause(ctx, trouble)
			continue
		}
		trouble = 0
		if round.Left > 0 && len(round.Dispatched) > 0 {
			continue
		}
		if round.Conflicts == 0 {
			d.rest(ctx, round)
		}
		pause(ctx, d.gap()-time.Since(began))
	}
	return nil
}

func (d *Dispatcher) gap() time.Duration {
	if d.Pause == 0 {
		return time.Millisecond
	}
	return d.Pause
}

// unreachable reports whether the ledger has failed, rather than a policy or a mark.
func unreachable(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, ErrPolicy) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrAlone) && !errors.Is(err, orbit.ErrInfeasible) {
			return true
		}
	}
	return false
}

// maxBehind is how many changes that do not concern it a dispatcher lets pass by before it takes them in.
const maxBehind = 4096

// rest waits until something is to be tried again, or something has happened that concerns this dispatcher. Placements,
// its own assignments and other marks cost it a glance.
func (d *Dispatcher) rest(ctx context.Context, round Round) {
	if !round.Next.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, round.Next)
		defer cancel()
	}
	passed := 0
	for changes, err := range orbit.Follow(ctx, d.Ledger, round.View) {
		if errors.Is(err, orbit.ErrCompacted) {
			return
		}
		if err != nil {
			pause(ctx, time.Second) // the next step will say what is wrong
			return
		}
		if d.concerned(ctx, changes) {
			return
		}
		if passed += len(changes); passed >= maxBehind {
			return
		}
	}
}

// concerned reports whether changes are of interest.
func (d *Dispatcher) concerned(ctx context.Context, changes []orbit.Change) bool {
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return false
	}
	for i := range changes {
		if d.glance(changes[i].Do) {
			return true
		}
	}
	return false
}

// glance does so for one change. It requires the turn.
func (d *Dispatcher) glance(c orbit.Commitment) bool {
	switch c := c.(type) {
	case orbit.Submit:
		return !d.roster.lives(c.Owner)
	case orbit.Assign:
		return !d.roster.lives(c.Owner)
	case orbit.Release:
		return len(d.failing.units) > 0 || c.Capsule != "" && d.glanceRelease(c)
	case orbit.Place:
		known := d.state.Capsule(c.Capsule)
		return len(d.failing.units)+len(d.retry.waits) > 0 && (known == nil || d.waits(unitOf(known)))
	case orbit.PutNode:
		return len(d.failing.units) > 0
	case orbit.Mark:
		n := news{}
		d.readMark(&n, c.Key, 0)
		return n.leases || len(n.marked) > 0 || len(n.changed) > 0 && len(d.failing.units) > 0
	}
	return false
}

// glanceRelease reports whether a released capsule is to be given to somebody, or has a mark that has outlived it.
func (d *Dispatcher) glanceRelease(c orbit.Release) bool {
	known := d.state.Capsule(c.Capsule)
	if known == nil || !c.Final {
		return known == nil || !d.roster.lives(known.Owner)
	}
	u := unitOf(known)
	_, pinned := d.state.Mark(u.pinnedMark().key(u.id))
	return pinned != 0 || d.waits(u)
}

// waits reports whether a unit has failed somewhere, or waits for somebody.
func (d *Dispatcher) waits(u unit) bool { return d.failing.units[u] != nil || d.retry.waits[u] != nil }
