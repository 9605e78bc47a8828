package orbit

import (
	"errors"
	"fmt"
	"slices"
)

// Verify recounts everything and returns all discrepancies as one joined error, at most a hundred; nil: the state is
// sound. It checks these invariants: the used capacity of a node equals the sum of its live placements and holds, and
// no amount is negative. A node is over its capacity only because the capacity was lowered later, or by an [Adopt]; the
// same holds for the capsules that run there. Every placed capsule is on a member node. The counts of gangs, groups and
// pending work equal what the records say. No map or list of a node, spec, gang or nomination was written to since the
// ledger has taken it ([Node.Clone]). Verify looks at every record once, so its cost grows with the state.
func (s *State) Verify() error {
	v := verifier{s: s, nodes: make([]recount, s.nodes.Bound()), gangs: map[GangID]*GangState{}, groups: map[groupCount]int{}, waiting: map[groupWaiting]int{}, specs: map[*Spec]bool{}}
	v.capsules()
	v.holds()
	v.compareNodes()
	for _, recount := range recounts {
		recount(&v)
	}
	v.dates()
	return errors.Join(v.faults...)
}

// verifier recounts, from the records alone, every number that the state keeps.
type verifier struct {
	s        *State
	nodes    []recount
	gangs    map[GangID]*GangState
	groups   map[groupCount]int
	waiting  map[groupWaiting]int
	specs    map[*Spec]bool // looked at
	records  int
	pending  int
	released int
	faults   []error
}

// recount is the recount of one node.
type recount struct {
	used     Resources
	devices  deviceUse
	capsules int
	holds    int
	// newest is, for each dimension, the revision of the newest placement or hold that claims some of it.
	newest [Dimensions]Revision
	// runs is, for each dimension, the sum over the capsules that are confirmed to run on the node, remains included.
	// started is the revision at which the newest of these was placed.
	runs    [Dimensions]uint64
	started [Dimensions]Revision
	// remains is how many capsules have left the node and still run there.
	remains int
	// claimed is the revision of the newest claim on each device instance.
	claimed  [MaxDevices]Revision
	overflow bool
	// These are newest, started and claimed for adopted capsules, which the fields above leave out.
	newestAdopted, startedAdopted [Dimensions]Revision
	claimedAdopted                [MaxDevices]Revision
	// loans holds the recounted loans of the node; its other fields are unused.
	loans NodeState
}

// fail records a fault. Only the first hundred are kept.
func (v *verifier) fail(format string, args ...any) {
	if len(v.faults) < 100 {
		v.faults = append(v.faults, fmt.Errorf("orbit: verify at revision %d: "+format, append([]any{v.s.rev}, args...)...))
	}
}

// capsules checks every record and counts what it takes where it is.
func (v *verifier) capsules() {
	for slot, c := range v.s.capsuleSlots() {
		v.records++
		if known, _ := v.s.findCapsule(c.ID); known != c {
			v.fail("capsule %q is not found by its id", c.ID)
		}
		if c.Changed == 0 || c.Changed > v.s.rev || c.PlacedAt > v.s.rev {
			v.fail("capsule %q changed at %d, placed at %d: before the first revision or in the future", c.ID, c.Changed, c.PlacedAt)
		}
		for p := c.rare().earlier; p != nil; p = p.before {
			last := max(c.PlacedAt, c.SubmittedAt())
			if c.Spec.Surge {
				last = c.Changed // a surge that was undone is an earlier placement than the one to which the capsule has returned
			}
			if p.at > last {
				v.fail("capsule %q: an earlier placement, at %d, is newer than the last one, at %d, and than its submission", c.ID, p.at, c.PlacedAt)
			}
		}
		v.pending += btoi(c.Pending())
		v.released += btoi(c.released)
		v.spec(c.Spec)
		v.countGang(c)
		v.countWaiting(c)
		if c.Placed() {
			v.placement(slot, c)
		}
		v.remains(c)
	}
	if v.records != v.s.CapsuleCount() || v.pending != v.s.pending || v.released != v.s.releasedCount {
		v.fail("counts %d records, %d pending, %d released; there are %d, %d, %d",
			v.s.CapsuleCount(), v.s.pending, v.s.releasedCount, v.records, v.pending, v.released)
	}
}

// spec checks that a spec was not changed through a plain copy.
func (v *verifier) spec(s *Spec) {
	if v.specs[s] {
		return
	}
	v.specs[s] = true
	if !s.intact() {
		v.fail("a spec of module %q: its lists are not those that were submitted", s.Module)
	}
}

// placement checks that a placed capsule is on a member and in its list, and counts it there.
func (v *verifier) placement(slot uint32, c *Capsule) {
	at := v.s.capsules.At(slot)
	n := v.s.NodeByIndex(int(at.node))
	switch {
	case c.released:
		v.fail("capsule %q is released and on node %q", c.ID, c.Node)
		return
	case n == nil || n.Node.ID != c.Node:
		v.fail("capsule %q is on node %q, which is not a member", c.ID, c.Node)
		return
	case !v.s.lists(at, slot):
		v.fail("capsule %q is not in the list of node %q", c.ID, c.Node)
	case c.Devices.Len() != c.Spec.Devices.Count:
		v.fail("capsule %q holds %d devices, asks for %d", c.ID, c.Devices.Len(), c.Spec.Devices.Count)
	}
	r := &v.nodes[at.node]
	if err := c.datable(); err != nil {
		v.fail("%v", err)
	}
	r.capsules++
	r.loans.borrow(c, 1)
	r.claim(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli, c.claimedAt(), c.Adopted)
	for group := range c.Spec.MemberOf {
		v.groups[groupCount{group: group, node: at.node}]++
	}
}

// compareNodes compares the counts of every node with the recount.
func (v *verifier) compareNodes() {
	members := 0
	for i := range v.nodes {
		n, r := v.s.NodeByIndex(i), &v.nodes[i]
		if n == nil {
			continue
		}
		members++
		v.compareNode(n, r)
		v.compareCapacity(n, r)
	}
	if members != v.s.NodeCount() || members != v.s.nodes.Len() {
		v.fail("counts %d members and %d ids; there are %d", v.s.NodeCount(), v.s.nodes.Len(), members)
	}
}

// compareNode compares the sums and counts of one node. compareCapacity judges whether they exceed the capacity.
func (v *verifier) compareNode(n *NodeState, r *recount) {
	id := n.Node.ID
	if known := v.s.Node(id); known != n {
		v.fail("node %q is not found by its id", id)
	}
	if !v.s.intact(n.Node) {
		v.fail("node %q: its labels, taints or extras are not those that were put", id)
	}
	if r.overflow || n.used != r.used || n.deviceUse() != r.devices {
		v.fail("node %q counts used %v, devices %v; its placements and holds take %v, %v", id, n.used, n.deviceUse(), r.used, r.devices)
	}
	if n.remains != nil && len(*n.remains) != r.remains || n.remains == nil && r.remains > 0 {
		v.fail("node %q does not list the %d that have left it and still run", id, r.remains)
	}
	if listed := int(v.s.nodes.At(n.index).listed); n.Capsules != r.capsules || listed != r.capsules || n.Holds() != r.holds {
		v.fail("node %q counts %d capsules (list: %d), %d holds; there are %d, %d", id, n.Capsules, listed, n.holds, r.capsules, r.holds)
	}
	if use := n.deviceUse(); len(n.used.faults("")) > 0 || slices.Min(use[:]) < 0 {
		v.fail("node %q: negative use: %v, devices %v", id, n.used, n.deviceUse())
	}
	v.loans(n, r.loans.loans)
	if min(n.Usage, n.Specification) == 0 || max(n.Usage, n.Specification) > v.s.rev {
		v.fail("node %q: counters %d and %d: before the first revision or in the future", id, n.Usage, n.Specification)
	}
}

// dates checks that no record was changed after the revision of the state.
func (v *verifier) dates() {
	v.s.holds.Ascend(func(h *holdRecord) bool {
		v.date(h.changed, "hold", string(h.ID))
		return true
	})
	v.s.marks.Ascend(func(m markRecord) bool {
		v.date(m.changed, "mark", m.key)
		return true
	})
	for kind, at := range map[string]Revision{
		"node": v.s.left.Nodes, "capsule": v.s.left.Capsules, "hold": v.s.left.Holds,
		"mark": v.s.left.Marks, "group": v.s.left.Groups, "gang": v.s.left.Gangs, "nomination": v.s.left.Nominations, "budget": v.s.left.Budgets, "queue": v.s.left.Queues, "remains": v.s.left.Remains,
	} {
		if at != 0 { // 0: nothing of this kind has left yet
			v.date(at, "the last to leave", kind)
		}
	}
	for g := range v.s.Gangs() {
		v.date(g.Changed, "gang", string(g.Gang.ID))
	}
	for id, at := range v.s.recent.All() {
		v.date(at, "proposal", id.String())
	}
}

// date checks one revision.
func (v *verifier) date(at Revision, kind, name string) {
	if at == 0 || at > v.s.rev {
		v.fail("%s %q changed at %d: before the first revision or in the future", kind, name, at)
	}
}
