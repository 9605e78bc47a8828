package nav

import (
	"cmp"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// nominee is a capsule or a gang that is nominated, or is to be.
type nominee struct {
	waiter
	// The capsule, or a member of the gang that was handed over.
	capsule  *orbit.Capsule
	wait     *patientWait
	standing *orbit.Nomination
	priority int32
	// It is nominated in one of the next plans.
	next bool
}

// patientSeat is where a capsule goes once there is room.
type patientSeat struct {
	capsule orbit.CapsuleID
	node    orbit.NodeID
}

// What is counted on to end, for a choice of nodes. Each step makes more nodes eligible, where the wait is longer.
const (
	// Batch work and gangs.
	endsByItself = iota
	// All that runs.
	endsSomehow
	// All that runs, and what is nominated there for those that outrank the nominee.
	endsInTurn
	noEnd
)

// nominate makes a nomination for a nominee, or renews the one that stands, where least has to be freed. It reports false if
// the nominee could go nowhere; the error is the draft's, if there is no more to be nominated.
func (r *patientPass) nominate(plan *orbit.Plan, n *nominee) (bool, error) {
	n.wait.again = r.now.Add(triedAgain)
	seats, parts := r.choose(n)
	if len(parts) == 0 {
		return false, nil
	}
	do := orbit.Nominate{
		Capsule: n.waiter.capsule, Gang: n.gang, Aged: r.aged(n.wait), Parts: parts, Ends: r.now.Add(r.lasts()),
	}
	if n.standing.Lives() {
		do.Since = n.standing.Made
	}
	if err := r.draft.Nominate(do); err != nil {
		return false, err
	}
	n.wait.seats, n.wait.again = seats, r.now
	r.nominated++
	plan.Proposals = append(plan.Proposals, r.draft.Propose())
	return true, nil
}

// choose returns where the nominee is to go, and what is nominated for it there; nothing if it could go nowhere.
func (r *patientPass) choose(n *nominee) ([]patientSeat, []orbit.NominatedRoom) {
	members, levels := r.wanted(n)
	if len(members) == 0 {
		return nil, nil
	}
	for ends := range noEnd {
		c := &patientChoice{patientPass: r, nominee: n, ends: ends, rooms: map[int]*waitingRoom{}}
		for _, level := range levels {
			if best := c.bestOf(level, members); best != nil {
				return best.seats, best.parts()
			}
		}
	}
	return nil, nil
}

// wanted returns the capsules that are to be seated together, those of a spec behind each other and large ones first, and
// the levels of which one domain has to take them; an empty level has all nodes.
func (r *patientPass) wanted(n *nominee) (members []*orbit.Capsule, levels []string) {
	if n.gang == "" {
		if s := &n.capsule.Spec.Start; s.Template != "" || s.Parent != "" {
			return nil, nil
		}
		return []*orbit.Capsule{n.capsule}, []string{""}
	}
	m := loadGang(r.state, n.gang)
	m.handed = []*orbit.Capsule{n.capsule}
	if m.inspect() != nil {
		return nil, nil
	}
	for role, waiting := range m.waiting {
		members = append(members, waiting[:minimum(&m.gang.Roles[role])]...)
	}
	if l := r.state.Limits(); len(members) > min(l.GangMembers, l.Commitments) {
		return nil, nil
	}
	sizes := map[*orbit.Spec]float64{}
	for _, c := range members {
		if _, known := sizes[c.Spec]; !known {
			sizes[c.Spec] = r.size(c.Spec)
		}
	}
	slices.SortStableFunc(members, func(a, b *orbit.Capsule) int { return cmp.Compare(sizes[b.Spec], sizes[a.Spec]) })
	levels = slices.Clone(m.gang.Levels)
	if len(levels) == 0 || m.gang.Loose {
		levels = append(levels, "")
	}
	return members, levels
}

// size measures a spec by the largest part that it takes of some node.
func (r *patientPass) size(spec *orbit.Spec) (most float64) {
	for n := range r.draft.Nodes() {
		free := freeCapacityOf(&orbit.NodeState{Node: n.Node})
		if k := free.capacity(spec); k > 0 {
			most = max(most, 1/float64(k))
		}
	}
	return most
}

// patientChoice chooses nodes for a nominee.
type patientChoice struct {
	*patientPass
	nominee *nominee
	ends    int
	// By node index; nil: the node has been looked at, and is of no use.
	rooms map[int]*waitingRoom
}

// waitingRoom is a node as a nominee may come to find it. Both tallies go down as members are seated.
type waitingRoom struct {
	node *orbit.NodeState
	// What is free now, and what will be; beside what is nominated for those that outrank the nominee.
	now, later freeCapacity
	// It is nominated for it already.
	own bool
}

// seatedDomain is a seating in one domain, which may be left out of account again.
type seatedDomain struct {
	cost  float64
	seats []patientSeat
	// What is taken of each node, by node index.
	taken map[int]*orbit.NominatedRoom
	use   map[int]*[orbit.MaxDevices]int
}

// bestOf returns the seating of least cost in a domain of the level; nil if no domain takes all members.
func (c *patientChoice) bestOf(level string, members []*orbit.Capsule) (best *seatedDomain) {
	domains := map[string][]int{}
	for n := range c.draft.Nodes() {
		name, in := "", true
		if level != "" {
			name, in = domainName(n.Node, []string{level}, c.state.Limits().IDBytes)
		}
		if in {
			domains[name] = append(domains[name], n.Index())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		if s := c.fill(domains[name], members); s != nil && (best == nil || s.cost < best.cost) {
			best = s
		}
	}
	return best
}

// offer is what it costs to seat one member more on a node.
type offer struct {
	cost float64
	own  bool
	room *waitingRoom
}

// Before orders offers: least to be freed, then where it is nominated already, then by id.
func (o offer) Before(p offer) bool {
	switch {
	case o.cost != p.cost:
		return o.cost < p.cost
	case o.own != p.own:
		return o.own
	}
	return o.room.node.Node.ID < p.room.node.Node.ID
}

// fill seats all members on nodes, each where it costs least; nil if they do not all find one. Members of one spec are
// offered each node once, and again only when one of them has taken it.
func (c *patientChoice) fill(nodes []int, members []*orbit.Capsule) *seatedDomain {
	s := &seatedDomain{taken: map[int]*orbit.NominatedRoom{}, use: map[int]*[orbit.MaxDevices]int{}}
	before := map[int]waitingRoom{}
	defer func() {
		for i, was := range before {
			*c.rooms[i] = was
		}
	}()
	var offers heap.Heap[offer]
	for i, m := range members {
		if i == 0 || members[i-1].Spec != m.Spec {
			offers = offers[:0]
			for _, at := range nodes {
				if room := c.room(at); room != nil && room.eligible(c, m.Spec) {
					offers.Push(offer{room.cost(m.Spec), room.own, room})
				}
			}
		}
		if len(offers) == 0 {
			return nil
		}
		room := offers[0].room
		at := room.node.Index()
		if _, known := before[at]; !known {
			before[at] = *room
		}
		s.cost += offers[0].cost
		s.add(room, m)
		if room.later.capacity(m.Spec) > 0 {
			offers.Replace(offer{room.cost(m.Spec), room.own, room})
		} else {
			offers.Pop()
		}
	}
	return s
}

// room looks at a node.
func (c *patientChoice) room(at int) *waitingRoom {
	if room, known := c.rooms[at]; known {
		return room
	}
	n := c.draft.Node(at)
	room := &waitingRoom{node: n, now: freeCapacityOf(n), later: freeCapacityOf(&orbit.NodeState{Node: n.Node})}
	c.rooms[at] = room
	rank := orbit.Nomination{Capsule: c.nominee.waiter.capsule, Gang: c.nominee.gang, Rank: c.nominee.priority + c.aged(c.nominee.wait), First: c.view.Revision() + 1}
	if was := c.nominee.standing; was != nil {
		rank.First = was.First
	}
	for of, part := range n.Nominated {
		switch {
		case of.Capsule == rank.Capsule && of.Gang == rank.Gang:
			room.own = true
		case c.ends != endsInTurn && of.Outranks(&rank):
			room.now.claim(part)
			room.later.claim(part)
		}
	}
	if c.ends == endsByItself {
		for running := range c.state.On(n.Node.ID) {
			if class := running.Spec.Class; class != orbit.Batch && class != orbit.GangClass {
				room.later.take(running.Spec, running.Devices)
			}
		}
	}
	return room
}

// eligible reports whether a member could go there once there is room.
func (w *waitingRoom) eligible(c *patientChoice, spec *orbit.Spec) bool {
	return w.later.capacity(spec) > 0 && c.draft.Misfit(&orbit.NodeState{Node: w.node.Node}, spec) == orbit.Misfit{} && !c.filtered(w.node, spec)
}

// cost is how much more has to be freed for one more member, each resource as a part of what the node has of it.
func (w *waitingRoom) cost(spec *orbit.Spec) (sum float64) {
	for d, want := range spec.Envelope.Reservation {
		if short := min(want, want-w.now.resources[d]); want > 0 && short > 0 {
			sum += float64(short) / float64(w.node.Node.Capacity[d])
		}
	}
	set := w.pick(&spec.Devices)
	for i, free := range w.now.devices {
		if short := min(spec.Devices.Milli, spec.Devices.Milli-int(free)); set.Has(i) && short > 0 {
			sum += float64(short) / wholeDevice
		}
	}
	return sum
}

// pick chooses the instances of which least has to be freed, and the tightest among those. It requires that there will be
// enough.
func (w *waitingRoom) pick(q *orbit.DeviceRequest) orbit.DeviceSet {
	open := w.later
	for i, free := range w.now.devices {
		if int(open.devices[i]) < q.Milli {
			open.devices[i] = 0
		} else {
			open.devices[i] = int32(q.Milli + max(0, q.Milli-int(free)))
		}
	}
	return open.instances(q, func(a, b int32) bool { return a < b })
}

// add seats a member.
func (s *seatedDomain) add(room *waitingRoom, m *orbit.Capsule) {
	at, set := room.node.Index(), room.pick(&m.Spec.Devices)
	room.now.take(m.Spec, set)
	room.later.take(m.Spec, set)
	s.seats = append(s.seats, patientSeat{m.ID, room.node.Node.ID})
	if s.taken[at] == nil {
		s.taken[at], s.use[at] = &orbit.NominatedRoom{Node: room.node.Node.ID}, &[orbit.MaxDevices]int{}
	}
	part, use := s.taken[at], s.use[at]
	part.Room, _ = part.Room.Add(m.Spec.Envelope.Reservation) // it fits the node, so it does not overflow
	part.Devices |= set
	for i := range use {
		if set.Has(i) {
			use[i] += m.Spec.Devices.Milli
			part.Milli = max(part.Milli, use[i])
		}
	}
}

// parts returns what is to be nominated, in order of node ids. Members that ask for nothing need none.
func (s *seatedDomain) parts() (parts []orbit.NominatedRoom) {
	for _, part := range s.taken {
		if part.Room != (orbit.Resources{}) || part.Devices != 0 {
			parts = append(parts, *part)
		}
	}
	slices.SortFunc(parts, func(a, b orbit.NominatedRoom) int { return cmp.Compare(a.Node, b.Node) })
	return parts
}
