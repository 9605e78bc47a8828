package orbit

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// What failed where: the starts of capsules that failed, by capsule and by node; and the placements that wait.

// Failures is the record of the starts of one capsule that failed. A failure is a [Release] that is Stopped: the agent
// of the node says that the capsule does not run although it should. Planners read the record. No rule of a ledger
// does. The zero value is the record of a capsule that has not failed. Read it, never write it.
type Failures struct {
	// Attempts counts the failures since the capsule was submitted. If a capsule that has been released for good has failed
	// [Spec].Attempts times, it has ended for that.
	Attempts int `json:"attempts,omitempty"`
	// InARow counts the latest of them, up to and including the first one after the capsule had been placed for at least
	// 10 minutes. Engines wait longer before they place the capsule again, the larger it is.
	InARow int `json:"inARow,omitempty"`
	// Nodes are the last nodes on which the capsule failed, or on which it did not begin and was released for that; each
	// once, at most 4, the latest first.
	Nodes []NodeFailure `json:"nodes,omitempty"`
}

// NodeFailure says when a capsule last failed on a node, and how often.
type NodeFailure struct {
	// Node is the node.
	Node NodeID `json:"node"`
	// Times counts the failures there that followed each other within 10 minutes, up to the last one. A failure of which
	// the time is unknown counts as one of them.
	Times int `json:"times"`
	// At is the time of the last failure there, by the clock of the proposer (Release.At). If the proposer did not say, it
	// is the time of the placement (Place.At). 0: unknown.
	At Instant `json:"at,omitempty"`
	// Revision is the revision at which the last failure there was committed.
	Revision Revision `json:"revision"`
}

const (
	// keptFailures is how many nodes the record of a capsule names.
	keptFailures = 4
	// failureMemory is the time after which a failure has no part in what comes after it.
	failureMemory = 10 * time.Minute
	// The shortest and the longest time for which planners avoid a node. Each further failure doubles it.
	leastAvoided, mostAvoided = 10 * time.Second, 5 * time.Minute
	// The shortest and the longest time that engines wait before they place a capsule again, from the second failure in
	// a row on. Each further failure doubles it.
	leastDelay, mostDelay = time.Second, 5 * time.Minute
)

// doubled returns least, doubled as many times as times says, and at most most.
func doubled(least, most time.Duration, times int) time.Duration {
	if times > 20 || least<<times > most { // 20 times would be eleven days for a second
		return most
	}
	return least << times
}

// plus returns the record after one more failure on a node. PlaceTime is the time at which the capsule had been placed
// there. Attempt is false if the capsule did not fail but only did not begin.
func (f *Failures) plus(last NodeFailure, placeTime Instant, attempt bool) *Failures {
	out := &Failures{Attempts: f.Attempts, InARow: f.InARow}
	last.At = cmp.Or(last.At, placeTime)
	if attempt {
		out.Attempts++
		if out.InARow++; placeTime != 0 && last.At >= placeTime+Instant(failureMemory) {
			out.InARow = 1
		}
	}
	last.Times = 1
	for _, before := range f.Nodes {
		if before.Node == last.Node && (before.At == 0 || last.At == 0 || last.At <= before.At+Instant(failureMemory)) {
			last.Times += before.Times
		}
	}
	out.Nodes = append(out.Nodes, last)
	for _, before := range f.Nodes {
		if before.Node != last.Node && len(out.Nodes) < keptFailures {
			out.Nodes = append(out.Nodes, before)
		}
	}
	return out
}

// fault returns what no record of failures can be at a revision, as a text; empty: nothing is wrong. A nil record is none.
func (f *Failures) fault(now Revision) string {
	switch {
	case f == nil:
		return ""
	case len(f.Nodes) == 0 || len(f.Nodes) > keptFailures:
		return fmt.Sprintf("%d nodes; it names 1 to %d", len(f.Nodes), keptFailures)
	case f.InARow < 0 || f.InARow > f.Attempts:
		return fmt.Sprintf("%d in a row of %d", f.InARow, f.Attempts)
	}
	for i, n := range f.Nodes {
		again := slices.ContainsFunc(f.Nodes[:i], func(o NodeFailure) bool { return o.Node == n.Node })
		if n.Node == "" || again || n.Times < 1 || n.At < 0 || n.Revision == 0 || n.Revision > now || i > 0 && n.Revision > f.Nodes[i-1].Revision {
			return fmt.Sprintf("%d times on node %q, last at revision %d: it is named twice, out of order, or that cannot be", n.Times, n.Node, n.Revision)
		}
	}
	return ""
}

// avoided reports whether planners still avoid the node for the capsule.
func (f *NodeFailure) avoided(now Instant) bool {
	return f.isWithin(doubled(leastAvoided, mostAvoided, f.Times-1), now)
}

// isWithin reports whether the failure is not older than the age. A failure is as old as any if its time is unknown, or if
// it is so far ahead that the clock of its proposer must be wrong.
func (f *NodeFailure) isWithin(age time.Duration, now Instant) bool {
	return f.At != 0 && now < f.At+Instant(age) && f.At <= now+Instant(mostAvoided)
}

// delayed returns when an engine places the capsule again at the earliest. It is not later than it would be if the last
// failure had happened now. After a first failure the capsule may be placed at once: there may be a better node.
func (f *Failures) delayed(now Instant) Instant {
	if f.InARow < 2 || len(f.Nodes) == 0 {
		return 0
	}
	last := f.Nodes[0].At
	if last == 0 || last > now {
		last = now
	}
	return last + Instant(doubled(leastDelay, mostDelay, f.InARow-2))
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

// failureRecord is the entry of a capsule in the table of failures.
type failureRecord struct {
	capsule CapsuleID
	of      *Failures
}

// Failures returns the record of the starts of a capsule that failed; the zero value if none has.
func (s *State) Failures(id CapsuleID) Failures {
	if f := s.failuresOf(id); f != nil {
		return *f
	}
	return Failures{}
}

// failuresOf returns the record of the failures of a capsule; nil: none.
func (s *State) failuresOf(id CapsuleID) *Failures {
	if s.failed.Len() == 0 {
		return nil
	}
	r, _ := s.failed.Get(failureRecord{capsule: id})
	return r.of
}

// Failed yields the capsules with a record of [Failures], ordered by id. Some may have been released for good: their
// failures say something about nodes.
func (s *State) Failed() iter.Seq2[*Capsule, Failures] {
	return func(yield func(*Capsule, Failures) bool) {
		s.failed.Ascend(func(r failureRecord) bool { return yield(s.Capsule(r.capsule), *r.of) })
	}
}

// NodeStarts counts the starts on a node, from the first on that has failed there within the last five minutes.
type NodeStarts struct {
	// Failed counts the capsules that have failed there, or have not begun and were released for that.
	Failed int
	// Of is Failed plus the capsules that were placed there since and are still there; on a node that confirms
	// ([Node.Confirms]), those that have begun.
	Of int
	// Specs counts the different specs of the capsules that have failed.
	Specs int

	// The specs, and how many capsules of each.
	of []specFailures
}

type specFailures struct {
	spec  *Spec
	count int
}

// everyone reports whether all capsules should rather start elsewhere: most starts there fail, and those of more than
// one spec.
func (n *NodeStarts) everyone() bool { return n.Specs > 1 && n.Failed > n.Of-n.Failed }

// keepsOff reports whether capsules of the spec should rather start on another node: most starts there fail, of several
// specs or of several capsules of this spec.
func (n *NodeStarts) keepsOff(spec *Spec) bool {
	return n.Failed > n.Of-n.Failed && (n.Specs > 1 || n.of[0].count > 1 && spec.equals(n.of[0].spec))
}

// same reports whether both keep off the same capsules.
func (n *NodeStarts) same(o *NodeStarts) bool {
	if n == nil || o == nil || n.everyone() != o.everyone() {
		return n == o
	}
	return n.everyone() || n.keepsOff(n.of[0].spec) == o.keepsOff(o.of[0].spec) && n.of[0].spec == o.of[0].spec
}

// Starts yields the nodes on which starts have failed within the five minutes before now, and counts the starts there,
// in no particular order. Failures of which the time is unknown do not count.
func (s *State) Starts(now time.Time) iter.Seq2[*NodeState, NodeStarts] {
	return func(yield func(*NodeState, NodeStarts) bool) {
		for index, n := range s.starts(instantOf(now), s.failed.Ascend) {
			if !yield(s.NodeByIndex(int(index)), *n) {
				return
			}
		}
	}
}

// starts counts the starts by node index, given all records with a failure within the last five minutes.
func (s *State) starts(now Instant, records func(func(failureRecord) bool)) map[uint32]*NodeStarts {
	out, first := map[uint32]*NodeStarts{}, map[uint32]Revision{}
	records(func(r failureRecord) bool {
		for i := range r.of.Nodes {
			at := &r.of.Nodes[i]
			n := s.Node(at.Node)
			if n == nil || !at.isWithin(mostAvoided, now) {
				continue
			}
			if out[n.index] == nil {
				out[n.index], first[n.index] = &NodeStarts{}, at.Revision
			}
			out[n.index].add(s.Capsule(r.capsule).Spec)
			first[n.index] = min(first[n.index], at.Revision)
		}
		return true
	})
	for index, n := range out {
		n.Of, n.Specs = n.Failed, len(n.of)
		at := s.NodeByIndex(int(index)).Node
		for c := range s.On(at.ID) {
			n.Of += btoi(c.PlacedAt > first[index] && (c.Begun || !at.Confirms))
		}
	}
	return out
}

// add counts a capsule of the spec that has failed.
func (n *NodeStarts) add(spec *Spec) {
	n.Failed++
	i := slices.IndexFunc(n.of, func(f specFailures) bool { return f.spec == spec })
	if i < 0 {
		i = len(n.of)
		n.of = append(n.of, specFailures{spec: spec})
	}
	n.of[i].count++
}

// Waiting yields the placed capsules that may not begin yet, each with the first [Remains] for which it waits: its own,
// or those of a capsule that has left its node before it came. It looks at all nodes, and at the capsules on nodes with
// remains.
func (s *State) Waiting() iter.Seq2[*Capsule, *Remains] {
	return func(yield func(*Capsule, *Remains) bool) {
		for n := range s.Nodes() {
			if n.remains != nil && !s.waitingFor(n, yield) {
				return
			}
		}
	}
}

// waitingFor yields the placed capsules that may not begin because of remains on a node, and reports whether it has
// yielded all.
func (s *State) waitingFor(n *NodeState, yield func(*Capsule, *Remains) bool) bool {
	for r := range n.leaving {
		if c := s.Capsule(r.Capsule); c.Placed() && !c.Begun && !yield(c, r) {
			return false
		}
	}
	first := n.firstLeaving()
	if first == nil {
		return true
	}
	for c := range s.On(n.Node.ID) {
		if c.waitsToBegin(n.Node) && c.Remains() == nil && first.Left <= c.PlacedAt && !yield(c, first) {
			return false
		}
	}
	return true
}

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

func anywhere(*Node) bool { return true }
