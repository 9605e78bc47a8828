package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Fix is a change after which a capsule fits that does not fit now. It is minimal: no part of it helps by itself, and
// no smaller reduction of the request helps on that node. Each fix has been tried: the proposal of [Fix.Proposal]
// commits on the state that was explained.
type Fix struct {
	// Less is by how much the capsule's request must be smaller, by dimension.
	Less orbit.Resources
	// LessExtras is by how much the capsule's request must be smaller, by extra. An extra that becomes 0 is not asked
	// for.
	LessExtras []orbit.Extra
	// FewerDevices is by how many device instances the request must be smaller, LessMilli by how much of each instance.
	FewerDevices, LessMilli int
	// Drop are requirements that must be removed from the spec.
	Drop []orbit.Predicate
	// AcceptModel is a further device model that the spec must accept; empty: none.
	AcceptModel string
	// NotNear are co-locations that must be removed from the spec's Near and Nears.
	NotNear []orbit.Near
	// Uncordon is a cordoned node that must become schedulable; empty: none.
	Uncordon orbit.NodeID
	// Await are holds that have to end first, soonest first.
	Await []orbit.Hold
	// Outlast are nominations that have to end first, soonest first.
	Outlast []*orbit.Nomination
	// Until is when the last of Await and Outlast ends; zero: there are none.
	Until time.Time
	// Evict are the victims that must be evicted. The ledger allows it: they have a lower priority, and no disruption
	// budget and no gang is broken.
	Evict []orbit.CapsuleID
	// Move are capsules that must move to other nodes, the fewest that make room. The ledger allows it, and nav.Preempting
	// does it by itself. No capsule goes through a third node: the moves may be a chain, a swap or a cycle.
	Move []Move
	// Add is an empty node that has to join; nil: none. It is a copy of the node Like, except for its id, which is made up, and the
	// domains in In. If Like is empty, no node is large enough ([Explanation].TooLarge): Add has as much as the spec
	// asks for and no more, and is otherwise a copy of a node that suits the spec.
	Add *orbit.Node
	// Like is the existing node that Add is a copy of; empty if Add is nil or larger than that node.
	Like orbit.NodeID
	// In are the domains in which Add differs from Like, by level, because a rule Apart or Even closes the domain of
	// Like, or the spec requires another one. Empty: none.
	In []InDomain
	// Node is the node on which the capsule fits after the fix.
	Node orbit.NodeID
	// Spec is the spec after the fix: the one that was explained, unless the fix changes the request.
	Spec *orbit.Spec

	devices orbit.DeviceSet
	before  []orbit.Commitment
	evicts  []orbit.Evict
	moves   []orbit.Commitment
	state   *orbit.State // for the words of amounts
	labels  orbit.NodeID // the node whose labels Add has, if Like is empty and the spec depends on labels
}

// Move is a capsule that must leave its node for another one.
type Move struct {
	// Capsule is the capsule, and To the node to which it moves.
	Capsule orbit.CapsuleID
	To      orbit.NodeID
}

// InDomain is a topology domain that a new node must be in.
type InDomain struct {
	// Level is the label key, and Domain its value.
	Level, Domain string
	// New says that Domain is a made-up name: no node is in the domain, and neither a rule nor a requirement of the
	// spec names it, so any other new name serves as well.
	New bool
}

// Proposal returns a proposal that carries out the fix, submits a capsule of Spec with this id, and places it. The
// proposal ends the holds in Await and the nominations in Outlast at once. To wait for their end instead, do not
// propose it.
func (f *Fix) Proposal(id orbit.CapsuleID) orbit.Proposal {
	p := orbit.Proposal{Do: slices.Clone(f.before)}
	p.Do = append(p.Do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: f.Spec})
	for _, e := range f.evicts {
		e.For = id
		p.Do = append(p.Do, e)
	}
	p.Do = append(append(p.Do, f.moves...), orbit.Place{Capsule: id, Node: f.Node, Devices: f.devices})
	return p
}

// String completes "it would fit if you ...".
func (f *Fix) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	state := cmp.Or(f.state, &orbit.State{})
	for d, less := range f.Less {
		if less > 0 {
			parts = append(parts, lessText(state.Quantity(d, less), f.Spec.Envelope.Reservation[d], state.DimensionName(d)))
		}
	}
	for _, x := range f.LessExtras {
		parts = append(parts, lessText(fmt.Sprintf("%d of %q", x.Amount, x.Name), amountOf(f.Spec.Extras, x.Name), strconv.Quote(x.Name)))
	}
	switch {
	case f.FewerDevices > 0 && f.Spec.Devices.Count == 0:
		add("ask for no devices")
	case f.FewerDevices > 0:
		add("ask for %d fewer devices", f.FewerDevices)
	}
	if f.LessMilli > 0 {
		add("ask for %d milli less of each device", f.LessMilli)
	}
	for i := range f.Drop {
		add("drop the requirement %s", f.Drop[i])
	}
	if f.AcceptModel != "" {
		add("accept device model %q", f.AcceptModel)
	}
	for _, near := range f.NotNear {
		add("do not ask to be near group %q", near.Group)
	}
	if f.Uncordon != "" {
		add("uncordon node %s", f.Uncordon)
	}
	for _, h := range f.Await {
		add("wait for hold %q until %s", h.ID, h.Ends.UTC().Format(time.RFC3339))
	}
	for _, n := range f.Outlast {
		add("wait for the nomination of %q until %s", cmp.Or(string(n.Capsule), string(n.Gang)), n.Ends.UTC().Format(time.RFC3339))
	}
	switch n := len(f.Evict); {
	case n == 1:
		add("evict %q, which has a lower priority", f.Evict[0])
	case n > 1:
		add("evict %d capsules of lower priority, %q among them", n, f.Evict[n-1])
	}
	switch n := len(f.Move); {
	case n == 1:
		add("move %q to node %s", f.Move[0].Capsule, f.Move[0].To)
	case n > 1:
		add("move %d capsules to other nodes, %q to node %s among them", n, f.Move[0].Capsule, f.Move[0].To)
	}
	if f.Add != nil {
		add("%s", f.addText())
		return strings.Join(parts, " and ")
	}
	return strings.Join(parts, " and ") + ": then node " + string(f.Node) + " takes it"
}

// lessText says that a request for what is called so must be smaller by an amount, of which so much is left.
func lessText(amount string, left int64, called string) string {
	if left == 0 {
		return "ask for no " + called
	}
	return "ask for " + amount + " less"
}

// addText is the text of a fix that adds a node.
func (f *Fix) addText() string {
	if f.Like == "" {
		return f.largerText()
	}
	if len(f.In) == 0 {
		return fmt.Sprintf("add a node like %s", f.Like)
	}
	return fmt.Sprintf("add a node %s: one like %s", f.inText(), f.Like)
}

// largerText is the text of a fix that adds a node that is larger than all there are.
func (f *Fix) largerText() string {
	var has []string
	state := cmp.Or(f.state, &orbit.State{})
	for d, amount := range f.Add.Capacity {
		if amount > 0 {
			has = append(has, state.Quantity(d, amount))
		}
	}
	if d := &f.Add.Devices; d.Count > 0 {
		text := fmt.Sprintf("%d devices", d.Count)
		if d.Count == 1 {
			text = "1 device"
		}
		if len(f.Spec.Devices.Models) > 0 {
			text += fmt.Sprintf(" of model %q", d.Model)
		}
		has = append(has, text)
	}
	for _, x := range f.Add.Extras {
		has = append(has, fmt.Sprintf("%d of %q", x.Amount, x.Name))
	}
	if n := len(has); n > 1 {
		has = []string{strings.Join(has[:n-1], ", ") + " and " + has[n-1]}
	}
	text := "add a node with at least " + strings.Join(has, "")
	if f.labels != "" {
		text += ", labelled like " + string(f.labels)
	}
	if len(f.In) > 0 {
		text += ", " + f.inText()
	}
	return text
}

// inText says in which domains a node has to be added.
func (f *Fix) inText() string {
	in := make([]string, len(f.In))
	for i, d := range f.In {
		in[i] = "in " + d.Level + " " + d.Domain
		if d.New {
			in[i] = "in a new " + d.Level
		}
	}
	return strings.Join(in, " and ")
}

// lesser is a fix without one of its changes.
type lesser struct {
	spec     orbit.Spec
	uncordon orbit.NodeID
}

// parts returns, for each change of the fix, the fix without that change. Of is the spec that was explained.
func (f *Fix) parts(of *orbit.Spec) (out []lesser) {
	without := func(change func(*lesser)) {
		p := lesser{*f.Spec, f.Uncordon}
		p.spec.Require = slices.Clone(p.spec.Require)
		change(&p)
		out = append(out, p)
	}
	for d, less := range f.Less {
		if less > 0 {
			without(func(p *lesser) { p.spec.Envelope.Reservation[d] = of.Envelope.Reservation[d] })
		}
	}
	for _, less := range f.LessExtras {
		without(func(p *lesser) {
			p.spec.Extras = slices.DeleteFunc(slices.Clone(p.spec.Extras), func(x orbit.Extra) bool { return x.Name == less.Name })
			i := slices.IndexFunc(of.Extras, func(x orbit.Extra) bool { return x.Name == less.Name })
			p.spec.Extras = append(p.spec.Extras, of.Extras[i])
		})
	}
	for _, dropped := range f.Drop {
		without(func(p *lesser) { p.spec.Require = append(p.spec.Require, dropped) })
	}
	if f.FewerDevices+f.LessMilli > 0 || f.AcceptModel != "" {
		without(func(p *lesser) { p.spec.Devices = of.Devices })
	}
	for _, near := range f.NotNear {
		without(func(p *lesser) {
			drop(slices.DeleteFunc(slices.Clone(f.NotNear), func(r orbit.Near) bool { return r == near }), of, &p.spec)
		})
	}
	if f.Uncordon != "" {
		without(func(p *lesser) { p.uncordon = "" })
	}
	return out
}
