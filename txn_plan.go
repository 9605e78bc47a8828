package orbit

import "github.com/orbitsched/orbit/internal/slab"

// planSum is the sum of what one proposal of a plan does ([Draft.Propose]). The proposal may commit or not, and the later ones of the
// plan have to hold in both cases. A rule's hook hedge therefore adds whatever makes the later ones count with the worse
// case: the most that may be in use, the fewest members that may be healthy.
type planSum struct {
	nodes []planNode
	// What it changes in the counts by which company is judged, and in the queues. What a hook appends is counted, too.
	moves   []companyMove
	charges []*stepCharge
	// The groups and modules with budgets of which it takes members off their nodes; one may be named several times.
	members []*plannedMembers
	// Whether a step may free something: only then hooks are called.
	frees  bool
	copies *slab.Of[NodeState]
}

// planNode is a node that the proposal changes, before it and after it, and as the later proposals find it; nil: as after it.
type planNode struct{ was, now, kept *NodeState }

// keep returns the node as the later proposals find it, to be written to.
func (p *planSum) keep(n *planNode) *NodeState {
	if n.kept == nil {
		n.kept = p.copies.New(*n.now)
	}
	return n.kept
}
