package orbit

import (
	"context"
	"time"

	"github.com/orbitsched/orbit/internal/heap"
)

// This file is the telemetry half of a view: reports by node, and when they go stale. Time enters orbit
// only here and in the engine's waiting.

// joined is a node's report in a view.
type joined struct {
	Report
	// The heap of heartbeats has an entry for it, at due. Other entries for it are void.
	armed bool
	due   time.Time
}

// hear takes over new reports and marks those that have crossed the staleness bound. It reports whether
// parked work may fit now.
func (v *View) hear(ctx context.Context, from *source, now time.Time) (woken bool, err error) {
	if from.telemetry == nil {
		return false, nil
	}
	reports, version, err := from.telemetry.Reports(ctx, v.version)
	if err != nil {
		return false, err
	}
	v.version = version
	v.makeRoom(v.state.NodeBound())
	bound := from.telemetry.StaleAfter()
	for i := range reports {
		if n := v.state.Node(reports[i].Node); n != nil {
			v.say(n, reports[i], bound)
			woken = v.queue.bringBack(n, nil) || woken
		}
	}
	v.expire(from.telemetry, bound, now)
	return woken, nil
}

// makeRoom lets reports reach up to a bound.
func (v *View) makeRoom(bound int) {
	if n := bound - len(v.reports); n > 0 {
		v.reports = append(v.reports, make([]joined, n)...)
	}
}

// join gives a node the report that telemetry has of it, or a stale one.
func (v *View) join(n *NodeState, telemetry Telemetry) {
	v.makeRoom(int(n.index) + 1)
	report, _ := telemetry.Latest(n.Node.ID)
	report.Node = n.Node.ID
	v.say(n, report, telemetry.StaleAfter())
}

// say records a report and when it will be stale.
func (v *View) say(n *NodeState, r Report, bound time.Duration) {
	r.Stale = bound > 0 && !v.now.Before(r.At.Add(bound))
	v.reports[n.index].Report = r
	v.changed.add(n.index)
	v.arm(n.index, bound)
}

// arm sees to it that a node is looked at again when its heartbeat will be too old.
func (v *View) arm(slot uint32, bound time.Duration) {
	if r := &v.reports[slot]; bound > 0 && !r.Stale && (!r.armed || r.At.Before(r.due)) {
		r.armed, r.due = true, r.At
		v.fresh.Push(age{r.At, slot})
	}
}

// expire looks again at the nodes whose known heartbeat is too old: those that have beaten since are filed
// anew, the others are marked stale and changed.
func (v *View) expire(telemetry Telemetry, bound time.Duration, now time.Time) {
	for bound > 0 && len(v.fresh) > 0 && !now.Before(v.fresh[0].at.Add(bound)) {
		beat := v.fresh.Pop()
		slot, r := beat.slot, &v.reports[beat.slot]
		if !r.armed || !r.due.Equal(beat.at) {
			continue
		}
		r.armed = false
		if n := v.state.NodeByIndex(int(slot)); n == nil || r.Stale || r.Node != n.Node.ID {
			continue
		}
		if latest, ok := telemetry.Latest(r.Node); ok && latest.At.After(r.At) {
			r.At = latest.At
		}
		if r.Stale = !now.Before(r.At.Add(bound)); r.Stale {
			v.changed.add(slot)
		}
		v.arm(slot, bound)
	}
}

// age is when a node's heartbeat was.
type age struct {
	at   time.Time
	slot uint32
}

// Before orders ages, oldest first.
func (a age) Before(b age) bool { return a.at.Before(b.at) }

// holdEnd is when a hold ends.
type holdEnd struct {
	at time.Time
	id HoldID
}

// Before orders ends, soonest first.
func (a holdEnd) Before(b holdEnd) bool { return a.at.Before(b.at) }

type (
	ageHeap = heap.Heap[age]
	endHeap = heap.Heap[holdEnd]
)

// ended returns the holds whose end has passed, and forgets those that have been released. It names a hold
// again in every pass until it is gone: a release that did not get through is not the end of it.
func (v *View) ended(now time.Time) []HoldID {
	for _, end := range v.ending {
		v.ends.Push(end)
	}
	v.ending = v.ending[:0]
	var out []HoldID
	for len(v.ends) > 0 && !now.Before(v.ends[0].at) {
		end := v.ends.Pop()
		if h, ok := v.state.Hold(end.id); ok && h.Ends.Equal(end.at) {
			out = append(out, end.id)
			v.ending = append(v.ending, end)
		}
	}
	return out
}
