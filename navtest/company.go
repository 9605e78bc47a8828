package navtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// The rule: a capsule that wants to be near a group is placed in a domain where a member of the group runs. If no
// member runs, only a member of the group itself may be placed, as the anchor, and all members that one proposal places
// are in one domain. That is so for Spec.Near by a label. Further co-locations, and those by node, are judged as a ledger
// does, by what a proposal leaves.

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
		w.passUntilPlaced("its group runs in rack r2, where there is room", w.nearTo(p, "node-r2-01"), (*call).company)
		for c := range w.state().On("node-r2-01") {
			w.commit(orbit.Release{Capsule: c.ID, Final: true})
		}
		w.passUntilPlaced("its group has moved to rack r0, where there is room", w.nearTo(p, "node-r0-02"), (*call).company)

		alone := small(p)
		alone.Group, alone.Near = "alone", orbit.Near{Group: "alone", Level: nearLevel}
		ids := w.submit(alone, 5)
		waiting := small(p)
		waiting.Near = orbit.Near{Group: "absent", Level: nearLevel}
		w.submit(waiting, 3)
		w.passes(3, (*call).company)
		if s := w.state(); slices.ContainsFunc(ids, func(id orbit.CapsuleID) bool { return s.Capsule(id).Placed() }) {
			w.passUntilPlaced("it has begun the group itself", ids, (*call).company)
		}
		t.tooManyForADomain(p)
	}
	t.Where = ""
	t.scripts(nil, (*call).company)
}

// tooManyForADomain submits a group that is too large for any rack: some members must wait.
func (t *trial) tooManyForADomain(p pair) {
	w := t.world()
	w.racks(3)
	spec := whole(p)
	spec.Group, spec.Near = "large", orbit.Near{Group: "large", Level: nearLevel}
	w.submit(spec, 5)
	w.passes(3, (*call).company)
}

// nearTo places a member of a group, for another engine, on a node, and submits capsules that want to be near that
// group.
func (w *world) nearTo(p pair, node orbit.NodeID) []orbit.CapsuleID {
	id := w.ids(1)[0]
	group := "group of " + string(id)
	w.commit(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{Module: other, Tolerate: tolerant, Group: group}, Owner: other}, orbit.Place{Capsule: id, Node: node})
	spec := small(p)
	spec.Near = orbit.Near{Group: group, Level: nearLevel}
	return w.submit(spec, 6)
}

// company returns an error if a placement is apart from its group. It commits the plan to a ledger of its own, because
// the capsules that one proposal places are company for the next proposal.
func (c *call) company() error {
	ctx, l := context.Background(), &orbit.MemoryLedger{Start: c.state}
	for i, p := range c.plan.Proposals {
		s, err := l.Snapshot(ctx)
		if err == nil {
			err = cmp.Or(apart(s, p), further(s, p))
		}
		if err != nil {
			return c.fault("proposal %d: %w", i, err)
		}
		if _, err := l.Propose(ctx, orbit.Proposal{Do: p.Do}); err != nil {
			return nil //nolint:nilerr // the rule "capacity" says why
		}
	}
	return nil
}

// apart returns an error for a placement of a proposal that is apart from the group that it wants to be near.
func apart(s *orbit.State, p orbit.Proposal) error {
	anchored := map[string]string{} // group ─► domain, for groups that begin in this proposal
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok || s.Capsule(place.Capsule) == nil || s.Node(place.Node) == nil {
			continue
		}
		spec := s.Capsule(place.Capsule).Spec
		near, domain := spec.Near, s.Node(place.Node).Node.Labels[spec.Near.Level]
		if near.Group == "" || near.Level == orbit.NodeKey { // which planners leave to the ledger's rule
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
			return fmt.Errorf("capsule %q is placed on node %q; it wants to be near group %q, of which nothing is running", place.Capsule, place.Node, near.Group)
		case !running[domain]:
			return fmt.Errorf("capsule %q is placed in %s %q; it wants to be near group %q, which is in %q",
				place.Capsule, near.Level, domain, near.Group, slices.Sorted(maps.Keys(running)))
		}
	}
	return nil
}

// further returns an error for a placement of a proposal that breaks a co-location of its spec as a ledger judges it:
// after the proposal, another member of the group has to be in its domain, unless it is itself the first member anywhere.
func further(s *orbit.State, p orbit.Proposal) error {
	on := map[*orbit.Capsule]*orbit.Node{} // as the proposal leaves them
	for c := range s.Capsules() {
		if c.Placed() {
			on[c] = s.Node(c.Node).Node
		}
	}
	for _, do := range p.Do {
		switch do := do.(type) {
		case orbit.Evict:
			delete(on, s.Capsule(do.Capsule))
		case orbit.Release:
			delete(on, s.Capsule(do.Capsule))
		case orbit.Place:
			if c, n := s.Capsule(do.Capsule), s.Node(do.Node); c != nil && n != nil {
				on[c] = n.Node
			}
		}
	}
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		c := s.Capsule(place.Capsule)
		if !ok || c == nil || on[c] == nil {
			continue
		}
		for near := range c.Spec.AllNear {
			if here, elsewhere := others(on, c, near); domainOf(on[c], near.Level) == "" || here == 0 && (elsewhere > 0 || !c.Spec.IsIn(near.Group)) {
				return fmt.Errorf("capsule %q is placed on node %q; it wants to be near group %q by %s, of which %d others are there and %d elsewhere",
					c.ID, place.Node, near.Group, near.Level, here, elsewhere)
			}
		}
	}
	return nil
}

// others counts the other members of a group that are in the domain of a capsule, and those in other domains.
func others(on map[*orbit.Capsule]*orbit.Node, c *orbit.Capsule, near orbit.Near) (here, elsewhere int) {
	for o, n := range on {
		switch domain := domainOf(n, near.Level); {
		case o == c || !o.Spec.IsIn(near.Group) || domain == "":
		case domain == domainOf(on[c], near.Level):
			here++
		default:
			elsewhere++
		}
	}
	return here, elsewhere
}

// domainOf returns the domain of a node by a level; empty: it is in none.
func domainOf(n *orbit.Node, level string) string {
	if level == orbit.NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// domains returns the domains in which members of the group run.
func domains(s *orbit.State, near orbit.Near) map[string]bool {
	in := map[string]bool{}
	for n := range s.GroupNodes(near.Group) {
		if domain := n.Node.Labels[near.Level]; domain != "" {
			in[domain] = true
		}
	}
	return in
}
