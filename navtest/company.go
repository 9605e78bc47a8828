package navtest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// The rule: a capsule that wants to be near a group is placed in a domain where a member of the group is
// running, and nowhere else while one is running anywhere. If no member runs, only a member of the group itself
// may be placed: it is the anchor that brings the others their company, and all that one proposal places of
// the group are in one domain.

// nearLevel is the level at which the capsules of this file want company.
const nearLevel = "rack"

func checkCompany(t *trial) {
	for _, p := range t.singles() {
		t.Where = fmt.Sprintf("%s %v, ", p.module, p.class)
		w := t.world()
		w.racks(3)
		bare := large("node-bare", "", "")
		bare.Labels = map[string]string{"rack": ""}
		w.put(bare)
		w.passUntilPlaced("its group runs in rack r2, where there is room", w.nearTo(p, "node-r2-01"), w.company)
		for c := range w.state().On("node-r2-01") {
			w.commit(orbit.Release{Capsule: c.ID, Final: true})
		}
		w.passUntilPlaced("its group has moved to rack r0, where there is room", w.nearTo(p, "node-r0-02"), w.company)

		alone := small(p)
		alone.Group, alone.Near = "alone", orbit.Near{Group: "alone", Level: nearLevel}
		ids := w.submit(alone, 5)
		waiting := small(p)
		waiting.Near = orbit.Near{Group: "absent", Level: nearLevel}
		w.submit(waiting, 3)
		for range 3 {
			if c := w.pass(); c != nil {
				w.company(c)
			}
		}
		if s := w.state(); slices.ContainsFunc(ids, func(id orbit.CapsuleID) bool { return s.Capsule(id).Placed() }) {
			w.passUntilPlaced("it has begun the group itself", ids, w.company)
		}
		t.tooManyForADomain(p)
	}
	t.Where = ""
	t.scripts(nil, func(w *world, c *call) { w.company(c) })
}

// tooManyForADomain submits a group of which no rack has room for all: the rest waits.
func (t *trial) tooManyForADomain(p pair) {
	w := t.world()
	w.racks(3)
	spec := whole(p)
	spec.Group, spec.Near = "large", orbit.Near{Group: "large", Level: nearLevel}
	w.submit(spec, 5)
	for range 3 {
		if c := w.pass(); c != nil {
			w.company(c)
		}
	}
}

// nearTo lets another engine's member of a group start on a node, and submits capsules that want to be near it.
func (w *world) nearTo(p pair, node orbit.NodeID) []orbit.CapsuleID {
	id := w.ids(1)[0]
	group := "group of " + string(id)
	w.commit(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{Module: other, Group: group}, Owner: other}, orbit.Place{Capsule: id, Node: node})
	spec := small(p)
	spec.Near = orbit.Near{Group: group, Level: nearLevel}
	return w.submit(spec, 6)
}

// company ends the case if a placement is apart from its group. It follows the plan on a ledger of its own, for
// what one proposal places is company for the next.
func (w *world) company(c *call) {
	l := &world{t: w.t, ledger: &orbit.MemoryLedger{Start: c.state}}
	for i, p := range c.plan.Proposals {
		w.t.Must(apart(l.state(), p, fmt.Sprintf("plan on revision %d: proposal %d: ", c.state.Revision(), i)))
		if l.attempt(p.Do...) != nil {
			return // the rule "capacity" says why
		}
	}
}

// apart says which placement of a proposal is apart from the group that it wants to be near.
func apart(s *orbit.State, p orbit.Proposal, where string) error {
	anchored := map[string]string{} // group ─► domain, if it begins in this proposal
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok || s.Capsule(place.Capsule) == nil || s.Node(place.Node) == nil {
			continue
		}
		spec := s.Capsule(place.Capsule).Spec
		near, domain := spec.Near, s.Node(place.Node).Node.Labels[spec.Near.Level]
		if near.Group == "" {
			continue
		}
		running := domains(s, near)
		if begun, here := anchored[near.Group]; here {
			running[begun] = true
		}
		switch {
		case len(running) == 0 && spec.Group == near.Group && domain != "":
			anchored[near.Group] = domain
		case len(running) == 0:
			return fmt.Errorf("%scapsule %q is placed on node %q; it wants to be near group %q, of which nothing is running", where, place.Capsule, place.Node, near.Group)
		case !running[domain]:
			return fmt.Errorf("%scapsule %q is placed in %s %q; it wants to be near group %q, which is in %q",
				where, place.Capsule, near.Level, domain, near.Group, slices.Sorted(maps.Keys(running)))
		}
	}
	return nil
}

// domains returns where members of the group are running.
func domains(s *orbit.State, near orbit.Near) map[string]bool {
	in := map[string]bool{}
	for n := range s.GroupNodes(near.Group) {
		if domain := n.Node.Labels[near.Level]; domain != "" {
			in[domain] = true
		}
	}
	return in
}
