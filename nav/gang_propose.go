package nav

import (
	"cmp"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// placesIn returns how many members one proposal can place that also converts so many holds.
func placesIn(limits orbit.Limits, holds int) int {
	return min(limits.GangMembers, limits.Commitments-holds)
}

// proposal returns the proposal that seats members: the holds it converts end, all members are placed, and it
// bets that the gang is not placed (if it is fresh) and that every node has what is asked for there beyond what
// its holds give back.
func (b *gangBooks) proposal(m *muster, fit *gangFit, holds []orbit.Hold) orbit.Proposal {
	p := orbit.Proposal{View: b.view.Revision()}
	if m.fresh() {
		p.If = append(p.If, orbit.GangUnplaced{Gang: m.id})
	}
	for i := range holds {
		p.Do = append(p.Do, orbit.Release{Hold: holds[i].ID})
	}
	next := make([]int, len(fit.asks))
	seats := slices.Clone(fit.seats)
	slices.SortStableFunc(seats, func(x, y seat) int {
		return cmp.Or(cmp.Compare(x.ask, y.ask), cmp.Compare(b.id(x.node), b.id(y.node)))
	})
	for _, s := range seats {
		c := fit.asks[s.ask].members[next[s.ask]]
		next[s.ask]++
		p.Do = append(p.Do, orbit.Place{Capsule: c.ID, Node: b.id(s.node), Devices: s.devices})
	}
	p.If = append(p.If, b.bets(fit, holds)...)
	return p
}

func (b *gangBooks) id(node int32) orbit.NodeID { return b.nodes[node].state.Node.ID }

// bets returns what the seats rest on, in order of nodes. Bets are judged before the holds end, so what those
// give back is not asked for.
func (b *gangBooks) bets(fit *gangFit, holds []orbit.Hold) (out []orbit.Precondition) {
	asked := map[orbit.NodeID]orbit.Resources{}
	near := map[orbit.GroupIn]bool{}
	for _, s := range fit.seats {
		spec, n := fit.asks[s.ask].spec, b.nodes[s.node].state.Node
		sum, _ := asked[n.ID].Add(spec.Envelope.Reservation) // it fits the node, so it does not overflow
		asked[n.ID] = sum
		if spec.Near.Group != "" {
			near[orbit.GroupIn{Group: spec.Near.Group, Level: spec.Near.Level, Domain: n.Labels[spec.Near.Level]}] = true
		}
	}
	for i := range holds {
		if sum, seated := asked[holds[i].Node]; seated {
			asked[holds[i].Node], _ = sum.Sub(holds[i].Room)
		}
	}
	for id, sum := range asked {
		for d := range sum {
			sum[d] = max(0, sum[d])
		}
		out = append(out, orbit.NodeFreeOf{Node: id, AtLeast: sum})
	}
	for bet := range near {
		out = append(out, bet)
	}
	slices.SortFunc(out, compareBets)
	return out
}

// compareBets orders bets on nodes by node, and those on groups behind them.
func compareBets(x, y orbit.Precondition) int {
	a, free := x.(orbit.NodeFreeOf)
	b, both := y.(orbit.NodeFreeOf)
	if free != both {
		if free {
			return -1
		}
		return 1
	}
	if free {
		return cmp.Compare(a.Node, b.Node)
	}
	p, q := x.(orbit.GroupIn), y.(orbit.GroupIn)
	return cmp.Or(cmp.Compare(p.Group, q.Group), cmp.Compare(p.Level, q.Level), cmp.Compare(p.Domain, q.Domain))
}

// reserve takes the seats in the books. What a converted hold gives back beyond them stays taken until the next
// plan: it is room only once the proposal has been committed.
func (b *gangBooks) reserve(fit *gangFit, holds []orbit.Hold) {
	rooms := b.backed(holds)
	for _, s := range fit.seats {
		room, backed := rooms[s.node]
		if !backed {
			room = b.nodes[s.node].nodeRoom
		}
		room.take(fit.asks[s.ask].spec, s.devices)
		rooms[s.node] = room
	}
	for _, i := range slices.Sorted(maps.Keys(rooms)) {
		now := &b.nodes[i].nodeRoom
		room := rooms[i]
		for d := range room.free {
			room.free[d] = min(room.free[d], now.free[d])
		}
		for d := range room.devices {
			room.devices[d] = min(room.devices[d], now.devices[d])
		}
		b.set(i, room, true)
	}
}

// lend gives the room of holds back for as long as the caller tries, and returns what undoes it.
func (b *gangBooks) lend(holds []orbit.Hold) (undo func()) {
	rooms := b.backed(holds)
	nodes := slices.Sorted(maps.Keys(rooms))
	was := make([]gangNode, len(nodes))
	for k, i := range nodes {
		was[k] = b.nodes[i]
		b.set(i, rooms[i], was[k].reserved)
	}
	return func() {
		for k, i := range nodes {
			b.set(i, was[k].nodeRoom, was[k].reserved)
		}
		b.settle()
	}
}

// settle makes the counts of shapes those of the books again after something has been tried. Otherwise what was lent
// to one gang would not count as gained when it comes free for others.
func (b *gangBooks) settle() {
	for _, s := range b.shapes { // in any order
		if s.used >= b.began {
			s.sync(b)
		}
	}
}

// backed returns the rooms of the nodes of holds as they are without them.
func (b *gangBooks) backed(holds []orbit.Hold) map[int32]nodeRoom {
	rooms := map[int32]nodeRoom{}
	for i := range holds {
		n := b.view.State().Node(holds[i].Node) // is a member: nodes with holds cannot leave
		if n == nil {
			continue
		}
		at := int32(n.Index())
		room, known := rooms[at]
		if !known {
			room = b.nodes[at].nodeRoom
		}
		room.give(&holds[i], n.Node)
		rooms[at] = room
	}
	return rooms
}
