package nav

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// packSearch decides exactly how many members of several shapes fit on the nodes of a domain together. It goes
// from node to node and keeps, of all ways to seat members so far, those that no other one is at least as
// good as for every shape. A node takes any of its ways: maximal numbers of members by shape, under every choice
// of device instances that makes a difference.
//
// A step is one pair of a way so far and a way of the next node, or one choice on a node. It is exact as long as
// the steps last; then it says the best that it knows.
type packSearch struct {
	*gangPacker
	bins []packBin
	// Members of each ask that fit, alone, on the nodes from each one on.
	ahead [][]int64
}

// stepBudget is how many steps of search are left to a gang.
type stepBudget struct {
	ctx         context.Context
	left, taken int
	// It ran out, so that an answer may not be exact.
	spent bool
}

// step takes one step. It reports false when there is none left, or the context has ended.
func (s *stepBudget) step() bool {
	if s.left > 0 && (s.taken%1024 != 0 || s.ctx.Err() == nil) {
		s.left--
		s.taken++
		return true
	}
	s.left, s.spent = 0, true
	return false
}

// partial is a way to seat members on the nodes so far: how many of each ask, the last node's part of it, and
// what came before.
type partial struct {
	placed []int
	bin    int
	way    *nodeWay
	before *partial
}

// nodeWay is a way to seat members on one node.
type nodeWay struct {
	placed []int
	picks  [][]orbit.DeviceSet
}

func newSearch(p *gangPacker, bins []packBin) *packSearch {
	s := &packSearch{gangPacker: p, bins: bins, ahead: make([][]int64, len(bins)+1)}
	s.ahead[len(bins)] = make([]int64, len(p.asks))
	for i := len(bins) - 1; i >= 0; i-- {
		s.ahead[i] = slices.Clone(s.ahead[i+1])
		for a, n := range bins[i].fits {
			s.ahead[i][a] += int64(n)
		}
	}
	return s
}

// run returns the seating with the most members that has the least of every ask; nil if there is none or the
// steps do not last to find one.
func (s *packSearch) run() *seating {
	front := []*partial{{placed: make([]int, len(s.asks))}}
	for i := range s.bins {
		var next []*partial
		for _, way := range s.ways(&s.bins[i]) {
			for _, p := range front {
				if !s.steps.step() {
					return s.best(append(front, next...))
				}
				if q := s.extend(p, i, way); q != nil {
					next = keepBest(next, q, func(p *partial) []int { return p.placed })
				}
			}
		}
		if front = next; len(front) == 0 {
			return nil
		}
		if len(front) == 1 && s.whole(front[0].placed) {
			break
		}
	}
	return s.best(front)
}

// whole reports whether all members have seats.
func (s *packSearch) whole(placed []int) bool {
	for a := range s.asks {
		if placed[a] < s.asks[a].want {
			return false
		}
	}
	return true
}

// extend adds a way of node i to a partial, up to what is wanted; nil if the least is then out of reach.
func (s *packSearch) extend(p *partial, i int, way *nodeWay) *partial {
	q := &partial{placed: make([]int, len(s.asks)), bin: i, way: way, before: p}
	for a := range s.asks {
		q.placed[a] = min(s.asks[a].want, p.placed[a]+way.placed[a])
		if int64(s.asks[a].least-q.placed[a]) > s.ahead[i+1][a] {
			return nil
		}
	}
	return q
}

// keepBest adds an item unless one is at least as good in every number, and drops those that it is better
// than. Among equals the first stays.
func keepBest[T any](items []T, item T, numbers func(T) []int) []T {
	covers := func(a, b []int) bool {
		for i := range a {
			if a[i] < b[i] {
				return false
			}
		}
		return true
	}
	for _, other := range items {
		if covers(numbers(other), numbers(item)) {
			return items
		}
	}
	items = slices.DeleteFunc(items, func(other T) bool { return covers(numbers(item), numbers(other)) })
	return append(items, item)
}

// best turns the partial with the most members into a seating.
func (s *packSearch) best(front []*partial) *seating {
	var best *seating
	for _, p := range front {
		total := 0
		for _, n := range p.placed {
			total += n
		}
		if best != nil && total <= best.total {
			continue
		}
		if found := s.enough(&seating{placed: p.placed, total: total}); found != nil {
			best = found
			best.seats = s.seats(p)
		}
	}
	return best
}

// seats collects the seats of a partial, node by node in order. What a way has beyond what was wanted is left.
func (s *packSearch) seats(p *partial) []seat {
	var out []seat
	for ; p.way != nil; p = p.before {
		for a := range s.asks {
			n := min(p.way.placed[a], s.asks[a].want-p.before.placed[a])
			for k := range n {
				out = append(out, seat{a, s.bins[p.bin].node, p.way.picks[a][k]})
			}
		}
	}
	return out
}

// ways returns the ways to seat members on a node of which no other is at least as good, at least one.
func (s *packSearch) ways(bin *packBin) (out []*nodeWay) {
	way := nodeWay{placed: make([]int, len(s.asks)), picks: make([][]orbit.DeviceSet, len(s.asks))}
	s.from(bin, 0, bin.room, way, &out)
	if len(out) == 0 {
		out = append(out, &way)
	}
	return out
}

// from tries all numbers of members of the asks from a on, most first, in the room that is left.
func (s *packSearch) from(bin *packBin, a int, room nodeRoom, way nodeWay, out *[]*nodeWay) {
	if a == len(s.asks) {
		done := &nodeWay{slices.Clone(way.placed), slices.Clone(way.picks)}
		*out = keepBest(*out, done, func(w *nodeWay) []int { return w.placed })
		return
	}
	most := 0
	if bin.fits[a] > 0 {
		most = min(s.asks[a].want, int(s.asks[a].shape.fits(&room)))
	}
	last := !slices.ContainsFunc(bin.fits[a+1:], func(n int32) bool { return n > 0 })
	for n := most; n >= 0; n-- {
		for _, after := range s.seatings(bin, a, n, room) {
			if !s.steps.step() {
				return
			}
			way.placed[a], way.picks[a] = n, after.picks
			s.from(bin, a+1, after.room, way, out)
		}
		if last {
			return
		}
	}
}

// seated is the room that is left of a node with members of one ask on it, and their instances.
type seated struct {
	room  nodeRoom
	picks []orbit.DeviceSet
}

// seatings returns the ways to choose instances for n members of an ask that leave different room for the asks
// that follow. There is one if none of those asks for devices.
func (s *packSearch) seatings(bin *packBin, a, n int, room nodeRoom) []seated {
	out := []seated{{room: room}}
	spec := s.asks[a].spec
	choose := spec.Devices.Count > 0 && s.contested(bin, a)
	for k := range n {
		if !choose {
			set := out[0].room.pick(spec, n-1-k)
			out[0].room.take(spec, set)
			out[0].picks = append(out[0].picks, set)
			continue
		}
		seen := map[leftOver]bool{}
		var next []seated
		for _, from := range out {
			next = s.branch(from, spec, seen, next)
		}
		out = next
	}
	return out
}

// contested reports whether an ask after a also wants devices of the node.
func (s *packSearch) contested(bin *packBin, a int) bool {
	for later := a + 1; later < len(s.asks); later++ {
		if bin.fits[later] > 0 && s.asks[later].spec.Devices.Count > 0 {
			return true
		}
	}
	return false
}

// leftOver is what is free of devices, whichever they are: in order.
type leftOver [orbit.MaxDevices]int32

// branch adds one member under every choice of instances that leaves what has not been seen.
func (s *packSearch) branch(from seated, spec *orbit.Spec, seen map[leftOver]bool, out []seated) []seated {
	for set := uint32(1)<<spec.Devices.Count - 1; set < 1<<orbit.MaxDevices; set = nextOfSize(set) {
		if !from.room.covers(orbit.DeviceSet(set), spec.Devices.Milli) {
			continue
		}
		if !s.steps.step() {
			return out
		}
		after := from.room
		after.take(spec, orbit.DeviceSet(set))
		left := leftOver(after.devices)
		slices.Sort(left[:])
		if !seen[left] {
			seen[left] = true
			out = append(out, seated{after, append(slices.Clone(from.picks), orbit.DeviceSet(set))})
		}
	}
	return out
}

// nextOfSize returns the next larger set, as a number, with as many elements (Gosper). It requires one element.
func nextOfSize(set uint32) uint32 {
	low := set & -set
	high := set + low
	return high | (set^high)/low>>2
}
