package nav

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/seats"
)

// patientRooms is what a Patient caches about the nodes of its draft, to find out where room is free soonest:
//
//	draft ── follow ──► rooms (what is free, what will be, and known ends)
//	                 └─ roomOffers.follow ──► by spec: the nodes that may take it, soonest first
//
// Both levels follow [orbit.Draft.Changed], so another choice for the same spec costs only the nodes that have changed
// since the last.
type patientRooms struct {
	seats.Topology
	rooms  []patientRoom
	offers map[*orbit.Spec]*roomOffers
	// How many looks at nodes the choices have cost so far.
	looked int
	// When the plan's view was made.
	clock orbit.Instant
}

// patientRoom is what is known of one node, without regard to nominations.
type patientRoom struct {
	// What is free now, and what is free once all work has ended that ends by itself.
	now, later seats.Capacity
	// Members of gangs run there without a known end.
	gangs bool
	// The work with a known end, soonest first.
	known []knownEnd
	// How often the node has changed.
	version uint32
}

// knownEnd is when a capsule ends at the latest: its Place.At plus RunsAtMost.
type knownEnd struct {
	at      orbit.Instant
	spec    *orbit.Spec
	devices orbit.DeviceSet
}

// roomOffers are the nodes that can take a spec once all work has ended that ends by itself.
type roomOffers struct {
	heap heap.Heap[roomOffer]
	// Position in the draft's journal.
	cursor uint64
	// The number of the last plan that used it.
	used uint64
}

// roomOffer is a node and a lower bound of the wait there. Nominations on the node make the wait longer, and so does
// work that should have ended since the offer was made. The offer is void once the node has another version.
type roomOffer struct {
	cost    patientCost
	id      orbit.NodeID
	node    int32
	version uint32
}

// Before orders offers by cost, then by node id.
func (a roomOffer) Before(b roomOffer) bool {
	return cmp.Or(a.cost.compare(b.cost), cmp.Compare(a.id, b.id)) < 0
}

// offerBytes bounds the memory of all offers that are kept from plan to plan.
const offerBytes = 64 << 20

// sync updates the rooms of all nodes that have changed on the draft.
func (p *patientRooms) sync(draft *orbit.Draft) {
	p.Begin(draft, math.MaxInt)
	p.clock = orbit.Instant(draft.View().Now().UnixNano())
	changed := p.Follow()
	p.rooms = append(p.rooms, make([]patientRoom, max(0, draft.Bound()-len(p.rooms)))...)
	for _, i := range changed {
		n := draft.Node(int(i))
		if n == nil {
			p.rooms[i] = patientRoom{version: p.rooms[i].version + 1}
			continue
		}
		p.looked++
		r := roomOf(draft.View().State(), n, nil)
		r.version = p.rooms[i].version + 1
		p.rooms[i] = r
	}
}

// roomOf returns what is free on a node now, and once all work has ended that ends by itself: batch work, gangs, and
// work with RunsAtMost. If a lender is given, its borrowers are taken to have left.
func roomOf(state *orbit.State, n *orbit.NodeState, lender *orbit.Nominee) (r patientRoom) {
	whole := seats.CapacityOf(&orbit.NodeState{Node: n.Node})
	r.now, r.later = seats.CapacityOf(n), whole
	for running := range state.On(n.Node.ID) {
		spec := running.Spec
		switch end := running.PlaceTime + orbit.Instant(spec.RunsAtMost); {
		case borrows(running, lender):
			r.now.Leave(spec, running.Devices, &whole)
		case spec.RunsAtMost > 0 && running.PlaceTime > 0 && end > 0: // unless the sum has overflowed
			r.known = append(r.known, knownEnd{end, spec, running.Devices})
		case spec.Class == orbit.GangClass:
			r.gangs = true
		case spec.Class != orbit.Batch && spec.RunsAtMost == 0:
			r.later.Take(spec, running.Devices)
		}
	}
	slices.SortFunc(r.known, func(a, b knownEnd) int { return cmp.Compare(a.at, b.at) })
	return r
}

// offersFor returns the offers for a spec, in step with the draft. The plan's number must not fall from call to call:
// evict drops the offers that were used longest ago.
func (p *patientRooms) offersFor(spec *orbit.Spec, plan uint64) *roomOffers {
	o := p.offers[spec]
	if o == nil {
		if p.offers == nil {
			p.offers = map[*orbit.Spec]*roomOffers{}
		}
		o = &roomOffers{}
		p.offers[spec] = o
		p.evict()
	}
	o.used = plan
	changed, next, all := p.Draft.Changed(o.cursor)
	if o.cursor = next; all || len(o.heap) > 2*len(p.rooms)+64 {
		o.heap = o.heap[:0]
		for i := range p.rooms {
			p.offer(o, spec, int32(i))
		}
		return o
	}
	for k, i := range changed {
		if k == 0 || changed[k-1] != i {
			p.offer(o, spec, i)
		}
	}
	return o
}

// offer adds a node to the offers for a spec, if a capsule of the spec could be placed there once there is room.
func (p *patientRooms) offer(o *roomOffers, spec *orbit.Spec, i int32) {
	n := p.Draft.Node(int(i))
	if n == nil || !n.Node.Schedulable() || !seats.Suits(n.Node, spec) || p.rooms[i].later.Fits(spec) == 0 {
		return
	}
	p.looked++
	r := &p.rooms[i]
	w := waitingRoom{NodeState: n, now: r.now, later: r.later, gangs: r.gangs, known: r.known, clock: p.clock}
	o.heap.Push(roomOffer{w.wait(spec), n.Node.ID, i, r.version})
}

// evict keeps the memory of all offers below offerBytes: when it is above, the least recently used are dropped until
// half remains.
func (p *patientRooms) evict() {
	each := 100*len(p.rooms) + 1<<10
	if len(p.offers)*each <= offerBytes {
		return
	}
	old := slices.SortedFunc(maps.Keys(p.offers), func(a, b *orbit.Spec) int { return cmp.Compare(p.offers[a].used, p.offers[b].used) })
	for _, spec := range old[:max(0, len(old)-offerBytes/2/each)] {
		delete(p.offers, spec)
	}
}

// soonest returns the node where one capsule waits shortest; nil if no node will do. It visits nodes in the order of
// their lower bounds, and stops when no other can be better. It begins with the nodes of the standing nomination, if
// there is one.
func (c *patientChoice) soonest(spec *orbit.Spec, standing *orbit.Nomination) (best *waitingRoom) {
	try := func(i int32) {
		if room := c.room(i); c.takes(room, spec) {
			if room.cost = room.wait(spec); best == nil || room.Before(best) {
				best = room
			}
		}
	}
	if c.services || c.nominated {
		for i := range c.rooms.rooms {
			if c.draft.Node(i) != nil {
				try(int32(i))
			}
		}
		return best
	}
	if standing.Lives() { // at equal cost the nominated nodes win, so they are tried first
		for i := range standing.Parts {
			if n := c.state.Node(standing.Parts[i].Node); n != nil {
				try(int32(n.Index()))
			}
		}
	}
	o, looked := c.rooms.offersFor(spec, c.plans), []roomOffer(nil)
	for len(o.heap) > 0 {
		first := o.heap[0]
		if c.rooms.rooms[first.node].version != first.version {
			o.heap.Pop()
			continue
		}
		if best != nil && cmp.Or(first.cost.compare(best.cost), btoi(best.own), cmp.Compare(first.id, best.Node.ID)) > 0 {
			break
		}
		looked = append(looked, o.heap.Pop())
		try(first.node)
	}
	for _, first := range looked {
		o.heap.Push(first)
	}
	return best
}
