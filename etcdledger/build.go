package etcdledger

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// build makes a state of records that fit each other, by way of a dump: [orbit.Restore] checks everything once
// more. A record that it refuses is left out as damaged, and with it what depends on it.
func (t *tables) build(meta *metaRecord) (*loaded, error) {
	const attempts = 64
	for range attempts {
		w := writer{tables: t, meta: meta, specs: map[string]int{}}
		w.write()
		if w.err != nil {
			return nil, fmt.Errorf("etcdledger: %w", w.err)
		}
		state, err := orbit.Restore(&w.text)
		if err == nil {
			t.remember(state)
			return &loaded{state: state, pos: t.pos, bad: t.bad, litter: t.litter}, nil
		}
		if !t.drop(err, w.of) {
			return nil, fmt.Errorf("etcdledger: %w: the records together: %w", ErrCorrupt, err)
		}
	}
	return nil, fmt.Errorf("etcdledger: %w: more than %d records that can be decoded make no sense; the first: %w", ErrCorrupt, attempts, t.anyBad())
}

// drop takes the record out that an error of Restore is about. It reports false if it is about none.
func (t *tables) drop(err error, lines []ref) bool {
	var r *orbit.Rejection
	if !errors.As(err, &r) || r.Do < 1 || r.Do > len(lines) || lines[r.Do-1] == (ref{}) {
		return false
	}
	culprit := lines[r.Do-1]
	t.spoil(culprit, "%s", r.Reason)
	switch culprit.kind {
	case kindNode:
		delete(t.nodes, orbit.NodeID(culprit.id))
	case kindCapsule:
		delete(t.capsules, orbit.CapsuleID(culprit.id))
	case kindGang:
		delete(t.gangs, orbit.GangID(culprit.id))
	case kindHold:
		delete(t.holds, orbit.HoldID(culprit.id))
	case kindMark:
		delete(t.marks, culprit.id)
	case kindUse, kindProposal:
		return false
	}
	t.check()
	return true
}

// anyBad returns one damaged record.
func (t *tables) anyBad() error {
	for r, why := range t.bad {
		return t.keys.corrupt(r, why)
	}
	return nil
}

// remember makes litter of what the state keeps no record of, and notes what it will drop, in its order.
func (t *tables) remember(s *orbit.State) {
	for _, id := range t.released() {
		t.litter.released = append(t.litter.released, departed{id, t.capsules[id].Gang, t.capsules[id].at})
	}
	for _, id := range t.recent() {
		t.litter.ids = append(t.litter.ids, forgotten{id, t.ids[id].at})
	}
	t.litter.drop(s)
}

// released returns the released capsules in order of their release.
func (t *tables) released() []orbit.CapsuleID {
	return t.capsulesInOrder(func(c *capsuleRecord) bool { return c.Released },
		func(c *capsuleRecord) uint64 { return uint64(c.at)<<orderBits + uint64(c.Ended) })
}

// capsulesInOrder returns some of the capsules, sorted by a key and then by submission.
func (t *tables) capsulesInOrder(which func(*capsuleRecord) bool, by func(*capsuleRecord) uint64) []orbit.CapsuleID {
	var out []orbit.CapsuleID
	for id, c := range t.capsules {
		if which(c) {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b orbit.CapsuleID) int {
		x, y := t.capsules[a], t.capsules[b]
		return cmp.Or(cmp.Compare(by(x), by(y)), cmp.Compare(x.order(), y.order()), cmp.Compare(a, b))
	})
	return out
}

// order returns the order of submission of a capsule.
func (c *capsuleRecord) order() uint64 {
	if c.Submitted != 0 {
		return c.Submitted
	}
	return uint64(c.at)<<orderBits + c.Seq
}

// placedAt returns when a capsule was last placed.
func (c *capsuleRecord) placedAt() orbit.Revision {
	if len(c.Placed) > 0 && c.Placed[0].At != 0 {
		return c.Placed[0].At
	}
	return c.at
}

// recent returns the ids of proposals, oldest first.
func (t *tables) recent() []orbit.ProposalID {
	return slices.SortedFunc(maps.Keys(t.ids), func(a, b orbit.ProposalID) int {
		x, y := t.ids[a], t.ids[b]
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.Seq, y.Seq), bytes.Compare(a[:], b[:]))
	})
}

// writer writes records as a dump of a state.
type writer struct {
	*tables
	meta *metaRecord
	text bytes.Buffer
	// Which record a line is of.
	of    []ref
	specs map[string]int
	err   error
}

// line writes one line.
func (w *writer) line(of ref, kind string, record any) {
	text, err := json.Marshal(map[string]any{kind: record})
	w.err = cmp.Or(w.err, err)
	w.text.Write(text)
	w.text.WriteByte('\n')
	w.of = append(w.of, of)
}

// write writes everything.
func (w *writer) write() {
	live := w.capsulesInOrder(func(c *capsuleRecord) bool { return !c.Released },
		func(c *capsuleRecord) uint64 { return c.order() })
	gone := w.released()
	w.header(live, gone)
	for _, id := range slices.Sorted(maps.Keys(w.uses)) {
		w.node(id)
	}
	w.closedNodes()
	for _, id := range slices.Sorted(maps.Keys(w.gangs)) {
		w.gang(id)
	}
	for _, id := range append(live, gone...) {
		w.capsule(id)
	}
	for _, id := range slices.Sorted(maps.Keys(w.holds)) {
		h := w.holds[id]
		w.line(ref{kindHold, string(id)}, "hold", dumpHold{*h.Hold, h.at})
	}
	for _, key := range slices.Sorted(maps.Keys(w.marks)) {
		m := w.marks[key]
		w.line(ref{kindMark, key}, "mark", dumpMark{key, m.Value, m.at})
	}
	ids := w.recent()
	for _, id := range ids[max(0, len(ids)-w.meta.Limits.ProposalIDs):] {
		w.line(ref{}, "recent", placementRecord{id, w.ids[id].at})
	}
	w.line(ref{}, "end", len(w.of))
}

// header writes what is said of the whole. When something was last removed is not recorded: it was now, at the
// latest.
func (w *writer) header(live, gone []orbit.CapsuleID) {
	h := dumpHeader{Version: 1, Revision: w.rev, Limits: w.meta.Limits, Dimensions: w.meta.Dimensions}
	for _, ids := range [][]orbit.CapsuleID{live, gone} {
		for _, id := range ids {
			c := w.capsules[id]
			h.Order = max(h.Order, c.order())
		}
	}
	h.Left = dumpLeft{w.rev, w.rev, w.rev, w.rev, w.rev, w.rev}
	w.line(ref{}, "orbit", h)
}

// node writes a node that is counted. One that is closed takes nothing new, whatever is described.
func (w *writer) node(id orbit.NodeID) {
	u, n := w.uses[id], w.nodes[id]
	out := dumpNode{Usage: cmp.Or(u.Usage, u.at)}
	if n != nil {
		out.Node, out.Specification = n.Node, n.at
	}
	if out.ID = id; w.closed[id] {
		out.Unschedulable, out.Specification = true, w.rev
	}
	w.line(ref{kindNode, string(id)}, "node", out)
}

// closedNodes writes the nodes that are not counted, but spoken of.
func (w *writer) closedNodes() {
	for _, id := range slices.Sorted(maps.Keys(w.closed)) {
		if _, written := w.uses[id]; written {
			continue
		}
		out := dumpNode{Usage: w.rev, Specification: w.rev}
		if n := w.nodes[id]; n != nil {
			out.Node = n.Node
		}
		out.ID, out.Unschedulable = id, true
		w.line(ref{kindNode, string(id)}, "node", out)
	}
}

// gang writes a gang after the specs of its roles.
func (w *writer) gang(id orbit.GangID) {
	g, r := w.gangs[id], ref{kindGang, string(id)}
	out := dumpGang{ID: id, Levels: g.Gang.Levels, Loose: g.Gang.Loose, Changed: g.at}
	for i := range g.Gang.Roles {
		role := &g.Gang.Roles[i]
		out.Roles = append(out.Roles, dumpRole{role.Name, w.spec(r, role.Spec), role.Members, role.Min})
	}
	w.line(r, "gang", out)
}

// capsule writes a capsule after its spec.
func (w *writer) capsule(id orbit.CapsuleID) {
	c, r := w.capsules[id], ref{kindCapsule, string(id)}
	out := dumpCapsule{
		ID: id, Spec: w.spec(r, c.Spec), Owner: c.Owner, Gang: c.Gang, Node: c.Node, Devices: c.Devices, Note: c.Note,
		Submitted: c.order(), Changed: c.at, Released: c.Released,
	}
	if c.Gang != "" {
		out.Role = roleOf(w.gangs[c.Gang].Gang, id)
	}
	for i, p := range c.Placed {
		p.At = cmp.Or(p.At, c.at)
		if i == 0 {
			out.PlacedAt, out.PlacedBy = p.At, p.ID
			continue
		}
		out.Earlier = append(out.Earlier, p)
	}
	w.line(r, "capsule", out)
}

// roleOf returns the number of the role that lists a member.
func roleOf(g *orbit.Gang, id orbit.CapsuleID) int {
	return slices.IndexFunc(g.Roles, func(r orbit.Role) bool { return slices.Contains(r.Members, id) })
}

// spec returns the number of a spec, which it writes when it first appears.
func (w *writer) spec(of ref, s *orbit.Spec) int {
	text, err := json.Marshal(s)
	w.err = cmp.Or(w.err, err)
	n, known := w.specs[string(text)]
	if !known {
		n = len(w.specs)
		w.specs[string(text)] = n
		w.line(of, "spec", s)
	}
	return n
}
