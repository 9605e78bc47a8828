package shard

import (
	"context"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// news lists the capsules, nodes and marks that the changes between two states concern.
type news struct {
	capsules queue[orbit.CapsuleID]
	changed  []change
	// marked are the units whose failed or pinned mark was set.
	marked []unit
	// altered are the capsules with another spec, and the gangs with another member.
	altered []alteration
	// leases says that a scheduler's lease has changed.
	leases bool
}

// alteration is a capsule that has got another spec, or a gang that has got another member.
type alteration struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
	at      orbit.Revision
}

// follow brings the dispatcher up to the ledger's current state, and adds the units to decide on to todo.
func (d *Dispatcher) follow(ctx context.Context, round *Round) error {
	d.loads.forgetExpected()
	state, changes, whole, err := d.state.CatchUp(ctx, d.Ledger)
	if err != nil {
		return err
	}
	again := d.again
	d.again = nil
	switch {
	case whole:
		d.rebuild(state, round)
	case state != d.state:
		d.advance(d.read(changes), state, round)
	}
	for _, u := range append(again, d.retry.due(time.Now())...) {
		d.review(u)
	}
	return nil
}

// read sorts changes by what they touch.
func (d *Dispatcher) read(changes []orbit.Change) *news {
	n := &news{capsules: queue[orbit.CapsuleID]{has: make(map[orbit.CapsuleID]bool, len(changes))}}
	for i := range changes {
		c := &changes[i]
		switch do := c.Do.(type) {
		case orbit.Submit:
			n.capsules.add(do.IDs...)
			for i := 0; do.Gang != nil && i < len(do.Gang.Roles); i++ {
				n.capsules.add(do.Gang.Roles[i].Members...)
			}
			if do.Join {
				n.altered = append(n.altered, alteration{gang: do.Gang.ID, at: c.Revision})
			}
		case orbit.Assign:
			n.capsules.add(do.Capsule)
		case orbit.Place:
			n.capsules.add(do.Capsule)
		case orbit.Adopt:
			n.capsules.add(do.Capsule)
		case orbit.Release:
			if do.Capsule != "" {
				n.capsules.add(do.Capsule)
			}
			n.change(c.Node, c.Revision, false)
		case orbit.Evict:
			n.capsules.add(do.Capsule)
			n.change(c.Node, c.Revision, false)
		case orbit.Respec:
			n.altered = append(n.altered, alteration{capsule: do.Capsule, at: c.Revision})
			n.change(c.Node, c.Revision, false) // it may take less there
		case orbit.PutNode:
			n.change(c.Node, c.Revision, false)
		case orbit.Mark:
			d.readMark(n, do.Key, c.Revision)
		}
	}
	return n
}

// readMark adds a mark that was set to the news, if it is of a kind that concerns the dispatcher.
func (d *Dispatcher) readMark(n *news, key string, at orbit.Revision) {
	if u, ok := unitOfKey(key); ok {
		n.marked = append(n.marked, u)
	} else if node, ok := groupMark.id(key); ok && d.Strict {
		n.change(orbit.NodeID(node), at, true)
	} else if d.Leases != nil && strings.HasPrefix(key, d.Leases.Key("")) {
		n.leases = true
	}
}

// change adds a change of a node.
func (n *news) change(node orbit.NodeID, at orbit.Revision, moved bool) {
	if node != "" {
		n.changed = append(n.changed, change{node, at, moved})
	}
}

// advance moves to a newer state by the changes that led to it.
func (d *Dispatcher) advance(n *news, state *orbit.State, round *Round) {
	before := d.state
	d.state = state
	d.marks.forgetStale(state)
	for _, id := range n.capsules.list {
		d.loads.update(before.Capsule(id), state.Capsule(id), state)
	}
	if n.leases {
		d.refreshMembership()
	}
	fresh := d.learn(n.marked, round)
	d.retryAltered(append(d.unitsOf(n.altered), n.marked...))
	d.help(merge(n.changed), before)
	d.overtaken(fresh)
	d.remember(n.changed)
	d.reviewTouched(n, before)
}

// unitsOf notes which units are altered, and returns them.
func (d *Dispatcher) unitsOf(list []alteration) (units []unit) {
	for _, a := range list {
		u := unit{string(a.gang), true}
		if a.capsule != "" {
			c := d.state.Capsule(a.capsule)
			if c == nil { // its record has been dropped since
				continue
			}
			u = unitOf(c)
		}
		d.alter(u, a.at)
		units = append(units, u)
	}
	return units
}

// reviewTouched reviews the units that the changes have touched, each gang once.
func (d *Dispatcher) reviewTouched(n *news, before *orbit.State) {
	gangs := map[unit]bool{}
	review := func(u unit) {
		if !gangs[u] {
			d.review(u)
			if u.gang {
				gangs[u] = true
			}
		}
	}
	for _, id := range n.capsules.list {
		is := d.state.Capsule(id)
		if was := before.Capsule(id); was != nil && (is == nil || unitOf(is) != unitOf(was)) {
			review(unitOf(was)) // the capsule's record has been dropped, or a new capsule has the id
		}
		if is != nil {
			review(unitOf(is))
		}
	}
	for _, u := range n.marked {
		review(u)
	}
}

// merge reduces the changes to one for each node: the last one.
func merge(changed []change) []change {
	at := make(map[orbit.NodeID]int, len(changed))
	out := changed[:0:0]
	for _, c := range changed {
		if i, known := at[c.node]; known {
			out[i].at, out[i].moved = c.at, out[i].moved || c.moved
			continue
		}
		at[c.node] = len(out)
		out = append(out, c)
	}
	return out
}

// maxRecent is how many changes of nodes are remembered. A failure that rests on a still older view is compared with
// these only, and is otherwise left to the retries.
const maxRecent = 4096

// remember keeps changes of nodes, for failures that are reported later and were planned on an older view.
func (d *Dispatcher) remember(changed []change) {
	d.recent = append(d.recent, changed...)
	if n := len(d.recent); n > 2*maxRecent {
		d.recent = append(d.recent[:0], d.recent[n-maxRecent:]...)
	}
}

// rebuild starts from a state without knowing the changes that led to it. Retries and what was reported are kept.
func (d *Dispatcher) rebuild(state *orbit.State, round *Round) {
	d.state = state
	d.loads = newLoads()
	d.failing = newFailingUnits()
	d.recent, d.todo, d.marks = nil, queue[unit]{}, markWrites{}
	d.altered = altered{}
	pending := state.Pending()
	for _, c := range pending {
		d.loads.update(nil, c, state)
		if c.Respecified { // it is not known since when: what has failed it is tried again once
			d.alter(unitOf(c), c.Changed)
		}
	}
	d.roster = readRoster(state, d.Leases, d.Schedulers)
	d.loads.register(&d.roster)
	d.cleared.sweep(state)
	var marked []unit
	for _, kind := range [...]markKind{failedMark, failedGangMark, pinnedMark, pinnedGangMark} {
		for key := range state.Marks(string(kind)) {
			if u, ok := unitOfKey(key); ok {
				marked = append(marked, u)
			}
		}
	}
	d.learn(marked, round)
	d.retryAltered(marked)
	d.help(d.everyNode(), nil)
	for _, u := range append(marked, d.retry.all()...) {
		d.review(u)
	}
	for _, c := range pending {
		d.review(unitOf(c))
	}
}

// everyNode returns a change for each node, or none if no unit has failed.
func (d *Dispatcher) everyNode() (out []change) {
	if len(d.failing.units) == 0 {
		return nil
	}
	for n := range d.state.Nodes() {
		_, grouped := d.state.Mark(groupMark.key(string(n.Node.ID)))
		out = append(out, change{n.Node.ID, max(n.Usage, n.Specification, grouped), true})
	}
	return out
}

// learn reads the failed marks of units, and returns the failures that are new.
func (d *Dispatcher) learn(units []unit, round *Round) (fresh []freshFailure) {
	for _, u := range units {
		kind := u.failedMark()
		value, at := d.state.Mark(kind.key(u.id))
		was := d.failing.units[u]
		if was != nil && was.at == at {
			continue
		}
		d.failing.drop(u, d.Strict)
		if value == "" {
			continue
		}
		list, err := parseFailures(value)
		if err != nil {
			round.fail(corruptError(kind.key(u.id), value))
			continue // the next failure overwrites the mark
		}
		f := &failing{unit: u, failures: list, at: at, specs: u.specs(d.state)}
		d.failing.put(f, d.Strict)
		for _, one := range list.list {
			if known, ok := was.said(one.Scheduler); ok && known.View == one.View {
				continue
			}
			name := one.Scheduler
			if !d.Strict || list.more {
				name = ""
			}
			fresh = append(fresh, freshFailure{f, name, one.View})
		}
	}
	return fresh
}

// refreshMembership reads which schedulers live now. It reviews the units that a dead one owns, and those that wait for
// a retry or for their scheduler.
func (d *Dispatcher) refreshMembership() {
	was := d.roster
	d.roster = readRoster(d.state, d.Leases, d.Schedulers)
	for _, name := range was.names {
		if !d.roster.lives(name) {
			for _, id := range d.loads.owner(name).ids {
				if c := d.state.Capsule(id); c != nil && c.Owner() == name {
					d.review(unitOf(c))
				}
			}
		}
	}
	d.loads.register(&d.roster)
	for _, u := range d.retry.all() {
		d.review(u)
	}
}

// review adds a unit to todo if it has to be assigned, and deletes its marks if it is no longer pending.
func (d *Dispatcher) review(u unit) {
	pending, gone := u.life(d.state)
	if !pending {
		d.retry.forget(u)
		delete(d.cleared, u)
		delete(d.altered, u)
		d.tidy(u, pending, gone)
		return
	}
	if d.wanting(u) {
		d.todo.add(u)
	} else if d.failing.units[u] == nil {
		d.retry.forget(u)
	}
}

// wanting reports whether a capsule of the unit waits and no live scheduler has it.
func (d *Dispatcher) wanting(u unit) bool {
	for c := range u.members(d.state) {
		if d.free(c) {
			return true
		}
	}
	return false
}
