package orbit

import (
	"fmt"
	"slices"
	"strings"
)

// PlacementEngine is the building block with which a navigator chooses nodes. The body of a simple Plan:
//
//	engine.Sync(view)
//	for _, c := range pending {
//		choice, err := engine.Best(c.Spec)
//		if err != nil {
//			plan.Unplaced = append(plan.Unplaced, Unplaced{c, err})
//			continue
//		}
//		plan.Proposals = append(plan.Proposals, engine.Reserve(c, choice))
//	}
//
// Hard requirements filter, soft forces score, lower is better. Equal values go by tie, and then by a hash
// of the node with the engine's seed, so that navigators with different seeds do not herd onto one node;
// seed 0 goes by node id. An engine belongs to one navigator and is not safe for concurrent use.
type PlacementEngine interface {
	// Sync brings the engine up to the view and forgets what was reserved.
	Sync(view *View)
	// Best returns the best node for one capsule of the spec, given what is reserved. The error is a *NoFit;
	// before the first Sync nothing fits.
	Best(spec *Spec) (Choice, error)
	// Reserve takes the chosen room in the engine's own books and returns the proposal that asks for it, with
	// the bet it rests on. The choice must be the last one for this capsule's spec.
	Reserve(c *Capsule, choice Choice) Proposal
	// Mark and Rollback undo: Rollback forgets all that was reserved since the Mark.
	Mark() int
	Rollback(mark int)
}

// Choice is where a capsule would go.
type Choice struct {
	// As it is before placing; good until the next Reserve, Rollback or Sync.
	Node    *NodeState
	Devices DeviceSet
	Value   float64
	Tie     float64
}

// NoFit says why no node takes a capsule.
type NoFit struct {
	// Nodes looked at.
	Nodes   int
	Reasons []Reason
}

// Reason is how many nodes fail for the same reason, each node counted under the first that holds.
type Reason struct {
	Nodes int
	// Completes "n nodes ...", as in "lack memory".
	Why string
}

// Error reads like "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory".
func (e *NoFit) Error() string {
	parts := make([]string, len(e.Reasons))
	for i, r := range e.Reasons {
		parts[i] = fmt.Sprintf("%d %s", r.Nodes, r.Why)
	}
	if len(parts) == 0 {
		return fmt.Sprintf("0 of %d nodes fit", e.Nodes)
	}
	return fmt.Sprintf("0 of %d nodes fit: %s", e.Nodes, strings.Join(parts, ", "))
}

// noFit turns counted misfits into an error, most frequent first.
func noFit(counts map[misfit]int, spec *Spec, names *dimensionNames) *NoFit {
	e := &NoFit{}
	for m, n := range counts {
		e.Nodes += n
		e.Reasons = append(e.Reasons, Reason{Nodes: n, Why: m.text(spec, names)})
	}
	slices.SortFunc(e.Reasons, func(a, b Reason) int {
		if a.Nodes != b.Nodes {
			return b.Nodes - a.Nodes
		}
		return strings.Compare(a.Why, b.Why)
	})
	return e
}
