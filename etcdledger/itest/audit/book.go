// Package audit checks a ledger's history without the ledger's own code: which capsules were placed where, whether any
// was placed twice or beyond its node's capacity, and whether the answers agree with the history.
package audit

import (
	"fmt"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// Book is the result of reading a history change by change. The zero value is empty. It must not be used by two
// goroutines at a time.
type Book struct {
	// Places, Releases and Commits are the numbers of placements, releases and commits.
	Places, Releases, Commits int
	// Doubled is the number of placements of a capsule that was placed already.
	Doubled int
	// Over is how often a node got more than its capacity.
	Over int
	// Repeated is the number of proposals that are in the history more than once.
	Repeated int
	// Faults says, in at most a hundred lines, what a correct history cannot contain.
	Faults []string

	nodes    map[orbit.NodeID]*node
	capsules map[orbit.CapsuleID]*capsule
	commits  map[orbit.ProposalID]orbit.Revision
	holds    map[orbit.HoldID]orbit.Hold
	last     orbit.Revision
	seq      int
}

type node struct{ capacity, used orbit.Resources }

type capsule struct {
	spec *orbit.Spec
	node orbit.NodeID
	gone bool
}

func (b *Book) init() {
	if b.nodes == nil {
		b.nodes, b.capsules = map[orbit.NodeID]*node{}, map[orbit.CapsuleID]*capsule{}
		b.commits, b.holds = map[orbit.ProposalID]orbit.Revision{}, map[orbit.HoldID]orbit.Hold{}
	}
}

// fault notes something that is impossible in a correct history.
func (b *Book) fault(format string, args ...any) {
	if len(b.Faults) < 100 {
		b.Faults = append(b.Faults, fmt.Sprintf(format, args...))
	}
}

// Add reads the next changes of the history.
func (b *Book) Add(changes ...orbit.Change) {
	b.init()
	for i := range changes {
		c := &changes[i]
		if c.Revision < b.last || c.Revision == b.last && c.Seq <= b.seq {
			b.fault("change %d of revision %d comes after change %d of revision %d", c.Seq, c.Revision, b.seq, b.last)
		}
		b.number(c)
		b.last, b.seq = c.Revision, c.Seq
		b.apply(c)
	}
}

// number counts commits by their ids.
func (b *Book) number(c *orbit.Change) {
	if c.ID.IsZero() {
		return
	}
	switch at, seen := b.commits[c.ID]; {
	case !seen:
		b.Commits++
		b.commits[c.ID] = c.Revision
	case at != c.Revision:
		b.Repeated++
		b.fault("proposal %v was committed at revision %d, and again at %d", c.ID, at, c.Revision)
	}
}

// apply counts what a change does.
func (b *Book) apply(c *orbit.Change) {
	switch do := c.Do.(type) {
	case orbit.PutNode:
		n := b.nodes[do.Node.ID]
		if n == nil {
			n = &node{}
			b.nodes[do.Node.ID] = n
		}
		n.capacity = do.Node.Capacity
	case orbit.RemoveNode:
		delete(b.nodes, do.Node)
	case orbit.Submit:
		b.submit(&do)
	case orbit.Place:
		b.place(&do, c.Revision)
	case orbit.Release:
		b.release(&do, c.Revision)
	case orbit.Evict:
		b.release(&orbit.Release{Capsule: do.Capsule}, c.Revision)
	case orbit.Hold:
		b.holds[do.ID] = do
		b.take(do.Node, do.Room, c.Revision)
	}
}

func (b *Book) submit(s *orbit.Submit) {
	for _, id := range s.IDs {
		b.capsules[id] = &capsule{spec: s.Spec}
	}
	if s.Gang != nil {
		for _, role := range s.Gang.Roles {
			for _, id := range role.Members {
				b.capsules[id] = &capsule{spec: role.Spec}
			}
		}
	}
}

func (b *Book) place(p *orbit.Place, at orbit.Revision) {
	b.Places++
	c := b.capsules[p.Capsule]
	switch {
	case c == nil:
		b.fault("revision %d: places %q, which was not submitted", at, p.Capsule)
		return
	case c.gone:
		b.fault("revision %d: places %q, which has ended", at, p.Capsule)
	case c.node != "":
		b.Doubled++
		b.fault("revision %d: places %q on %q while it is on %q", at, p.Capsule, p.Node, c.node)
	}
	c.node = p.Node
	b.take(p.Node, c.spec.Envelope.Reservation, at)
}

// take adds to the use of a node; negative resources are given back.
func (b *Book) take(id orbit.NodeID, room orbit.Resources, at orbit.Revision) {
	n := b.nodes[id]
	if n == nil {
		b.fault("revision %d: node %q is not there", at, id)
		return
	}
	var over bool
	for d := range room {
		n.used[d] += room[d]
		over = over || room[d] > 0 && n.used[d] > n.capacity[d]
	}
	if over {
		b.Over++
		b.fault("revision %d: node %q has %v of %v", at, id, n.used, n.capacity)
	}
}

func (b *Book) giveBack(id orbit.NodeID, room orbit.Resources, at orbit.Revision) {
	for d := range room {
		room[d] = -room[d]
	}
	b.take(id, room, at)
}

func (b *Book) release(r *orbit.Release, at orbit.Revision) {
	b.Releases++
	if r.Hold != "" {
		h := b.holds[r.Hold]
		delete(b.holds, r.Hold)
		b.giveBack(h.Node, h.Room, at)
		return
	}
	c := b.capsules[r.Capsule]
	if c == nil || c.gone || c.node == "" && !r.Final {
		b.fault("revision %d: releases %q, which is not there", at, r.Capsule)
		return
	}
	if c.node != "" {
		b.giveBack(c.node, c.spec.Envelope.Reservation, at)
	}
	c.node, c.gone = "", r.Final
}

// Placed returns how many capsules are placed now.
func (b *Book) Placed() (n int) {
	for _, c := range b.capsules {
		if c.node != "" {
			n++
		}
	}
	return n
}

// Compare returns how many placements of the history are missing from a state at the same revision. It notes these and
// all other differences as faults.
func (b *Book) Compare(s *orbit.State) (lost int) {
	if s.Revision() != b.last {
		b.fault("the state is at revision %d, the history at %d", s.Revision(), b.last)
	}
	for _, id := range slices.Sorted(maps.Keys(b.capsules)) {
		c, there := b.capsules[id], s.Capsule(id)
		switch {
		case c.gone:
			if there != nil && !there.Released() {
				b.fault("%q has ended, and is in the state", id)
			}
		case there == nil || there.Released():
			lost++
			b.fault("%q is not in the state; the history has it on %q", id, c.node)
		case there.Node != c.node:
			if c.node != "" {
				lost++
			}
			b.fault("%q is on %q; the history has it on %q", id, there.Node, c.node)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.nodes)) {
		if n := s.Node(id); n == nil || n.Used() != b.nodes[id].used {
			b.fault("node %q is not as the history has it, with %v used", id, b.nodes[id].used)
		}
	}
	if n := s.NodeCount(); n != len(b.nodes) {
		b.fault("%d nodes in the state, %d in the history", n, len(b.nodes))
	}
	return lost
}
