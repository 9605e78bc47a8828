package etcdledger

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// build makes a state of the records, and compares what each node's record counts with what the other records put there,
// so that one that is missing is missed.
func (t *tables) build(meta *metaRecord) (*orbit.State, error) {
	state, err := t.assemble(meta)
	if err != nil {
		return nil, err
	}
	for n := range state.Nodes() {
		if u := t.uses[n.Node.ID]; !u.counts(n) {
			return nil, t.keys.corrupt(ref{kindUse, string(n.Node.ID)}, fmt.Sprintf("it counts %d capsules, %d holds and %v in use; what can be read is %d, %d and %v",
				u.Capsules, u.Holds, u.Used, n.Capsules, n.Holds(), n.Used()))
		}
	}
	return state, nil
}

// counts reports whether the record counts what is on a node.
func (u *useRecord) counts(n *orbit.NodeState) bool {
	return n.Capsules == u.Capsules && n.Holds() == u.Holds && n.Used() == u.Used
}

// assemble makes a state of the records. A record that cannot be, alone or with the others, is a [*CorruptError] that
// names it.
func (t *tables) assemble(meta *metaRecord) (*orbit.State, error) {
	b := &orbit.StateBuilder{Revision: t.rev, Limits: meta.Limits, Dimensions: meta.Dimensions}
	for _, add := range []func(*orbit.StateBuilder) error{t.addNodes, t.addGangsAndCapsules, t.addHolds, t.addMarks, t.addProposals} {
		if err := add(b); err != nil {
			return nil, err
		}
	}
	state, err := b.State()
	if err != nil {
		return nil, &CorruptError{Key: t.keys.prefix, Why: err.Error()}
	}
	return state, nil
}

// addNodes adds the nodes. Each has a description and a count.
func (t *tables) addNodes(b *orbit.StateBuilder) error {
	for _, id := range slices.Sorted(maps.Keys(t.nodes)) {
		if u := t.uses[id]; u == nil || u.Gone {
			return t.keys.corrupt(ref{kindUse, string(id)}, "it is missing, and the node is described")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.uses)) {
		u, n := t.uses[id], t.nodes[id]
		if u.Gone {
			continue
		}
		r := ref{kindNode, string(id)}
		if n == nil {
			return t.keys.corrupt(r, "it is missing, and the node is in use")
		}
		if err := b.Node(n.Node, cmp.Or(u.Usage, u.at), n.at); err != nil {
			return t.keys.corrupt(r, err.Error())
		}
	}
	return nil
}

// addGangsAndCapsules adds those that live, and the released ones of which records are kept. A gang whose last member's
// record is not kept has none either.
func (t *tables) addGangsAndCapsules(b *orbit.StateBuilder) error {
	kept := t.keptCapsules(b.Limits.Terminal)
	living := map[orbit.GangID]bool{}
	for _, id := range kept {
		living[t.capsules[id].Gang] = true
	}
	for _, id := range slices.Sorted(maps.Keys(t.gangs)) {
		g := t.gangs[id]
		if g.Gang == nil || !living[id] {
			continue
		}
		if err := b.Gang(g.Gang, g.at, g.Nomination.nomination("", id, g.at)); err != nil {
			return t.keys.corrupt(ref{kindGang, string(id)}, err.Error())
		}
	}
	for _, id := range kept {
		c := t.capsules[id]
		if err := b.Capsule(c.capsule(id), c.earlier(), c.Released); err != nil {
			return t.keys.corrupt(ref{kindCapsule, string(id)}, err.Error())
		}
	}
	return nil
}

// keptCapsules returns the capsules that live in order of submission, and then the newest of those that are released, in
// order of their release.
func (t *tables) keptCapsules(terminal int) []orbit.CapsuleID {
	var live, released []orbit.CapsuleID
	for id, c := range t.capsules {
		switch {
		case c.Spec == nil: // it was dropped
		case c.Released:
			released = append(released, id)
		default:
			live = append(live, id)
		}
	}
	slices.SortFunc(live, func(a, b orbit.CapsuleID) int {
		return cmp.Or(cmp.Compare(t.capsules[a].order(), t.capsules[b].order()), cmp.Compare(a, b))
	})
	slices.SortFunc(released, func(a, b orbit.CapsuleID) int {
		x, y := t.capsules[a], t.capsules[b]
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.Ended, y.Ended), cmp.Compare(x.order(), y.order()), cmp.Compare(a, b))
	})
	return append(live, released[max(0, len(released)-terminal):]...)
}

// order returns the order of submission of a capsule.
func (c *capsuleRecord) order() uint64 {
	if c.Submitted != 0 {
		return c.Submitted
	}
	return uint64(c.at)<<orderBits + c.Seq
}

// capsule returns the record as a capsule.
func (c *capsuleRecord) capsule(id orbit.CapsuleID) *orbit.Capsule {
	out := &orbit.Capsule{
		ID: id, Spec: c.Spec, Owner: c.Owner, Gang: c.Gang, Node: c.Node, Devices: c.Devices, Note: c.Note,
		Submitted: c.order(), Changed: c.at, Nomination: c.Nomination.nomination(id, "", c.at),
	}
	if len(c.Placed) > 0 {
		out.PlacedAt, out.PlacedBy = cmp.Or(c.Placed[0].At, c.at), c.Placed[0].ID
	}
	return out
}

// earlier yields all placements but the last, newest first.
func (c *capsuleRecord) earlier() iter.Seq2[orbit.ProposalID, orbit.Revision] {
	return func(yield func(orbit.ProposalID, orbit.Revision) bool) {
		for i, p := range c.Placed {
			if i > 0 && !yield(p.ID, cmp.Or(p.At, c.at)) {
				return
			}
		}
	}
}

// addHolds adds the holds.
func (t *tables) addHolds(b *orbit.StateBuilder) error {
	for _, id := range slices.Sorted(maps.Keys(t.holds)) {
		h := t.holds[id]
		if h.Hold == nil {
			continue
		}
		if err := b.Hold(*h.Hold, h.at); err != nil {
			return t.keys.corrupt(ref{kindHold, string(id)}, err.Error())
		}
	}
	return nil
}

// addMarks adds the marks.
func (t *tables) addMarks(b *orbit.StateBuilder) error {
	for _, key := range slices.Sorted(maps.Keys(t.marks)) {
		m := t.marks[key]
		if m.Value == "" {
			continue
		}
		if err := b.Mark(key, m.Value, m.at); err != nil {
			return t.keys.corrupt(ref{kindMark, key}, err.Error())
		}
	}
	return nil
}

// addProposals adds the ids of proposals that placed nothing, oldest first.
func (t *tables) addProposals(b *orbit.StateBuilder) error {
	ids := slices.SortedFunc(maps.Keys(t.ids), func(a, b orbit.ProposalID) int {
		x, y := t.ids[a], t.ids[b]
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.Seq, y.Seq), bytes.Compare(a[:], b[:]))
	})
	for _, id := range ids[max(0, len(ids)-b.Limits.ProposalIDs):] {
		if err := b.Committed(id, t.ids[id].at); err != nil {
			return t.keys.corrupt(ref{kindProposal, id.String()}, err.Error())
		}
	}
	return nil
}
