package orbit

import "github.com/orbitsched/orbit/internal/slab"

// planSum collects what one proposal of a plan changes ([Draft.Propose]). Later proposals of the plan must be valid whether this one
// commits or not. Each rule's hook hedge therefore makes them count with the worse of the two cases: the most room in use, the fewest
// healthy members.
type planSum struct {
	nodes []planNode
	// What it changes in the counts by which company is judged, and in the queues. What a hook appends is counted, too.
	moves   []companyMove
	charges []*stepCharge
	// The groups and modules with a budget that lose members from their nodes; an entry may occur twice.
	members []*plannedMembers
	// Whether a step may free something: only then hooks are called.
	frees  bool
	copies *slab.Of[NodeState]
}

// planNode is a node that the proposal changes: was before it, now after it, and kept as later proposals have to see it. If kept is
// nil, they see now.
type planNode struct{ was, now, kept *NodeState }

// keep returns the node as the later proposals find it, to be written to.
func (p *planSum) keep(n *planNode) *NodeState {
	if n.kept == nil {
		n.kept = p.copies.New(*n.now)
	}
	return n.kept
}
