package nav

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/orbitsched/orbit"
)

// memberShape is what members ask of a node. Specs that ask for the same share one, whatever their module or
// priority. It knows how many would fit on each node by themselves, and the sums of that by domain.
//
// Invariant: after sync, counts[i] is how many fit on node i given the books, and so is every sum whose version
// is that of its table.
type memberShape struct {
	spec *orbit.Spec
	// Dimensions that are asked for.
	dims   []orbit.Dimension
	counts []int32
	sums   []domainSums
	// Position in the books' log; counts are made anew if the log does not reach back there.
	cursor uint64
	// When the count of a node last rose by what others did: what did not fit may fit from then on.
	gained uint64
	// Domains where the company is that the spec wants, as of a plan; nil: it wants none.
	near   map[string]bool
	nearAt uint64
	// The books' clock when it was last used.
	used uint64
}

// domainSums are the sums of a shape's counts by the domains of one level.
type domainSums struct {
	table   *domainTable
	version uint64
	by      []int64
}

// mostAlone caps how many members are said to fit on one node, for those that ask for nothing. No ledger takes
// a gang with more.
const mostAlone = 1 << 20

// shapeKey tells what specs ask for apart.
func shapeKey(s *orbit.Spec) string {
	return fmt.Sprintf("%v %#v %#v %#v", s.Envelope.Reservation, s.Devices, s.Require, s.Near)
}

func newShape(spec *orbit.Spec) *memberShape {
	s := &memberShape{spec: spec}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			s.dims = append(s.dims, orbit.Dimension(d))
		}
	}
	return s
}

// fits returns how many members there is room for. It divides, so that nothing overflows.
func (s *memberShape) fits(r *nodeRoom) int32 {
	n := int64(mostAlone)
	for _, d := range s.dims {
		free, want := r.free[d], s.spec.Envelope.Reservation[d]
		if free < want {
			return 0
		}
		n = min(n, free/want)
	}
	if s.spec.Devices.Count > 0 {
		n = min(n, r.serves(&s.spec.Devices))
	}
	return int32(n)
}

// accepts reports whether members may go to a node, if there is room.
func (s *memberShape) accepts(n *orbit.Node) bool { return accepts(n, s.spec) && s.inCompany(n) }

// inCompany reports whether a node is where the company is, if members want any.
func (s *memberShape) inCompany(n *orbit.Node) bool {
	return s.near == nil || s.near[n.Labels[s.spec.Near.Level]]
}

// lacks says why one more member does not fit on a node, as in "lack cpu"; "" if it does.
func (s *memberShape) lacks(n *orbit.Node, r *nodeRoom, state *orbit.State) string {
	why := objection(n, s.spec)
	if why == "" && !s.inCompany(n) {
		why = fmt.Sprintf("are in no %s of group %q", s.spec.Near.Level, s.spec.Near.Group)
	}
	return cmp.Or(why, shortage(r, s.spec, state))
}

// sync brings the counts up to the books.
func (s *memberShape) sync(b *gangBooks) {
	company := s.meet(b)
	changed, next, all := b.since(s.cursor)
	s.cursor = next
	if s.counts == nil || all || company {
		s.recount(b)
		return
	}
	for len(s.counts) < len(b.nodes) {
		s.counts = append(s.counts, 0)
	}
	for _, i := range changed {
		s.count(b, i)
	}
}

// recount begins afresh.
func (s *memberShape) recount(b *gangBooks) {
	s.counts, s.sums = make([]int32, len(b.nodes)), nil
	for i := range s.counts {
		s.count(b, int32(i))
	}
	s.gained = b.tick()
}

// count looks at one node.
func (s *memberShape) count(b *gangBooks, i int32) {
	n := &b.nodes[i]
	fits := int32(0)
	if n.state != nil {
		if fits = s.fits(&n.nodeRoom); fits > 0 && !s.accepts(n.state.Node) {
			fits = 0
		}
	}
	more := fits - s.counts[i]
	if more == 0 {
		return
	}
	s.counts[i] = fits
	for k := range s.sums {
		if t := s.sums[k].table; s.sums[k].version == t.version && t.of[i] >= 0 {
			s.sums[k].by[t.of[i]] += int64(more)
		}
	}
	if more > 0 && b.fresh {
		s.gained = b.tick()
	}
}

// meet looks up where the company is, once a plan. It reports whether it has moved.
func (s *memberShape) meet(b *gangBooks) (moved bool) {
	near := s.spec.Near
	if near.Group == "" || s.nearAt == b.plan {
		return false
	}
	s.nearAt = b.plan
	domains := inDomains(b.view.State(), near.Group, near.Level)
	moved = s.near == nil || !maps.Equal(domains, s.near)
	s.near = domains
	return moved
}

// by returns how many members fit in each domain of a level, node by node. It requires the counts to be in sync;
// the slice is good until the next sync.
func (s *memberShape) by(t *domainTable) []int64 {
	for k := range s.sums {
		if s.sums[k].table == t {
			if s.sums[k].version != t.version {
				s.sums[k] = s.sum(t)
			}
			return s.sums[k].by
		}
	}
	s.sums = append(s.sums, s.sum(t))
	return s.sums[len(s.sums)-1].by
}

// sum adds the counts up by domain.
func (s *memberShape) sum(t *domainTable) domainSums {
	out := domainSums{table: t, version: t.version, by: make([]int64, len(t.domains))}
	for i, n := range s.counts {
		if d := t.of[i]; d >= 0 {
			out.by[d] += int64(n)
		}
	}
	return out
}
