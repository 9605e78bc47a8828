package orbit

import "fmt"

// The third step of a proposal, after its bets and its commitments: what only the sum of them shows.

// settle judges what only the sum of all commitments shows: fit, node by node, and gangs.
func (t *tx) settle() error {
	for i := range t.nodes.entries {
		n := &t.nodes.entries[i]
		if n.askedDevices == 0 && n.asked == (Resources{}) {
			continue
		}
		if err := t.settleNode(n); err != nil {
			return err
		}
	}
	for i := range t.gangs.entries {
		if err := t.settleGang(&t.gangs.entries[i]); err != nil {
			return err
		}
	}
	return nil
}

// settleNode compares use with capacity where this proposal has asked for something. Dimensions that it
// does not ask for may be over their capacity, if that has shrunk; those that it asks for may not, whatever
// else it releases there.
func (t *tx) settleNode(n *txNode) error {
	node, over := n.now.Node, false
	for d := range n.asked {
		over = over || n.asked[d] > 0 && n.now.used[d] > node.Capacity[d]
	}
	if over {
		t.at = n.asker
		r := Rejection{Node: node.ID}
		t.short(&r, &n.asked, node.Capacity.minus(n.now.used.minus(n.asked)))
		return t.refuse(r, max(n.newest(), n.asks), "node %q is short", r.Node)
	}
	return t.settleDevices(n)
}

// settleDevices does the same for device instances. The node may have lost one in this very proposal.
func (t *tx) settleDevices(n *txNode) error {
	if n.askedDevices == 0 {
		return nil
	}
	d := &n.now.Node.Devices
	for i := range MaxDevices {
		if !n.askedDevices.Has(i) {
			continue
		}
		room, used := int64(0), int64(n.now.devices[i])
		if i < d.Count && !d.Unhealthy.Has(i) {
			room = deviceMilli
		}
		if used > room {
			t.at = n.asker
			before := int64(0)
			if n.was != nil {
				before = int64(n.was.deviceUse()[i])
			}
			r := Rejection{Node: n.now.Node.ID, Dimension: fmt.Sprintf("device %d", i), Want: used - before, Free: max(0, room-before)}
			return t.refuse(r, max(n.newest(), n.asks), "node %q is short", r.Node)
		}
	}
	return nil
}

// settleGang judges a first placement; later placements may be short.
func (t *tx) settleGang(g *txGang) error {
	if g.now.Total() == 0 || g.was != nil && g.was.Total() > 0 && !g.restarts {
		return nil
	}
	i := g.now.wanting()
	if i < 0 {
		return nil
	}
	t.at = -1 // all together
	role := &g.now.Gang.Roles[i]
	return t.refuse(Rejection{}, g.newest(), "gang %q: role %q would have %d members placed, at least %d must be at first",
		g.now.Gang.ID, role.Name, g.now.Placed[i], role.minimum())
}
