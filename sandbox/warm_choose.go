package sandbox

import (
	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// warmAsk is what a node is looked for.
type warmAsk struct {
	spec *orbit.Spec
	// It was placed before, and has lost its node.
	again bool
	// Nodes that have failed to start it.
	failed []orbit.NodeID
	// A node that it is not to be on: the parent's.
	not orbit.NodeID
	// If set, the node must have a live term in the ledger.
	leases *telemetry.Leases
	// The domains where its group is; nil: it asks for no company.
	near *warmPeers
}

// warmChoice is where a capsule would go.
type warmChoice struct {
	index   int32
	node    orbit.NodeID
	devices orbit.DeviceSet
	// A warm slot of the template is left there.
	warm bool
	// What the choice rests on, beside its room.
	bets []orbit.Precondition
}

// best returns the best node for one capsule, given what has been given away. The error is a [*WarmNoFit].
//
// A fork looks at its parent's node alone; one that was placed before its parent was gone is a fork no more. A capsule with volumes looks at the nodes that have the rarest of them, if
// those are few; all others walk the rank of their class from the best node on until one will do.
func (b *warmBooks) best(a *warmAsk) (warmChoice, error) {
	start := &a.spec.Start
	a.near = b.peers(a.spec)
	if parent := b.state.Capsule(start.Parent); start.Parent != "" && !a.orphaned(parent) {
		if parent == nil || !parent.Placed() {
			return warmChoice{}, noParent(a.spec)
		}
		if !start.CrossHost {
			return b.pinned(a, parent.Node)
		}
		a = &warmAsk{spec: a.spec, leases: a.leases, near: a.near, failed: a.failed, not: parent.Node}
	}
	if i := b.search(a); i >= 0 {
		return b.choice(a, i), nil
	}
	return warmChoice{}, b.refusal(a)
}

// orphaned reports whether there is nothing left to fork from: the capsule ran before, and its parent never will again. What
// it had in memory went with its node, so it boots from its template like any other.
func (a *warmAsk) orphaned(parent *orbit.Capsule) bool {
	return a.again && (parent == nil || parent.Released())
}

// pinned looks at one node only.
func (b *warmBooks) pinned(a *warmAsk, node orbit.NodeID) (warmChoice, error) {
	n := b.state.Node(node) // is a member: nodes with capsules cannot leave
	if n == nil || b.misfit(a, int32(n.Index())) != (warmMisfit{}) {
		return warmChoice{}, b.refusalOf(a, node)
	}
	return b.choice(a, int32(n.Index())), nil
}

// search returns the best node that will do, -1 if none will.
func (b *warmBooks) search(a *warmAsk) int32 {
	if volumes := a.spec.Start.Volumes; len(volumes) > 0 {
		few := b.holders[volumes[0]]
		for _, v := range volumes[1:] {
			if in := b.holders[v]; len(in) < len(few) {
				few = in
			}
		}
		if len(few)*len(few) <= max(len(b.nodes), 64) { // a walk meets one of them in len(nodes)/len(few) steps
			return b.bestOf(a, few)
		}
	}
	class := classOf(a.spec)
	return b.walk(b.rank(class), class, func(i int32) bool { return b.misfit(a, i) == warmMisfit{} })
}

// bestOf returns the best of a few nodes, whatever their order.
func (b *warmBooks) bestOf(a *warmAsk, few map[int32]struct{}) int32 {
	best, first := warmKey{}, int32(-1)
	for i := range few {
		if b.misfit(a, i) != (warmMisfit{}) {
			continue
		}
		n := &b.nodes[i]
		value, tie := n.rate(a.spec.Start.Template)
		if key := (warmKey{value, tie, n.hash, n.node.Node.ID, i}); first < 0 || key.less(best) {
			best, first = key, i
		}
	}
	return first
}

// choice says what a node that will do is chosen for, and what that rests on.
func (b *warmBooks) choice(a *warmAsk, i int32) warmChoice {
	n := &b.nodes[i]
	c := warmChoice{index: i, node: n.node.Node.ID, warm: n.warm(a.spec.Start.Template) > 0}
	c.devices, _ = n.tightest(&a.spec.Devices) // it fits
	c.bets = append(make([]orbit.Precondition, 0, 2), orbit.NodeFreeOf{Node: c.node, AtLeast: a.spec.Envelope.Reservation})
	if a.leases != nil {
		term, _ := a.leases.In(b.state, string(c.node))
		c.bets = append(c.bets, orbit.MarkAt{Key: a.leases.Key(string(c.node)), Revision: term.Epoch})
	}
	if near := a.spec.Near; near.Group != "" {
		c.bets = append(c.bets, orbit.GroupIn{Group: near.Group, Level: near.Level, Domain: n.node.Node.Labels[near.Level]})
	}
	return c
}

// note is what the placement says of itself.
func (c *warmChoice) note() string {
	if c.warm {
		return WarmNote
	}
	return ColdNote
}

// warmPeers are the domains in which a capsule may be placed because a member of the group it wants is there.
type warmPeers struct {
	level   string
	domains map[string]bool
}

// peers looks up the domains; nil if the spec asks for no company.
func (b *warmBooks) peers(spec *orbit.Spec) *warmPeers {
	if spec.Near.Group == "" {
		return nil
	}
	p, limit := &warmPeers{spec.Near.Level, map[string]bool{}}, b.state.Limits().IDBytes
	for n := range b.state.GroupNodes(spec.Near.Group) {
		if domain := n.Node.Labels[p.level]; domain != "" && len(domain) <= limit { // else no bet can name it
			p.domains[domain] = true
		}
	}
	return p
}

// has reports whether a node is in one of the domains; without a wish for company every node is.
func (p *warmPeers) has(n *orbit.Node) bool { return p == nil || p.domains[n.Labels[p.level]] }
