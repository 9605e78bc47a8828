package navtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// scripts plays random stories: a constellation in which not everything fits, work of every class that the
// navigator claims, other people's capsules and holds, and between passes whatever happens in a cluster.
// Prepare may change the world before the first pass; judge sees every call of Plan before its proposals'
// effects are built upon. Either may be nil.
func (t *trial) scripts(prepare func(*world), judge judge) {
	t.draw(func(d dice) {
		w := t.world()
		w.engine.MaxPlan = pick(d, 0, 0, 5)
		if prepare != nil {
			prepare(w)
		}
		for i := range 3 + d.IntN(12) {
			w.put(d.node(orbit.NodeID(fmt.Sprintf("node-%02d", i))))
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
		}
	})
}

// arrive submits random work of the navigator's own.
func (w *world) arrive(d dice) {
	p := pick(d, w.t.mine...)
	if p.class == orbit.GangClass {
		w.submitGang("", d.gang(p))
		return
	}
	w.submitTo(pick(d, "", "", me), d.spec(p), 1+d.IntN(8))
}

// crowd takes room for others: capsules, and a hold that ends long after the test.
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

// happen changes the world at random. What is not possible just then does not happen.
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
		w.put(d.node(n.Node.ID))
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

// bySubmission orders capsules.
func bySubmission(a, b *orbit.Capsule) int { return cmp.Compare(a.Submitted, b.Submitted) }

// never is when the holds of others end.
var never = time.Now().Add(1000 * time.Hour)
