package main

import (
	"context"
	"errors"
	"log"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// repair moves replicas out of domains with too many until State.Skewed names none. It races with the navigators: after
// a move that loses to one of them, repair chooses again on a newer state. If no move is possible, because replicas
// that wait for a navigator are in the way, repair tries again a little later, and in the end gives up.
func (w *world) repair() {
	for tries := 0; tries < 1000; {
		state := w.state()
		p, skewed := w.anyMove(state)
		switch {
		case !skewed:
			return
		case len(p.Do) == 0:
			tries++
			time.Sleep(time.Millisecond)
			continue
		}
		_, err := w.ledger.Propose(context.Background(), p)
		switch {
		case err == nil:
			w.moves++
			tries = 0
		case !errors.Is(err, orbit.ErrConflict):
			log.Fatal(err)
		}
	}
}

// anyMove returns a proposal that reduces the skew of a rule, and reports whether any rule is skewed. It begins with
// the largest skew, so that no replica has to move twice.
func (w *world) anyMove(s *orbit.State) (p orbit.Proposal, skewed bool) {
	all := slices.SortedStableFunc(s.Skewed(), func(a, b orbit.Skew) int { return (b.Members - b.Fewest) - (a.Members - a.Fewest) })
	for _, skew := range all {
		if p, ok := w.move(s, skew); ok {
			return p, true
		}
	}
	return orbit.Proposal{}, len(all) > 0
}

// move returns a proposal that moves a replica out of a domain with too many to a node in a domain with the fewest. One
// proposal evicts the replica and places it again. The ledger takes the proposal as a whole or not at all, so the
// replica is never without a node.
func (w *world) move(s *orbit.State, skew orbit.Skew) (orbit.Proposal, bool) {
	rule := skew.Even
	c := w.memberIn(s, rule, skew.Domain)
	if c == nil {
		return orbit.Proposal{}, false
	}
	nodes := w.emptiest(s, skew.Spec, rule)
	for _, i := range w.rng.Perm(len(nodes)) {
		p := orbit.Proposal{View: s.Revision(), Do: []orbit.Commitment{
			orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt},
			orbit.Place{Capsule: c.ID, Node: nodes[i].ID},
		}}
		if s.Check(p) == nil { // the replica has room there, and all its rules hold
			return p, true
		}
	}
	return orbit.Proposal{}, false
}

// memberIn returns a member of the rule's group that is placed in a domain.
func (w *world) memberIn(s *orbit.State, rule orbit.Even, domain string) *orbit.Capsule {
	for n := range s.GroupNodes(rule.Group) {
		if n.Node.Labels[rule.Level] != domain {
			continue
		}
		for c := range s.On(n.Node.ID) {
			if c.Spec.IsIn(rule.Group) {
				return c
			}
		}
	}
	return nil
}

// emptiest returns the nodes of the domains which have the fewest members of the rule's group.
func (w *world) emptiest(s *orbit.State, spec *orbit.Spec, rule orbit.Even) (out []*orbit.Node) {
	members := map[string]int{}
	for n, count := range s.GroupNodes(rule.Group) {
		members[n.Node.Labels[rule.Level]] += count
	}
	least := -1
	for n := range s.Nodes() {
		if !eligible(n.Node, spec, rule) {
			continue
		}
		switch count := members[n.Node.Labels[rule.Level]]; {
		case least < 0 || count < least:
			least, out = count, []*orbit.Node{n.Node}
		case count == least:
			out = append(out, n.Node)
		}
	}
	return out
}
