package seats

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// packSearch decides exactly how many members of several shapes fit on the nodes of a domain together. It goes from
// node to node and keeps the Pareto frontier of partial seatings: it drops a partial if another has at least as many
// members of each shape. A node offers several ways to seat members on it: the maximal combinations of numbers by
// shape, under each choice of device instances that makes a difference.
//
// A step combines one partial with one way of the next node, or tries one choice on a node. The search is exact while
// the steps last; when they run out it returns the best seating that it knows.
type packSearch struct {
	*Packer
	bins []Bin
	// By node: how many members of each ask, taken alone, fit on this node and all later ones.
	ahead [][]int64
}

// Budget is how many steps of search are left to a gang.
type Budget struct {
	Ctx         context.Context
	Left, Taken int
	// The steps ran out, so the answer may not be exact.
	Spent bool
}

// step takes one step. It reports false when there is none left, or the context has ended.
func (s *Budget) step() bool {
	if s.Left > 0 && (s.Taken%1024 != 0 || s.Ctx.Err() == nil) {
		s.Left--
		s.Taken++
		return true
	}
	s.Left, s.Spent = 0, true
	return false
}

// partial is a way to seat members on the nodes so far: the number of each ask, the way of the last node, and the
// partial before it.
type partial struct {
	placed []int
	way    *nodeWay
	before *partial
}

// nodeWay is a way to seat members on one node: the number of each ask, their seats, and the free capacity that
// remains.
type nodeWay struct {
	placed []int
	seats  []Seat
	free   Capacity
}

// Search returns the seating with the most members and the minimum of each ask; nil if there is none, or if the steps
// run out before one is found.
func (p *Packer) Search(bins []Bin) *Seating {
	s := &packSearch{Packer: p, bins: bins, ahead: make([][]int64, len(bins)+1)}
	s.ahead[len(bins)] = make([]int64, len(p.Asks))
	for i := len(bins) - 1; i >= 0; i-- {
		s.ahead[i] = slices.Clone(s.ahead[i+1])
		for a, n := range bins[i].Fits {
			s.ahead[i][a] += int64(n)
		}
	}
	frontier := []*partial{{placed: make([]int, len(s.Asks))}}
	for i := range s.bins {
		var next []*partial
		for _, way := range s.ways(&s.bins[i]) {
			for _, so := range frontier {
				if !s.Steps.step() {
					return s.best(append(frontier, next...))
				}
				if longer := s.extend(so, i, way); longer != nil {
					next = keepBest(next, longer, func(p *partial) []int { return p.placed })
				}
			}
		}
		if frontier = next; len(frontier) == 0 {
			return nil
		}
		if len(frontier) == 1 && sum(frontier[0].placed) == Wanted(s.Asks) {
			break
		}
	}
	return s.best(frontier)
}

// extend adds a way of node i to a partial, up to the number that is wanted; nil if the minimum can then no longer be
// reached.
func (s *packSearch) extend(p *partial, i int, way *nodeWay) *partial {
	q := &partial{placed: make([]int, len(s.Asks)), way: way, before: p}
	for a := range s.Asks {
		q.placed[a] = min(s.Asks[a].Want, p.placed[a]+way.placed[a])
		if int64(s.Asks[a].Least-q.placed[a]) > s.ahead[i+1][a] {
			return nil
		}
	}
	return q
}

// keepBest adds an item unless another item is at least as good in every number, and drops the items that the new one
// dominates. Among equals the first stays.
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

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}

// best turns the partial with the most members into a seating. Seats of a way beyond the number that is wanted are left
// out.
func (s *packSearch) best(frontier []*partial) *Seating {
	var best *partial
	for _, p := range frontier {
		if (best == nil || sum(p.placed) > sum(best.placed)) && s.enough(&Seating{Placed: p.placed, Total: sum(p.placed)}) != nil {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	found := &Seating{Placed: best.placed, Total: sum(best.placed)}
	for p := best; p.way != nil; p = p.before {
		taken := make([]int, len(s.Asks))
		for _, seat := range p.way.seats {
			if a := seat.Ask; taken[a] < s.Asks[a].Want-p.before.placed[a] {
				taken[a]++
				found.Seats = append(found.Seats, seat)
			}
		}
	}
	return found
}

// ways returns the ways to seat members on a node that no other way dominates; at least one, which may be to seat none.
func (s *packSearch) ways(bin *Bin) (out []*nodeWay) {
	none := nodeWay{placed: make([]int, len(s.Asks)), free: bin.Free}
	s.grow(bin, 0, none, &out)
	if len(out) == 0 {
		out = append(out, &none)
	}
	return out
}

// grow extends a way by all numbers of members of the asks from a on, most members first, and collects the results that
// no other dominates.
func (s *packSearch) grow(bin *Bin, a int, way nodeWay, out *[]*nodeWay) {
	if a == len(s.Asks) {
		*out = keepBest(*out, &way, func(w *nodeWay) []int { return w.placed })
		return
	}
	most := 0
	if bin.Fits[a] > 0 {
		most = min(s.Asks[a].Want, int(bin.Fits[a]), int(way.free.Fits(s.Asks[a].Spec)))
	}
	last, contested := true, false // whether a is the last ask that fits here, and whether a later one wants devices too
	for later := a + 1; later < len(s.Asks); later++ {
		if bin.Fits[later] > 0 {
			last = false
			contested = contested || s.Asks[later].Spec.Devices.Count > 0
		}
	}
	spec := s.Asks[a].Spec
	grown := [][]nodeWay{{way}} // by number of members
	if contested && spec.Devices.Count > 0 {
		for n := 1; n <= most; n++ {
			grown = append(grown, s.oneMore(grown[n-1], bin, a))
		}
	}
	for n := most; n >= 0; n-- {
		ways := []nodeWay{way}
		if n < len(grown) {
			ways = grown[n]
		} else {
			ways[0] = way.with(bin, a, spec, n)
		}
		for _, w := range ways {
			if !s.Steps.step() {
				return
			}
			s.grow(bin, a+1, w, out)
		}
		if last && len(ways) > 0 {
			return
		}
	}
}

// with returns the way with n more members of an ask.
func (w *nodeWay) with(bin *Bin, a int, spec *orbit.Spec, n int) nodeWay {
	after := nodeWay{slices.Clone(w.placed), slices.Clip(w.seats), w.free}
	after.placed[a] += n
	for more := n - 1; more >= 0; more-- {
		set := after.free.Pick(spec, more)
		after.free.Take(spec, set)
		after.seats = append(after.seats, Seat{a, bin.Node, set})
	}
	return after
}

// deviceRest is the free milli of all device instances, sorted, so that it does not matter which instance is which.
type deviceRest [orbit.MaxDevices]int32

// oneMore adds a member of an ask to each way, under each choice of device instances. Of choices that leave the same
// deviceRest it keeps one.
func (s *packSearch) oneMore(ways []nodeWay, bin *Bin, a int) (out []nodeWay) {
	spec, seen := s.Asks[a].Spec, map[deviceRest]bool{}
	for _, w := range ways {
		for _, set := range w.free.choices(&spec.Devices) {
			if !s.Steps.step() {
				return out
			}
			after := nodeWay{slices.Clone(w.placed), append(slices.Clip(w.seats), Seat{a, bin.Node, set}), w.free}
			after.placed[a]++
			after.free.Take(spec, set)
			rest := deviceRest(after.free.Devices)
			slices.Sort(rest[:])
			if !seen[rest] {
				seen[rest] = true
				out = append(out, after)
			}
		}
	}
	return out
}

// choices returns all sets of device instances that serve a request.
func (r *Capacity) choices(q *orbit.DeviceRequest) (out []orbit.DeviceSet) {
	for set := uint32(1)<<q.Count - 1; set < 1<<orbit.MaxDevices; {
		if r.covers(orbit.DeviceSet(set), q.Milli) {
			out = append(out, orbit.DeviceSet(set))
		}
		low := set & -set // the next larger set, as a number, with as many elements (Gosper)
		high := set + low
		set = high | (set^high)/low>>2
	}
	return out
}

// btoi returns 1 for true and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
