package nav

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// patientChoice looks for the nodes where the fewest capsules have to end for a nominee.
type patientChoice struct {
	*patientPass
	// The nomination as it would rank.
	rank orbit.Nomination
	// What is counted on to end beside batch work and gangs: all that runs, and what is nominated for those that outrank
	// the nominee. With each there are more nodes, where the wait is longer.
	services, nominated bool
}

// patientSeat is where a capsule goes once there is room.
type patientSeat struct {
	capsule orbit.CapsuleID
	node    orbit.NodeID
}

// choose returns where the nominee is to go, and what is nominated for it there; nothing if it could go nowhere.
func (r *patientPass) choose(n *nominee) (seats []patientSeat, parts []orbit.NominatedRoom) {
	members, levels := r.wanted(n)
	if len(members) == 0 {
		return nil, nil
	}
	c := &patientChoice{patientPass: r}
	c.rank = orbit.Nomination{Capsule: n.capsule, Gang: n.gang, Rank: n.priority + n.aged, First: r.view.Revision() + 1}
	if n.standing != nil {
		c.rank.First = n.standing.First
	}
	for _, counted := range [][2]bool{{false, false}, {true, false}, {true, true}} {
		c.services, c.nominated = counted[0], counted[1]
		for _, level := range levels {
			domains := map[string][]*orbit.NodeState{}
			for node := range r.draft.Nodes() {
				if name, in := domainName(node.Node, level, r.state.Limits().IDBytes); in {
					domains[name] = append(domains[name], node)
				}
			}
			if best := c.bestOf(domains, members); best != nil {
				return best.seats, best.parts()
			}
		}
	}
	return nil, nil
}

// wanted returns the capsules that are to be seated together, those of a spec behind each other and large ones first, and
// the levels of which one domain has to take them: of a gang its minimum.
func (r *patientPass) wanted(n *nominee) (members []*orbit.Capsule, levels [][]string) {
	if n.gang == "" {
		if s := &n.of.Spec.Start; s.Template != "" || s.Parent != "" {
			return nil, nil
		}
		return []*orbit.Capsule{n.of}, [][]string{nil}
	}
	m := loadGang(r.state, n.gang)
	if m.owner = n.of.Owner; m.inspect() != nil {
		return nil, nil
	}
	type ordered struct {
		size float64
		role int
	}
	sizes := make([]ordered, len(m.waiting))
	for role := range m.waiting {
		sizes[role].role = role
		for node := range r.draft.Nodes() {
			bare := freeCapacityOf(&orbit.NodeState{Node: node.Node})
			sizes[role].size = max(sizes[role].size, 1/float64(max(1, bare.capacity(m.gang.Roles[role].Spec))))
		}
	}
	slices.SortStableFunc(sizes, func(a, b ordered) int { return cmp.Compare(b.size, a.size) })
	for _, s := range sizes {
		members = append(members, m.waiting[s.role][:minimum(&m.gang.Roles[s.role])]...)
	}
	for _, level := range m.gang.Levels {
		levels = append(levels, []string{level})
	}
	if len(levels) == 0 || m.gang.Loose {
		levels = append(levels, nil)
	}
	return members, levels
}

// bestOf returns the seating in the domain where the fewest capsules have to end; nil if none takes all members.
func (c *patientChoice) bestOf(domains map[string][]*orbit.NodeState, members []*orbit.Capsule) (best *patientSeating) {
	first := ""
	for name, nodes := range domains {
		s := c.fill(nodes, members)
		if s != nil && (best == nil || s.cost < best.cost || s.cost == best.cost && name < first) {
			best, first = s, name
		}
	}
	return best
}

// patientSeating is where members go in one domain, and how much has to be freed for them.
type patientSeating struct {
	cost  float64
	seats []patientSeat
	rooms []*waitingRoom
}

// waitingRoom is a node as the nominee may come to find it.
type waitingRoom struct {
	*orbit.NodeState
	// What is free now, and what will be, beside what is nominated for those that outrank the nominee, and what its members
	// take here.
	now, later freeCapacity
	// What is to be nominated, and how much of each device instance.
	part  orbit.NominatedRoom
	milli [orbit.MaxDevices]int
	// It is nominated for the nominee already, and how many have to end for one member more.
	own  bool
	cost float64
	// Members of gangs run there.
	gangs bool
}

// Before orders rooms: fewest to end, then where it is nominated already, then by id.
func (w *waitingRoom) Before(o *waitingRoom) bool {
	if w.cost != o.cost || w.own == o.own {
		return cmp.Or(cmp.Compare(w.cost, o.cost), cmp.Compare(w.Node.ID, o.Node.ID)) < 0
	}
	return w.own
}

// fill seats all members on nodes, each where it costs least; nil if they do not all find one.
func (c *patientChoice) fill(nodes []*orbit.NodeState, members []*orbit.Capsule) *patientSeating {
	s := &patientSeating{}
	for _, n := range nodes {
		s.rooms = append(s.rooms, c.room(n))
	}
	var open heap.Heap[*waitingRoom]
	for i, m := range members {
		if i == 0 || members[i-1].Spec != m.Spec {
			open = open[:0]
			for _, room := range s.rooms {
				bare := &orbit.NodeState{Node: room.Node}
				if room.later.capacity(m.Spec) > 0 && c.draft.Misfit(bare, m.Spec) == (orbit.Misfit{}) && !c.filtered(room.NodeState, m.Spec) {
					room.cost = room.short(m.Spec)
					open.Push(room)
				}
			}
		}
		if len(open) == 0 {
			return nil
		}
		room := open.Pop()
		s.cost += room.cost
		s.seats = append(s.seats, patientSeat{m.ID, room.Node.ID})
		room.seat(m.Spec)
		if room.later.capacity(m.Spec) > 0 {
			room.cost = room.short(m.Spec)
			open.Push(room)
		}
	}
	return s
}

// parts returns what is to be nominated.
func (s *patientSeating) parts() (parts []orbit.NominatedRoom) {
	for _, room := range s.rooms {
		if room.part.Room != (orbit.Resources{}) || room.part.Devices != 0 {
			parts = append(parts, room.part)
		}
	}
	return parts
}

// room looks at a node.
func (c *patientChoice) room(n *orbit.NodeState) *waitingRoom {
	w := &waitingRoom{NodeState: n, now: freeCapacityOf(n), later: freeCapacityOf(&orbit.NodeState{Node: n.Node})}
	w.part.Node = n.Node.ID
	for of, part := range n.Nominated {
		if own := of.Capsule == c.rank.Capsule && of.Gang == c.rank.Gang; own {
			w.own = true
		} else if !c.nominated && of.Outranks(&c.rank) {
			w.now.claim(part)
			w.later.claim(part)
		}
	}
	for running := range c.state.On(n.Node.ID) {
		switch class := running.Spec.Class; {
		case class == orbit.GangClass:
			w.gangs = true
		case class != orbit.Batch && !c.services:
			w.later.take(running.Spec, running.Devices)
		}
	}
	return w
}

// short estimates how many of the capsules on the node have to end for one member more, as if each of them had an equal share of
// what is used: they end one by one, so what few hold is free sooner than as much that many hold, and less of it lies idle until
// the last has ended. Among as many the node is better of which less has to be freed.
func (w *waitingRoom) short(spec *orbit.Spec) float64 {
	ends, sum := 0.0, 0.0
	add := func(short, used, capacity int64) {
		if short > 0 {
			ends = max(ends, float64(w.Capsules)*float64(short)/float64(max(used, short)))
			sum += float64(short) / float64(capacity)
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			add(want-max(0, w.now.resources[d]), w.Used()[d], w.Node.Capacity[d])
		}
	}
	set, short, used := w.pick(&spec.Devices), 0, 0
	for i, free := range w.now.devices {
		if i < w.Node.Devices.Count {
			used += wholeDevice - w.DeviceFree(i)
		}
		if set.Has(i) {
			short += max(0, spec.Devices.Milli-max(0, int(free)))
		}
	}
	add(int64(short), int64(used), wholeDevice)
	if w.gangs && ends > 0 {
		ends += unlikely
	}
	return ends + sum/unlikely
}

// unlikely is more than all resources of a node together may be short, each as a part of what the node has.
const unlikely = 1000

// pick chooses the instances of which least has to be freed. It requires that there will be enough.
func (w *waitingRoom) pick(q *orbit.DeviceRequest) orbit.DeviceSet {
	open := w.later
	for i, free := range w.now.devices {
		if short := q.Milli - max(0, int(free)); int(open.devices[i]) < q.Milli {
			open.devices[i] = 0
		} else {
			open.devices[i] = int32(q.Milli + max(0, short))
		}
	}
	return open.instances(q, func(a, b int32) bool { return a < b })
}

// seat takes room for a member. It requires that there will be enough.
func (w *waitingRoom) seat(spec *orbit.Spec) {
	set := w.pick(&spec.Devices)
	w.now.take(spec, set)
	w.later.take(spec, set)
	w.part.Room, _ = w.part.Room.Add(spec.Envelope.Reservation) // it is within capacity, so it does not overflow
	w.part.Devices |= set
	for i := range w.milli {
		if set.Has(i) {
			w.milli[i] += spec.Devices.Milli
			w.part.Milli = max(w.part.Milli, w.milli[i])
		}
	}
}
