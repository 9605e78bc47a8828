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

// waiting yields what [State.Waiting] yields, in no particular order; it looks only at nodes with remains.
func (v *View) waiting(yield func(*Capsule, *Remains) bool) {
	for index := range v.stopping {
		if !v.state.waitingFor(v.state.NodeByIndex(int(index)), yield) {
			return
		}
	}
}

// timesOn returns how often the capsule has failed on a node, as far as its record says; 0 for a nil record.
func (f *Failures) timesOn(id NodeID) int {
	for i := 0; f != nil && i < len(f.Nodes); i++ {
		if f.Nodes[i].Node == id {
			return f.Nodes[i].Times
		}
	}
	return 0
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

func anywhere(*Node) bool { return true }

// membersToRelease returns which members of a gang are released because these placements have waited too long, and on
// which nodes they may be placed again. If no member has begun, the whole gang may start anew anywhere. Otherwise the
// members that are overdue stay in a domain with the others, as [Gang.Levels] says.
func (s *State) membersToRelease(id GangID, overdue []*Capsule) (members []*Capsule, within func(*Node) bool) {
	g, begun := s.Gang(id).Gang, false
	var placed []*Capsule
	for c := range s.Members(id) {
		if c.Placed() {
			placed = append(placed, c)
			begun = begun || !c.waitsToBegin(s.Node(c.Node).Node)
		}
	}
	if !begun {
		return placed, anywhere
	}
	for _, c := range overdue {
		if c.Gang() == id {
			members = append(members, c)
		}
	}
	return members, func(n *Node) bool {
		return g.Loose || len(g.Levels) == 0 || slices.ContainsFunc(g.Levels, func(level string) bool {
			domain := n.domain(level)
			return domain != "" && !slices.ContainsFunc(placed, func(c *Capsule) bool { return s.Node(c.Node).Node.domain(level) != domain })
		})
	}
}

// restart releases placements that wait and places each on another node of the draft on which it could begin at once. It
// returns the releases; nil: there is no such node for one of them.
func (d *Draft) restart(placed []*Capsule, within func(*Node) bool) (do []Commitment) {
	for _, c := range placed {
		release := Release{Capsule: c.ID, From: c.Node}
		if d.Release(release) != nil {
			return nil
		}
		do = append(do, release)
	}
	for _, c := range placed {
		d.Ask(c)
		placedAgain := false
		for n := range d.Nodes() {
			if n.Node.ID == c.Node || !within(n.Node) || d.Misfit(n, c.Spec) != (Misfit{}) || d.LastResort(n, c.Spec) {
				continue
			}
			devices, ok := n.PickDevices(c.Spec)
			if placedAgain = ok && d.Place(c, Choice{Node: n, Devices: devices}) == nil; placedAgain {
				break
			}
		}
		if !placedAgain {
			return nil
		}
	}
	return do
}
