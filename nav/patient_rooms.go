package nav

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// patientRooms is what a Patient keeps of the nodes of its draft, to find out where room is free soonest:
//
//	draft ── follow ──► rooms (what is free, what will be, and what is known of when)
//	                 └─ roomOffers.follow ──► by spec: the nodes that may take it, soonest first
//
// Both follow [orbit.Draft.Changed], so that to choose again for a spec costs what has changed since the last choice.
type patientRooms struct {
	topology
	rooms  []patientRoom
	offers map[*orbit.Spec]*roomOffers
	// Nodes that choices have looked at.
	looked int
	// When the plan's view was made.
	clock orbit.Instant
}

// patientRoom is a node without regard to what is nominated there.
type patientRoom struct {
	// Free now, and once all has ended that ends by itself.
	now, later freeCapacity
	// Members of gangs run there of which it is not known when they end.
	gangs bool
	// Work of which it is known when it ends, soonest first.
	known []knownEnd
	// How often the node has changed.
	version uint32
}

// knownEnd is when a capsule ends at the latest, by when it was placed and how long it runs at most.
type knownEnd struct {
	at      orbit.Instant
	spec    *orbit.Spec
	devices orbit.DeviceSet
}

// roomOffers are the nodes that could take a spec once all has ended that ends by itself.
type roomOffers struct {
	heap heap.Heap[roomOffer]
	// Position in the draft's journal.
	cursor uint64
	// When it was last used, in plans that chose.
	used uint64
}

// roomOffer is a node, and how long the wait is there at least: what is nominated there makes it longer, and so does work that should
// have ended meanwhile. It is void once the node has another version.
type roomOffer struct {
	cost    patientCost
	id      orbit.NodeID
	node    int32
	version uint32
}

// Before orders offers: soonest, then by id.
func (a roomOffer) Before(b roomOffer) bool {
	return cmp.Or(a.cost.compare(b.cost), cmp.Compare(a.id, b.id)) < 0
}

// offerBytes bounds the memory of all offers that are kept from plan to plan.
const offerBytes = 64 << 20

// sync takes in what has changed on the draft.
func (p *patientRooms) sync(draft *orbit.Draft) {
	p.begin(draft, math.MaxInt)
	p.clock = orbit.Instant(draft.View().Now().UnixNano())
	changed := p.follow()
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

// roomOf returns a node as it is, and as it will be once all has ended there that ends by itself: batch work, gangs, and what says how
// long it runs. What borrows from the lender, if one is given, is taken to have left.
func roomOf(state *orbit.State, n *orbit.NodeState, lender *orbit.Nominee) (r patientRoom) {
	whole := freeCapacityOf(&orbit.NodeState{Node: n.Node})
	r.now, r.later = freeCapacityOf(n), whole
	for running := range state.On(n.Node.ID) {
		spec := running.Spec
		switch end := running.PlaceTime + orbit.Instant(spec.RunsAtMost); {
		case borrows(running, lender):
			r.now.leave(spec, running.Devices, &whole)
		case spec.RunsAtMost > 0 && running.PlaceTime > 0 && end > 0: // and not beyond what an instant can hold
			r.known = append(r.known, knownEnd{end, spec, running.Devices})
		case spec.Class == orbit.GangClass:
			r.gangs = true
		case spec.Class != orbit.Batch && spec.RunsAtMost == 0:
			r.later.take(spec, running.Devices)
		}
	}
	slices.SortFunc(r.known, func(a, b knownEnd) int { return cmp.Compare(a.at, b.at) })
	return r
}

// offersFor returns the offers to a spec, in step with the draft. Plan is a number that rises from plan to plan.
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
	changed, next, all := p.draft.Changed(o.cursor)
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

// offer adds what a node offers to a spec, if that could go there.
func (p *patientRooms) offer(o *roomOffers, spec *orbit.Spec, i int32) {
	n := p.draft.Node(int(i))
	if n == nil || !n.Node.Schedulable() || !suits(n.Node, spec) || p.rooms[i].later.capacity(spec) == 0 {
		return
	}
	p.looked++
	r := &p.rooms[i]
	w := waitingRoom{NodeState: n, now: r.now, later: r.later, gangs: r.gangs, known: r.known, clock: p.clock}
	o.heap.Push(roomOffer{w.wait(spec), n.Node.ID, i, r.version})
}

// evict drops the offers that have not been used for longest, down to half of what may be kept.
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

// soonest returns the node where one capsule, which may be nominated somewhere already, waits shortest. It looks at nodes in the
// order of how long the wait is at least, until no other can be better; nil if none will do.
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
	if standing.Lives() { // among equals these come first
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
