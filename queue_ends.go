package orbit

import (
	"math"
	"slices"
	"time"
)

// This file has when a view expects claims and reports to end: holds, protections, nominations, telemetry.

// foresee schedules the end of the hold, the protection or the nomination that a change begins. The time of a protection
// counts from the instant of the view, and so does that of a nomination. A nomination whose Ends comes first is left to
// lapsed.
func (v *View) foresee(c *Change) {
	e, ok := c.Do.(interface {
		ending(made Revision, now, latest time.Time) (roomEnd, bool)
	})
	if !ok || !isCommitment(c.Do) {
		return
	}
	if end, ok := e.ending(c.Revision, v.now, v.now.Add(v.state.limits.LongestNomination())); ok {
		v.ends.Push(end)
	}
}

// findEnds schedules anew the ends of all holds, protections and nominations that exist. Protections and nominations that
// were scheduled before keep their ends, so their time does not start again.
func (v *View) findEnds(from *source) {
	known, nominated := map[CapsuleID]roomEnd{}, map[*Nomination]roomEnd{}
	for _, end := range slices.Concat(v.ends, v.ending) {
		if !v.state.lives(end) {
			continue
		}
		if do, ok := end.do.(Protect); ok {
			known[do.Capsule] = end
		}
		if do, ok := end.do.(Nominate); ok {
			nominated[v.state.nominationOf(do.Capsule, do.Gang)] = end
		}
	}
	if v.ends, v.ending = v.ends[:0], v.ending[:0]; !from.holds {
		return
	}
	for h := range v.state.Holds() {
		v.ends.Push(roomEnd{h.Ends, Release{Hold: h.ID}})
	}
	for c, lasts := range v.state.Protections() {
		end := known[c.ID]
		if end.do == nil {
			end = roomEnd{v.now.Add(lasts), Protect{Capsule: c.ID, Since: c.PlacedAt}}
		}
		v.ends.Push(end)
	}
	latest := v.now.Add(v.state.limits.LongestNomination())
	v.state.lapses.DescendGreaterThan(&Nomination{Ends: latest, Rank: math.MaxInt32}, func(n *Nomination) bool {
		end := nominated[n]
		if end.do == nil {
			end = roomEnd{latest, n.ending().Do[0]}
		}
		v.ends.Push(end)
		return true
	})
}

// ended returns the commitments that end the holds, protections and nominations whose time has passed, and forgets those
// that no longer exist. It returns a commitment again in every pass until it is committed, because a proposal may fail.
func (v *View) ended(now time.Time) (out []Commitment) {
	for _, end := range v.ending {
		v.ends.Push(end)
	}
	v.ending = v.ending[:0]
	for len(v.ends) > 0 && !now.Before(v.ends[0].at) {
		if end := v.ends.Pop(); v.state.lives(end) {
			out = append(out, end.do)
			v.ending = append(v.ending, end)
		}
	}
	return out
}

// scheduleExpiry schedules a check of the node's report for the time when its receipt lies further back than the bound.
func (v *View) scheduleExpiry(slot uint32, bound time.Duration) {
	if r := &v.reports[slot]; bound > 0 && !r.Stale && (!r.scheduled || r.Received.Before(r.due)) {
		r.scheduled, r.due = true, r.Received
		v.fresh.Push(age{r.Received, slot})
	}
}

// expire checks the nodes whose known heartbeat was received longer ago than the bound. If telemetry has received a
// newer one, it schedules the next check by that one. Else it marks the report as stale and the node as changed.
func (v *View) expire(telemetry Telemetry, bound time.Duration, now time.Time) {
	for bound > 0 && len(v.fresh) > 0 && !now.Before(v.fresh[0].at.Add(bound)) {
		beat := v.fresh.Pop()
		slot, r := beat.slot, &v.reports[beat.slot]
		if !r.scheduled || !r.due.Equal(beat.at) {
			continue
		}
		r.scheduled = false
		if n := v.state.NodeByIndex(int(slot)); n == nil || r.Stale || r.Node != n.Node.ID {
			continue
		}
		if latest, ok := telemetry.Latest(r.Node); ok && latest.Received.After(r.Received) {
			r.At, r.Received = latest.At, latest.Received
		}
		if r.Stale = !now.Before(r.Received.Add(bound)); r.Stale {
			v.changed.add(slot)
		}
		v.scheduleExpiry(slot, bound)
	}
}

// age is the time at which a node's heartbeat was received, with the slot of the node.
type age struct {
	at   time.Time
	slot uint32
}

// Before orders ages, oldest first.
func (a age) Before(b age) bool { return a.at.Before(b.at) }
