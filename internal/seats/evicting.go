package seats

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/victims"
)

// Evicting seats members on the nodes of one domain where capsules of lower priority make way for them. It seats one
// member after the other, each on the node where its victims are best, so it may miss seats for members of several specs.
type Evicting struct {
	// Draft must be synced. Call its Ask for a member first.
	Draft *orbit.Draft
	// Search finds the victims; its Gentle and Lower are the caller's.
	Search *victims.Search
	// Excluded reports whether members of a spec may not be placed on a node; nil: they may be on all.
	Excluded func(*orbit.NodeState, *orbit.Spec) bool
	// Singly: each member may have a nomination of its own.
	Singly bool
}

// Eviction says where the members of a gang are placed, and which victims leave for them. Its Key sums up the victims, so
// that domains are compared as single nodes are.
type Eviction struct {
	victims.Key
	// The nodes of the domain, and its name.
	Nodes []int32
	name  string
	// The victims.
	Leave []*orbit.Capsule
	// The room that the members take, node by node, for a nomination; and member by member.
	Parts []orbit.NominatedRoom
	Rooms []MemberRoom
}

// MemberRoom is the room that one member takes.
type MemberRoom struct {
	Of *orbit.Capsule
	orbit.NominatedRoom
}

// Before reports whether s is better than o: by its victims, and among equals by the name of the domain.
func (s *Eviction) Before(o *Eviction) bool {
	return cmp.Or(s.Compare(&o.Key), cmp.Compare(s.name, o.name)) < 0
}

// HardestFirst returns the members grouped by spec, the hardest to seat first. A member is the harder, the larger its share
// is of what all members take together, in the dimension in which its share is largest.
func HardestFirst(members []*orbit.Capsule) []*orbit.Capsule {
	var groups [][]*orbit.Capsule
	var sum [AllDims]float64
	for _, c := range members {
		at := slices.IndexFunc(groups, func(g []*orbit.Capsule) bool { return g[0].Spec == c.Spec })
		if at < 0 {
			at, groups = len(groups), append(groups, nil)
		}
		groups[at] = append(groups[at], c)
		for d := range sum {
			sum[d] += float64(WantOf(c.Spec, d))
		}
	}
	part := func(g []*orbit.Capsule) (part float64) {
		for d := range sum {
			if sum[d] > 0 {
				part = max(part, float64(WantOf(g[0].Spec, d))/sum[d])
			}
		}
		return part
	}
	slices.SortStableFunc(groups, func(a, b []*orbit.Capsule) int { return cmp.Compare(part(b), part(a)) })
	return slices.Concat(groups...)
}

// Try does what Seat does on the nodes of a domain, and then rolls the draft back.
func (e *Evicting) Try(name string, nodes []int32, members []*orbit.Capsule) *Eviction {
	start := e.Draft.Checkpoint()
	defer e.Draft.Rollback(start)
	s := e.Seat(nodes, members)
	if s != nil {
		s.name = name
	}
	return s
}

// Seat places all members on these nodes of the draft, and evicts the victims. If a member finds no place, it begins
// again with those that it has seated last. It returns nil if that fails too; the caller then rolls the draft back.
func (e *Evicting) Seat(nodes []int32, members []*orbit.Capsule) *Eviction {
	start := e.Draft.Checkpoint()
	s := e.seat(nodes, members)
	if s == nil && members[0].Spec != members[len(members)-1].Spec {
		e.Draft.Rollback(start)
		last := slices.Clone(members)
		slices.Reverse(last)
		s = e.seat(nodes, last)
	}
	return s
}

// seat places the members one after the other.
func (e *Evicting) seat(nodes []int32, members []*orbit.Capsule) *Eviction {
	s := &Eviction{Key: victims.None, Nodes: nodes}
	var open heap.Heap[evictedSeat]
	parts := map[orbit.NodeID]int{}
	elsewhere := false // the last member's victims have made other nodes better
	for i, m := range members {
		if e.Singly {
			e.Draft.LookAs(m)
		}
		e.Search.Begin(e.Draft, m)
		if levels, _ := e.Draft.RuleLevels(m.Spec); i == 0 || members[i-1].Spec != m.Spec || elsewhere || levels != nil { // by rules a member may open nodes to the next
			open = open[:0]
			for _, at := range nodes {
				e.offer(&open, at, m)
			}
		}
		var f victims.Found
		for f.Node == nil && len(open) > 0 {
			seat := open.Pop()
			now, ok := e.Search.On(e.Draft.Node(int(seat.at))) // again, since an evicted gang changes several nodes
			switch {
			case !ok || !e.Search.Settle(&now):
			case seat.Compare(&now.Key) < 0 && len(open) > 0 && !(evictedSeat{now, seat.at}).Before(open[0]):
				open.Push(evictedSeat{now, seat.at})
			default:
				f = now
				elsewhere = slices.ContainsFunc(f.Victims, func(v *orbit.Capsule) bool { return v.Node != f.Node.Node.ID })
				if !e.take(s, &f, m, parts) {
					return nil
				}
				e.offer(&open, seat.at, m)
			}
		}
		if f.Node == nil {
			return nil
		}
	}
	return s
}

// evictedSeat is a node that may take a member, and the victims there.
type evictedSeat struct {
	victims.Found
	at int32
}

// Before puts the seat with the better victims first.
func (s evictedSeat) Before(o evictedSeat) bool { return s.Found.Before(&o.Found) }

// offer adds a node to the open seats, if a member fits there once its victims have left.
func (e *Evicting) offer(open *heap.Heap[evictedSeat], at int32, m *orbit.Capsule) {
	n := e.Draft.Node(int(at))
	if n == nil || e.Excluded != nil && e.Excluded(n, m.Spec) {
		return
	}
	if f, ok := e.Search.On(n); ok {
		open.Push(evictedSeat{f, at})
	}
}

// take evicts the victims on the draft, places a member in their stead, and enters both into the eviction. It reports
// false if the draft refuses a step.
func (e *Evicting) take(s *Eviction, f *victims.Found, m *orbit.Capsule, parts map[orbit.NodeID]int) bool {
	for _, v := range f.Victims {
		if e.Draft.Evict(e.Search.Evict(v)) != nil {
			return false
		}
	}
	if e.Draft.Place(m, orbit.Choice{Node: f.Node, Devices: f.Devices}) != nil {
		return false
	}
	s.add(f)
	id := f.Node.Node.ID
	at, known := parts[id]
	if !known {
		at = len(s.Parts)
		parts[id] = at
		s.Parts = append(s.Parts, orbit.NominatedRoom{Node: id})
	}
	room := orbit.NominatedRoom{Node: id, Room: m.Spec.Envelope.Reservation, Devices: f.Devices}
	if f.Devices != 0 {
		room.Milli = m.Spec.Devices.Milli
	}
	s.Rooms = append(s.Rooms, MemberRoom{m, room})
	part := &s.Parts[at]
	part.Room, _ = part.Room.Add(m.Spec.Envelope.Reservation) // no overflow: the members fit on the node together
	if part.Devices |= f.Devices; f.Devices != 0 {
		part.Milli = max(part.Milli, m.Spec.Devices.Milli)
	}
	return true
}

// add adds the victims of one member.
func (s *Eviction) add(f *victims.Found) {
	s.Leave = append(s.Leave, f.Victims...)
	s.Last = s.Last || f.Last
	s.Refused += f.Refused
	s.Sum += f.Sum
	s.Count += f.Count
	switch {
	case f.Highest > s.Highest:
		s.Highest, s.Start = f.Highest, f.Start
	case f.Highest == s.Highest:
		s.Start = min(s.Start, f.Start)
	}
}
