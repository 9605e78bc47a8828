package orbit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit/internal/table"
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
	v.compareGangs()
	v.compareGroups()
	v.compareWaiting()
	v.nominations()
	v.budgets()
	v.company()
	v.protections()
	v.failures()
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
			if p.at > max(c.PlacedAt, c.SubmittedAt()) {
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
	r.claim(c.Spec.Envelope.Reservation, c.Devices, c.Spec.Devices.Milli, c.PlacedAt, c.Adopted)
	for group := range c.Spec.MemberOf {
		v.groups[groupCount{group: group, node: at.node}]++
	}
}

// claim adds what a placement or a hold takes, and the revision at which it was admitted, or adopted.
func (r *recount) claim(room Resources, set DeviceSet, milli int, at Revision, adopted bool) {
	newest, claimed := &r.newest, &r.claimed
	if adopted {
		newest, claimed = &r.newestAdopted, &r.claimedAdopted
	}
	used, ok := r.used.Add(room)
	r.used, r.overflow = used, r.overflow || !ok
	r.devices.add(set, int32(milli))
	for d := range room {
		if room[d] > 0 {
			newest[d] = max(newest[d], at)
		}
	}
	for i := range claimed {
		if set.Has(i) {
			claimed[i] = max(claimed[i], at)
		}
	}
}

// countGang counts a member's record, and whether it is placed, for its gang.
func (v *verifier) countGang(c *Capsule) {
	if c.Gang() == "" {
		return
	}
	g := v.gangs[c.Gang()]
	if g == nil {
		g = &GangState{}
		v.gangs[c.Gang()] = g
	}
	for len(g.Placed) <= int(c.inCommon().role) {
		g.Placed, g.Done = append(g.Placed, 0), append(g.Done, 0)
	}
	g.records++
	g.Placed[c.inCommon().role] += btoi(c.Placed())
	g.Done[c.inCommon().role] -= btoi(!c.released) // compareGangs adds the number of members
}

// failures checks that each record of failures is that of a capsule, and can be.
func (v *verifier) failures() {
	v.s.failed.Ascend(func(r failureRecord) bool {
		if why := r.of.fault(v.s.rev); r.of == nil || why != "" || v.s.Capsule(r.capsule) == nil {
			v.fail("capsule %q has a record of failures: %s; it has no record of its own, or that cannot be", r.capsule, why)
		}
		return true
	})
}

// holds checks that every hold ends and is on a member, and counts it there.
func (v *verifier) holds() {
	v.s.holds.Ascend(func(h *holdRecord) bool {
		n := v.s.Node(h.Node)
		if n == nil {
			v.fail("hold %q is on node %q, which is not a member", h.ID, h.Node)
			return true
		}
		if h.Ends.IsZero() {
			v.fail("hold %q never ends", h.ID)
		}
		r := &v.nodes[n.index]
		r.holds++
		r.claim(h.Room, h.Devices, h.Milli, h.changed, false)
		return true
	})
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

// compareCapacity reports a node that is over its capacity, with two exceptions: nothing was admitted there since the
// capacity last changed, or the newest claim is that of an adopted capsule.
func (v *verifier) compareCapacity(n *NodeState, r *recount) {
	for d := range n.used {
		if n.used[d] > n.Node.Capacity[d] && r.newest[d] > max(n.Specification, r.newestAdopted[d]) {
			v.fail("node %q is oversubscribed: uses %d of %d %s, and admitted more at revision %d, after its capacity was set at %d",
				n.Node.ID, n.used[d], n.Node.Capacity[d], v.s.names.name(d), r.newest[d], n.Specification)
		}
		if r.runs[d] > uint64(n.Node.Capacity[d]) && r.started[d] > max(n.Specification, r.startedAdopted[d]) {
			v.fail("node %q: %d of %d %s runs there, what has left it included; the newest was placed at revision %d, after its capacity was set at %d",
				n.Node.ID, r.runs[d], n.Node.Capacity[d], v.s.names.name(d), r.started[d], n.Specification)
		}
	}
	for i, used := range n.deviceUse() {
		room := int32(deviceMilli)
		if i >= n.Node.Devices.Count || n.Node.Devices.Unhealthy.Has(i) {
			room = 0
		}
		since := r.claimedAdopted[i]
		if used <= deviceMilli { // more than deviceMilli never fits, so a change of capacity does not excuse it
			since = max(since, n.Specification)
		}
		if used > room && r.claimed[i] > since {
			v.fail("node %q: device %d is oversubscribed: uses %d of %d milli", n.Node.ID, i, used, room)
		}
	}
}

// compareGangs compares the counts of the gangs with the recount, in both directions: no gang without members and no
// member without a gang.
func (v *verifier) compareGangs() {
	for g := range v.s.Gangs() {
		r := v.gangs[g.Gang.ID]
		delete(v.gangs, g.Gang.ID)
		if g.sum != g.Gang.digest() {
			v.fail("gang %q: its levels or roles are not those that were submitted", g.Gang.ID)
		}
		if r == nil {
			r = &GangState{}
		}
		if r.records == 0 || r.records != g.records || r.Total() != g.Total() || len(r.Placed) > len(g.Gang.Roles) {
			v.fail("gang %q of %d roles counts %d records and %v placed; there are %d and %v", g.Gang.ID, len(g.Gang.Roles), g.records, g.Placed, r.records, r.Placed)
			continue
		}
		for i := range g.Gang.Roles {
			v.spec(g.Gang.Roles[i].Spec)
		}
		for i, role := range g.Gang.Roles {
			placed, done := 0, len(role.Members)
			if i < len(r.Placed) {
				placed, done = r.Placed[i], done+r.Done[i]
			}
			if placed != g.Placed[i] || done != g.Done[i] || placed+done > len(role.Members) {
				v.fail("gang %q counts %d of role %d placed and %d done; there are %d and %d", g.Gang.ID, g.Placed[i], i, g.Done[i], placed, done)
			}
		}
	}
	for id := range v.gangs {
		v.fail("capsules belong to gang %q, of which there is no record", id)
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
		"mark": v.s.left.Marks, "group": v.s.left.Groups, "gang": v.s.left.Gangs, "nomination": v.s.left.Nominations, "budget": v.s.left.Budgets, "remains": v.s.left.Remains,
	} {
		if at != 0 { // 0: nothing of this kind has left yet
			v.date(at, "the last to leave", kind)
		}
	}
	for g := range v.s.Gangs() {
		v.date(g.Changed, "gang", string(g.Gang.ID))
	}
	v.s.recent.each(func(r recentID) { v.date(r.at, "proposal", r.id.String()) })
}

// nominations compares the nominations, and the sums by which the ledger judges them, with the records of capsules,
// gangs and nodes.
func (v *verifier) nominations() {
	claimed, living, nominated := map[nominatedPart]bool{}, 0, totals{}
	count := func(n *Nomination, waits bool) {
		if n == nil {
			return
		}
		if !waits || n.First == 0 || n.First > n.Made || n.Made > v.s.rev {
			v.fail("%s is nominated at revision %d, first at %d: it does not wait, or that cannot be", n.nominee(), n.Made, n.First)
		}
		if !n.Lives() {
			return
		}
		living++
		if n.sum != digestList(0, n.Parts) {
			v.fail("%s: the parts of the nomination are not those that were made", n.nominee())
		}
		nominated.addRooms(n, 1)
		ranked, _ := v.s.nominations.Get(n)
		if ends, _ := v.s.lapses.Get(n); ranked != n || ends != n {
			v.fail("%s is not found among those nominated", n.nominee())
		}
		for i := range n.Parts {
			claimed[nominatedPart{n, i}] = true
			if v.s.Node(n.Parts[i].Node) == nil {
				v.fail("%s is nominated for node %q, which is not a member", n.nominee(), n.Parts[i].Node)
			}
		}
	}
	for c := range v.s.Capsules() {
		count(c.Nomination(), c.Pending())
	}
	for g := range v.s.Gangs() {
		count(g.Nomination, g.Total() == 0 && (!g.ended() || !g.Nomination.Lives()))
	}
	var capacity totals
	for n := range v.s.Nodes() {
		capacity.addNode(n.Node, 1)
		if n.nominated == nil {
			continue
		}
		if k := len(n.nominated.parts); k == 0 || k > maxNominated {
			v.fail("node %q counts %d nominations; there can be %d", n.Node.ID, k, maxNominated)
		}
		for _, p := range n.nominated.parts {
			if !claimed[p] || p.room().Node != n.Node.ID {
				v.fail("node %q counts a nomination of %s, which there is not", n.Node.ID, p.of.nominee())
			}
			delete(claimed, p)
		}
	}
	for p := range claimed {
		v.fail("%s is nominated for node %q, which does not count it", p.of.nominee(), p.room().Node)
	}
	if living != v.s.nominations.Len() || living != v.s.lapses.Len() || nominated != v.s.nominated || capacity != v.s.capacity {
		v.fail("counts %d nominations of %v and a capacity of %v; there are %d of %v and %v",
			v.s.nominations.Len(), v.s.nominated, v.s.capacity, living, nominated, capacity)
	}
}

// date checks one revision.
func (v *verifier) date(at Revision, kind, name string) {
	if at == 0 || at > v.s.rev {
		v.fail("%s %q changed at %d: before the first revision or in the future", kind, name, at)
	}
}

// From here on the file recounts what a state counts of groups and of the rules of company.

// countWaiting counts a pending capsule in every group that its spec names.
func (v *verifier) countWaiting(c *Capsule) {
	if !c.Pending() {
		return
	}
	for group := range c.Spec.MemberOf {
		v.waiting[groupWaiting{group: group, spec: c.Spec}]++
	}
	if near := c.Spec.Near.Group; near != "" && !c.Spec.IsIn(near) {
		v.waiting[groupWaiting{group: near, spec: c.Spec}]++
	}
}

// compareGroups compares the counts of co-location groups with the recount, in both directions. Every count belongs to
// members that are there, under the right domain, and every node with members has a count on each level that the group
// is divided by.
func (v *verifier) compareGroups() {
	type division struct{ group, level string }
	counted, nodes := map[division]int{}, map[string]int{}
	for g := range v.groups {
		nodes[g.group]++
		counted[division{group: g.group}] = 0
	}
	v.s.groups.Ascend(func(g groupCount) bool {
		n := v.s.NodeByIndex(int(g.node))
		switch placed := v.groups[groupCount{group: g.group, node: g.node}]; {
		case placed != g.count || n == nil:
			v.fail("group %q counts %d capsules on slot %d; there are %d", g.group, g.count, g.node, placed)
		case g.level != "" && g.domain != n.Node.Labels[g.level]:
			v.fail("group %q counts node %q in %s %q, which it is not in", g.group, n.Node.ID, g.level, g.domain)
		}
		counted[division{g.group, g.level}]++
		return true
	})
	for d, n := range counted {
		if n != nodes[d.group] {
			v.fail("group %q counts %d nodes by level %q; there are %d", d.group, n, d.level, nodes[d.group])
		}
	}
}

// compareWaiting compares the counts of pending capsules that name a group with the recount.
func (v *verifier) compareWaiting() {
	v.s.waiting.Ascend(func(w groupWaiting) bool {
		key := groupWaiting{group: w.group, spec: w.spec}
		if v.waiting[key] != w.count {
			v.fail("group %q counts %d pending capsules of module %q; there are %d", w.group, w.count, w.spec.Module, v.waiting[key])
		}
		delete(v.waiting, key)
		return true
	})
	for w, n := range v.waiting {
		v.fail("group %q has %d pending capsules of module %q, which are not counted", w.group, n, w.spec.Module)
	}
}

// company compares the counts by which the rules of company are judged with a recount.
func (v *verifier) company() {
	want := newCompanyTables()
	add := func(spec *Spec) { want.addRules(spec, 1) }
	for c := range v.s.Capsules() {
		if !c.released {
			add(c.Spec)
		}
	}
	for n := range v.s.Nodes() {
		for r := range v.s.Remains(n.Node.ID) {
			add(r.Spec)
		}
	}
	ruled, count := want.ruled, want.add // made once, because each allocates
	for slot, c := range v.s.capsuleSlots() {
		if n := v.s.NodeByIndex(int(v.s.capsules.At(slot).node)); c.Placed() && n != nil {
			c.Spec.companyOf(n.Node, 0, ruled, count)
		}
	}
	for n := range v.s.Nodes() {
		for r := range v.s.Remains(n.Node.ID) {
			r.Spec.companyOf(n.Node, stopping, ruled, count)
		}
	}
	want.scopes.Ascend(func(u scopeUse) bool {
		v.s.surveyScope(u.companyScope, u.require, func(domain string) { want.addEligible(u.companyScope, domain, 1) })
		return true
	})
	have := &v.s.company
	if !sameTable(have.rules, want.rules, func(a, b groupRules) bool { return slices.Equal(a.byLevel, b.byLevel) }) ||
		!sameTable(have.counts, want.counts, func(a, b companyCount) bool { return a == b }) {
		v.fail("what rules Apart and Even count is not what there is")
	}
	if !sameTable(have.eligible, want.eligible, func(a, b eligibleNodes) bool { return a == b }) ||
		!sameTable(have.scopes, want.scopes, func(a, b scopeUse) bool { return a.companyScope == b.companyScope && a.rules == b.rules }) {
		v.fail("the domains that rules Even count as eligible are not those that there are")
	}
	for _, l := range have.lows {
		if low := have.fewest(&Even{Group: l.group, Level: l.level}, l.companyScope, have.in); low.least != l.least || low.ties != l.ties || low.domains != l.domains {
			v.fail("group %q by %q: %d of %d domains have the fewest members, %d; kept are %d of %d, %d", l.group, l.level, low.ties, low.domains, low.least, l.ties, l.domains, l.least)
		}
	}
}

// remains checks the remains of a capsule, and adds the capsule to the counts of the node on which it runs or stops.
func (v *verifier) remains(c *Capsule) {
	node, since, spec, adopted := c.Node, c.PlacedAt, c.Spec, c.Adopted
	if r := c.Remains(); r != nil {
		n := v.s.Node(r.Node)
		if n == nil || n.Node.State == Lost || n.remains == nil || !slices.Contains(*n.remains, r) || r.Capsule != c.ID || r.Spec == nil {
			v.fail("capsule %q has remains on node %q, but the node is not there, is lost, or does not list them", c.ID, r.Node)
			return
		}
		if r.Spec != c.Spec && r.Left > c.SubmittedAt() && !c.Respecified {
			v.fail("capsule %q left node %q at revision %d with another spec than it has", c.ID, r.Node, r.Left)
		}
		if r.Since == 0 || r.Since > r.Left || r.Left > v.s.rev || c.Placed() && c.PlacedAt < r.Left {
			v.fail(
				"capsule %q was placed at revision %d, left its node at %d and was placed again at %d: these cannot follow each other",
				c.ID, r.Since, r.Left, c.PlacedAt)
		}
		v.nodes[n.index].remains++
		node, since, spec, adopted = r.Node, r.Since, r.Spec, r.Adopted
	}
	if c.Begun && (!c.Placed() || c.Waits || c.Remains() != nil) || c.Waits && !c.Placed() || c.Ready && !c.Begun || c.Adopted && (!c.Placed() || c.Waits) {
		v.fail("capsule %q on node %q: begun is %v, ready %v and waiting to begin %v; these exclude each other, or it is not placed",
			c.ID, c.Node, c.Begun, c.Ready, c.Waits || c.Remains() != nil)
	}
	if !c.Begun && c.Remains() == nil {
		return
	}
	if n := v.s.Node(node); n != nil {
		r := &v.nodes[n.index]
		for d, x := range spec.Envelope.Reservation {
			r.runs[d] += uint64(x)
			switch {
			case x == 0:
			case adopted:
				r.startedAdopted[d] = max(r.startedAdopted[d], since)
			default:
				r.started[d] = max(r.started[d], since)
			}
		}
	}
}

// loans compares the loans that a node records with the recount.
func (v *verifier) loans(n *NodeState, counted *[]loan) {
	equal := (counted == nil) == (n.loans == nil)
	for i := 0; equal && n.loans != nil && i < len(*n.loans); i++ {
		equal = len(*n.loans) == len(*counted) && slices.Contains(*counted, (*n.loans)[i])
	}
	if !equal {
		v.fail("node %q counts loans that are not those of the capsules there", n.Node.ID)
	}
}

// protections checks that each protection names an existing placement.
func (v *verifier) protections() {
	v.s.protected.Ascend(func(p protection) bool {
		if c := v.s.Capsule(p.capsule); c == nil || !c.Placed() || c.PlacedAt != p.since || p.lasts <= 0 {
			v.fail("capsule %q is protected for %v since revision %d, where it has no placement of then", p.capsule, p.lasts, p.since)
		}
		return true
	})
}

// sameTable reports whether two tables have equal entries.
func sameTable[T any](a, b table.Sorted[T], same func(a, b T) bool) bool {
	if a.Len() != b.Len() {
		return false
	}
	equal := true
	a.Ascend(func(x T) bool {
		y, ok := b.Get(x)
		equal = ok && same(x, y)
		return equal
	})
	return equal
}

// budgets recounts the healthy members of each group and module that has budgets. It also checks that each budget is
// found by what it covers.
func (v *verifier) budgets() {
	healthy := map[memberSet]health{}
	if v.s.covered.Len() > 0 {
		for c := range v.s.Capsules() {
			for of := range c.Spec.memberships {
				if n := v.s.Node(c.Node); v.s.coverage(of) != nil && n != nil {
					healthy[of] = healthy[of].plus(n.Node.health(c), 1)
				}
			}
		}
	}
	budgets := 0
	v.s.covered.Ascend(func(c *coverage) bool {
		if c.healthy != healthy[c.of] || len(c.budgets) == 0 {
			v.fail("%v counts %+v and %d budgets; there are %+v", c.of, c.healthy, len(c.budgets), healthy[c.of])
		}
		v.date(c.left, "the last to leave", c.of.String())
		budgets += len(c.budgets)
		for _, b := range c.budgets {
			v.date(b.changed, "budget", string(b.ID))
			if known, _ := v.s.budgets.Get(b); known != b || b.members() != c.of {
				v.fail("%v counts budget %q, which is another one", c.of, b.ID)
			}
		}
		return true
	})
	if budgets != v.s.budgets.Len() {
		v.fail("%d budgets are found by what they cover; there are %d", budgets, v.s.budgets.Len())
	}
}
