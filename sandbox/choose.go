package sandbox

import (
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// ask is a capsule that needs a node, and the restrictions on that node.
type ask struct {
	spec *orbit.Spec
	// It was placed before, and has lost its node.
	again bool
	// Nodes that have failed to start it.
	failed []orbit.NodeID
	// A node to exclude: the parent's.
	not orbit.NodeID
	// If set, the node must have a live term in the ledger.
	leases *lease.Keeper
	// When the choice is made; only read if loads.failing is set.
	now time.Time
	// The spec without its request, so that only rules of company and lasting reasons exclude nodes; nil: no rule of company
	// concerns it.
	company *orbit.Spec
}

// choice is the node for a capsule.
type choice struct {
	orbit.Choice
	// A warm slot of the template is left there.
	warm bool
}

// best returns the best node for one capsule, after the debits of earlier choices. The error is a [*WarmNoFit].
//
// For a fork, best evaluates only the parent's node. A fork that was placed before its parent was gone counts as an
// ordinary capsule. For a capsule with volumes, best evaluates the nodes that have the rarest volume, if those are few.
// For all other capsules it searches the rankings for the best node that fits.
func (b *loads) best(a *ask) (choice, error) {
	start := &a.spec.Start
	a.company = b.company(a.spec)
	if parent := b.state.Capsule(start.Parent); start.Parent != "" && !a.orphaned(parent) {
		if parent == nil || !parent.Placed() {
			return choice{}, noParent(a.spec)
		}
		if !start.CrossHost {
			return b.pinned(a, parent.Node)
		}
		elsewhere := *a
		elsewhere.not = parent.Node
		a = &elsewhere
	}
	if i := b.search(a); i >= 0 {
		return b.choice(a, i), nil
	}
	return choice{}, b.refusal(a)
}

// company returns the spec for ask.company.
func (b *loads) company(spec *orbit.Spec) *orbit.Spec {
	if rules, _ := b.draft.RuleLevels(spec); rules == nil && spec.Near.Group == "" {
		return nil
	}
	if known := b.companies[spec]; known != nil {
		return known
	}
	plain := spec.Clone()
	plain.Envelope, plain.Devices, plain.Extras = orbit.Envelope{}, orbit.DeviceRequest{}, nil
	company, err := plain.Share()
	if err != nil { // unexpected: the spec itself is valid
		return nil
	}
	if b.companies == nil || len(b.companies) >= mostRefusals {
		b.companies = map[*orbit.Spec]*orbit.Spec{}
	}
	b.companies[spec] = company
	return company
}

// orphaned reports whether a fork can no longer be forked: it ran before, and its parent is gone for good. Its memory
// was lost with its node, so it boots from its template like any other capsule.
func (a *ask) orphaned(parent *orbit.Capsule) bool {
	return a.again && (parent == nil || parent.Released())
}

// pinned returns the given node as the choice, or why it does not fit.
func (b *loads) pinned(a *ask, node orbit.NodeID) (choice, error) {
	n := b.state.Node(node) // is a member: nodes with capsules cannot leave
	if n == nil || b.misfit(a, int32(n.Index())) != (misfit{}) {
		return choice{}, b.refusalOf(a, node)
	}
	return b.choice(a, int32(n.Index())), nil
}

// search returns the index of the best node that fits; -1 if none does. A node that is a last resort is chosen only if
// no other fits.
func (b *loads) search(a *ask) int32 {
	met := false
	i := b.searchFor(a, func(i int32) bool {
		if b.misfit(a, i) != (misfit{}) {
			return false
		}
		last := b.lastResort(a, i)
		met = met || last
		return !last
	})
	if i < 0 && met {
		return b.searchFor(a, func(i int32) bool { return b.misfit(a, i) == misfit{} })
	}
	return i
}

// lastResort reports whether another node that fits is better, however this one is rated: starts have failed here
// lately, or the capsule would wait here until others have stopped.
func (b *loads) lastResort(a *ask, i int32) bool {
	return b.draft.LastResort(b.draft.Node(int(i)), a.spec) ||
		len(b.failing) > 0 && b.failing.avoids(b.nodes[i].id, a.spec.Start.Template, a.now)
}

// searchFor returns the index of the best node that accept agrees to; -1 if there is none.
func (b *loads) searchFor(a *ask, accept func(i int32) bool) int32 {
	if volumes := a.spec.Start.Volumes; len(volumes) > 0 {
		few := b.holders[volumes[0]]
		for _, v := range volumes[1:] {
			if in := b.holders[v]; len(in) < len(few) {
				few = in
			}
		}
		if len(few)*len(few) <= max(len(b.nodes), 64) { // a search of the rankings meets one of them in len(nodes)/len(few) steps
			return b.bestOf(a, few, accept)
		}
	}
	return b.first(a.spec, accept)
}

// bestOf returns the best of a few nodes that accept agrees to, whatever their order.
func (b *loads) bestOf(a *ask, few map[int32]struct{}, accept func(i int32) bool) int32 {
	best, first := position{}, int32(-1)
	for i := range few {
		if !accept(i) {
			continue
		}
		value, tie := b.rate(i, a.spec.Start.Template)
		if at := (position{value, tie, b.nodes[i].hash, b.nodes[i].id}); first < 0 || at.compare(best) < 0 {
			best, first = at, i
		}
	}
	return first
}

// choice returns the choice of a node that fits.
func (b *loads) choice(a *ask, i int32) choice {
	n := b.draft.Node(int(i))
	set, _ := n.PickDevices(a.spec) // it fits
	return choice{orbit.Choice{Node: n, Devices: set}, b.nodes[i].warm(a.spec.Start.Template) > 0}
}

// propose makes a proposal of the draft's steps, which place a capsule on a node. It bets on the node's term.
func (b *loads) propose(leases *lease.Keeper, node orbit.NodeID) orbit.Proposal {
	if leases == nil {
		return b.draft.Propose()
	}
	term, _ := leases.In(b.state, string(node))
	return b.draft.Propose(orbit.MarkAt{Key: leases.Key(string(node)), Revision: term.Epoch})
}
