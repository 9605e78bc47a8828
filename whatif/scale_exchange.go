package whatif

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// exchange looks for nodes of the kinds that join which could go again at once, by moves. Such a node could have been
// saved: if it is new, it does not join; if it was there, what goes to a new node of its kind goes there instead. Nil:
// there is none.
func (g *growth) exchange(of *grown) (*grown, error) {
	proposals, err := g.proposals(of)
	if err != nil || len(of.nodes) == 0 || g.Moves < 0 {
		return nil, err
	}
	state := g.state
	for _, p := range proposals {
		if state, err = state.With(p); err != nil {
			return nil, err
		}
	}
	alike := func(n *orbit.Node) int {
		return slices.IndexFunc(of.nodes, func(o orbit.Node) bool { return likes(n, &o) })
	}
	down := &ScaleDown{Of: func(n *orbit.Node) bool { return alike(n) >= 0 }, Moves: g.Moves, Stays: func(c *orbit.Capsule) bool {
		was := g.state.Capsule(c.ID)
		return was.Placed() && g.Stays != nil && g.Stays(was)
	}}
	answer, err := down.Plan(g.ctx, state)
	if err != nil || len(answer.Nodes) == 0 {
		return nil, err
	}
	g.work += answer.work
	return g.without(of, answer)
}

// likes reports whether two nodes are alike except for their ids.
func likes(a, b *orbit.Node) bool {
	return a.Capacity == b.Capacity && a.Devices == b.Devices && a.Confirms == b.Confirms && sameLabels(a.Labels, b.Labels) &&
		slices.Equal(a.Taints, b.Taints) && slices.Equal(a.Extras, b.Extras)
}

func sameLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// without returns a plan without the nodes that an answer takes away again; nil: the ledger does not take it.
func (g *growth) without(of *grown, answer *Scaling) (*grown, error) {
	out := &grown{kinds: slices.Clone(of.kinds), nodes: slices.Clone(of.nodes), done: of.done, at: map[orbit.CapsuleID]seatOn{}}
	for id, at := range of.at {
		out.at[id] = at
	}
	out.order = slices.Clone(of.order)
	for _, m := range answer.Moved {
		c := answer.After.Capsule(m.Capsule)
		out.at[m.Capsule] = seatOn{c.Node, c.Devices}
		out.order = append(slices.DeleteFunc(out.order, func(id orbit.CapsuleID) bool { return id == m.Capsule }), m.Capsule)
	}
	for _, gone := range answer.Nodes {
		i := slices.IndexFunc(out.nodes, func(n orbit.Node) bool { return n.ID == gone.ID })
		if i < 0 {
			was := g.state.Node(gone.ID).Node
			if i = slices.IndexFunc(out.nodes, func(n orbit.Node) bool { return likes(&n, was) }); i < 0 {
				continue
			}
			for id, at := range out.at {
				if at.node == out.nodes[i].ID {
					out.at[id] = seatOn{gone.ID, at.devices}
				}
			}
		}
		out.kinds, out.nodes = slices.Delete(out.kinds, i, i+1), slices.Delete(out.nodes, i, i+1)
	}
	for _, k := range out.kinds {
		out.price += g.Kinds[k].Price
	}
	out.dropStill(g.state)
	moved := 0
	for _, id := range out.order {
		moved += btoi(g.state.Capsule(id).Placed())
	}
	if len(out.nodes) == len(of.nodes) || moved > mostMoves(g.Moves) {
		return nil, nil
	}
	proposals, err := g.proposals(out)
	if err != nil {
		return nil, g.ctx.Err()
	}
	if _, err = reported(g.ctx, g.state, proposals); err != nil { // the way to there may break a rule that the end does not
		return nil, g.ctx.Err()
	}
	return out, nil
}
