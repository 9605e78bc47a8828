package orbit

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// What the model says of starts that fail, and of what waits to begin.

// modelFailure is one failure of a capsule, as it was said. The model keeps all of them, and counts them only when it is asked.
type modelFailure struct {
	node       NodeID
	at, placed Instant
	revision   Revision
	attempt    bool
}

// fails notes that a placed capsule has failed, or has not begun.
func (c *modelCapsule) fails(at Instant, now Revision, attempt bool) {
	if at == 0 {
		at = c.at
	}
	c.failures = append(slices.Clip(c.failures), modelFailure{c.node, at, c.at, now, attempt})
}

// minutesBetween returns how many minutes lie between two times, and whether both are known.
func minutesBetween(from, to Instant) (minutes float64, known bool) {
	return time.Duration(to - from).Minutes(), from != 0 && to != 0
}

// countFailures counts all failures of a capsule anew.
func (c *modelCapsule) countFailures() (out Failures) {
	for _, f := range c.failures {
		if !f.attempt {
			continue
		}
		out.Attempts++
		out.InARow++
		if minutes, known := minutesBetween(f.placed, f.at); known && minutes >= 10 {
			out.InARow = 1
		}
	}
	named := map[NodeID]bool{}
	for i, f := range slices.Backward(c.failures) {
		if len(named) < 4 && !named[f.node] {
			named[f.node] = true
			out.Nodes = append(out.Nodes, NodeFailure{f.node, c.timesBefore(i), f.at, f.revision})
		}
	}
	return out
}

// timesBefore counts the failures on the node of failure i that led up to it: none is more than ten minutes after the one before, and
// between two of them there were not four other nodes, after which the record has forgotten the node.
func (c *modelCapsule) timesBefore(i int) int {
	times, last, others := 1, c.failures[i], map[NodeID]bool{}
	for _, f := range slices.Backward(c.failures[:i]) {
		if f.node != last.node {
			others[f.node] = true
			continue
		}
		if minutes, known := minutesBetween(f.at, last.at); len(others) > 3 || known && minutes > 10 {
			break
		}
		times, last = times+1, f
		clear(others)
	}
	return times
}

// waitsToBegin reports whether a placement of before the proposal waits to begin, on a node that confirmed before it and still does.
func (r *modelRound) waitsToBegin(id CapsuleID, c modelCapsule) bool {
	n := r.now.nodes[c.node]
	return c.node != "" && c.placedAt < r.now.rev && !c.begun && (c.waits || c.remains != nil || r.overfull(id)) && n.Confirms && n.State != Lost && r.was.nodes[c.node].Confirms
}

// minute draws a time at which something failed: some are more than ten minutes apart, and some are not said.
func (s *scribe) minute() Instant {
	return Instant(pickOne(s, []time.Duration{0, 1, time.Minute, 9 * time.Minute, 11 * time.Minute, 15 * time.Minute, 22 * time.Minute}))
}

// draftFailing has a capsule fail, and perhaps places it again at once; or moves or releases one that waits to begin.
func draftFailing(s *scribe) []Commitment {
	if c := s.some(func(c *Capsule) bool { return c.Placed() && (c.Waits || c.Remains() != nil) }); c.Placed() && s.chance(2) {
		if s.chance(2) {
			return []Commitment{Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}, s.put(c.ID, c.Spec)}
		}
		return []Commitment{Release{Capsule: c.ID, From: c.Node, At: s.minute()}}
	}
	c := s.some((*Capsule).Placed)
	fails := []Commitment{Release{Capsule: c.ID, Stopped: true, At: s.minute()}}
	for range rapid.IntRange(0, 3).Draw(s.T, "again") {
		again := s.put(c.ID, c.Spec)
		end := s.minute()
		if again.At = s.minute(); s.chance(3) { // it ran for a long time in between
			again.At, end = 1, Instant(22*time.Minute)
		}
		fails = append(fails, again, Release{Capsule: c.ID, Stopped: true, At: end})
	}
	return fails[:len(fails)-rapid.IntRange(0, 1).Draw(s.T, "runs")*btoi(len(fails) > 1)]
}
