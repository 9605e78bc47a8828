package orbit

import "fmt"

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

// tampered refuses to replace the description of a node that was changed in place: what the state counts by label no
// longer matches the labels.
func (t *tx) tampered(n *txNode) error {
	if n.redescribed() || t.s.intact(n.now.Node) {
		return nil
	}
	return t.invalid(Rejection{Node: n.now.Node.ID}, "node %q: the labels, taints or extras in this ledger's state were changed through a plain copy of it; "+
		"the ledger has to be opened anew; change a Node.Clone", n.now.Node.ID)
}
