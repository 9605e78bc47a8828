package seats

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/victims"
)

// Ask is how many members of one shape a gang asks for, summed over all roles of that shape.
type Ask struct {
	Shape *Shape
	Request
	Want int
	// How many of the members come before all others: the minimum of a gang that starts, or what a broken gang lacks.
	Needed int
	// The fewest members that must be placed.
	Least int
	// The waiting members in the order in which they get seats: the needed ones of each role, then the others.
	Members []*orbit.Capsule
}

// Role has the waiting members of one role of a gang, in the order in which they get seats, and how many of them are
// needed.
type Role struct {
	Members []*orbit.Capsule
	Needed  int
}

// EasiestFirst orders the waiting members of a role so that the first ones are those of which the role needs some: members
// that do not have to stop on another node, and of these those that ask for least, if some have specs of their own
// ([orbit.Respec]). If one member can go wherever another can, it comes first, so if any choice of such members finds
// seats, the first ones do.
func EasiestFirst(members []*orbit.Capsule) {
	var most [AllDims]int64
	for _, c := range members {
		for d := range most {
			most[d] = max(most[d], WantOf(c.Spec, d))
		}
	}
	size := func(s *orbit.Spec) (size float64) {
		for d, all := range most {
			size += float64(WantOf(s, d)) / float64(max(all, 1))
		}
		return size
	}
	slices.SortStableFunc(members, func(a, b *orbit.Capsule) int {
		if x, y := a.Spec, b.Spec; x != y && victims.Stops(a) == victims.Stops(b) {
			return cmp.Or(cmp.Compare(size(x), size(y)), len(x.Extras)-len(y.Extras), len(x.Require)-len(y.Require))
		}
		return btoi(victims.Stops(a)) - btoi(victims.Stops(b))
	})
}

// Asks groups the members of some roles by shape, in the order of the roles. Members that still have to stop on another
// node are of another shape than the others, because only nodes that confirm take them, and so are members with other
// specs. The minimum of each ask is what is needed.
func (x *Index) Asks(roles []Role) []Ask {
	var out []Ask
	var rest [][]*orbit.Capsule
	for _, r := range roles {
		for len(r.Members) > 0 {
			by := requestOf(r.Members[0])
			n := slices.IndexFunc(r.Members, func(c *orbit.Capsule) bool { return requestOf(c) != by })
			if n < 0 {
				n = len(r.Members)
			}
			part := r.Members[:n]
			shape := x.ShapeOf(by)
			at := slices.IndexFunc(out, func(a Ask) bool { return a.Shape == shape })
			if at < 0 {
				at = len(out)
				out, rest = append(out, Ask{Shape: shape, Request: by}), append(rest, nil)
			}
			a, needed := &out[at], min(r.Needed, n)
			a.Want, a.Needed, a.Least = a.Want+n, a.Needed+needed, a.Least+needed
			a.Members, rest[at] = append(a.Members, part[:needed]...), append(rest[at], part[needed:]...)
			r.Members, r.Needed = r.Members[n:], r.Needed-needed
		}
	}
	for i := range out {
		out[i].Members = append(out[i].Members, rest[i]...)
	}
	return out
}

// requestOf returns the request of a member, which decides its shape.
func requestOf(c *orbit.Capsule) Request { return Request{Spec: c.Spec, Stops: victims.Stops(c)} }

// Least returns how many members must be placed at once: the minimum of each ask, and of all.
func (p *Packer) Least() (n int) {
	for i := range p.Asks {
		n += p.Asks[i].Least
	}
	return max(n, p.LeastInAll)
}

// Wanted returns how many members the asks are for.
func Wanted(asks []Ask) (n int) {
	for i := range asks {
		n += asks[i].Want
	}
	return n
}

// MostMembers returns how many members one proposal can place by the limits of a ledger.
func MostMembers(l orbit.Limits) int { return min(l.GangMembers, l.Commitments) }

// TooMany returns why no proposal can hold the members that a gang has to place at once; nil: one can.
func (p *Packer) TooMany(id orbit.GangID) error {
	if least := p.Least(); least > p.Limit {
		return fmt.Errorf("gang %q has to place %d members at once; this ledger takes %d in one proposal", id, least, p.Limit)
	}
	return nil
}

// Seat finds seats with find and places the members there on the draft. If the draft refuses a seat, the counts of free
// capacity were too high, so it finds seats again by trying. It returns nil, and leaves the draft as it was, if there
// are none. Misjudged reports whether the draft has refused seats.
func (p *Packer) Seat(find func() *Fit) (fit *Fit, misjudged bool) {
	fit = find()
	if fit == nil || p.Index.Place(fit.Asks, fit.Seating) == nil {
		return fit, false
	}
	p.Tries = true
	if fit = find(); fit != nil && p.Index.Place(fit.Asks, fit.Seating) != nil {
		fit = nil
	}
	return fit, true
}

// On finds seats on some nodes, for at least the minimums; nil: they do not fit.
func (p *Packer) On(nodes []int32) *Fit {
	if s := p.pack(nodes); s != nil {
		return &Fit{Seating: s, Asks: p.Asks}
	}
	return nil
}

// Just finds seats on some nodes for no more members than the minimums; nil: they do not fit.
func (p *Packer) Just(nodes []int32) *Fit {
	f := p.On(nodes)
	if f != nil && !f.trim(p.Least()) {
		return nil
	}
	return f
}

// None returns a Fit without seats.
func (p *Packer) None() *Fit {
	return &Fit{Seating: &Seating{Placed: make([]int, len(p.Asks))}, Asks: p.Asks}
}

// Has reports whether all needed members have seats: those of each ask, and so many in all.
func (f *Fit) Has(inAll int) bool {
	for a := range f.Asks {
		if f.Placed[a] < f.Asks[a].Needed {
			return false
		}
	}
	return f.Total >= inAll
}

// Next returns the first member without a seat, and the position of its ask; nil: all members have seats.
func (f *Fit) Next() (ask int, member *orbit.Capsule) {
	for a := range f.Asks {
		if n := f.Placed[a]; n < f.Asks[a].Want {
			return a, f.Asks[a].Members[n]
		}
	}
	return 0, nil
}

// Lacks counts some nodes by the reason why they do not take one more member of an ask, as the draft is now.
func (p *Packer) Lacks(nodes []int32, ask int) *orbit.NoFit {
	d, by, counts := &p.Index.Draft, p.Asks[ask].Request, map[orbit.Misfit]int{}
	for _, i := range nodes {
		n := d.Node(int(i))
		if why := d.Misfit(n, by.Spec); why != (orbit.Misfit{}) {
			counts[why]++
		} else if by.Stops && !n.Node.Confirms {
			counts[orbit.Misfit{Why: "do not confirm, and members still stop elsewhere"}]++
		}
	}
	return d.NoFit(by.Spec, counts)
}
