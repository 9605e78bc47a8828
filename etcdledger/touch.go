package etcdledger

import (
	"github.com/orbitsched/orbit"
)

// refs are the records that a proposal has to do with: what its judgement reads, and of these what it writes.
type refs map[ref]access

type access uint8

const (
	reads access = iota
	writes
)

// add notes access to a record.
func (r refs) add(k kind, id string, a access) {
	name := ref{k, id}
	r[name] = max(r[name], a)
}

// meets reports whether a record is in both.
func (r refs) meets(o refs) bool {
	if len(o) < len(r) {
		r, o = o, r
	}
	for name := range r {
		if _, ok := o[name]; ok {
			return true
		}
	}
	return false
}

// merge adds all of another set.
func (r refs) merge(o refs) {
	for name, a := range o {
		r[name] = max(r[name], a)
	}
}

// touch returns all records that judging and committing the proposal on s looks at. A record that is not there
// counts: its absence is what has been read.
func touch(s *orbit.State, p *orbit.Proposal) refs {
	t := toucher{s, refs{}}
	places := false
	for _, c := range p.Do {
		_, place := c.(orbit.Place)
		places = places || place
		t.commitment(c)
	}
	for _, bet := range p.If {
		t.bet(bet)
	}
	if !places && !p.ID.IsZero() {
		t.add(kindProposal, p.ID.String(), writes)
	}
	return t.refs
}

// toucher collects the records of one proposal.
type toucher struct {
	s *orbit.State
	refs
}

// commitment adds what one commitment reads and writes. What the same proposal has made before is there already.
func (t toucher) commitment(c orbit.Commitment) {
	switch c := c.(type) {
	case orbit.PutNode:
		t.add(kindUse, string(c.Node.ID), writes)
		t.add(kindNode, string(c.Node.ID), writes)
	case orbit.RemoveNode:
		t.add(kindUse, string(c.Node), writes)
		t.add(kindNode, string(c.Node), writes)
	case orbit.Submit:
		t.submit(&c)
	case orbit.Place:
		t.capsule(c.Capsule)
		t.add(kindUse, string(c.Node), writes)
	case orbit.Release:
		t.release(&c)
	case orbit.Hold:
		t.add(kindHold, string(c.ID), writes)
		t.add(kindUse, string(c.Node), writes)
	case orbit.Assign:
		t.add(kindCapsule, string(c.Capsule), writes)
	case orbit.Mark:
		t.add(kindMark, c.Key, writes)
	}
}

// submit adds new capsules, and their gang.
func (t toucher) submit(c *orbit.Submit) {
	for _, id := range c.IDs {
		t.add(kindCapsule, string(id), writes)
	}
	if c.Gang == nil {
		return
	}
	t.add(kindGang, string(c.Gang.ID), writes)
	for i := range c.Gang.Roles {
		for _, id := range c.Gang.Roles[i].Members {
			t.add(kindCapsule, string(id), writes)
		}
	}
}

// capsule adds a capsule that is placed or released, and the gang that counts it.
func (t toucher) capsule(id orbit.CapsuleID) {
	t.add(kindCapsule, string(id), writes)
	if c := t.s.Capsule(id); c != nil && c.Gang != "" {
		t.add(kindGang, string(c.Gang), writes)
	}
}

// release adds a capsule or a hold, and the node that it leaves.
func (t toucher) release(c *orbit.Release) {
	if c.Hold != "" {
		t.add(kindHold, string(c.Hold), writes)
		if h, lives := t.s.Hold(c.Hold); lives {
			t.add(kindUse, string(h.Node), writes)
		}
		return
	}
	known := t.s.Capsule(c.Capsule)
	if known == nil || !known.Placed() { // its gang does not count it
		t.add(kindCapsule, string(c.Capsule), writes)
		return
	}
	t.capsule(c.Capsule)
	t.add(kindUse, string(known.Node), writes)
}

// bet adds what a bet is judged by.
func (t toucher) bet(bet orbit.Precondition) {
	switch bet := bet.(type) {
	case orbit.NodeFreeOf:
		t.add(kindUse, string(bet.Node), reads)
	case orbit.NodeAt:
		t.add(kindUse, string(bet.Node), reads)
	case orbit.GangUnplaced:
		t.add(kindGang, string(bet.Gang), reads)
	case orbit.MarkAt:
		t.add(kindMark, bet.Key, reads)
	case orbit.GroupIn:
		t.witness(&bet)
	}
}

// witness adds one member of the group that is in the domain: while it is there, the bet holds.
func (t toucher) witness(bet *orbit.GroupIn) {
	for n := range t.s.GroupNodes(bet.Group) {
		if n.Node.Labels[bet.Level] != bet.Domain {
			continue
		}
		for c := range t.s.On(n.Node.ID) {
			if c.Spec.Group == bet.Group {
				t.add(kindUse, string(n.Node.ID), reads)
				t.add(kindCapsule, string(c.ID), reads)
				return
			}
		}
	}
}
