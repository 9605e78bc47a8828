package ledgertest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// stage is a small world for random actions. All its names begin with the prefix, so that one ledger can have several
// stages.
type stage struct{ prefix string }

// The numbers of nodes, capsules, gangs and queues. They are small, so that workers conflict.
const (
	nodes    = 4
	capsules = 24
	gangs    = 3
	queues   = 4
)

func (s stage) node(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprint(s.prefix, "n", i%nodes)) }

func (s stage) capsule(i int) orbit.CapsuleID {
	return orbit.CapsuleID(fmt.Sprint(s.prefix, "c", i%capsules))
}

func (s stage) gang(i int) orbit.GangID { return orbit.GangID(fmt.Sprint(s.prefix, "g", i%gangs)) }

func (s stage) queue(i int) orbit.QueueID { return orbit.QueueID(fmt.Sprint(s.prefix, "q", i%queues)) }

func (s stage) hold(i int) orbit.HoldID { return orbit.HoldID(fmt.Sprint(s.prefix, "h", i%nodes)) }

func (s stage) mark(i int) string { return fmt.Sprint(s.prefix, "m", i%5) }

// described returns the description of a node of the stage.
func (s stage) described(i int) orbit.Node {
	return orbit.Node{ID: s.node(i), Capacity: orbit.Resources{orbit.CPU: 10, orbit.Memory: 8}, Devices: orbit.Devices{Model: "m1", Count: 2},
		Labels: map[string]string{"rack": fmt.Sprint("r", i%2), "disk": "ssd"}}
}

// specs returns the specs of the stage. Its capsules have them in turn.
func (s stage) specs() []*orbit.Spec {
	picky, grouped := cpu(1), cpu(1)
	picky.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
	grouped.Group = s.prefix + "group"
	half := gpu(1, 600)
	half.Envelope.Reservation[orbit.Memory] = 1
	half.Priority, picky.Priority = 1, 2
	half.Queue, picky.Queue, grouped.Queue = s.queue(1), s.queue(2), s.queue(3)
	return []*orbit.Spec{movable(cpu(3)), half, picky, movable(grouped)}
}

// setup returns the proposals that make the stage.
func (s stage) setup() (out []orbit.Proposal) {
	for i := range nodes {
		out = append(out, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: s.described(i)}}})
	}
	var work []orbit.Commitment // one proposal, because work needs its queue and a queue its parent: none depends on another proposal
	for i := range queues {
		work = append(work, s.quota(action{what: i, choice: 11}))
	}
	for k, spec := range s.specs() {
		for i := k; i < capsules; i += len(s.specs()) {
			work = append(work, submit(spec, s.capsule(i)))
		}
	}
	out = append(out, orbit.Proposal{Do: work})
	for i := range gangs {
		out = append(out, orbit.Proposal{Do: []orbit.Commitment{crew(string(s.gang(i)))}})
	}
	return out
}

// proposal returns the proposal that an action makes on a view, which may be infeasible there. A proposal without
// commitments is not to be sent.
func (s stage) proposal(a action, view *orbit.State) (p orbit.Proposal) {
	c, n := view.Capsule(s.capsule(a.what)), view.Node(s.node(a.where))
	switch a.kind {
	case "place", "batch":
		if c.Placed() && a.choice > 0 {
			p.Do = append(p.Do, stopped(c.ID))
			break
		}
		p.If = s.bet(a, view, n)
		p.Do = append(p.Do, s.place(c, a.where, n))
	case "release":
		p.Do = append(p.Do, s.release(c, view))
	case "budget":
		p.Do = append(p.Do, s.budget(a))
	case "quota":
		p.Do = append(p.Do, s.quota(a))
	case "respec":
		spec := c.Spec.Clone()
		spec.Queue, spec.Envelope.Reservation[orbit.CPU] = s.queue(a.where), int64(1+a.choice%3)
		p.Do = append(p.Do, orbit.Respec{Capsule: c.ID, Since: c.PlacedAt, Spec: spec, Applied: c.Placed() && a.serial%8 == 0})
	case "reclaim":
		p.Do = s.reclaim(a, view)
	case "move":
		p.Do = append(p.Do, evictOf(c), s.place(c, a.where, n))
	case "swap":
		for other := range view.On(s.node(a.where)) {
			if other.Gang() == "" && other.ID != c.ID {
				p.Do = append(p.Do, evictOf(other), s.place(other, a.where+1, view.Node(s.node(a.where+1))))
				break
			}
		}
		p.Do = append(p.Do, s.place(c, a.where, n))
	case "preempt":
		p.Do = s.preempt(a, view)
	case "gang":
		p.Do = s.turn(a, view)
	case "hold":
		p.Do = append(p.Do, hold(s.hold(a.where), s.node(a.where), int64(1+a.choice%3)))
	case "unhold":
		p.Do = append(p.Do, unhold(s.hold(a.where)))
	case "assign":
		p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner(), Owner: fmt.Sprint("o", a.choice%3)})
	case "mark":
		_, at := view.Mark(s.mark(a.what))
		p.If = []orbit.Precondition{orbit.MarkAt{Key: s.mark(a.what), Revision: at}}
		p.Do = append(p.Do, mark(s.mark(a.what), []string{"", "x", "y", "z"}[a.choice%4]))
	case "describe":
		p.Do = append(p.Do, orbit.PutNode{Node: s.redescribe(a)})
	case "leave":
		p.Do = s.leave(a, view)
	case "churn":
		id := orbit.CapsuleID(fmt.Sprint(s.prefix, "t", a.serial))
		p.Do = append(p.Do, submit(cpu(1), id), place(id, s.node(a.where)))
	case "cancel":
		p.Do = s.cancel(a, view)
	}
	return p
}

// release returns a capsule to pending: by choice if its node is cordoned, otherwise because the capsule has stopped.
func (s stage) release(c *orbit.Capsule, view *orbit.State) orbit.Release {
	if n := view.Node(c.Node); n != nil && n.Node.State == orbit.Cordoned {
		return release(c.ID)
	}
	return stopped(c.ID)
}

// budget puts one of two budgets on the group of the stage, or removes that budget.
func (s stage) budget(a action) orbit.Commitment {
	id := orbit.BudgetID(fmt.Sprint(s.prefix, "b", a.what%2))
	if a.choice == 0 {
		return orbit.RemoveBudget{Budget: id}
	}
	b := budget(id, s.prefix+"group", 1+a.choice%4, a.where%2)
	b.Budget.IgnoreReady, b.Budget.FreeUnready = a.choice%3 == 1, a.serial%2 == 0
	return b
}

// quota puts one of the queues of the stage, or removes it: the first is the root of the second and the third, and the fourth is below the second.
func (s stage) quota(a action) orbit.Commitment {
	i := a.what % queues
	if a.choice == 0 {
		return orbit.RemoveQueue{Queue: s.queue(i)}
	}
	q := orbit.Queue{ID: s.queue(i), Nominal: map[string]int64{"cpu": int64(1 + a.choice), "device/m1": int64(300 * a.choice)}, Weight: int64(a.choice % 3)}
	if i > 0 {
		q.Parent = s.queue(i / 3)
	}
	if a.choice%4 == 1 {
		q.Borrow = map[string]int64{"cpu": int64(a.where)}
	}
	if a.choice%4 == 2 {
		q.Lend = map[string]int64{"cpu": int64(a.where)}
	}
	return orbit.PutQueue{Queue: q}
}

// reclaim places a capsule and evicts up to two capsules of other queues from its node.
func (s stage) reclaim(a action, view *orbit.State) (do []orbit.Commitment) {
	c := view.Capsule(s.capsule(a.what))
	others := slices.DeleteFunc(slices.Collect(view.On(s.node(a.where))), func(v *orbit.Capsule) bool {
		return v.Gang() != "" || v.Spec.Queue == "" || v.Spec.Queue == c.Spec.Queue
	})
	slices.SortFunc(others, func(a, b *orbit.Capsule) int { return cmp.Compare(a.ID, b.ID) })
	for _, v := range others[:min(len(others), 1+a.choice%2)] {
		e := evictOf(v)
		e.For = c.ID
		do = append(do, e)
	}
	return append(do, s.place(c, a.where, view.Node(s.node(a.where))))
}

// place places a capsule on a node, on devices that are free in the view if there are any.
func (s stage) place(c *orbit.Capsule, where int, n *orbit.NodeState) orbit.Place {
	do := place(c.ID, s.node(where))
	if c.Spec.Devices.Count > 0 {
		do.Devices = 1
		if n != nil {
			if set, ok := n.PickDevices(c.Spec); ok {
				do.Devices = set
			}
		}
	}
	return do
}

// preempt places a capsule and evicts up to five capsules of lower priority from its node, whether they have to leave
// or not. At times it also names victims on another node.
func (s stage) preempt(a action, view *orbit.State) (do []orbit.Commitment) {
	c := view.Capsule(s.capsule(a.what))
	if a.choice%4 == 0 { // evictions that are needless, because the newcomer goes to another node
		do = s.victims(c, s.node(a.where+1), view)
	}
	do = append(do, s.victims(c, s.node(a.where), view)...)
	return append(do, s.place(c, a.where, view.Node(s.node(a.where))))
}

// victims returns evictions of up to five capsules on a node that have a lower priority than capsule c, in order of
// submission.
func (s stage) victims(c *orbit.Capsule, on orbit.NodeID, view *orbit.State) (do []orbit.Commitment) {
	lower := slices.DeleteFunc(slices.Collect(view.On(on)), func(v *orbit.Capsule) bool { return v.Spec.Priority >= c.Spec.Priority })
	slices.SortFunc(lower, func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(a.Submitted, b.Submitted), cmp.Compare(a.ID, b.ID))
	})
	for _, v := range lower[:min(len(lower), 5)] {
		e := evictOf(v)
		e.For = c.ID
		do = append(do, e)
	}
	return do
}

// bet returns a fine or a coarse bet on what the view shows, or none.
func (s stage) bet(a action, view *orbit.State, n *orbit.NodeState) []orbit.Precondition {
	switch {
	case n == nil:
	case a.choice < 3:
		free := n.Free()
		return []orbit.Precondition{orbit.NodeFreeOf{Node: n.Node.ID, AtLeast: orbit.Resources{orbit.CPU: max(0, min(free[orbit.CPU], 3))}}}
	case a.choice < 5:
		return []orbit.Precondition{orbit.NodeAt{Node: n.Node.ID, Usage: n.Usage, Specification: n.Specification}}
	case a.choice == 5:
		return []orbit.Precondition{orbit.GroupIn{Group: s.prefix + "group", Level: "rack", Domain: n.Node.Labels["rack"]}}
	case a.choice == 6:
		_, at := view.Mark(s.mark(a.what))
		return []orbit.Precondition{orbit.MarkAt{Key: s.mark(a.what), Revision: at}}
	}
	return nil
}

// evictOf returns an eviction of a capsule from the node on which the view shows it.
func evictOf(c *orbit.Capsule) orbit.Evict {
	return orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt}
}

// turn places two to all members of a gang if none is placed. If members are placed, it releases them.
func (s stage) turn(a action, view *orbit.State) (do []orbit.Commitment) {
	g := view.Gang(s.gang(a.what))
	size := []int{4, 3, 4, 2}[a.choice%4]
	for i, member := range []string{"b", "x", "y", "z"} {
		id := orbit.CapsuleID(string(g.Gang.ID) + member)
		switch c := view.Capsule(id); {
		case c.Placed():
			do = append(do, stopped(id))
		case g.Total() == 0 && i < size:
			do = append(do, place(id, s.node(a.where+i%2)))
		}
	}
	return do
}

// redescribe returns a new description of a node: another capacity, unschedulable, with an unhealthy device or without
// a label. Most choices change nothing.
func (s stage) redescribe(a action) orbit.Node {
	n := s.described(a.where)
	switch a.choice {
	case 0:
		n.Capacity[orbit.CPU] = int64(a.what % 5)
	case 1:
		n.State = orbit.Cordoned
	case 2:
		n.Devices.Unhealthy = 1
	case 3:
		delete(n.Labels, "disk")
	}
	return n
}

// leave declares a node lost, releases the capsules and holds on it, up to 12 of them, and removes the node.
func (s stage) leave(a action, view *orbit.State) (do []orbit.Commitment) {
	id := s.node(a.where)
	for c := range view.On(id) {
		do = append(do, orbit.Release{Capsule: c.ID, From: id})
	}
	slices.SortFunc(do, func(x, y orbit.Commitment) int { return strings.Compare(harness.Text(x), harness.Text(y)) })
	for h := range view.HoldsWith(orbit.HoldID(s.prefix)) {
		if h.Node == id {
			do = append(do, unhold(h.ID))
		}
	}
	do = append([]orbit.Commitment{lost(id)}, do[:min(len(do), 12)]...)
	do = append(do, orbit.RemoveNode{Node: id})
	if a.choice%2 == 0 {
		do = append(do, orbit.PutNode{Node: s.described(a.where)}) // the node joins again at once
	}
	return do
}

// cancel releases for good one of the capsules that the action churn has submitted.
func (s stage) cancel(a action, view *orbit.State) []orbit.Commitment {
	var list []orbit.CapsuleID
	for c := range view.Capsules() {
		if strings.HasPrefix(string(c.ID), s.prefix+"t") && (!c.Released() || a.choice == 0) {
			list = append(list, c.ID)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	return []orbit.Commitment{cancel(list[a.what%len(list)])}
}
