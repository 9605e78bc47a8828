package nav

import (
	"cmp"
	"context"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/seats"
)

// patientChoice searches for the nodes where a nominee finds room soonest.
type patientChoice struct {
	*patientPass
	ctx context.Context
	// The nomination that is to be made, as far as it decides which others outrank it.
	rank orbit.Nomination
	// What the choice counts on to end or to give way, beside batch work, gangs and work with a known end: all other
	// running work (services), and also the room that is nominated for work that outranks the nominee (nominated). Each
	// adds nodes with a longer wait, so it is tried only when there is no choice without it.
	services, nominated bool
}

// patientSeat says on which node a capsule is placed once there is room.
type patientSeat struct {
	capsule orbit.CapsuleID
	node    orbit.NodeID
}

// choose returns where the nominee is placed, and how long it waits there; nil if no node or domain can take it.
func (r *patientPass) choose(ctx context.Context, n *nominee) *patientSeating {
	members, levels := wantedOf(r.state, n.of, n.gang)
	if len(members) == 0 {
		return nil
	}
	r.rooms.sync(&r.draft)
	gang := loadGang(r.state, n.of.Gang())
	c := &patientChoice{patientPass: r, ctx: ctx}
	c.rank = orbit.Nomination{Capsule: n.capsule, Gang: n.gang, Rank: n.priority + n.aged, First: r.view.Revision() + 1}
	if n.standing != nil {
		c.rank.First = n.standing.First
	}
	for _, counted := range [][2]bool{{false, false}, {true, false}, {true, true}} {
		c.services, c.nominated = counted[0], counted[1]
		if gang == nil {
			if room := c.soonest(n.of.Spec, n.standing); room != nil {
				s := &patientSeating{rooms: []*waitingRoom{room}}
				s.seat(room, n.of)
				return s
			}
			continue
		}
		for _, level := range levels {
			if best := c.bestOf(r.rooms.Table(level...), gang, members); best != nil {
				return best
			}
		}
	}
	return nil
}

// wantedOf returns the capsules to seat together, and the levels in one domain of which they must be. If gang is given
// these are the gang's minimum, grouped by spec, largest first; otherwise it is the one capsule.
func wantedOf(state *orbit.State, of *orbit.Capsule, gang orbit.GangID) (members []*orbit.Capsule, levels [][]string) {
	if s := &of.Spec.Start; gang == "" && (s.Template != "" || s.Parent != "") {
		return nil, nil
	}
	m := loadGang(state, of.Gang())
	if m == nil {
		return []*orbit.Capsule{of}, nil
	}
	for _, level := range m.gang.Levels {
		levels = append(levels, []string{level})
	}
	if len(levels) == 0 || m.gang.Loose {
		levels = append(levels, nil)
	}
	if gang == "" {
		return []*orbit.Capsule{of}, levels
	}
	if m.owner = of.Owner(); m.inspect() != nil {
		return nil, nil
	}
	needs := seats.NeedsOf(m.state, m.waiting)
	return needs.Members(), levels
}

// bestOf returns the seating in the domain of this level where the wait is shortest; nil if no domain takes all
// members. If members of the gang run, only their domain will do.
func (c *patientChoice) bestOf(t *seats.Table, gang *pendingGang, members []*orbit.Capsule) (best *patientSeating) {
	if !gang.fresh() {
		if d := gang.domain(t, c.state); d >= 0 {
			return c.fill(t.Domains[d].Nodes, members)
		}
		return nil
	}
	first := ""
	better := func(s *patientSeating, name string) {
		if s != nil && (best == nil || cmp.Or(s.cost.compare(best.cost), cmp.Compare(name, first)) < 0) {
			best, first = s, name
		}
	}
	for d := range t.Domains {
		better(c.fill(t.Domains[d].Nodes, members), t.Domains[d].Name)
	}
	asks := asksOf(members)
	if best != nil || len(asks) < 2 {
		return best
	}
	steps := &seats.Budget{Ctx: c.ctx, Left: patientSteps}
	for d := range t.Domains {
		better(c.search(&seats.Packer{Asks: asks, Steps: steps}, t.Domains[d].Nodes), t.Domains[d].Name)
	}
	return best
}

// patientSteps bounds the steps of the exact search for the seats of a gang on one level. The search runs only if fill,
// which seats the members one after another, has failed in each domain.
const patientSteps = 20_000

// patientSeating says where members are placed in one domain, and when there is room for all of them.
type patientSeating struct {
	cost  patientCost
	seats []patientSeat
	rooms []*waitingRoom
}

// roomsOf returns the waitingRoom of each node.
func (c *patientChoice) roomsOf(nodes []int32) []*waitingRoom {
	rooms := make([]*waitingRoom, len(nodes))
	for k, i := range nodes {
		rooms[k] = c.room(i)
	}
	return rooms
}

// fill seats all members on the nodes, each where it costs least after those before it; nil if one of them finds no
// seat.
func (c *patientChoice) fill(nodes []int32, members []*orbit.Capsule) *patientSeating {
	s := &patientSeating{rooms: c.roomsOf(nodes)}
	var open heap.Heap[*waitingRoom]
	for i, m := range members {
		if i == 0 || members[i-1].Spec != m.Spec {
			open = open[:0]
			for _, room := range s.rooms {
				if room.seated = 0; c.takes(room, m.Spec) {
					room.cost = room.wait(m.Spec)
					open.Push(room)
				}
			}
		}
		if len(open) == 0 {
			return nil
		}
		room := open.Pop()
		s.seat(room, m)
		if room.seated++; room.later.Fits(m.Spec) > 0 && room.seated < seats.MostOn(m.Spec, room.Node) {
			room.cost = room.wait(m.Spec)
			open.Push(room)
		}
	}
	return s
}

// asksOf groups members by spec. Members of one spec must follow each other.
func asksOf(members []*orbit.Capsule) (asks []seats.Ask) {
	for i, m := range members {
		if i == 0 || members[i-1].Spec != m.Spec {
			asks = append(asks, seats.Ask{Request: seats.Request{Spec: m.Spec}})
		}
		a := &asks[len(asks)-1]
		a.Want, a.Least, a.Members = a.Want+1, a.Least+1, append(a.Members, m)
	}
	return asks
}

// search seats all members on the nodes if any way exists, whatever it costs; nil if none exists, or if the step budget
// is used up before one is found.
func (c *patientChoice) search(p *seats.Packer, nodes []int32) *patientSeating {
	s := &patientSeating{rooms: c.roomsOf(nodes)}
	bins := make([]seats.Bin, len(nodes))
	for i, room := range s.rooms {
		bins[i] = seats.Bin{Node: int32(i), Free: room.later, Fits: make([]int32, len(p.Asks))}
		for a := range p.Asks {
			if c.takes(room, p.Asks[a].Spec) {
				bins[i].Fits[a] = min(room.later.Fits(p.Asks[a].Spec), seats.MostOn(p.Asks[a].Spec, room.Node))
			}
		}
	}
	found := p.Search(bins)
	if found == nil {
		return nil
	}
	next := make([]int, len(p.Asks))
	for _, seat := range found.Seats {
		room, m := s.rooms[seat.Node], p.Asks[seat.Ask].Members[next[seat.Ask]]
		next[seat.Ask]++
		room.cost = room.wait(m.Spec)
		s.seatWith(room, m, seat.Devices)
	}
	return s
}

// seat gives a member a seat on a node, with devices of its choice. The caller ensures that there will be enough.
func (s *patientSeating) seat(room *waitingRoom, m *orbit.Capsule) {
	_, by := room.soonest(m.Spec)
	s.seatWith(room, m, room.pick(&m.Spec.Devices, &by))
}

// seatWith gives a member a seat on a node, with these devices. The caller ensures that there will be enough.
func (s *patientSeating) seatWith(room *waitingRoom, m *orbit.Capsule, devices orbit.DeviceSet) {
	s.cost.at, s.cost.ends = max(s.cost.at, room.cost.at), s.cost.ends+room.cost.ends
	s.seats = append(s.seats, patientSeat{m.ID, room.Node.ID})
	room.seat(m.Spec, devices)
}

// parts returns what the nomination claims on each node.
func (s *patientSeating) parts() (parts []orbit.NominatedRoom) {
	for _, room := range s.rooms {
		if room.claims() {
			parts = append(parts, room.part)
		}
	}
	return parts
}

// room returns a node as a choice for the nominee. It deducts what is nominated for others that outrank the nominee,
// unless the choice counts on that too.
func (c *patientChoice) room(i int32) *waitingRoom {
	n, is := c.draft.Node(int(i)), &c.rooms.rooms[i]
	c.rooms.looked++
	own := orbit.Nominee{Capsule: c.rank.Capsule, Gang: c.rank.Gang}
	for of := range n.Nominated {
		if of.Capsule == own.Capsule && of.Gang == own.Gang {
			fresh := roomOf(c.state, n, &own) // its borrowers leave when it is placed
			is = &fresh
		}
	}
	w := &waitingRoom{NodeState: n, now: is.now, later: is.later, gangs: is.gangs, known: is.known, clock: c.rooms.clock}
	if c.services {
		w.later = seats.CapacityOf(&orbit.NodeState{Node: n.Node})
	}
	w.part.Node = n.Node.ID
	for of, part := range n.Nominated {
		if of.Capsule == own.Capsule && of.Gang == own.Gang {
			w.own = true
		} else if !c.nominated && of.Outranks(&c.rank) {
			w.now.LeaveFree(n, of, nil)
			w.later.Claim(part) // borrowers have given their room back by then
		}
	}
	return w
}

// takes reports whether a member can be placed on a node once there is room: also when the node is empty, rules and
// filters may exclude it.
func (c *patientChoice) takes(w *waitingRoom, spec *orbit.Spec) bool {
	return w.later.Fits(spec) > 0 && c.draft.Misfit(&orbit.NodeState{Node: w.Node}, spec) == (orbit.Misfit{}) && !c.filtered(w.NodeState, spec)
}

// staysFor reports whether the nomination needs room that work holds which does not end by itself.
func (r *patientRooms) staysFor(s *patientSeating) bool {
	return slices.ContainsFunc(s.rooms, func(w *waitingRoom) bool {
		if !w.claims() {
			return false
		}
		left := r.rooms[w.Index()].later
		left.Claim(&w.part)
		return left.Lacks(&w.part)
	})
}
