package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Fix is a change after which a capsule fits that does not fit now. It is minimal: no part of it helps by itself, and no smaller
// amount of what it takes off a request helps on that node. Each has been tried: the proposal of [Fix.Proposal] commits on the state that
// was explained.
type Fix struct {
	// Less is how much less of each dimension the capsule must ask for.
	Less orbit.Resources
	// LessExtras is how much less of each extra the capsule must ask for; of what then is 0 it asks for nothing.
	LessExtras []orbit.Extra
	// FewerDevices is how many device instances less, and LessMilli how much less of each, the capsule must ask for.
	FewerDevices, LessMilli int
	// Drop are requirements that the spec must do without.
	Drop []orbit.Predicate
	// AcceptModel is a device model that the spec must accept too; empty: none.
	AcceptModel string
	// Alone says that the spec must do without Near.
	Alone bool
	// Uncordon is a node that must take new work again; empty: none.
	Uncordon orbit.NodeID
	// Await are holds that have to end first, soonest first.
	Await []orbit.Hold
	// Outlast are nominations that have to end first, soonest first.
	Outlast []*orbit.Nomination
	// Until is when the last of Await and Outlast ends; zero: there are none.
	Until time.Time
	// Evict are capsules that make way. It is legal: they have a lower priority, and no budget or gang is broken.
	Evict []orbit.CapsuleID
	// Add is a node that has to join: one like Like, which is empty, and in the domains of In.
	Add *orbit.Node
	// Like is a member that Add is a copy of, but for its id and In; empty if Add is nil.
	Like orbit.NodeID
	// In are the domains of Add that are not those of Like, by level: rules of company close these, or the spec requires others. Empty: none.
	In []InDomain
	// Node is where the capsule fits then.
	Node orbit.NodeID
	// Spec is what it asks for then: the spec that was explained, unless the fix changes it.
	Spec *orbit.Spec

	devices orbit.DeviceSet
	before  []orbit.Commitment
	evicts  []orbit.Evict
	names   func(d int) string
}

// InDomain says in which domain of a level a node is to be.
type InDomain struct {
	// Level is the label, and Domain its value.
	Level, Domain string
	// New says that no node is in the domain, and neither a rule nor a requirement of the spec names it: another name serves as well.
	New bool
}

// Proposal returns a proposal that carries the fix out, submits a capsule of Spec with this id, and places it. What is waited for
// (Await, Outlast) it ends at once, so propose that only if nothing is to wait.
func (f *Fix) Proposal(id orbit.CapsuleID) orbit.Proposal {
	p := orbit.Proposal{Do: slices.Clone(f.before)}
	p.Do = append(p.Do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: f.Spec})
	for _, e := range f.evicts {
		e.For = id
		p.Do = append(p.Do, e)
	}
	p.Do = append(p.Do, orbit.Place{Capsule: id, Node: f.Node, Devices: f.devices})
	return p
}

// String completes "it would fit if you ...".
func (f *Fix) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for d, less := range f.Less {
		if less > 0 {
			add("ask for %d less of %s", less, f.names(d))
		}
	}
	for _, x := range f.LessExtras {
		add("ask for %d less of %q", x.Amount, x.Name)
	}
	if f.FewerDevices > 0 {
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
	if f.Alone {
		add("do not ask to be near a group")
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
	if f.Add != nil {
		add("%s", f.addText())
		return strings.Join(parts, " and ")
	}
	return strings.Join(parts, " and ") + ": then node " + string(f.Node) + " takes it"
}

// addText says which node has to join.
func (f *Fix) addText() string {
	if len(f.In) == 0 {
		return fmt.Sprintf("add a node like %s", f.Like)
	}
	in := make([]string, len(f.In))
	for i, d := range f.In {
		in[i] = "in " + d.Level + " " + d.Domain
		if d.New {
			in[i] = "in a new " + d.Level
		}
	}
	return fmt.Sprintf("add a node %s: one like %s", strings.Join(in, " and "), f.Like)
}

// lesser is a fix that changes one thing less.
type lesser struct {
	spec     orbit.Spec
	uncordon orbit.NodeID
}

// parts returns the fix less each thing that it changes in turn.
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
	if f.Alone {
		without(func(p *lesser) { p.spec.Near = of.Near })
	}
	if f.Uncordon != "" {
		without(func(p *lesser) { p.uncordon = "" })
	}
	return out
}
