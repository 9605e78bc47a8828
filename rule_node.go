package orbit

import (
	"fmt"
	"slices"
)

// A node joins, is described anew, and leaves once nothing is left on it.

// check implements [Commitment].
func (c PutNode) check(v *validator) Commitment {
	n := &c.Node
	v.id("node id", string(n.ID))
	v.failAll(n.faults())
	v.text("device model", n.Devices.Model, v.limits.IDBytes)
	v.carried("node", 0, n.Labels)
	for _, t := range n.Taints {
		v.text("taint", t.String(), v.limits.SpecBytes)
	}
	for _, x := range n.Extras {
		v.text("extra", x.Name, v.limits.IDBytes)
	}
	return nil
}

// execute implements [Commitment].
func (c PutNode) execute(t *tx) (NodeID, error) {
	return c.Node.ID, t.putNode(&c.Node)
}

func (PutNode) subject() CapsuleID { return "" }

func (c PutNode) effect() effect {
	return effect{node: c.Node.ID, gives: true, describes: true}
}

// offence implements [planCheck.offence].
func (c PutNode) offence(*planCheck) (CapsuleID, string) {
	return "", fmt.Sprintf("changes the constellation (%T)", c)
}

// own implements [cloner.own].
func (c PutNode) own(*cloner) Commitment { return PutNode{*c.Node.clone()} }

// check implements [Commitment].
func (c RemoveNode) check(v *validator) Commitment {
	v.ref("node id", string(c.Node))
	return nil
}

// execute implements [Commitment].
func (c RemoveNode) execute(t *tx) (NodeID, error) {
	return c.Node, t.removeNode(c.Node)
}

func (RemoveNode) subject() CapsuleID { return "" }

// skippable implements [mayBeSkipped]: a description that the node has already is skipped.
func (c PutNode) skippable() bool { return true }

func (c RemoveNode) effect() effect {
	return effect{node: c.Node, takes: true, describes: true}
}

// offence implements [planCheck.offence].
func (c RemoveNode) offence(*planCheck) (CapsuleID, string) {
	return "", fmt.Sprintf("changes the constellation (%T)", c)
}

// putNode lets a node join, or gives a member a new description. A description that equals the present one is left out
// of the proposal (spare). The node's use stays as it is, even if the new
// capacity is lower. Every change sets the specification counter to the ledger-wide revision, so
// that a node that has left and joins again never repeats a value.
func (t *tx) putNode(node *Node) error {
	e := t.nodes.find(node.ID)
	if e == nil {
		if e = t.node(node.ID); e == nil {
			e = t.nodes.add(node.ID)
			e.now.index = t.vacantNode()
			e.gone = true
		}
	}
	if e.gone { // joins, for the first time or again
		e.now = NodeState{index: e.now.index, Usage: t.rev}
		e.asked, e.askedDevices, e.asks = Resources{}, 0, 0
		e.joined, e.claimed = t.at, false
	} else {
		if t.breaks(e.now.Node.State == Lost && node.State != Lost) {
			return t.refuse(Rejection{Node: node.ID}, e.newestSpec(), "node %q is lost; let it leave, and join anew", node.ID)
		}
		if err := t.tampered(e); err != nil {
			return err
		}
		if t.breaks(e.now.Node.equals(node)) { // else a history of a ledger without this rule would give other counters
			t.equal = append(t.equal, t.at)
			return nil
		}
		t.lowers = t.lowers || e.now.Node.lowers(node)
	}
	if node.State == Lost {
		t.endAllRemains(e)
	}
	e.ready = e.ready || node.State == Ready
	e.now.Node, e.now.Specification = node, t.rev
	e.gone, e.dirty = false, true
	return nil
}

// removeNode lets a node leave that has no capsules, holds, remains or nominations. The entry stays in the write-set:
// the node may join again in the same proposal.
func (t *tx) removeNode(id NodeID) error {
	n := t.node(id)
	if n == nil {
		return t.refuse(Rejection{Node: id}, t.s.left.Nodes, "node %q is not a member", id)
	}
	if n.now.Capsules > 0 || n.now.holds > 0 {
		return t.refuse(Rejection{Node: id, advice: "move or release the capsules, and release the holds, before the node leaves"}, n.newest(),
			"node %q still has %d capsules and %d holds", id, n.now.Capsules, n.now.holds)
	}
	if n.now.remains != nil {
		return t.refuse(Rejection{Node: id, advice: "wait until its agent confirms that it has stopped; if the node is gone, put it as Lost first"}, n.newest(),
			"node %q: capsule %q has left it, and has not stopped", id, (*n.now.remains)[0].Capsule)
	}
	if parts := t.nominatedOn(n); len(parts) > 0 {
		return t.refuse(Rejection{Node: id, advice: t.endsWhen(n, parts[0].of)}, max(n.newest(), t.s.left.Nominations),
			"node %q is nominated for %s since revision %d", id, parts[0].of.nominee(), parts[0].of.Made)
	}
	if err := t.tampered(n); err != nil {
		return err
	}
	n.gone, n.dirty, t.lowers = true, true, true
	return nil
}

// vacate inserts what empties a node before the commitment that is executed next, if that says that the node has gone.
// A history that is applied again has these commitments already.
func (t *tx) vacate() {
	c, ok := t.p.Do[t.at].(RemoveNode)
	if !ok || !c.Gone || t.replays {
		return
	}
	n := t.node(c.Node)
	if n == nil {
		return
	}
	list := t.leftOn(n)
	if len(list) == 0 {
		return
	}
	if t.origin == nil {
		for i := range t.p.Do {
			t.origin = append(t.origin, i)
		}
	}
	t.p.Do = slices.Insert(slices.Clone(t.p.Do), t.at, list...)
	t.origin = slices.Insert(t.origin, t.at, slices.Repeat([]int{t.origin[t.at]}, len(list))...)
	t.vacated = t.at + len(list)
}

// leftOn returns the commitments that end everything on a node that has gone, in an order that does not depend on how the
// state keeps it.
func (t *tx) leftOn(n *txNode) (do []Commitment) {
	id := n.now.Node.ID
	if n.now.Node.State != Lost && (n.now.Capsules > 0 || n.now.remains != nil) {
		lost := n.now.Node.clone()
		lost.State = Lost
		do = append(do, PutNode{*lost})
	}
	var placed []CapsuleID
	for c := range t.eachOn(id) {
		placed = append(placed, c.ID)
	}
	slices.Sort(placed)
	for _, c := range placed {
		do = append(do, Release{Capsule: c, From: id})
	}
	for _, h := range t.heldOn(n) {
		do = append(do, Release{Hold: h})
	}
	ended := map[*Nomination]bool{}
	for _, p := range t.nominatedOn(n) {
		if !ended[p.of] {
			ended[p.of] = true
			do = append(do, Nominate{Capsule: p.of.Capsule, Gang: p.of.Gang})
		}
	}
	return do
}

// heldOn returns the holds on a node after the commitments executed so far, in the order of their ids.
func (t *tx) heldOn(n *txNode) (ids []HoldID) {
	if n.now.holds == 0 {
		return nil
	}
	for h := range t.s.Holds() {
		if h.Node == n.now.Node.ID && t.holds.find(h.ID) == nil {
			ids = append(ids, h.ID)
		}
	}
	for i := range t.holds.entries {
		if e := &t.holds.entries[i]; e.now != nil && e.now.Node == n.now.Node.ID {
			ids = append(ids, e.now.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// tampered refuses to replace the description of a node that was changed in place: what the state counts by label no
// longer matches the labels.
func (t *tx) tampered(n *txNode) error {
	if n.redescribed() || t.s.intact(n.now.Node) {
		return nil
	}
	return t.invalid(Rejection{Node: n.now.Node.ID}, "node %q: the labels, taints or extras in this ledger's state were changed through a plain copy of it; "+
		"the ledger has to be opened anew; change a Node.Clone", n.now.Node.ID)
}
