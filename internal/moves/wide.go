package moves

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// mostVacated is how many sets of capsules a wide search tries to move for one newcomer.
const mostVacated = 64

// wide gives each newcomer a node, one after the other: where it fits as it is, or else the node from which the fewest
// capsules have to leave that all fit on other nodes as these are. It records that, if all have a node.
func (s *Search) wide(queue []homeless) {
	start := s.Draft.Checkpoint()
	defer func() {
		s.Draft.Rollback(start)
		s.seats, s.moved, s.work = nil, nil, 0
	}()
	for i := range queue {
		if !s.placeBest(&queue[i]) && !s.vacate(&queue[i]) {
			return
		}
	}
	s.record()
}

// vacate puts a capsule in the place of others, and these on other nodes. It reports false, and leaves the draft as it was,
// if it finds no way.
func (s *Search) vacate(h *homeless) bool {
	var out []option
	s.ask(h)
	for i := range s.nodes(h) {
		n := s.Draft.Node(i)
		if s.steps--; s.steps <= 0 || !s.may(h, i, n) {
			continue
		}
		on := s.movable(n)
		out = s.enough(out, h, n, on)
		slices.Reverse(on) // few large capsules; small ones fit elsewhere more often
		out = s.enough(out, h, n, on)
	}
	slices.SortStableFunc(out, func(a, b option) int {
		return cmp.Or(cmp.Compare(len(a.leave), len(b.leave)), cmp.Compare(a.work, b.work))
	})
	fits := map[*orbit.Spec]bool{} // each option begins with the same draft, so a spec that fits on no node now need not be tried again
	for i, tried := 0, 0; i < len(out) && tried < mostVacated && s.steps > 0; i++ {
		if slices.ContainsFunc(out[i].leave, func(c *orbit.Capsule) bool { return !s.fitsNow(c, fits) }) {
			continue
		}
		tried++
		if s.vacateFor(h, &out[i]) {
			return true
		}
	}
	return false
}

// fitsNow reports whether the spec of a capsule fits on a node as it is, which it remembers.
func (s *Search) fitsNow(c *orbit.Capsule, known map[*orbit.Spec]bool) bool {
	fits, seen := known[c.Spec]
	if !seen {
		s.steps -= 8
		s.Draft.LookAs(nil)
		_, err := s.Engine.Best(s.Draft, c.Spec)
		fits = err == nil
		known[c.Spec] = fits
	}
	return fits
}

// vacateFor carries out one option, and reports false, and leaves the draft as it was, if not all that leave fit elsewhere.
func (s *Search) vacateFor(h *homeless, o *option) bool {
	start, seated := s.Draft.Checkpoint(), len(s.seats)
	s.steps -= 8
	next, ok := s.take(h, o, nil)
	if ok {
		slices.Reverse(next)
		for i := range next {
			if ok = s.placeBest(&next[i]); !ok {
				s.seats = s.seats[:seated+1]
				s.untake(o)
				break
			}
		}
	}
	if !ok {
		s.Draft.Rollback(start)
	}
	return ok
}

// enough adds the node with as few of its capsules as make enough room, in this order.
func (s *Search) enough(out []option, h *homeless, n *orbit.NodeState, on []*orbit.Capsule) []option {
	free, whole := seats.CapacityOf(n), seats.CapacityOf(&orbit.NodeState{Node: n.Node})
	fits := func(leave []*orbit.Capsule) bool {
		r := free
		for _, c := range leave {
			r.Leave(c.Spec, c.Devices, &whole)
		}
		return r.Fits(h.Spec) > 0
	}
	count := 1
	for ; count <= len(on) && !fits(on[:count]); count++ {
	}
	if count > len(on) {
		return out
	}
	o := option{node: n.Index(), leave: slices.Clone(on[:count])}
	for i := len(o.leave) - 2; i >= 0; i-- { // the last one is needed
		if less := slices.Delete(slices.Clone(o.leave), i, i+1); fits(less) {
			o.leave = less
		}
	}
	if len(s.moved)+len(o.leave) > s.Most {
		return out
	}
	for _, c := range o.leave {
		o.work += Size(c, n.Node)
	}
	return append(out, o)
}
