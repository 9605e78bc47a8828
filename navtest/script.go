package navtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// scripts plays random stories. Each has a constellation on which not everything fits, work of every class that the
// navigator claims, capsules and holds of other engines, and random events between the passes. Half of the stories also
// have evictions, budgets, and agents that confirm. prepare may change the world before the first pass; judge is called
// with every plan; both may be nil.
func (t *trial) scripts(prepare func(*world), judge judge) {
	t.draw(func(d dice) {
		w := t.world()
		wishes := dice{harness.Rand(t.suite.Seed, t.rule+" with wishes, "+t.Where, 0)} // dice apart, so that wishes do not change the rest of the story
		wished := wishes.chance(50)
		if facts := (dice{harness.Rand(t.suite.Seed, t.rule+" with facts, "+t.Where, 0)}); facts.chance(50) {
			w.facts = &facts
		}
		w.engine.MaxPlan = pick(d, 0, 0, 5)
		if prepare != nil {
			prepare(w)
		}
		for i := range 3 + d.IntN(12) {
			n := d.node(orbit.NodeID(fmt.Sprintf("node-%02d", i)))
			n.Confirms = wished && wishes.chance(30)
			w.put(n)
		}
		for range 1 + d.IntN(5) {
			w.arrive(d)
		}
		w.crowd(d)
		for range 8 {
			w.passes(1, judge)
			for range 1 + d.IntN(4) {
				w.happen(d)
			}
			for n := wishes.IntN(4); wished && n > 0; n-- {
				w.wish(wishes)
			}
			for n := 3; w.facts != nil && n > 0; n-- {
				w.fact(*w.facts)
			}
		}
	})
}

// arrive submits random work of the navigator.
func (w *world) arrive(d dice) {
	p := pick(d, w.t.mine...)
	if p.class == orbit.GangClass {
		g := d.gang(p)
		for i := range g.Roles {
			w.befriend(g.Roles[i].Spec)
		}
		w.submitGang("", g)
		return
	}
	owner, spec, n := pick(d, "", "", me), d.spec(p), 1+d.IntN(8)
	w.befriend(spec)
	w.submitTo(owner, spec, n)
}

// crowd takes free capacity for other engines: by capsules, and by holds that end long after the test.
func (w *world) crowd(d dice) {
	for n := range w.state().Nodes() {
		room := n.Free()
		for dim := range room {
			room[dim] = max(0, room[dim]/pick[int64](d, 2, 3, 1000)) // where capacity has shrunk it is negative
		}
		if !n.Node.Schedulable() || d.chance(50) {
			continue
		}
		if d.chance(30) && room != (orbit.Resources{}) {
			w.made++
			w.commit(orbit.Hold{ID: orbit.HoldID(fmt.Sprint("hold-", w.made)), Node: n.Node.ID, Room: room, For: other, Ends: never})
			continue
		}
		_, err := w.occupy(n.Node.ID, room, pick(d, "", "", "g1", "g2"))
		w.t.Must(err)
	}
}

// happen makes a random change, or none if the change is not possible.
func (w *world) happen(d dice) {
	s := w.state()
	nodes := slices.Collect(s.Nodes())
	if len(nodes) == 0 {
		return
	}
	n := pick(d, nodes...)
	switch d.IntN(7) {
	case 0, 1:
		w.arrive(d)
	case 2: // a capsule ends, or is evicted
		if on := slices.SortedFunc(s.On(n.Node.ID), bySubmission); len(on) > 0 {
			end := orbit.Release{Capsule: pick(d, on...).ID, Final: d.chance(50)}
			end.Stopped = !end.Final
			w.commit(end)
		}
	case 3: // another description: capacity shrinks or grows, labels, devices, drain
		now := d.node(n.Node.ID)
		now.Confirms = n.Node.Confirms
		w.put(now)
	case 4: // it leaves if it can, and comes back
		if w.attempt(orbit.RemoveNode{Node: n.Node.ID}) == nil && d.chance(70) {
			w.put(d.node(n.Node.ID))
		}
	case 5: // a device is lost
		lost := *n.Node
		if lost.Devices.Count > 0 {
			lost.Devices.Unhealthy |= 1 << d.IntN(lost.Devices.Count)
			w.commit(orbit.PutNode{Node: lost})
		}
	case 6:
		w.crowd(d)
	}
}

// wish makes a random change of the second kind: an eviction by another engine, a budget, or a confirmation by an
// agent.
func (w *world) wish(d dice) {
	nodes := slices.Collect(w.state().Nodes())
	if len(nodes) == 0 {
		return
	}
	n := pick(d, nodes...)
	switch d.IntN(3) {
	case 0:
		w.displace(d, n)
	case 1:
		w.budget(d)
	case 2:
		w.confirm(d, n)
	}
}

// displace places a capsule or a gang of another engine on a node, and evicts for it all capsules there that it
// outranks, whether that is necessary or not. The ledger may refuse it.
func (w *world) displace(d dice, n *orbit.NodeState) {
	spec := &orbit.Spec{Module: other, Tolerate: tolerant, Priority: d.Int32N(4), Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: pick[int64](d, 500, 3000, 6000)}}}
	ids := w.ids(1 + d.IntN(2))
	evict, comes := orbit.Evict{For: ids[0]}, orbit.Submit{IDs: ids, Spec: spec, Owner: other}
	if d.chance(30) {
		w.made++
		g := &orbit.Gang{ID: orbit.GangID(fmt.Sprintf("gang-%04d", w.made)), Roles: []orbit.Role{{Name: "all", Spec: spec, Members: ids}}}
		evict, comes = orbit.Evict{ForGang: g.ID}, orbit.Submit{Gang: g, Owner: other}
	}
	do := []orbit.Commitment{comes}
	for _, v := range slices.SortedFunc(w.state().On(n.Node.ID), bySubmission) {
		if v.Spec.Priority < spec.Priority {
			evict.Capsule, evict.From, evict.Since = v.ID, v.Node, v.PlacedAt
			do = append(do, evict)
		}
	}
	for _, id := range ids {
		do = append(do, orbit.Place{Capsule: id, Node: n.Node.ID})
	}
	_ = w.attempt(do...)
}

// budget sets a budget for a group or for a module, or removes one.
func (w *world) budget(d dice) {
	id := orbit.BudgetID(pick(d, "b1", "b2"))
	if d.chance(30) {
		_ = w.attempt(orbit.RemoveBudget{Budget: id})
		return
	}
	b := orbit.Budget{ID: id, Group: pick(d, "g1", "g2"), Expected: d.IntN(6), Missing: d.IntN(3), IgnoreReady: d.chance(30), FreeUnready: d.chance(30)}
	if d.chance(40) {
		b.Group, b.Module = "", pick(d, other, pick(d, w.t.mine...).module)
	}
	_ = w.attempt(orbit.PutBudget{Budget: b})
}

// confirm lets the agent of a node confirm that capsules there have begun, are ready or no longer ready, and that
// others have stopped.
func (w *world) confirm(d dice, n *orbit.NodeState) {
	for _, c := range slices.SortedFunc(w.state().On(n.Node.ID), bySubmission) {
		if d.chance(70) {
			_ = w.attempt(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: !c.Begun, Ready: c.Begun && !c.Ready, NotReady: c.Ready})
		}
	}
	for r := range w.state().Remains(n.Node.ID) {
		if d.chance(50) {
			_ = w.attempt(orbit.Confirm{Capsule: r.Capsule, Since: r.Since, Stopped: true})
		}
	}
}

// bySubmission orders capsules by their submission.
func bySubmission(a, b *orbit.Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) }

// never is the end of the holds of others.
var never = time.Now().Add(1000 * time.Hour)
