package race

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file has what changes after work was submitted, and what other parties than the engines do: specs change, nodes
// go with all that is on them, capsules run that nobody has placed, work ends when it is evicted, or when it has failed
// too often.

// liveFacts are further kinds of events, as liveKinds. They are drawn after all others, so that each seed has kept its
// other events.
var liveFacts = []liveKind{
	{"gone", 2, (*liveTurn).gone},
	{"adopt", 3, (*liveTurn).adopt},
	{"alter", 6, (*liveTurn).alter},
}

// drawFacts changes some specs, and adds events of the kinds liveFacts to two thirds of the worlds. It has random numbers
// of its own.
func (d *liveDraft) drawFacts(r *rand.Rand) {
	if lucky(r, 33) {
		return
	}
	for i := range d.engines {
		for _, s := range d.engines[i].specs {
			drawFact(r, s)
		}
	}
	for i := range d.groups {
		for _, s := range d.groups[i].specs {
			drawFact(r, s)
		}
	}
	var kinds []string
	for _, k := range liveFacts {
		kinds = append(kinds, slices.Repeat([]string{k.name}, k.weight*one(r, 0, 1, 1, 2))...)
	}
	if len(kinds) == 0 {
		return
	}
	for k := range 1 + r.IntN(len(d.events)) {
		after := r.IntN(len(d.events))
		if d.events[after].kind == liveRest { // the last event is a rest
			continue
		}
		e := Event{At: d.events[after].At, kind: one(r, kinds...), id: 1_000 + k}
		d.events = slices.Insert(d.events, after+1, e)
	}
}

// drawFact lets a spec end when it is evicted, bounds its attempts, or lets it be near a group, also by node.
func drawFact(r *rand.Rand, s *orbit.Spec) {
	if s.Ends = lucky(r, 12); lucky(r, 12) {
		s.Attempts = 1 + r.IntN(3)
	}
	for lucky(r, 12) {
		s.Nears = append(s.Nears, drawNear(r))
	}
}

// drawNear draws a co-location with a group that some work may be in.
func drawNear(r *rand.Rand) orbit.Near {
	return orbit.Near{Group: one(r, "g0", "g0", "g1", "g2", "all", "gangs"), Level: one(r, append([]string{orbit.NodeKey}, liveLevels...)...)}
}

// gone removes a node that has gone with all that was on it.
func (t *liveTurn) gone() [][]orbit.Commitment {
	n := t.node(anyNode)
	if n == nil || len(t.nodes) < 2 {
		return nil
	}
	return once(orbit.RemoveNode{Node: n.Node.ID, Gone: true})
}

// adopt lets a capsule run on a node without a placement, whether the node has the room or not: one that is pending, or a
// new one.
func (t *liveTurn) adopt() [][]orbit.Commitment {
	n, e := t.node(func(n *orbit.NodeState) bool { return n.Node.State != orbit.Lost }), t.anyEngine()
	if n == nil || e == nil {
		return nil
	}
	do := orbit.Adopt{Capsule: orbit.CapsuleID(fmt.Sprint("x.", t.id)), Node: n.Node.ID, Spec: one(t.r, e.specs...)}
	spec := do.Spec
	if c := t.capsule((*orbit.Capsule).Pending); c != nil && lucky(t.r, 30) {
		do.Capsule, do.Spec, spec = c.ID, nil, c.Spec
	} else if e.kind == "gang" {
		return nil // it would be a capsule of the class of gangs outside a gang
	}
	if spec.Devices.Count > n.Node.Devices.Count {
		return nil
	}
	do.Devices = orbit.DeviceSet(1)<<spec.Devices.Count - 1
	return once(do)
}

// alter gives a capsule another spec, placed or pending: other groups, another size, other co-locations, or another
// priority. What shrinks, and some of what grows, has been applied by another party.
func (t *liveTurn) alter() [][]orbit.Commitment {
	c := t.capsule(func(c *orbit.Capsule) bool { return !c.Released() })
	if c == nil {
		return nil
	}
	spec := c.Spec.Clone()
	do := orbit.Respec{Capsule: c.ID, Spec: spec}
	if c.Placed() {
		do.Since = c.PlacedAt
	}
	switch t.r.IntN(6) {
	case 0, 1:
		if group := one(t.r, "g0", "g1", "g2", "all", "gangs"); !spec.IsIn(group) {
			spec.Groups = append(spec.Groups, group)
		} else {
			spec.Groups = slices.DeleteFunc(spec.Groups, func(g string) bool { return g == group })
		}
	case 2:
		if spec.Nears = nil; lucky(t.r, 60) {
			spec.Nears = []orbit.Near{drawNear(t.r)}
		}
	case 3:
		if c.Gang() == "" { // gangs keep the priority of their roles
			spec.Priority = t.r.Int32N(3)
		}
	case 4:
		spec.Ends, spec.Attempts = lucky(t.r, 50), t.r.IntN(3)
	case 5:
		want := &spec.Envelope.Reservation[orbit.CPU]
		was := *want
		*want = max(1, was+one[int64](t.r, -2, -1, 1, 2))
		do.Applied = c.Placed() && (*want < was || lucky(t.r, 40))
	}
	return once(do)
}

// expand returns commitments with what the ledger adds to those that say that a node has gone: everything before them in
// the history that ends what was there.
func expand(do []orbit.Commitment, changes []orbit.Change) (out []orbit.Commitment) {
	for _, c := range do {
		if gone, ok := c.(orbit.RemoveNode); ok && gone.Gone {
			for len(out) < len(changes) && empties(changes[len(out)].Do, gone.Node) {
				out = append(out, changes[len(out)].Do)
			}
		}
		out = append(out, c)
	}
	return out
}

// empties reports whether a commitment may be part of the end of a node.
func empties(c orbit.Commitment, node orbit.NodeID) bool {
	switch c := c.(type) {
	case orbit.PutNode:
		return c.Node.ID == node && c.Node.State == orbit.Lost
	case orbit.Release:
		return (c.From == node || c.Hold != "") && !c.Final && !c.Stopped
	case orbit.Nominate:
		return len(c.Parts) == 0
	}
	return false
}

// giveBack lets an agent release a placement that may not begin, because others have overfilled the node.
func (w *world) giveBack(ctx context.Context, why error) {
	r := (*orbit.Rejection)(nil)
	if !errors.As(why, &r) || r.Dimension == "" || r.Node == "" {
		return
	}
	_ = w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{
		orbit.Release{Capsule: r.Capsule, From: r.Node, At: orbit.Instant(time.Now().UnixNano())},
	}})
}
