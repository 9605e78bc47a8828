package whatif

import (
	"fmt"
	"math/bits"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// ReasonKind is a rule that keeps a capsule off a node.
type ReasonKind uint8

// The kinds of reasons.
const (
	// Cordoned means that the node takes no new work.
	Cordoned ReasonKind = iota
	// Lost means that the node is lost. It comes back only by joining anew.
	Lost
	// Model means that the node has no device of a model that the spec accepts.
	Model
	// Devices means that too few device instances have enough free capacity.
	Devices
	// Company means that no member of a group near which the spec has to be ([orbit.Near]) runs in the node's domain.
	Company
	// Nominated means that the node has enough free capacity, but it is nominated for work that outranks the capsule.
	Nominated
	// Tainted means that the node has a taint that the spec does not tolerate.
	Tainted
	// Ruled means that a rule Apart or Even, of the spec or of capsules that run, closes a domain of the node. No fix
	// breaks a rule, because rules are deliberate. A fix may add a node in an open domain instead ([Fix.In]).
	Ruled
	// Resource means that less of a dimension is free than the capsule asks for.
	Resource
	// Extra means that less of an extra is free than the capsule asks for.
	Extra
	// Requirement means that the node's labels do not meet a requirement of the spec.
	Requirement
)

// Reason is one cause for which a node does not take a capsule.
type Reason struct {
	// Kind is the kind of the reason.
	Kind ReasonKind
	// Arg is the dimension of a Resource, the index in Spec.Extras of an Extra, the index in Spec.Require of a Requirement,
	// or the position in [orbit.Spec.AllNear] of a Company; 0 for all other kinds.
	Arg int
	// Text completes "the node ...", as in "lacks memory".
	Text string
}

// String returns Text.
func (r Reason) String() string { return r.Text }

// reasonSet is a set of reasons, with one bit for each kind below Resource, each co-location, each dimension, each extra
// and each requirement.
type reasonSet [6]uint64

const (
	firstCompany     = int(Resource)
	firstResource    = firstCompany + 16 // a spec has at most 16 co-locations
	firstExtra       = firstResource + orbit.Dimensions
	firstRequirement = firstExtra + 16 // and at most 16 extras
)

func (s *reasonSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *reasonSet) has(i int) bool { return s[i/64]>>(i%64)&1 == 1 }

// set adds a reason (is true) or removes it.
func (s *reasonSet) set(i int, is bool) {
	s[i/64] &^= 1 << (i % 64)
	if is {
		s.add(i)
	}
}

// len returns how many reasons there are.
func (s *reasonSet) len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// all yields the numbers of the reasons, in ascending order.
func (s *reasonSet) all(yield func(int) bool) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(w*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}

// asker determines the reasons for which nodes of a state do not take a capsule of one spec.
type asker struct {
	state *orbit.State
	spec  *orbit.Spec
	// nears are the co-locations that the spec requires, in the order of AllNear; and members has, for those that were
	// looked up, the domains in which members of the group run.
	nears   []colocation
	members map[orbit.Near]map[string]bool
	// closes returns why a rule Apart or Even closes a node to the spec, "" if none does; nil: no rule concerns the
	// spec.
	closes func(*orbit.NodeState) string
	// own is the nomination of the gang that is explained, which does not count as a reason against its members; nil:
	// none.
	own *orbit.Nomination
	// failing are the failing nodes that count has found.
	failing failingNodes
}

// room is the free capacity of a node, as it is or as it would be after a change.
type room struct {
	node *orbit.Node
	seats.Capacity
	// of is the node in the state; nil: a new node, which is empty.
	of *orbit.NodeState
}

func roomOf(n *orbit.NodeState) room { return room{n.Node, seats.CapacityOf(n), n} }

// reasons returns the reasons against a node, except Nominated and Ruled, which apply only to nodes of the state.
func (a *asker) reasons(r *room) (set reasonSet) {
	switch r.node.State {
	case orbit.Cordoned:
		set.add(int(Cordoned))
	case orbit.Lost:
		set.add(int(Lost))
	}
	if !r.node.Admits(a.spec) {
		set.add(int(Tainted))
	}
	for i := range a.spec.Require {
		if !a.spec.Require[i].On(r.node) {
			set.add(firstRequirement + i)
		}
	}
	for d, want := range a.spec.Envelope.Reservation {
		if want > 0 && want > r.Resources[d] {
			set.add(firstResource + d)
		}
	}
	if ask := &a.spec.Devices; ask.Count > 0 {
		if r.node.Devices.Count == 0 || !ask.Accepts(r.node.Devices.Model) {
			set.add(int(Model))
		} else if r.With(ask.Milli) < ask.Count {
			set.add(int(Devices))
		}
	}
	for i := range a.nears {
		if !a.nears[i].takes(r.node) {
			set.add(firstCompany + i)
		}
	}
	for i, x := range a.spec.Extras {
		if x.Amount > a.extraFree(r, x.Name) {
			set.add(firstExtra + i)
		}
	}
	return set
}

// extraFree returns how much of an extra a node has free.
func (a *asker) extraFree(r *room, name string) int64 {
	if r.of != nil {
		return a.state.ExtraFree(r.of, name)
	}
	for _, x := range r.node.Extras {
		if x.Name == name {
			return x.Amount
		}
	}
	return 0
}

// closesOf returns a function that says why rules Apart and Even close a node to a spec. It is [orbit.State.CompanyMisfit] for
// the spec without its extras and co-locations, because these are reasons of their own here.
func closesOf(state *orbit.State, spec *orbit.Spec) func(*orbit.NodeState) string {
	plain := *spec
	plain.Extras, plain.Near, plain.Nears = nil, orbit.Near{}, nil
	return state.CompanyMisfit(&plain)
}

// of returns all reasons against a node of the state, whose free capacity is r.
func (a *asker) of(n *orbit.NodeState, r *room) reasonSet {
	set := a.reasons(r)
	if a.nominated(n, r) {
		set.add(int(Nominated))
	}
	if a.closes != nil && a.closes(n) != "" {
		set.add(int(Ruled))
	}
	return set
}

// nominated reports whether the node's free capacity would be enough in some dimension or in devices, and is not enough
// because part of it is nominated for work that outranks the spec.
func (a *asker) nominated(n *orbit.NodeState, r *room) bool {
	open, claimed := a.open(n, r)
	if !claimed {
		return false
	}
	for d, want := range a.spec.Envelope.Reservation {
		if want > 0 && want <= r.Resources[d] && want > open.Resources[d] {
			return true
		}
	}
	ask := &a.spec.Devices
	return ask.Count > 0 && ask.Accepts(n.Node.Devices.Model) && r.With(ask.Milli) >= ask.Count && open.With(ask.Milli) < ask.Count
}

// open returns the free capacity of a node that is not nominated for work that outranks the spec. Claimed says that
// there is such a nomination.
func (a *asker) open(n *orbit.NodeState, r *room) (open room, claimed bool) {
	for of := range n.Nominated {
		if of == a.own || !of.OutranksPriority(a.spec.Priority) {
			continue
		}
		if !claimed {
			open, claimed = *r, true
		}
		open.LeaveFree(n, of, a.spec)
	}
	if !claimed {
		return *r, false
	}
	return open, true
}

// list returns the reasons of a set with their texts.
func (a *asker) list(set *reasonSet) (out []Reason) {
	for i := range set.all {
		r := Reason{Kind: ReasonKind(i)}
		switch {
		case i >= firstRequirement:
			r.Kind, r.Arg = Requirement, i-firstRequirement
			r.Text = "does not meet " + a.spec.Require[r.Arg].String()
		case i >= firstExtra:
			r.Kind, r.Arg = Extra, i-firstExtra
			r.Text = fmt.Sprintf("lacks %q", a.spec.Extras[r.Arg].Name)
		case i >= firstResource:
			r.Kind, r.Arg = Resource, i-firstResource
			r.Text = "lacks " + a.state.DimensionName(r.Arg)
		case i >= firstCompany:
			r.Kind, r.Arg = Company, i-firstCompany
			r.Text = a.nears[r.Arg].String()
		default:
			r.Text = a.text(r.Kind)
		}
		out = append(out, r)
	}
	return out
}

func (a *asker) text(kind ReasonKind) string {
	switch kind {
	case Cordoned:
		return "is cordoned"
	case Lost:
		return "is lost"
	case Tainted:
		return "has a taint that is not tolerated"
	case Ruled:
		return "is in a domain that a rule Apart or Even closes"
	case Model:
		if len(a.spec.Devices.Models) == 0 {
			return "has no device"
		}
		return fmt.Sprintf("has no device of model %q", a.spec.Devices.Models)
	case Devices:
		return fmt.Sprintf("lacks %d devices with %d milli free", a.spec.Devices.Count, a.spec.Devices.Milli)
	}
	return "is nominated for work that outranks it"
}
