package orbit

import (
	"cmp"
	"fmt"
	"iter"
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
	d.Ask(c)
	choice, err := engine.Best(d, c.Spec)
	if err == nil {
		err = d.Place(c, choice)
	}
	d.Ask(nil)
	return err
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

// Ask makes the draft show its nodes as they are for one capsule, until the next Ask, Propose or Sync: if it is nominated, or
// its gang is, with the room that is nominated for it and for those that it outranks. Nil, as for any other capsule: with what
// is nominated for those of at least its priority taken off. PlaceBest asks by itself; a caller of
// [PlacementEngine.Best] or [NodeState.Fits] who plans for one that may be nominated calls Ask first. Place and Hold judge
// by rank in any case.
func (d *Draft) Ask(c *Capsule) {
	for _, i := range d.askedNodes {
		if n := d.Node(int(i)); n != nil && n.nominated != nil && n.nominated.asker != nil {
			d.show(n, nil)
		}
	}
	if c == nil || c.Spec == nil || d.view == nil {
		return
	}
	asker := d.nominationOf(c.ID)
	if asker == nil {
		return
	}
	d.view.state.nominations.AscendGreaterOrEqual(asker, func(of *Nomination) bool {
		for i := range of.Parts {
			if n := d.view.state.Node(of.Parts[i].Node); n != nil && d.Node(int(n.index)).nominated != nil {
				d.show(d.Node(int(n.index)), asker)
			}
		}
		return of.OutranksPriority(c.Spec.Priority)
	})
}

// show makes a node one that shows its room to an asker.
func (d *Draft) show(n *NodeState, asker *Nomination) {
	if asker != nil && d.asked.Add(int32(n.index)) {
		d.askedNodes = append(d.askedNodes, int32(n.index))
	}
	shown := d.copies.New(*n)
	shown.nominated = n.nominated.copy()
	shown.nominated.asker = asker
	d.replace(n, shown)
}

// replace makes a node another one without a commitment.
func (d *Draft) replace(n, now *NodeState) {
	d.steps = append(d.steps, draftStep{node: n, log: len(d.log), open: d.open})
	d.nodes[now.index] = now
	d.journal.add(now.index)
}

// nominationOf returns the living nomination of a capsule or of its gang, as the view shows it; nil: there is none, or the
// plan has changed it, or an earlier proposal of the plan ends it because it places one of them.
func (d *Draft) nominationOf(id CapsuleID) *Nomination {
	if d.view.state.nominations.Len() == 0 {
		return nil
	}
	c := d.view.state.Capsule(id)
	if c == nil {
		return nil
	}
	of := c.Nomination
	if !of.Lives() && c.Gang != "" {
		if g := d.view.state.Gang(c.Gang); g != nil {
			of = g.Nomination
		}
	}
	if !of.Lives() || d.changes(of) {
		return nil
	}
	return of
}

// changes reports whether the plan makes another nomination for the same capsule or gang, or ends it.
func (d *Draft) changes(of *Nomination) bool {
	for i, c := range d.log {
		switch c := c.(type) {
		case Nominate:
			if c.Capsule == of.Capsule && c.Gang == of.Gang {
				return true
			}
		case Place:
			if i >= d.open {
				continue // in one proposal all ask as before it
			}
			if known := d.view.state.Capsule(c.Capsule); c.Capsule == of.Capsule || known != nil && of.Gang != "" && known.Gang == of.Gang {
				return true
			}
		}
	}
	return false
}

// yields reports whether what the next proposal would ask for on a node, with one ask more or none, leaves free what is
// nominated there for others. The node is as it would be then, and loses what of its spare room is taken.
func (d *Draft) yields(id CapsuleID, n *NodeState, own *ask) error {
	var asks []ask
	var served []*Nomination
	ended, endedDevices := Resources{}, deviceUse{}
	if own != nil {
		asks, served = append(asks, *own), append(served, own.nomination)
	}
	for _, c := range d.log[d.open:] {
		switch c := c.(type) {
		case Hold:
			if c.Node == n.Node.ID {
				asks = append(asks, ask{room: &c.Room, devices: c.Devices, milli: c.Milli, hold: true})
			}
		case Release:
			if h, ok := d.view.state.Hold(c.Hold); ok && h.Node == n.Node.ID {
				ended = ended.plus(h.Room)
				endedDevices.add(h.Devices, int32(h.Milli))
			}
		}
	}
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].open == d.open; i-- {
		s := &d.steps[i]
		if s.spec == nil {
			continue // it places nothing
		}
		c, _ := d.log[s.log].(Place)
		at := ask{room: &s.spec.Envelope.Reservation, devices: c.Devices, milli: s.spec.Devices.Milli, priority: s.spec.Priority, nomination: d.nominationOf(c.Capsule)}
		served = append(served, at.nomination)
		if c.Node == n.Node.ID {
			asks = append(asks, at)
		}
	}
	parts := slices.DeleteFunc(slices.Clone(n.nominated.parts), func(p nominatedPart) bool {
		return slices.Contains(served, p.of) || p.of.Made <= d.view.Revision() && slices.ContainsFunc(d.log[d.open:], func(c Commitment) bool {
			other, ok := c.(Nominate) // takes the place of it, or ends it
			return ok && other.Capsule == p.of.Capsule && other.Gang == p.of.Gang
		})
	})
	if e := n.encroaches(parts, asks, &ended, &endedDevices); e.of != nil {
		return d.refuse(id, n, "node %q is nominated for %s", n.Node.ID, e.of.nominee())
	}
	if own != nil {
		n.spend(own)
	}
	return nil
}

// Nominate claims room for a capsule or a gang, as a commitment of the next proposal, and ends nominations of lower rank,
// lowest first, as far as that is needed to make way for it. What is nominated stands in the way of later steps of lower
// rank; what those had that end is still out of reach until the next Sync. A plan nominates each capsule or gang once, and
// none that it has ended. Errors are those of Place.
func (d *Draft) Nominate(c Nominate) error {
	if d.view == nil {
		return d.refuse(c.Capsule, nil, "the draft is empty; call Sync first")
	}
	for id := range d.members(c.Capsule, c.Gang) {
		if use := d.capsules[id]; use.what != draftUntouched {
			return d.refuse(id, nil, "capsule %q is %s by this plan already", id, use.what)
		}
	}
	if d.changes(&Nomination{Capsule: c.Capsule, Gang: c.Gang}) {
		return d.refuse(c.Capsule, nil, "%s is nominated by this plan already, or its nomination is ended", c.nominee())
	}
	p := Proposal{View: d.view.Revision(), Do: []Commitment{c}}.Clone()
	if err := p.check(&d.view.state.limits); err != nil {
		return err
	}
	var t tx
	t.begin(d.view.state, d.view.Revision()+1, &p)
	for i, earlier := range d.log {
		switch n, ok := earlier.(Nominate); {
		case !ok:
		case i >= d.open:
			_ = t.nominate(&n) // it could before
		default: // an earlier proposal may commit or not: what it makes counts, and so does what it ends
			t.beside = append(t.beside, &Nomination{Capsule: n.Capsule, Gang: n.Gang, Parts: n.Parts})
		}
	}
	c, _ = p.Do[0].(Nominate)
	if err := t.nominate(&c); err != nil {
		return err
	}
	ends, err := t.makeWay(&c, func(o *Nomination) bool { return !d.settles(o) })
	if err != nil {
		return err
	}
	start := d.Checkpoint()
	for _, end := range ends {
		d.step(draftStep{}, nil, end)
	}
	d.step(draftStep{}, nil, c)
	if len(c.Parts) > 0 {
		made := t.nominations[len(t.nominations)-1]
		for i := range made.Parts {
			n := d.nodes[d.view.state.Node(made.Parts[i].Node).index]
			claimed := d.copies.New(*n)
			claimed.nominated = n.nominated.copy()
			claimed.nominated.parts = append(slices.Clone(claimed.nominated.parts), nominatedPart{made, i})
			d.replace(n, claimed)
			if err := d.yields("", claimed, nil); err != nil { // an earlier step of the same proposal is in the way
				d.Rollback(start)
				return err
			}
		}
	}
	return nil
}

// members yields a capsule, or those of a gang.
func (d *Draft) members(capsule CapsuleID, gang GangID) iter.Seq[CapsuleID] {
	return func(yield func(CapsuleID) bool) {
		if gang == "" {
			yield(capsule)
			return
		}
		for c := range d.view.state.Members(gang) {
			if !yield(c.ID) {
				return
			}
		}
	}
}

// settles reports whether the plan does something with the capsule that is nominated, or with a member of the gang, that may
// end the nomination. What may have ended already is neither counted on nor ended again.
func (d *Draft) settles(of *Nomination) bool {
	for id := range d.members(of.Capsule, of.Gang) {
		if d.capsules[id].what != draftUntouched {
			return true
		}
	}
	return d.changes(of)
}
