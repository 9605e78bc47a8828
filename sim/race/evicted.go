package race

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file judges evictions by books of its own: which capsules are taken off their nodes for which work, and whether
// the capsules that begin fit beside those that have not stopped yet.

// undone returns the commitments of a proposal without the evictions to make way that are not in the history. The
// ledger may leave such an eviction out, if the newcomer fits beside the victim.
func undone(do []orbit.Commitment, changes []orbit.Change) (kept []orbit.Commitment) {
	for _, c := range expand(do, changes) {
		e, evicts := c.(orbit.Evict)
		if evicts && (e.For != "" || e.ForGang != "") && (len(kept) == len(changes) || changes[len(kept)].Do != c) {
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// leaver is a capsule that a commit takes off a node by choice: the node is not lost, and the capsule has not ended.
type leaver struct {
	*auditCapsule
	orbit.Evict // only Capsule and From are set if it is released
	devices     orbit.DeviceSet
	ready       bool // before the commit
	replaced    bool // its gang is broken before the commit, and so is the one for which it leaves, which comes before it
}

// makesWay reports whether the capsule is evicted for other work.
func (l *leaver) makesWay() bool { return l.For != "" || l.ForGang != "" }

// wishesOf returns the capsules that a commit takes off their nodes by choice, and the budgets that it must keep. It is
// called before the commit is entered.
func (a *audit) wishesOf(changes []orbit.Change) (leavers []leaver, budgets []orbit.Budget) {
	givesBack := a.asked[changes[0].ID].by == a.world.actor // else the world releases what has stopped, or what is on a lost node
	for i := range changes {
		var e orbit.Evict
		switch do := changes[i].Do.(type) {
		case orbit.Evict:
			e = do
		case orbit.Release:
			if do.Final || do.Stopped || do.Hold != "" || givesBack {
				continue
			}
			e.Capsule = do.Capsule
		default:
			continue
		}
		m := a.capsules[e.Capsule]
		if m == nil || a.nodes[m.node] == nil || a.nodes[m.node].State == orbit.Lost {
			continue
		}
		e.From = m.node
		by := a.gangs[e.ForGang]
		leavers = append(leavers, leaver{m, e, m.devices, m.ready || !a.nodes[m.node].Confirms, by != nil && m.gang != nil && by.precedes(m.gang)})
	}
	if len(leavers) > 0 {
		budgets = a.budgetList()
	}
	return leavers, budgets
}

// judgeWishes checks whether the capsules that a commit has taken off their nodes by choice had to leave, and whether
// the budgets allowed it, both those before the commit and those after it.
func (a *audit) judgeWishes(leavers []leaver, before []orbit.Budget, queues *queuesBefore, rev orbit.Revision) {
	for i := range leavers {
		l := &leavers[i]
		least, placed := a.causes(l, rev)
		between, within := a.reclaims(l, rev)
		switch {
		case !l.makesWay():
		case !placed:
			a.fail("evicted in vain", "%s is evicted from %s for %s%s at revision %d, which does not place that", l.id, l.From, l.For, l.ForGang, rev)
		case l.replaced && l.gang.empty() && !a.gangs[l.ForGang].short():
		case within && l.priority() >= least:
			a.fail("evicted by its equal", "%s of priority %d is evicted at revision %d for %s%s of priority %d", l.id, l.priority(), rev, l.For, l.ForGang, least)
		case a.needless(l) && !a.freesQuota(l, queues, rev):
			a.fail("evicted needlessly", "%s is evicted from %s for %s%s at revision %d, and would still fit there", l.id, l.From, l.For, l.ForGang, rev)
		case l.gang != nil && !l.gang.empty() && l.gang.short():
			a.fail("gang below its minimum", "%s of gang %s is evicted at revision %d, and what is left is %v", l.id, l.gang.ID, rev, l.gang.placed)
		}
		if l.makesWay() {
			a.judgeReclaim(l, leavers, between, queues, rev)
			a.count(l)
		}
		for _, b := range slices.Concat(before, a.budgetList()) {
			a.judgeBudget(l, &b, least, rev)
		}
	}
}

// causes returns the priority of the work for which a victim makes way, and whether this commit has placed that work.
func (a *audit) causes(l *leaver, rev orbit.Revision) (priority int32, placed bool) {
	if m := a.capsules[l.For]; m != nil {
		return m.asks(), m.node != "" && m.placedAt == rev
	}
	for _, m := range a.capsules {
		if m.gang != nil && m.gang.ID == l.ForGang {
			priority, _ = m.gang.priorities() // and not m.asks: if m has ended, its role may count no more
			placed = placed || m.node != "" && m.placedAt == rev
		}
	}
	return priority, placed
}

// asks returns the priority that a capsule has when others are evicted for it. For a member it is that of the gang's
// lowest role.
func (m *auditCapsule) asks() int32 {
	priority := m.spec.Priority
	if m.gang != nil {
		lowest, _ := m.gang.priorities()
		priority = min(priority, lowest)
	}
	return priority
}

// priority returns the priority that counts for a victim. For a gang that is evicted whole it is that of the highest
// role.
func (l *leaver) priority() int32 {
	priority := l.spec.Priority
	if l.gang != nil && l.gang.empty() {
		_, highest := l.gang.priorities()
		priority = max(priority, highest)
	}
	return priority
}

// needless reports whether a victim would still fit on its node beside everything that is there after the commit. It
// does not judge gangs that are evicted whole, and nodes with nominated room.
func (a *audit) needless(l *leaver) bool {
	n := a.nodes[l.From]
	if n == nil || l.gang != nil && l.gang.empty() || a.nominatedOn(l.From) || len(l.spec.Extras) > 0 { // extras are not counted here
		return false
	}
	for d, want := range l.spec.Envelope.Reservation {
		if want > 0 && n.used[d]+want > n.Capacity[d] {
			return false
		}
	}
	for i, used := range n.devices {
		if l.devices.Has(i) && used+int64(l.spec.Devices.Milli) > 1000 {
			return false
		}
	}
	return true
}

// short reports whether a role or the gang has fewer than its minimum.
func (g *auditGang) short() bool {
	for i := range g.Roles {
		if g.placed[i] < g.least(i) {
			return true
		}
	}
	return g.few()
}

// way is an eviction to make way: the line of tasks to which the victim belongs, and the capsule or gang for which it
// left.
type way struct {
	line orbit.CapsuleID
	to   orbit.CapsuleID
	gang orbit.GangID
}

// count counts an eviction, and notes whether it repeats an earlier one.
func (a *audit) count(l *leaver) {
	w := way{l.line, l.For, l.ForGang}
	a.evicted++
	if a.ways[w] {
		a.repeated++
	}
	a.ways[w] = true
	if most := a.victims(); most > 0 && a.evicted > most {
		a.fail("too many victims", "%s is evicted for %s%s, and is number %d; for all jobs together %d have to leave", l.id, l.For, l.ForGang, a.evicted, most)
	}
}

// victims returns how many capsules have to leave for all jobs together; 0: not known.
func (r *Config) victims() (sum int) {
	for i := range r.Jobs {
		sum += r.Jobs[i].Tasks * r.Jobs[i].Victims
	}
	return sum
}

// budgetList returns the budgets in force, by id.
func (a *audit) budgetList() (out []orbit.Budget) {
	for _, id := range slices.Sorted(maps.Keys(a.budgets)) {
		out = append(out, a.budgets[id])
	}
	return out
}

// judgeBudget checks whether enough members of a budget are healthy after a commit that took a member off its node by
// choice. Members that the same commit has placed do not count as healthy.
func (a *audit) judgeBudget(l *leaver, b *orbit.Budget, priority int32, rev orbit.Revision) {
	member := func(s *orbit.Spec) bool {
		return b.Module != "" && s.Module == b.Module || b.Group != "" && s.IsIn(b.Group)
	}
	if !member(l.spec) || l.makesWay() && b.Above != 0 && priority >= b.Above || b.FreeUnready && !b.IgnoreReady && !l.ready {
		return
	}
	healthy := 0
	for _, m := range a.capsules {
		if n := a.nodes[m.node]; n != nil && n.State != orbit.Lost && m.placedAt != rev && member(m.spec) && (m.ready || !n.Confirms || b.IgnoreReady) {
			healthy++
		}
	}
	missing := b.Missing + (b.Expected*b.MissingPercent+99)/100
	if healthy < b.Expected-missing {
		a.fail("budget broken", "%s leaves %s at revision %d, %d members of budget %s are healthy then, and of %d at most %d may be missing", l.id, l.From, rev, healthy, b.ID, b.Expected, missing)
	}
}

// remain notes that a capsule that leaves its node and had begun still runs there, until its agent reports that it has
// stopped.
func (a *audit) remain(m *auditCapsule) {
	n := a.nodes[m.node]
	if m.begun && n != nil && n.State != orbit.Lost {
		r := &auditRemains{m, m.placedAt, m.devices}
		n.remains = append(n.remains, r)
		a.world.stops(r)
	}
	m.begun, m.ready = false, false
}

// auditRemains is a capsule that still runs on a node although its placement there has ended.
type auditRemains struct {
	of      *auditCapsule
	since   orbit.Revision
	devices orbit.DeviceSet
}

// confirm enters the report of an agent. A capsule that begins must fit beside everything that runs on its node,
// including what has not stopped yet, and it must not run anywhere else.
func (a *audit) confirm(do *orbit.Confirm, rev orbit.Revision) {
	m := a.capsules[do.Capsule]
	if do.Stopped {
		for _, n := range a.nodes {
			n.remains = slices.DeleteFunc(n.remains, func(r *auditRemains) bool { return r.of.id == m.id && r.since == do.Since })
		}
		return
	}
	if m.ready = do.Ready; m.begun || do.NotReady {
		return
	}
	n := a.nodes[m.node]
	if n == nil {
		a.fail("begun nowhere", "%s begins at revision %d, and is on no node", m.id, rev)
		return
	}
	for _, other := range a.nodes {
		if slices.ContainsFunc(other.remains, func(r *auditRemains) bool { return r.of.id == m.id }) {
			a.fail("runs twice", "%s begins on %s at revision %d, and still runs on %s", m.id, n.ID, rev, other.ID)
		}
	}
	m.begun = true
	a.beside(n, m, rev)
}

// beside checks that everything that runs on a node fits into the greatest capacity that the node ever had. Only the
// dimensions and devices for which the beginning capsule asks count. What another party has let grow beyond that is a fact, and begins.
func (a *audit) beside(n *auditNode, begins *auditCapsule, rev orbit.Revision) {
	if begins.factAt == begins.placedAt {
		return
	}
	var runs auditNode
	for _, m := range a.capsules {
		if m.node == n.ID && m.begun {
			runs.take(m.spec.Envelope.Reservation, m.devices, int64(m.spec.Devices.Milli), 1)
		}
	}
	for _, r := range n.remains {
		runs.take(r.of.spec.Envelope.Reservation, r.devices, int64(r.of.spec.Devices.Milli), 1)
	}
	for d, want := range begins.spec.Envelope.Reservation {
		if want > 0 && runs.used[d] > n.most[d] {
			a.fail("runs beside", "%s begins on %s at revision %d, where %d of dimension %d runs then, and there is %d", begins.id, n.ID, rev, runs.used[d], d, n.most[d])
		}
	}
	for i, used := range runs.devices {
		if begins.devices.Has(i) && used > 1000 {
			a.fail("runs beside", "%s begins on %s at revision %d, where %d of 1000 of device %d runs then", begins.id, n.ID, rev, used, i)
		}
	}
}

// begins lets the agent of a node report that a capsule placed there has begun, as soon as the ledger allows it, and
// later that it is ready. If others have overfilled the node, the agent gives the placement back.
func (w *world) begins(m *auditCapsule, since orbit.Revision) {
	if n := w.audit.nodes[m.node]; n == nil || !n.Confirms {
		return
	}
	begun := func() bool { return m.node == "" || m.placedAt != since || m.begun }
	w.agent(w.Starts, func(ctx context.Context) bool {
		if begun() {
			return true
		}
		err := w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{orbit.Confirm{Capsule: m.id, Since: since, Begun: true}}})
		w.giveBack(ctx, err)
		return err == nil
	})
	w.agent(2*w.Starts, func(ctx context.Context) bool {
		return begun() && (!m.begun || m.ready || m.placedAt != since) || w.confirms(ctx, orbit.Confirm{Capsule: m.id, Since: since, Ready: true})
	})
}

// confirms proposes the report of an agent, and says whether it was committed.
func (w *world) confirms(ctx context.Context, c orbit.Confirm) bool {
	return w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{c}}) == nil
}

// stops lets the agent of a node report that a capsule that has left has stopped.
func (w *world) stops(r *auditRemains) {
	w.agent(w.Stops, func(ctx context.Context) bool {
		for _, n := range w.audit.nodes {
			if slices.Contains(n.remains, r) {
				return w.confirms(ctx, orbit.Confirm{Capsule: r.of.id, Since: r.since, Stopped: true})
			}
		}
		return true
	})
}

// agent lets an agent call do after a time, and again until do reports success.
func (w *world) agent(after time.Duration, do func(context.Context) bool) {
	w.left++
	w.later(w.now+after, func(ctx context.Context) {
		w.left--
		if !do(ctx) && w.err == nil {
			w.agent(max(after, agentTriesAgain), do)
		}
	})
}

// agentTriesAgain is the least time after which an agent repeats a report that was refused.
const agentTriesAgain = 5 * time.Millisecond

// replaces lets a controller end a task that was evicted and submit another one in its place.
func (w *world) replaces(t *task, m *auditCapsule) {
	w.left++
	w.later(w.now, func(ctx context.Context) {
		w.left--
		if m.ended || m.node != "" { // it was placed again before
			return
		}
		id := t.capsule(t.Tasks + t.more)
		t.more++
		w.jobOf[id] = t
		w.audit.lines[id] = m.line
		err := w.propose(ctx, &orbit.Proposal{ID: w.nextID(), Do: []orbit.Commitment{
			orbit.Release{Capsule: m.id, Final: true}, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: t.Spec, Owner: t.Owner},
		}})
		if err != nil {
			w.fail("submit", "job %d: %v", t.number, err)
		}
	})
}
