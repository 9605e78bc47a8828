package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PlacementEngine is the building block with which a navigator chooses nodes. The body of a simple Plan:
//
//	draft.Sync(view)
//	for _, c := range pending {
//		if err := draft.PlaceBest(engine, c); err != nil {
//			plan.Unplaced = append(plan.Unplaced, Unplaced{c, err})
//			continue
//		}
//		plan.Proposals = append(plan.Proposals, draft.Propose())
//	}
//
// Hard requirements filter, soft forces score, lower is better. Equal values go by tie, and then by a hash
// of the node with the engine's seed, so that navigators with different seeds do not herd onto one node;
// seed 0 goes by node id. An engine belongs to one navigator and is not safe for concurrent use. It may keep an
// index of the nodes of the draft that it was asked about last: ask one engine about one draft.
type PlacementEngine interface {
	// Best returns the best node of the draft for one capsule of the spec, as the plan leaves the nodes. The error
	// is a *NoFit; before the first Sync of the draft nothing fits. Without a draft or a spec it wraps ErrInvalid.
	Best(draft *Draft, spec *Spec) (Choice, error)
}

// PlaceBest places a capsule on the node that an engine finds best. The error is the engine's if it finds none, or
// that of Place.
func (d *Draft) PlaceBest(engine PlacementEngine, c *Capsule) error {
	if engine == nil || c == nil || c.Spec == nil {
		return invalidf("draft: PlaceBest needs an engine, and a capsule with a spec")
	}
	choice, err := engine.Best(d, c.Spec)
	if err != nil {
		return err
	}
	return d.Place(c, choice)
}

// Choice is where a capsule would go.
type Choice struct {
	// Node is the node as it is before the placement, valid until the draft's next step.
	Node *NodeState
	// Devices are the instances for a spec that asks for devices ([NodeState.PickDevices] chooses them).
	Devices DeviceSet
	// Value and Tie are what the score returned, where lower is better; a draft does not read them.
	Value, Tie float64
	// Note is kept with the placement by Draft.Place, as in "warm"; engines leave it empty.
	Note string
}

// NoFit says why no node takes a capsule.
type NoFit struct {
	// Nodes counts the nodes that were evaluated.
	Nodes int
	// Reasons counts the nodes by the reason why they fail, which completes "n nodes ...", as in "lack memory". Each
	// node is counted under the first reason that holds.
	Reasons map[string]int
}

// Texts returns each reason with its count, the most frequent first: "801 lack memory", and for one node "1 lacks memory".
func (e *NoFit) Texts() []string {
	byCount := slices.SortedFunc(maps.Keys(e.Reasons), func(a, b string) int {
		return cmp.Or(e.Reasons[b]-e.Reasons[a], strings.Compare(a, b))
	})
	for i, why := range byCount {
		if e.Reasons[why] == 1 {
			why = singular(why)
		}
		byCount[i] = fmt.Sprintf("%d %s", e.Reasons[byCount[i]], why)
	}
	return byCount
}

// singular puts the verb with which a reason begins in the singular.
func singular(why string) string {
	verb, _, _ := strings.Cut(why, " ")
	rest := why[len(verb):]
	switch verb {
	case "are":
		return "is" + rest
	case "do":
		return "does" + rest
	case "have":
		return "has" + rest
	case "lack", "wait":
		return verb + "s" + rest
	}
	return why
}

// Error reads like "0 of 1213 nodes fit: 801 lack a device with 600 milli free, 412 lack memory".
func (e *NoFit) Error() string {
	if len(e.Reasons) == 0 {
		return fmt.Sprintf("0 of %d nodes fit", e.Nodes)
	}
	return fmt.Sprintf("0 of %d nodes fit: %s", e.Nodes, strings.Join(e.Texts(), ", "))
}

// Misfit returns the first reason why a node cannot take a capsule of the spec: a rule of the ledger, or company that
// the spec asks for and that the view does not show there. The most lasting reason comes first, because a label does
// not match more often than memory is short. The zero value says that the node takes it.
func (d *Draft) Misfit(n *NodeState, spec *Spec) Misfit {
	m := n.misfit(spec)
	if m != (Misfit{}) || spec.Near.Group == "" {
		return m
	}
	if near := d.nearby(spec); !near.has(n.Node) {
		return Misfit{Why: near.missing()}
	}
	return m
}

// NoFit turns nodes counted by their misfit into an error.
func (d *Draft) NoFit(spec *Spec, counts map[Misfit]int) *NoFit {
	e, names := &NoFit{Reasons: make(map[string]int, len(counts))}, &defaultDimensions
	if d.view != nil {
		names = &d.view.state.names
	}
	for m, n := range counts {
		e.Nodes += n
		e.Reasons[m.text(spec, names)] += n
	}
	return e
}

// takesCapsule is takes for a capsule whose spec may be one that no ledger has seen, and would not take.
func (d *Draft) takesCapsule(c *Capsule, n *NodeState, set DeviceSet) error {
	if !c.Spec.Shared() {
		if faults := c.Spec.faults(); len(faults) > 0 {
			return invalidf("capsule %q: %s", c.ID, strings.Join(faults, "; "))
		}
	}
	return d.takes(c, n, set)
}

// takes reports which rule of the ledger stands against a capsule on these instances of a node; nil: none.
func (d *Draft) takes(c *Capsule, n *NodeState, set DeviceSet) error {
	spec := c.Spec
	if n.Node.Unschedulable || !n.hasRoom(&spec.Envelope.Reservation) || !n.meets(spec.Require) {
		if m := n.misfit(&Spec{Envelope: spec.Envelope, Require: spec.Require}); m != (Misfit{}) {
			return d.refuse(c.ID, n, "node %q cannot take capsule %q; such nodes %s", n.Node.ID, c.ID, m.text(spec, &d.view.state.names))
		}
	}
	r := &spec.Devices
	switch {
	case set == 0 && r.Count == 0:
		return nil
	case set.Len() != r.Count:
		return d.refuse(c.ID, n, "capsule %q asks for %d devices, the choice names %d", c.ID, r.Count, set.Len())
	case !r.Accepts(n.Node.Devices.Model) || set&^n.devicesWith(r.Milli) != 0:
		return d.refuse(c.ID, n, "node %q: devices %016b are not all there, healthy and free", n.Node.ID, set)
	}
	return nil
}
