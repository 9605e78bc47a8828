package shard

import (
	"context"
	"errors"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Run calls Step until ctx ends, and then returns nil. Between steps it waits for a change that concerns the
// dispatcher, or until a retry is due; it does not wait if a step has left work over. If a field has an invalid value,
// Run returns an error that wraps [orbit.ErrInvalid] at once.
//
// The dispatcher reads the whole state when it starts, and again only if it fell so far behind that the ledger's
// history does not reach back ([orbit.ErrCompacted]). Otherwise it follows the changes.
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
			send.Pause(ctx, trouble)
			continue
		}
		trouble = 0
		if round.Left > 0 && len(round.Dispatched) > 0 {
			continue
		}
		if round.Conflicts == 0 {
			d.waitForChange(ctx, round)
		}
		send.Pause(ctx, d.gap()-time.Since(began))
	}
	return nil
}

// gap returns Pause with its default.
func (d *Dispatcher) gap() time.Duration {
	if d.Pause == 0 {
		return time.Millisecond
	}
	return d.Pause
}

// unreachable reports whether one of the errors is a failure of the ledger, not of a policy or a mark.
func unreachable(errs []error) bool {
	for _, err := range errs {
		if !errors.Is(err, ErrPolicy) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrAlone) && !errors.Is(err, orbit.ErrInfeasible) {
			return true
		}
	}
	return false
}

// maxBehind is the number of changes after which a resting dispatcher does a step even if none of them concerns it. It
// keeps the dispatcher from falling behind the ledger's history.
const maxBehind = 4096

// waitForChange waits until a retry is due, or until a change concerns this dispatcher. Most changes do not (placements, its own
// assignments, other marks); it reads them without a step.
func (d *Dispatcher) waitForChange(ctx context.Context, round Round) {
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
			send.Pause(ctx, time.Second) // the next step will report the error
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

// concerned reports whether one of the changes requires a step.
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

// glance reports whether one change requires a step. The caller must hold the turn.
func (d *Dispatcher) glance(c orbit.Commitment) bool {
	switch c := c.(type) {
	case orbit.Submit:
		return !d.roster.lives(c.Owner) || c.Join && len(d.failing.units) > 0
	case orbit.Assign:
		return !d.roster.lives(c.Owner)
	case orbit.Release:
		return len(d.failing.units) > 0 || c.Capsule != "" && d.glanceRelease(c)
	case orbit.Evict:
		return len(d.failing.units) > 0 || d.glanceRelease(orbit.Release{Capsule: c.Capsule})
	case orbit.Place:
		return d.glanceArrival(c.Capsule)
	case orbit.Adopt:
		return d.glanceArrival(c.Capsule)
	case orbit.PutNode, orbit.Respec:
		return len(d.failing.units) > 0
	case orbit.Mark:
		n := news{}
		d.readMark(&n, c.Key, 0)
		return n.leases || len(n.marked) > 0 || len(n.changed) > 0 && len(d.failing.units) > 0
	}
	return false
}

// glanceArrival reports whether a capsule that is on a node now may have been in a unit that waits.
func (d *Dispatcher) glanceArrival(id orbit.CapsuleID) bool {
	known := d.state.Capsule(id)
	return len(d.failing.units)+len(d.retry.waits) > 0 && (known == nil || d.waits(unitOf(known)))
}

// glanceRelease reports whether a released capsule has to be assigned again, or has a mark that it no longer needs.
func (d *Dispatcher) glanceRelease(c orbit.Release) bool {
	known := d.state.Capsule(c.Capsule)
	if known == nil || !c.Final {
		return known == nil || !d.roster.lives(known.Owner())
	}
	u := unitOf(known)
	_, pinned := d.state.Mark(u.pinnedMark().key(u.id))
	return pinned != 0 || d.waits(u)
}

// waits reports whether a unit has been failed by a scheduler, or waits for a retry.
func (d *Dispatcher) waits(u unit) bool { return d.failing.units[u] != nil || d.retry.waits[u] != nil }
