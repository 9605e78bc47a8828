package orbit

import (
	"errors"
	"maps"
	"slices"
	"strings"
)

// This file has the choice of a node for a capsule of a draft, and why none is left.

// PlaceBest places a capsule on the node that a placement engine finds best. A capsule that must first stop on another
// node is placed only on a node that confirms ([Node.Confirms]): if the best node does not confirm, on the first such
// node on which the capsule fits. The error is the engine's if it finds no node, or that of Place.
func (d *Draft) PlaceBest(engine PlacementEngine, c *Capsule) error {
	if engine == nil || c == nil || c.Spec == nil {
		return invalidf("draft: PlaceBest needs an engine, and a capsule with a spec")
	}
	d.LookAs(c)
	spec, short, err := d.withinQuota(c.Spec)
	if err != nil {
		d.LookAs(nil)
		return err
	}
	choice, err := engine.Best(d, spec)
	if none := (*NoFit)(nil); len(short) > 0 && errors.As(err, &none) && none != nil {
		also := *none
		also.short = short
		err = &also
	}
	if err == nil && c.runsElsewhere() && !choice.Node.Node.Confirms {
		choice = d.confirming(c, choice)
	}
	if err == nil {
		err = d.Place(c, choice)
	}
	d.LookAs(nil)
	return err
}

// show replaces a node of the draft by a copy that shows its nominated room as the asker may use it; a nil asker has no
// nomination.
func (d *Draft) show(n *NodeState, asker *Nomination) {
	if asker != nil && d.asked.Add(int32(n.index)) {
		d.askedNodes = append(d.askedNodes, int32(n.index))
	}
	d.replace(n, d.shownTo(n, asker))
}

// shownTo returns a copy of a node whose nominated room is shown as the asker may use it.
func (d *Draft) shownTo(n *NodeState, asker *Nomination) *NodeState {
	shown := d.copies.New(*n)
	shown.nominated = n.nominated.copy()
	shown.nominated.asker = asker
	return shown
}

// Withdraw gives back the room of a capsule that an earlier proposal of the plan places, because that proposal was
// refused, or the capsule has been released since. It is for a caller that goes on with a plan while its proposals are
// answered. It returns false and changes nothing in three cases: no earlier proposal places the capsule; that proposal
// also releases something or changes a size, or may have borrowed the room; or the proposal in the making has steps.
func (d *Draft) Withdraw(id CapsuleID) bool {
	use := d.capsules[id]
	if use.what != draftTaken || d.open < len(d.log) {
		return false
	}
	i := d.placement(use.at)
	last := i
	for last+1 < len(d.steps) && d.steps[last+1].open == d.steps[i].open {
		last++
	}
	for _, c := range d.log[d.steps[i].open:d.steps[last].log] {
		_, respecs := c.(Respec)
		if r, ok := c.(Release); ok && r.Hold != "" || c.effect().leaves != "" || respecs { // the capsule may be in the room that this freed
			return false
		}
	}
	spec, n := d.steps[i].spec, d.nodes[d.steps[i].node.index]
	if spec.Backfills && n.nominated != nil {
		return false
	}
	left := d.copies.New(*n)
	left.gives(spec.Envelope.Reservation, d.log[use.at].(Place).Devices, spec.Devices.Milli)
	left.Capsules--
	s := draftStep{node: n, use: use, log: len(d.log), open: d.open, withdraws: true}
	if was := d.steps[i].charge; was != nil {
		s.charge = &stepCharge{was.after, was.before}
		d.chargeStep(s.charge, false)
	}
	_ = d.moved(&s, id, companyMove{spec, n.Node, 0, -1}) // cannot fail: the proposal in the making has no steps
	d.push(s, left)
	delete(d.capsules, id)
	return true
}

// confirming returns the first node that confirms and on which a capsule fits, a last resort only if there is no other;
// if there is none, the given choice. It searches all nodes, because placement engines choose for a spec and do not know
// the state of one capsule, and such capsules are few.
func (d *Draft) confirming(c *Capsule, choice Choice) Choice {
	found := false
	for n := range d.Nodes() {
		devices, ok := n.PickDevices(c.Spec)
		if !ok || !n.Node.Confirms || d.Misfit(n, c.Spec) != (Misfit{}) {
			continue
		}
		last := d.LastResort(n, c.Spec)
		if !found || !last {
			choice, found = Choice{Node: n, Devices: devices, Note: choice.Note}, true
		}
		if !last {
			break
		}
	}
	return choice
}

// Misfit returns the first reason why a node cannot take a capsule of the spec: a rule of the ledger, or company that
// the spec asks for and that the view does not show there. Lasting reasons come first: a label that does not match
// lasts longer than a lack of memory. The zero value means that the node takes it.
func (d *Draft) Misfit(n *NodeState, spec *Spec) Misfit {
	m := d.unruled(n, spec)
	if m == (Misfit{}) {
		m = d.verdictsOn(spec).misfit(n)
	}
	return m
}

// NoFit returns an error made from the number of nodes for each misfit. If the queue of the spec lacks quota, the error says
// that ([NoFit.Quota]), so that the engine plans the class again when there is enough.
func (d *Draft) NoFit(spec *Spec, counts map[Misfit]int) *NoFit {
	c := &fitCount{diagnose: func() map[Misfit]int { return counts }, spec: spec, names: d.names()}
	e := &NoFit{count: c.counted()}
	_, short, err := d.withinQuota(spec)
	if e.short = short; err != nil {
		if without := (*NoFit)(nil); errors.As(err, &without) {
			e.lack, e.names = without.lack, without.names
		}
	}
	return e
}

// Diagnose returns the error for a spec that no node takes. It costs next to nothing until it is read. It then counts
// each node by its Misfit, as the plan leaves the nodes now. Some nodes have no Misfit. Of these it counts those in
// refused for the reasons given there, which cannot be found out later, such as the verdicts of a filter; and all
// others for the reason rest.
//
// If a spec lacks nothing but the company that it asks for, an engine uses this part of the diagnosis: it does not plan
// the class again until members of the group are placed or leave, or a node in their domains offers more.
func (d *Draft) Diagnose(spec *Spec, refused map[Misfit]int, rest Misfit) *NoFit {
	if d.view == nil {
		return &NoFit{}
	}
	if !spec.Shared() {
		spec = spec.clone() // the caller may change it
	}
	near := d.nearby(spec)
	if near != nil {
		near.missing() // computes its text now, before other goroutines may read it
	}
	d.shared = len(d.after)
	state, unleased, after := d.view.state, d.view.unleased, d.after[:d.shared:d.shared]
	rules := d.verdictsOn(spec).snapshot(d)
	count := &fitCount{state: state, spec: spec, names: d.names(), rules: rules, refused: refused}
	count.diagnose = func() map[Misfit]int {
		counts, movable := countMisfits(state, unleased, after, spec, near, rules)
		count.movable = movable
		fitting := counts[Misfit{}]
		delete(counts, Misfit{})
		for _, m := range slices.SortedFunc(maps.Keys(refused), func(a, b Misfit) int { return strings.Compare(a.Why, b.Why) }) {
			n := min(refused[m], fitting) // fewer fit if the answer is read later
			counts[m] += n
			fitting -= n
		}
		if fitting > 0 {
			counts[rest] += fitting
		}
		return counts
	}
	return &NoFit{near: near, ruled: rules != nil, count: count}
}

// names returns the names of the resource dimensions in the ledger.
func (d *Draft) names() *dimensionNames {
	if d.view == nil {
		return &defaultDimensions
	}
	return &d.view.state.names
}

// use records what the next step does with a capsule.
func (d *Draft) use(id CapsuleID, act draftAct) {
	d.capsules[id] = draftUse{act, len(d.log)}
}

// takes returns the rule of the ledger that forbids to place a capsule on these instances of a node, as an error; nil:
// none does.
func (d *Draft) takes(c *Capsule, n *NodeState, set DeviceSet) error {
	spec := c.Spec
	if !n.Node.Schedulable() || !n.hasFree(&spec.Envelope.Reservation) || !n.meets(spec) {
		if m := n.misfit(&Spec{Envelope: spec.Envelope, Require: spec.Require, Tolerate: spec.Tolerate}); m != (Misfit{}) {
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

// countMisfits counts the nodes of a state by why they cannot take the spec, and those that only movable work keeps from
// taking it. Unleased has the nodes whose report is
// Expired. After lists the nodes that a plan has changed, as it leaves them, newest last.
func countMisfits(state *State, unleased nodeSet, after []*NodeState, spec *Spec, near *nearby, rules *verdicts) (counts map[Misfit]int, movable int) {
	planned := map[uint32]*NodeState{}
	for _, n := range after {
		if n != nil {
			planned[n.index] = n
		}
	}
	counts = map[Misfit]int{}
	for n := range state.Nodes() {
		if unleased.has(n.index) && n.Node.Schedulable() {
			counts[Misfit{kind: leaseOver}]++
			continue
		}
		seen := n
		if now := planned[n.index]; now != nil {
			n = now
		}
		m := n.misfit(spec)
		if m.isShortage() && near.misfit(n) == (Misfit{}) && rules.misfit(n) == (Misfit{}) {
			movable += btoi(state.FitsByMoves(seen, spec))
		}
		if m == (Misfit{}) {
			m = near.misfit(n)
		}
		if m == (Misfit{}) {
			m = rules.misfit(n)
		}
		counts[m]++
	}
	return counts, movable
}
