package orbit

import (
	"cmp"
	"slices"
	"time"
)

// Placements of this engine's work that wait too long until capsules have stopped that have left the node: they are
// released to pending if another node could start them at once, and the navigator places them there.

// waitingPlacements are the placements of an engine's work that wait for others to stop.
type waitingPlacements struct {
	// When the engine first saw each, by capsule.
	since map[CapsuleID]waitSince
	// When they are looked at next; and when the first of them has waited long enough, zero: none does.
	next, due time.Time
	draft     Draft
}

// lookAgain returns when the first placement has waited long enough, but not before the time at which the engine looks at
// them next; zero: none will.
func (w *waitingPlacements) lookAgain() time.Time {
	if w.due.IsZero() || w.due.After(w.next) {
		return w.due
	}
	return w.next
}

// waitSince is a placement, and when the engine first saw that it waits.
type waitSince struct {
	placed Revision
	since  time.Time
}

// waitPace is the shortest time between two looks at the placements that wait.
const waitPace = 5 * time.Second

// waitToBegin returns how long a placement waits before it is released; negative: for ever.
func (e *Engine) waitToBegin() time.Duration { return cmp.Or(e.WaitToBegin, time.Minute) }

// overdue returns the placements of the engine's work that have waited too long. A capsule that was released for that
// before waits twice as long on the same node, up to 10 minutes.
func (e *Engine) overdue(now time.Time) (out []*Capsule) {
	w, patience := &e.waits, e.waitToBegin()
	known := w.since
	w.since, w.due = map[CapsuleID]waitSince{}, time.Time{}
	for c, r := range e.view.waiting {
		if r.Capsule == c.ID || !e.mine(c) { // it waits for itself, whatever node it is on
			continue
		}
		seen := known[c.ID]
		if seen.placed != c.PlacedAt {
			seen = waitSince{c.PlacedAt, now}
		}
		w.since[c.ID] = seen
		due := seen.since.Add(doubled(patience, max(patience, failureMemory), e.view.state.failuresOf(c.ID).timesOn(c.Node)))
		if !now.Before(due) {
			out = append(out, c)
		} else if w.due.IsZero() || due.Before(w.due) {
			w.due = due
		}
	}
	if w.next = now.Add(min(waitPace, patience/4)); len(out) > 0 {
		w.next = now // free capacity goes to them before it goes to pending work that they outrank
	}
	slices.SortFunc(out, func(a, b *Capsule) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Submitted, b.Submitted))
	})
	return out
}

// giveUpWaiting returns proposals that release placements which have waited too long and could start at once elsewhere.
// It places them on a draft, so that two are not released for the same free capacity.
func (e *Engine) giveUpWaiting(now time.Time) (batch []Proposal) {
	if e.waitToBegin() < 0 || now.Before(e.waits.next) {
		return nil
	}
	overdue := e.overdue(now)
	if len(overdue) == 0 {
		return nil
	}
	d := &e.waits.draft
	d.Sync(&e.view)
	stuck, done := map[*Spec]bool{}, map[GangID]bool{}
	for _, c := range overdue {
		members, within := []*Capsule{c}, anywhere
		if gang := c.Gang(); gang != "" {
			members, within = e.view.state.membersToRelease(gang, overdue)
			if done[gang] {
				continue
			}
			done[gang] = true
		} else if stuck[c.Spec] {
			continue
		}
		start := d.Checkpoint()
		if do := d.restart(members, within); do != nil {
			d.Propose()
			batch = append(batch, Proposal{Do: do})
		} else {
			d.Rollback(start)
			stuck[c.Spec] = c.Gang() == ""
		}
	}
	return batch
}
