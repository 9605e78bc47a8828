package race

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// This file has the events of nodes and of their reports.

// draw makes up a node.
func (t *liveTurn) draw(id orbit.NodeID) orbit.Node {
	n := orbit.Node{ID: id, Labels: map[string]string{}}
	n.Cordon(lucky(t.r, 8))
	n.Confirms = lucky(t.r, 25)
	n.Capacity = orbit.Resources{orbit.CPU: between(t.r, 2, 10), orbit.Memory: between(t.r, 2, 12), orbit.Slots: between(t.r, 1, 5)}
	if lucky(t.r, 30) {
		n.Devices = orbit.Devices{Model: one(t.r, "A", "B"), Count: 1 + t.r.IntN(3)}
	}
	t.place(&n)
	if lucky(t.r, 25) {
		n.Labels["big"] = "yes"
	}
	if lucky(t.r, 8) {
		n.Labels["rare"] = "yes"
	}
	if lucky(t.r, 60) {
		n.Labels["disk"] = one(t.r, "ssd", "hdd")
	}
	if lucky(t.r, 60) {
		n.Extras = []orbit.Extra{{Name: "ip", Amount: between(t.r, 1, 3)}}
	}
	return n
}

// place sets the topology labels of a node. At times a label is missing or empty.
func (t *liveTurn) place(n *orbit.Node) {
	rack := t.r.IntN(3)
	at := map[string]int{"rack": rack, "row": t.r.IntN(2), "zone": t.r.IntN(2)}
	if t.draft.nested {
		at["row"], at["zone"] = (rack+1)/2, rack/2
	}
	for _, level := range liveLevels {
		switch {
		case lucky(t.r, 12):
			delete(n.Labels, level)
		case lucky(t.r, 4):
			n.Labels[level] = ""
		default:
			n.Labels[level] = fmt.Sprintf("%s%d", level, at[level])
		}
	}
}

// join adds a node, at times under the id of one that has left.
func (t *liveTurn) join() [][]orbit.Commitment {
	for i := t.r.IntN(2); i < 7; i++ {
		if id := orbit.NodeID(fmt.Sprint("n", i)); t.state.Node(id) == nil {
			t.greet(id)
			return once(orbit.PutNode{Node: t.draw(id)})
		}
	}
	return nil
}

// flash adds a node and removes it at once, so that no view shows it. Then another node moves or joins, or nothing
// happens.
func (t *liveTurn) flash() [][]orbit.Commitment {
	n := t.draw("n9")
	n.Labels["rack"] = one(t.r, "rack0", "rack9")
	do := [][]orbit.Commitment{{orbit.PutNode{Node: n}}, {orbit.RemoveNode{Node: "n9"}}}
	switch t.r.IntN(3) {
	case 0:
		do = append(do, t.move()...)
	case 1:
		do = append(do, t.join()...)
	}
	return do
}

// leave empties a node and removes it.
func (t *liveTurn) leave() [][]orbit.Commitment {
	n := t.node(anyNode)
	if n == nil || len(t.nodes) < 2 {
		return nil
	}
	gone := n.Node.Clone()
	gone.State = orbit.Lost
	do := []orbit.Commitment{orbit.PutNode{Node: gone}}
	for _, c := range t.capsules(func(c *orbit.Capsule) bool { return c.Node == n.Node.ID }) {
		do = append(do, orbit.Release{Capsule: c.ID, Stopped: true, At: 1}) // so long ago that no engine waits for it
	}
	for h := range t.state.Holds() {
		if h.Node == n.Node.ID {
			do = append(do, orbit.Release{Hold: h.ID})
		}
	}
	return once(append(do, orbit.RemoveNode{Node: n.Node.ID})...)
}

// release returns the releases of the capsules on a node, which have failed, so that they are pending again.
func (t *liveTurn) release(n *orbit.NodeState) (do []orbit.Commitment) {
	for _, c := range t.capsules(func(c *orbit.Capsule) bool { return c.Node == n.Node.ID }) {
		do = append(do, t.stopped(c)...)
	}
	return do
}

// change changes the description of a node.
func (t *liveTurn) change(n *orbit.NodeState, change func(*orbit.Node)) [][]orbit.Commitment {
	if n == nil {
		return nil
	}
	c := n.Node.Clone()
	change(&c)
	return once(orbit.PutNode{Node: c})
}

func (t *liveTurn) cordon() [][]orbit.Commitment {
	used := lucky(t.r, 70)
	n := t.node(func(n *orbit.NodeState) bool { return n.Node.Schedulable() && (!used || n.Capsules > 0) })
	return t.change(n, func(n *orbit.Node) { n.State = orbit.Cordoned })
}

func (t *liveTurn) uncordon() [][]orbit.Commitment {
	n := t.node(func(n *orbit.NodeState) bool { return !n.Node.Schedulable() })
	return t.change(n, func(n *orbit.Node) { n.State = orbit.Ready })
}

// evacuate releases the capsules on a cordoned node, which is the second half of a drain.
func (t *liveTurn) evacuate() [][]orbit.Commitment {
	n := t.node(func(n *orbit.NodeState) bool { return !n.Node.Schedulable() && n.Capsules > 0 })
	if n == nil {
		return nil
	}
	return once(t.release(n)...)
}

// resize changes a node's capacity, now and then to less than is used.
func (t *liveTurn) resize() [][]orbit.Commitment {
	return t.change(t.node(anyNode), func(n *orbit.Node) {
		n.Capacity[orbit.CPU], n.Capacity[orbit.Slots] = between(t.r, 0, 12), between(t.r, 0, 5)
	})
}

// move changes the domains of a node.
func (t *liveTurn) move() [][]orbit.Commitment {
	return t.change(t.node(anyNode), t.place)
}

// sicken changes which device instances of a node are healthy.
func (t *liveTurn) sicken() [][]orbit.Commitment {
	n := t.node(func(n *orbit.NodeState) bool { return n.Node.Devices.Count > 0 })
	return t.change(n, func(n *orbit.Node) { n.Devices.Unhealthy = orbit.DeviceSet(t.r.IntN(1 << n.Devices.Count)) })
}

// greet makes up the reports of a node, which may also be silent. A node that has left goes on reporting, like a node
// that was removed by mistake; if it joins again, it may keep its old reports.
func (t *liveTurn) greet(id orbit.NodeID) {
	if t.hosts[id] != nil && lucky(t.r, 50) {
		return
	}
	h := &liveHost{silent: lucky(t.r, 15), Report: orbit.Report{Node: id, Warm: map[string]int{}}}
	h.CPUPercent = float64(one(t.r, 10, 50, 95))
	for _, template := range []string{"t1", "t2"} {
		if lucky(t.r, 80) {
			h.Templates, h.Warm[template] = append(h.Templates, template), t.r.IntN(3)
		}
	}
	if lucky(t.r, 60) {
		h.Volumes = []string{one(t.r, "v1", "v2")}
	}
	t.hosts[id] = h
}

// host returns the reporting side of a random node; nil: there is none.
func (t *liveTurn) host() *liveHost {
	if n := t.node(anyNode); n != nil {
		return t.hosts[n.Node.ID]
	}
	return nil
}

// silence lets a node fall silent.
func (t *liveTurn) silence() [][]orbit.Commitment {
	if h := t.host(); h != nil {
		h.silent = true
	}
	return nil
}

// speak lets a node report again, with new contents.
func (t *liveTurn) speak() [][]orbit.Commitment {
	if h := t.host(); h != nil {
		h.silent = false
		t.hosts[h.Node] = nil
		t.greet(h.Node)
		t.hosts[h.Node].silent = false
		t.beat(t.state, h.Node)
	}
	return nil
}

// sours lets every start on a node fail, until the world rests. At times that ends at once for all nodes.
func (t *liveTurn) sours() [][]orbit.Commitment {
	if n := t.node(anyNode); n != nil {
		t.sour[n.Node.ID] = true
	}
	if lucky(t.r, 20) {
		clear(t.sour)
	}
	return nil
}

// starts lets the start of a capsule that was just placed fail if its node is sour.
func (w *livePlay) starts(m *auditCapsule) {
	if !w.sour[m.node] {
		return
	}
	node, since := m.node, m.placedAt
	w.world.later(w.now+w.draft.starts+time.Millisecond, func(ctx context.Context) {
		if m.node != node || m.placedAt != since || !w.sour[node] {
			return
		}
		if do := stopped(w.snapshot(), m.id, true); len(do) > 0 {
			_ = w.world.propose(ctx, &orbit.Proposal{ID: w.world.nextID(), Do: do})
		}
	})
}
