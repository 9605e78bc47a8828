package nav

import (
	"fmt"
	"maps"

	"github.com/orbitsched/orbit"
)

// memberShape is what members ask of a node. Specs that ask for the same share one, whatever their module or
// priority. It knows how many would fit on each node by themselves, and the sums of that by domain.
//
// Invariant: after sync, counts[i] is how many fit on node i of the draft, and so is every sum whose version
// is that of its table.
type memberShape struct {
	spec *orbit.Spec
	// Dimensions that are asked for.
	dims   []orbit.Dimension
	counts []int32
	sums   []domainSums
	// Position in the draft's journal; counts are made anew if the journal does not reach back there.
	cursor uint64
	// When the count of a node last rose by what others did: what did not fit may fit from then on.
	gained uint64
	// Domains where the company is that the spec wants, as of a plan; nil: it wants none.
	near   map[string]bool
	nearAt uint64
	// The index's clock when it was last used.
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

// sync brings the counts up to the draft.
func (s *memberShape) sync(x *gangIndex) {
	x.follow()
	company := s.meet(x)
	changed, next, all := x.draft.Changed(s.cursor)
	s.cursor = next
	if s.counts == nil || all || company {
		s.recount(x)
		return
	}
	for len(s.counts) < len(x.rooms) {
		s.counts = append(s.counts, 0)
	}
	for k, i := range changed {
		if k == 0 || changed[k-1] != i {
			s.count(x, i)
		}
	}
}

// recount begins afresh.
func (s *memberShape) recount(x *gangIndex) {
	s.counts, s.sums = make([]int32, len(x.rooms)), nil
	for i := range s.counts {
		s.count(x, int32(i))
	}
	s.gained = x.tick()
}

// count looks at one node.
func (s *memberShape) count(x *gangIndex, i int32) {
	fits := int32(0)
	if n := x.draft.Node(int(i)); n != nil {
		if fits = s.fits(&x.rooms[i]); fits > 0 && x.draft.Misfit(n, s.spec) != (orbit.Misfit{}) {
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
	if more > 0 && x.fresh {
		s.gained = x.tick()
	}
}

// meet looks up where the company is, once a plan. It reports whether it has moved.
func (s *memberShape) meet(x *gangIndex) (moved bool) {
	near := s.spec.Near
	if near.Group == "" || s.nearAt == x.plan {
		return false
	}
	s.nearAt = x.plan
	domains := inDomains(x.draft.View().State(), near.Group, near.Level)
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
