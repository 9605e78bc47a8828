package race

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// apply enters one change into the books.
func (a *audit) apply(p *asked, c *orbit.Change) {
	switch do := c.Do.(type) {
	case orbit.PutNode:
		n := a.nodes[do.Node.ID]
		if n == nil {
			n = &auditNode{}
			a.nodes[do.Node.ID] = n
		}
		n.Node = do.Node
		for d, x := range n.Capacity {
			n.most[d] = max(n.most[d], x)
		}
		if n.State == orbit.Lost {
			n.remains = nil
		}
		n.changed(p)
	case orbit.RemoveNode:
		delete(a.nodes, do.Node)
	case orbit.Submit:
		a.submit(&do)
	case orbit.Place:
		a.place(p, &do, c.Revision)
	case orbit.Release:
		a.release(p, &do, c.Revision)
	case orbit.Evict:
		a.release(p, &orbit.Release{Capsule: do.Capsule}, c.Revision)
		if m := a.capsules[do.Capsule]; m != nil && a.jobOf[m.id] != nil && a.jobOf[m.id].Replaced && (do.For != "" || do.ForGang != "") {
			a.world.replaces(a.jobOf[m.id], m)
		}
	case orbit.Respec:
		a.respec(p, &do, c.Revision)
	case orbit.Adopt:
		a.adopt(p, &do, c.Revision)
	case orbit.Confirm:
		a.confirm(&do, c.Revision)
	case orbit.PutBudget:
		a.budgets[do.Budget.ID] = do.Budget
	case orbit.RemoveBudget:
		delete(a.budgets, do.Budget)
	case orbit.PutQueue:
		a.queues[do.Queue.ID] = do.Queue
	case orbit.RemoveQueue:
		delete(a.queues, do.Queue)
	case orbit.Nominate:
		a.nominate(&do, c.Revision)
	case orbit.Hold:
		a.holds[do.ID] = do
		if n := a.nodes[do.Node]; n != nil {
			n.take(do.Room, do.Devices, int64(do.Milli), 1)
			n.changed(p)
		}
	}
}

// submit enters capsules that wait.
func (a *audit) submit(do *orbit.Submit) {
	for _, id := range do.IDs {
		a.capsules[id] = &auditCapsule{id: id, line: cmp.Or(a.lines[id], id), spec: do.Spec}
		a.pending++
	}
	if do.Gang == nil {
		return
	}
	if do.Join {
		a.join(do.Gang)
		return
	}
	g := &auditGang{do.Gang, make([]int, len(do.Gang.Roles)), make([]int, len(do.Gang.Roles)), len(a.gangs)}
	a.gangs[do.Gang.ID] = g
	for i, role := range do.Gang.Roles {
		for _, id := range role.Members {
			a.capsules[id] = &auditCapsule{id: id, line: id, spec: role.Spec, gang: g, role: i}
			a.pending++
		}
	}
}

// join enters members that join a gang. Members that have ended stay on its lists.
func (a *audit) join(by *orbit.Gang) {
	g := a.gangs[by.ID]
	g.Gang = g.Clone()
	a.endParts(nominee{gang: by.ID})
	for _, r := range by.Roles {
		i := slices.IndexFunc(g.Roles, func(own orbit.Role) bool { return own.Name == r.Name && own.Spec == r.Spec })
		if i < 0 {
			i = len(g.Roles)
			g.Roles = append(g.Roles, orbit.Role{Name: r.Name, Spec: r.Spec, Min: r.Min})
			g.placed, g.done = append(g.placed, 0), append(g.done, 0)
		}
		g.Roles[i].Members = append(g.Roles[i].Members, r.Members...)
		for _, id := range r.Members {
			a.capsules[id] = &auditCapsule{id: id, line: id, spec: r.Spec, gang: g, role: i}
			a.pending++
		}
	}
}

// respec enters another spec of a capsule.
func (a *audit) respec(p *asked, do *orbit.Respec, rev orbit.Revision) {
	m := a.capsules[do.Capsule]
	if m == nil || m.ended || (do.Since == 0) != (m.node == "") || m.node != "" && do.Since != m.placedAt {
		a.fail("respecified out of turn", "%s gets another spec at revision %d, and is not as the proposal says", do.Capsule, rev)
		return
	}
	was := m.spec
	m.spec, m.grew = do.Spec, orbit.Resources{}
	n := a.nodes[m.node]
	if n == nil {
		for _, id := range m.nominees() { // they keep when they were first nominated
			a.endParts(id)
		}
		return
	}
	for d, x := range do.Spec.Envelope.Reservation {
		m.grew[d] = max(0, x-was.Envelope.Reservation[d])
	}
	if do.Applied && m.grew != (orbit.Resources{}) {
		m.factAt = m.placedAt
	}
	n.take(was.Envelope.Reservation, 0, 0, -1)
	n.take(do.Spec.Envelope.Reservation, 0, 0, 1)
	n.changed(p)
}

// place enters a placement.
func (a *audit) place(p *asked, do *orbit.Place, rev orbit.Revision) {
	m, n := a.capsules[do.Capsule], a.nodes[do.Node]
	switch {
	case m == nil || m.ended:
		a.fail("placed out of turn", "%s is placed on %s at revision %d, and does not wait", do.Capsule, do.Node, rev)
	case m.node != "":
		a.fail("placed twice", "%s is placed on %s at revision %d, and is on %s since %d", do.Capsule, do.Node, rev, m.node, m.placedAt)
	case n == nil || !n.Schedulable():
		a.fail("placed nowhere", "%s is placed on %s at revision %d, which takes no work", do.Capsule, do.Node, rev)
	}
	if a.err != nil {
		return
	}
	a.settle(p, m, n, do.Devices, rev)
}

// placed updates the job of a placed capsule, and schedules the end of the task.
func (a *audit) placed(m *auditCapsule, by *actor) {
	t := a.jobOf[m.id]
	if t == nil {
		return // an event of Liveness has submitted it
	}
	if t.Lasts > 0 {
		a.world.ends(m.id, t, m.placedAt)
	}
	if m.seen {
		return
	}
	m.seen = true
	if t.placed++; !t.served && !t.Again && (t.Gang || t.placed == t.Tasks) {
		t.served = true
		a.awaited--
	}
	if t.placed == t.Tasks {
		by.tally.Jobs++
		by.tally.Waits = append(by.tally.Waits, max(0, a.now-t.At))
	}
}

// release enters the end of a placement or a hold.
func (a *audit) release(p *asked, do *orbit.Release, rev orbit.Revision) {
	if h, ok := a.holds[do.Hold]; ok {
		delete(a.holds, do.Hold)
		if n := a.nodes[h.Node]; n != nil {
			n.take(h.Room, h.Devices, int64(h.Milli), -1)
			n.changed(p)
		}
		return
	}
	m := a.capsules[do.Capsule]
	if m == nil || m.ended || m.node == "" && !do.Final {
		a.fail("released out of turn", "%s%s is released at revision %d, and is not there", do.Capsule, do.Hold, rev)
		return
	}
	if do.Stopped {
		m.begun = false
	} else if n := a.nodes[m.node]; n != nil {
		m.ends = m.spec.Ends && !do.Final && (m.begun || !n.Confirms)
	}
	a.remain(m)
	if n := a.nodes[m.node]; n != nil {
		n.take(m.spec.Envelope.Reservation, m.devices, int64(m.spec.Devices.Milli), -1)
		n.changed(p)
	}
	if m.node != "" && m.gang != nil {
		m.gang.placed[m.role]--
	}
	switch {
	case m.node == "": // final
		a.pending--
	case !do.Final:
		a.pending++
	}
	if m.node = ""; do.Final {
		a.end(m)
	}
}

// end enters the end of a capsule that is on no node.
func (a *audit) end(m *auditCapsule) {
	if m.ended = true; m.gang != nil {
		m.gang.done[m.role]++
	}
	a.endNomination(m)
	if t := a.jobOf[m.id]; t != nil && t.Again {
		a.world.again(t)
	}
}

// endEnding ends the capsules that a commit has taken off their nodes and that end by that.
func (a *audit) endEnding() {
	for _, m := range a.capsules {
		if m.ends && m.node == "" && !m.ended {
			a.pending--
			a.end(m)
		}
		m.ends = false
	}
}

// adopt enters a capsule that runs on a node without a placement. What the node has is not judged.
func (a *audit) adopt(p *asked, do *orbit.Adopt, rev orbit.Revision) {
	m, n := a.capsules[do.Capsule], a.nodes[do.Node]
	if m == nil {
		m = &auditCapsule{id: do.Capsule, line: do.Capsule}
		a.capsules[m.id] = m
		a.pending++
	}
	if m.node != "" || m.ended || n == nil || n.State == orbit.Lost {
		a.fail("adopted out of turn", "%s is adopted on %s at revision %d; by the history it is %+v", do.Capsule, do.Node, rev, m)
		return
	}
	m.spec, m.begun = cmp.Or(do.Spec, m.spec), n.Confirms
	a.settle(p, m, n, do.Devices, rev)
}

// settle enters that a capsule is on a node from a revision on.
func (a *audit) settle(p *asked, m *auditCapsule, n *auditNode, devices orbit.DeviceSet, rev orbit.Revision) {
	m.node, m.devices, m.placedAt = n.ID, devices, rev
	a.pending--
	if m.gang != nil {
		m.gang.placed[m.role]++
	}
	n.take(m.spec.Envelope.Reservation, devices, int64(m.spec.Devices.Milli), 1)
	n.changed(p)
	for _, id := range m.nominees() {
		delete(a.nominations, id)
	}
	a.placed(m, p.by)
	a.world.begins(m, rev)
	if a.play != nil {
		a.play.starts(m)
	}
}

// take adds a demand to the node's usage (sign 1), or subtracts it (sign -1).
func (n *auditNode) take(want orbit.Resources, devices orbit.DeviceSet, milli, sign int64) {
	for d := range want {
		n.used[d] += sign * want[d]
	}
	for i := range n.devices {
		if devices.Has(i) {
			n.devices[i] += sign * milli
		}
	}
}

// changed notes the proposal that has changed the node. When a proposal of another pass comes, the revision of the one
// before it becomes byOthers.
func (n *auditNode) changed(p *asked) {
	if n.by != nil && (n.by.by != p.by || n.by.decision != p.decision) {
		n.byOthers = n.by.committed
	}
	n.by = p
}
