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
	// Evictions is the number of capsules that made way for others, and Wishes that of capsules that anybody took off a node that
	// was not lost, evictions among them.
	Evictions, Wishes int
	// InVain is how many were evicted for what the same commit did not place, and Broken how often a wish left fewer members
	// healthy than a budget asks for.
	InVain, Broken int
	// Faults says, in at most a hundred lines, what a correct history cannot contain.
	Faults []string

	nodes    map[orbit.NodeID]*node
	capsules map[orbit.CapsuleID]*capsule
	commits  map[orbit.ProposalID]orbit.Revision
	holds    map[orbit.HoldID]orbit.Hold
	budgets  map[orbit.BudgetID]orbit.Budget
	// Who wished whom off their nodes in the commit that is being read, the budgets that held before it, and its id.
	wishes []wish
	before []orbit.Budget
	commit orbit.ProposalID
	// How many commits have been read, those without an id among them.
	count int
	last  orbit.Revision
	seq   int
}

type node struct {
	capacity, used orbit.Resources
	lost           bool
}

type capsule struct {
	spec *orbit.Spec
	gang orbit.GangID
	node orbit.NodeID
	gone bool
	// Which commit has placed it last.
	placed int
}

// wish is a capsule that a commit takes off its node, and for whom.
type wish struct {
	orbit.Evict
	spec *orbit.Spec
	at   orbit.Revision
}

func (b *Book) init() {
	if b.nodes == nil {
		b.nodes, b.capsules = map[orbit.NodeID]*node{}, map[orbit.CapsuleID]*capsule{}
		b.commits, b.holds = map[orbit.ProposalID]orbit.Revision{}, map[orbit.HoldID]orbit.Hold{}
		b.budgets = map[orbit.BudgetID]orbit.Budget{}
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
		if c.Revision != b.last || c.ID != b.commit {
			b.judgeWishes()
			b.count++
			b.before = slices.Collect(maps.Values(b.budgets))
		}
		b.number(c)
		b.last, b.seq, b.commit = c.Revision, c.Seq, c.ID
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
		n.capacity, n.lost = do.Node.Capacity, do.Node.State == orbit.Lost
	case orbit.RemoveNode:
		delete(b.nodes, do.Node)
	case orbit.Submit:
		b.submit(&do)
	case orbit.Place:
		b.place(&do, c.Revision)
	case orbit.Release:
		if !do.Final && !do.Stopped {
			b.wish(orbit.Evict{Capsule: do.Capsule}, c.Revision)
		}
		b.release(&do, c.Revision)
	case orbit.Evict:
		b.wish(do, c.Revision)
		b.release(&orbit.Release{Capsule: do.Capsule}, c.Revision)
	case orbit.PutBudget:
		b.budgets[do.Budget.ID] = do.Budget
	case orbit.RemoveBudget:
		delete(b.budgets, do.Budget)
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
				b.capsules[id] = &capsule{spec: role.Spec, gang: s.Gang.ID}
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
	c.node, c.placed = p.Node, b.count
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

// wish notes that a commit takes a capsule off its node, unless that is lost.
func (b *Book) wish(e orbit.Evict, at orbit.Revision) {
	c := b.capsules[e.Capsule]
	if c == nil || b.nodes[c.node] == nil || b.nodes[c.node].lost {
		return
	}
	b.wishes = append(b.wishes, wish{e, c.spec, at})
	b.Wishes++
	if e.For != "" || e.ForGang != "" {
		b.Evictions++
	}
}

// judgeWishes looks, when a commit has been read, whether those that it took off their nodes made way for what it has placed, and
// whether enough members of each budget were healthy then.
func (b *Book) judgeWishes() {
	budgets := slices.Clone(b.before)
	for _, budget := range b.budgets {
		if !slices.Contains(budgets, budget) {
			budgets = append(budgets, budget)
		}
	}
	for _, w := range b.wishes {
		var priority int32
		made := w.For == "" && w.ForGang == ""
		for id, c := range b.capsules {
			if id == w.For || w.ForGang != "" && c.gang == w.ForGang {
				priority = c.spec.Priority
				made = made || c.node != "" && c.placed == b.count
			}
		}
		if !made {
			b.InVain++
			b.fault("revision %d: evicts %q for %q%q, which it does not place", w.at, w.Capsule, w.For, w.ForGang)
		}
		for _, budget := range budgets {
			b.judgeBudget(&w, &budget, priority)
		}
	}
	b.wishes = b.wishes[:0]
}

// judgeBudget counts the healthy members of a budget again. Those that the commit itself has placed are not healthy yet.
func (b *Book) judgeBudget(w *wish, budget *orbit.Budget, priority int32) {
	member := func(s *orbit.Spec) bool {
		return budget.Module != "" && s.Module == budget.Module || budget.Group != "" && s.IsIn(budget.Group)
	}
	if !member(w.spec) || budget.Above != 0 && (w.For != "" || w.ForGang != "") && priority >= budget.Above {
		return
	}
	healthy := 0
	for _, c := range b.capsules {
		if c.node != "" && c.placed != b.count && !b.nodes[c.node].lost && member(c.spec) {
			healthy++
		}
	}
	if needed := budget.Expected - budget.Missing - (budget.Expected*budget.MissingPercent+99)/100; healthy < needed {
		b.Broken++
		b.fault("revision %d: takes %q away, and %d members of budget %q are healthy then, of %d needed", w.at, w.Capsule, healthy, budget.ID, needed)
	}
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
	b.judgeWishes()
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
