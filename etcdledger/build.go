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

// build makes a state of the records. It compares the count of each node with the capsules and holds on the node, so that a
// missing record is noticed.
func (t *tables) build(meta *metaRecord) (*orbit.State, error) {
	state, err := t.assemble(meta)
	if err != nil {
		return nil, err
	}
	for n := range state.Nodes() {
		if u := t.uses[n.Node.ID]; !u.counts(n) {
			return nil, t.keys.corrupt(ref{kindUse, string(n.Node.ID)}, fmt.Sprintf("it counts %d capsules, %d holds and %v in use; the other records have %d, %d and %v on the node",
				u.Capsules, u.Holds, u.Used, n.Capsules, n.Holds(), n.Used()))
		}
	}
	return state, nil
}

// counts reports whether the count agrees with a node of a state.
func (u *useRecord) counts(n *orbit.NodeState) bool {
	return n.Capsules == u.Capsules && n.Holds() == u.Holds && n.Used() == u.Used
}

// assemble makes a state of the records without comparing the counts. If a record is invalid, alone or together with the
// others, the error is a [*CorruptError] with its key.
func (t *tables) assemble(meta *metaRecord) (*orbit.State, error) {
	b := &orbit.StateBuilder{Revision: t.rev, Limits: meta.Limits, Dimensions: meta.Dimensions}
	for _, add := range []func(*orbit.StateBuilder) error{t.addNodes, t.addGangsAndCapsules, t.addHolds, t.addMarks, t.addBudgets, t.addProposals} {
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

// addNodes adds the nodes. Each must have a description and a count.
func (t *tables) addNodes(b *orbit.StateBuilder) error {
	for _, id := range slices.Sorted(maps.Keys(t.nodes)) {
		if u := t.uses[id]; u == nil || u.Gone {
			return t.keys.corrupt(ref{kindUse, string(id)}, "it is missing, although the node has a description")
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.uses)) {
		u, n := t.uses[id], t.nodes[id]
		if u.Gone {
			continue
		}
		r := ref{kindNode, string(id)}
		if n == nil {
			return t.keys.corrupt(r, "it is missing, although the node has a count")
		}
		if err := b.Node(n.Node, cmp.Or(u.Usage, u.at), n.at); err != nil {
			return t.keys.corrupt(r, err.Error())
		}
	}
	return nil
}

// addGangsAndCapsules adds the capsules that keptCapsules returns, and the gangs with a member among them.
func (t *tables) addGangsAndCapsules(b *orbit.StateBuilder) error {
	if err := t.missingRemains(); err != nil {
		return err
	}
	kept := t.keptCapsules(b.Limits.Terminal)
	living := map[orbit.GangID]bool{}
	for _, id := range kept {
		living[t.capsules[id].Gang] = true
	}
	err := addEach(t.keys, kindGang, t.gangs, func(id orbit.GangID, g *gangRecord) error {
		if g.Gang == nil || !living[id] {
			return nil
		}
		return b.Gang(g.Gang, g.at, g.Nomination.nomination("", id, g.at))
	})
	if err != nil {
		return err
	}
	for _, id := range kept {
		c := t.capsules[id]
		now := c.capsule(id)
		now.Remains = t.remains(id)
		err := b.Capsule(now)
		if c.Protected != 0 && err == nil {
			err = b.Protect(id, c.Protected)
		}
		if err != nil {
			return t.keys.corrupt(ref{kindCapsule, string(id)}, err.Error())
		}
	}
	return nil
}

// remains returns the remains of a capsule that has left a node and still runs there; nil: there are none. The
// capsule's record may describe remains that have ended, so they count only if the node's count lists them.
func (t *tables) remains(id orbit.CapsuleID) *orbit.Remains {
	c := t.capsules[id]
	if c == nil || c.Spec == nil || c.Remains == nil {
		return nil
	}
	own := *c.Remains
	own.Spec = c.FormerSpec
	own.Since, own.Left = cmp.Or(own.Since, c.at), cmp.Or(own.Left, c.at)
	u := t.uses[own.Node]
	if u == nil {
		return nil
	}
	if since, listed := u.Remains[id]; !listed || cmp.Or(since, u.at) != own.Since {
		return nil
	}
	return &own
}

// missingRemains returns an error if a node's count lists remains that no capsule's record describes.
func (t *tables) missingRemains() error {
	for node, u := range t.uses {
		for id := range u.Remains {
			if r := t.remains(id); r == nil || r.Node != node {
				return t.keys.corrupt(ref{kindCapsule, string(id)}, fmt.Sprintf("it is missing, or is not that of the capsule that has left node %q and still runs there", node))
			}
		}
	}
	return nil
}

// keptCapsules returns the live capsules in order of submission, followed by released ones in order of release. The
// released ones are the newest, as many as the ledger keeps (terminal), and all older ones that still run somewhere.
func (t *tables) keptCapsules(terminal int) []orbit.CapsuleID {
	var live, released []orbit.CapsuleID
	for id, c := range t.capsules {
		switch {
		case c.Spec == nil: // its record has been dropped
		case c.Released && t.isOfFormerGang(id): // the ledger has dropped the capsule, and GC has not deleted its record yet
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
	for i, id := range released {
		if i >= len(released)-terminal || t.remains(id) != nil {
			live = append(live, id)
		}
	}
	return live
}

// isOfFormerGang reports whether the gang of a capsule has been submitted again without the capsule. That happens only
// after the ledger has dropped the capsule, although its record is still in etcd.
func (t *tables) isOfFormerGang(id orbit.CapsuleID) bool {
	g := t.gangs[t.capsules[id].Gang]
	return g != nil && g.Gang != nil && !slices.ContainsFunc(g.Gang.Roles, func(r orbit.Role) bool { return slices.Contains(r.Members, id) })
}

// order returns the position of a capsule in the order of submission.
func (c *capsuleRecord) order() uint64 {
	if c.Submitted != 0 {
		return c.Submitted
	}
	return uint64(c.at)<<orderBits + c.Seq
}

// capsule returns the record as a capsule, without its remains.
func (c *capsuleRecord) capsule(id orbit.CapsuleID) orbit.CapsuleRecord {
	out := orbit.CapsuleRecord{
		Capsule: orbit.Capsule{
			ID: id, Spec: c.Spec, Node: c.Node, Devices: c.Devices, Submitted: c.order(), Changed: c.at, PlaceTime: c.PlaceTime,
			Begun: c.Begun, Ready: c.Ready, Waits: c.Waits, Adopted: c.Adopted, Respecified: c.Respecified,
		},
		Owner: c.Owner, Gang: c.Gang, Labels: c.Labels, SubmitTime: c.SubmitTime, Note: c.Note,
		Nomination: c.Nomination.nomination(id, "", c.at), Borrows: c.Borrows, Earlier: c.earlier(), Released: c.Released,
		Failures: revised(c.Failures, func(at orbit.Revision) orbit.Revision { return cmp.Or(at, c.at) }),
	}
	if len(c.Placed) > 0 && !c.Former {
		out.PlacedAt, out.PlacedBy = cmp.Or(c.Placed[0].At, c.at), c.Placed[0].ID
	}
	return out
}

// earlier yields the placements before the capsule's current one, newest first: its own, and those of earlier capsules
// with the same id.
func (c *capsuleRecord) earlier() iter.Seq2[orbit.ProposalID, orbit.Revision] {
	return func(yield func(orbit.ProposalID, orbit.Revision) bool) {
		for i, p := range c.Placed {
			if (i > 0 || c.Former) && !yield(p.ID, cmp.Or(p.At, c.at)) {
				return
			}
		}
	}
}

// addHolds adds the holds.
func (t *tables) addHolds(b *orbit.StateBuilder) error {
	return addEach(t.keys, kindHold, t.holds, func(_ orbit.HoldID, h *holdRecord) error {
		if h.Hold == nil {
			return nil
		}
		return b.Hold(*h.Hold, h.at)
	})
}

// addMarks adds the marks.
func (t *tables) addMarks(b *orbit.StateBuilder) error {
	return addEach(t.keys, kindMark, t.marks, func(key string, m *markRecord) error {
		if m.Value == "" {
			return nil
		}
		return b.Mark(key, m.Value, m.at)
	})
}

// addBudgets adds the budgets.
func (t *tables) addBudgets(b *orbit.StateBuilder) error {
	return addEach(t.keys, kindBudget, t.budgets, func(_ orbit.BudgetID, r *budgetRecord) error {
		if r.Budget == nil {
			return nil
		}
		return b.Budget(*r.Budget, r.at)
	})
}

// addEach calls add with each record of a table, sorted by id. An error becomes a [*CorruptError] with the record's key.
func addEach[K ~string, V any](k keys, of kind, table map[K]V, add func(K, V) error) error {
	for _, id := range slices.Sorted(maps.Keys(table)) {
		if err := add(id, table[id]); err != nil {
			return k.corrupt(ref{of, string(id)}, err.Error())
		}
	}
	return nil
}

// addProposals adds the ids of the newest proposals that placed nothing, as many as the ledger keeps, oldest first.
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
