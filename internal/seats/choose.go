package seats

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Fit says where the members of a gang are placed.
type Fit struct {
	*Seating
	Asks []Ask
	// The level and the domain; the empty level is all nodes.
	Level, Domain string
	// Fewer members have seats than there is room for, because a proposal takes no more.
	Trimmed bool
}

// Candidate is a domain that may take members.
type Candidate struct {
	*Domain
	Number int32
	// An upper bound on how many members fit.
	upper int64
	slack float64
}

// How a gang chooses a domain of a level. The slack of a domain says how many times over the gang's members would fit
// there. For each ask, count how many members of its shape would fit alone, node by node, and divide by how many the
// gang has; the slack is the sum over the asks. For a gang of one shape, slack less one is exactly what is left after
// placing it. The domain with the least slack is the tightest; among equals the first by name wins.
//
// Slack counts whole members and not milli-cores. So room in pieces too small for any member, or short of another
// resource, does not make a domain look empty.

// candidates returns the domains of a level in which the minimum of each ask, taken alone, has room, and that of all.
func (p *Packer) candidates(t *Table) []Candidate {
	out := p.Index.candidates[:0] // reused: only one search at a time reads it
	sums := make([][]int64, len(p.Asks))
	for a := range p.Asks {
		sums[a] = p.Asks[a].Shape.byDomain(t)
	}
next:
	for d := range t.Domains {
		if len(t.Domains[d].Nodes) == 0 {
			continue
		}
		c := Candidate{Domain: &t.Domains[d], Number: int32(d)}
		for a := range p.Asks {
			n := sums[a][d]
			if n < int64(p.Asks[a].Least) {
				continue next
			}
			c.upper += min(n, int64(p.Asks[a].Want))
			c.slack += float64(n) / float64(p.Asks[a].Want)
		}
		if c.upper < int64(p.LeastInAll) {
			continue
		}
		out = append(out, c)
	}
	p.Index.candidates = out
	return out
}

// tighter orders candidates by slack, and then by name.
func tighter(a, b *Candidate) int {
	if a.slack != b.slack {
		return cmp.Compare(a.slack, b.slack)
	}
	return cmp.Compare(a.Name, b.Name)
}

// fuller orders candidates by how many members may fit, most first, and then as tighter does.
func fuller(a, b *Candidate) int {
	if a.upper != b.upper {
		return cmp.Compare(b.upper, a.upper)
	}
	return tighter(a, b)
}

// fewFirst is how many of the first candidates are picked one by one before the rest is sorted, because mostly the
// first will do.
const fewFirst = 3

// inOrder yields the candidates in order, and sorts them in place.
func inOrder(list []Candidate, order func(a, b *Candidate) int) iter.Seq[*Candidate] {
	return func(yield func(*Candidate) bool) {
		for k := range list {
			if k == fewFirst {
				slices.SortFunc(list[k:], func(a, b Candidate) int { return order(&a, &b) })
			}
			for i := k + 1; i < len(list) && k < fewFirst; i++ {
				if order(&list[i], &list[k]) < 0 {
					list[i], list[k] = list[k], list[i]
				}
			}
			if !yield(&list[k]) {
				return
			}
		}
	}
}

// WithLeast returns a packer for the same members with another minimum for each ask, and none for all.
func (p *Packer) WithLeast(least func(*Ask) int) *Packer {
	q := *p
	q.Asks, q.LeastInAll = slices.Clone(p.Asks), 0
	for a := range q.Asks {
		q.Asks[a].Least = least(&q.Asks[a])
	}
	return &q
}

// AllOf makes all members the minimum.
func AllOf(a *Ask) int { return a.Want }

// NoneOf makes the minimum zero.
func NoneOf(*Ask) int { return 0 }

// fitIn seats members in a domain; nil if the minimum does not fit.
func (p *Packer) fitIn(t *Table, d *Domain) *Fit {
	if s := p.pack(d.Nodes); s != nil {
		return &Fit{Seating: s, Asks: p.Asks, Level: t.Level(), Domain: d.Name}
	}
	return nil
}

// Tightest returns a seating in the tightest domain of a level that takes the minimum of each ask; nil if none does.
func (p *Packer) Tightest(t *Table) *Fit {
	for c := range inOrder(p.candidates(t), tighter) {
		if fit := p.fitIn(t, c.Domain); fit != nil || p.Steps.Ctx.Err() != nil {
			return fit
		}
	}
	return nil
}

// Fullest returns the seating with the most members that one domain of a level takes, at least the minimum of each ask;
// among equals the one in the tightest domain. It tries the accepted domains, those with the highest upper bound first,
// until none can be better than the best so far. all is false if it has stopped before that, because ctx has ended or
// it has made tries attempts.
func (p *Packer) Fullest(t *Table, tries int, accept func(*Candidate) bool) (best *Fit, all bool) {
	var at *Candidate
	for c := range inOrder(p.candidates(t), fuller) {
		if best != nil && (c.upper < int64(best.Total) || c.upper == int64(best.Total) && tighter(c, at) > 0) {
			return best, true
		}
		if p.Steps.Ctx.Err() != nil {
			return best, false
		}
		if !accept(c) {
			continue
		}
		if tries == 0 {
			return best, false
		}
		tries--
		fit := p.fitIn(t, c.Domain)
		if fit != nil && (best == nil || fit.Total > best.Total || fit.Total == best.Total && tighter(c, at) < 0) {
			best, at = fit, c
		}
	}
	return best, true
}

// anyDomain accepts all candidates.
func anyDomain(*Candidate) bool { return true }

// Choose finds seats for a gang that has no placed member. It takes the first level on which a domain takes the whole gang.
// If there is none, and the gang may start with fewer members, it takes the first level on which a domain takes the
// minimum, and there the domain that takes the most.
func (p *Packer) Choose(levels []*Table) *Fit {
	if Wanted(p.Asks) <= p.Limit {
		whole := p.WithLeast(AllOf)
		for _, t := range levels {
			if fit := whole.Tightest(t); fit != nil {
				fit.Asks = p.Asks
				return fit
			}
		}
	}
	if least := p.Least(); least == Wanted(p.Asks) || least > p.Limit {
		return nil
	}
	for _, t := range levels {
		if fit, _ := p.Fullest(t, math.MaxInt, anyDomain); fit != nil && fit.trim(p.Limit) {
			return fit
		}
	}
	return nil
}

// trim gives up seats, beginning with the last ask, until at most that many are left: those first that are not needed.
// It reports false if that would take the gang below its minimum.
func (f *Fit) trim(most int) bool {
	f.Trimmed = f.Total >= most && most < Wanted(f.Asks)
	for _, keep := range []func(*Ask) int{func(a *Ask) int { return max(a.Needed, a.Least) }, func(a *Ask) int { return a.Least }} {
		for a := len(f.Asks) - 1; a >= 0 && f.Total > most; a-- {
			f.giveUp(a, min(f.Placed[a]-keep(&f.Asks[a]), f.Total-most))
		}
	}
	return f.Total <= most
}

// giveUp takes the last n seats from the members of an ask.
func (f *Fit) giveUp(a, n int) {
	if n <= 0 {
		return
	}
	kept, at := f.Placed[a]-n, 0
	f.Seats = slices.DeleteFunc(f.Seats, func(s Seat) bool {
		if s.Ask != a {
			return false
		}
		at++
		return at > kept
	})
	f.Placed[a] -= n
	f.Total -= n
}

// How a running gang that has fallen short is topped up: where its running members are. Members go to the domain that
// all running members share on the first listed level on which they share one. Members that do not fit there go to the
// domain that they share on the next level, and so on. If the gang's levels are only preferred, the remaining members
// may go to any node. The members that a broken gang needs come before all others. The gang stays in one domain: if the
// domain of one level is not a part of that of a later one, members go to nodes that are in both, or to the first alone.

// TopUp seats as many waiting members of a gang that runs on these nodes as fit, up to the limit, those first that it
// needs; nil if none fits.
func (p *Packer) TopUp(on []orbit.NodeID, levels []*Table) (best *Fit) {
	t := &topUp{Packer: p, start: p.Index.Draft.Checkpoint(), needed: slices.Clone(p.Asks)}
	defer p.Index.Draft.Rollback(t.start)
	var homes []home
	for _, l := range levels {
		if d := l.Shared(p.Index.Draft.View().State(), on); d >= 0 {
			homes = append(homes, home{l, d, l.Domains[d].Nodes})
		}
	}
	for a := range t.needed {
		t.needed[a].Want = t.needed[a].Needed
	}
	for last := range homes {
		if last+1 < len(homes) && homes[last].isIn(homes[last+1:]) {
			continue // with the later domain at least as many members find seats, and this one is filled first
		}
		t.homes = nil
		for _, h := range homes[:last+1] {
			t.homes = append(t.homes, h.within(homes[last]))
		}
		if fit := t.seat(); fit != nil && (best == nil || fit.betterThan(best)) {
			best = fit
		}
	}
	return best
}

// seat seats the members in the homes.
func (t *topUp) seat() *Fit {
	t.failed = false
	t.begin()
	t.addAll(t.needed)
	for k := 0; k < len(t.homes) && t.all.Total < Wanted(t.needed); k++ { // one domain may take more at once
		t.begin()
		t.add(t.homes[k], t.needed, AllOf)
	}
	if t.all.Total < Wanted(t.needed) {
		t.begin()
	}
	needed := t.all.Total == Wanted(t.needed)
	if t.addAll(t.Asks); needed && t.all.Total < t.NeededInAll {
		t.seatAtOnce()
	}
	if t.failed || !t.all.trim(t.Limit) || t.all.Total == 0 {
		return nil
	}
	return t.all
}

// seatAtOnce seats as many members as the gang needs in all in one of the homes, if that takes them, and then further ones.
// The seats of those that the roles need may have been in the way of the others.
func (t *topUp) seatAtOnce() {
	short := t.all
	for k := 0; k < len(t.homes) && t.all.Total < t.NeededInAll; k++ {
		t.begin()
		t.add(t.homes[k], t.Asks, func(a *Ask) int { return a.Needed })
	}
	if t.addAll(t.Asks); t.all.Total < t.NeededInAll {
		t.all = short
	}
}

// betterThan reports whether a fit seats more of the members that are needed, or as many of them and more in all.
func (f *Fit) betterThan(o *Fit) bool {
	needed := func(f *Fit) (n int) {
		for a := range f.Asks {
			n += min(f.Placed[a], f.Asks[a].Needed)
		}
		return n
	}
	return cmp.Or(cmp.Compare(needed(f), needed(o)), cmp.Compare(f.Total, o.Total)) > 0
}

// topUp is one call of TopUp.
type topUp struct {
	*Packer
	start int
	// The domains that all running members share, in the order of the levels, each as far as it is in the last one.
	homes []home
	// The asks for the members alone that the gang needs.
	needed []Ask
	all    *Fit
	// The draft has refused seats that were found.
	failed bool
}

// home is a domain of a table, or the part of its nodes on which members may go.
type home struct {
	*Table
	number int32
	nodes  []int32
}

// isIn reports whether all nodes of the home are in one of the others.
func (h home) isIn(others []home) bool {
	return slices.ContainsFunc(others, func(o home) bool { return len(h.within(o).nodes) == len(h.nodes) })
}

// within returns the part of the home that is in another one.
func (h home) within(o home) home {
	outside := func(i int32) bool { return o.Of[i] != o.number }
	if slices.ContainsFunc(h.nodes, outside) {
		h.nodes = slices.DeleteFunc(slices.Clone(h.nodes), outside)
	}
	return h
}

// begin gives up all seats.
func (t *topUp) begin() {
	t.all = &Fit{Seating: &Seating{Placed: make([]int, len(t.Asks)), ordered: t.ruled()}, Asks: t.Asks}
}

// addAll seats more members of the asks, in one domain after the other.
func (t *topUp) addAll(asks []Ask) {
	for k := 0; k < len(t.homes) && t.all.Total < Wanted(asks) && t.Steps.Ctx.Err() == nil; k++ {
		t.add(t.homes[k], asks, NoneOf)
	}
}

// add seats as many more members of the asks as fit in a domain, and of each ask at least a minimum.
func (t *topUp) add(in home, asks []Ask, least func(*Ask) int) {
	t.Index.Draft.Rollback(t.start)
	if t.failed = t.failed || t.Index.Place(t.Asks, t.all.Seating) != nil; t.failed {
		return
	}
	rest := &Packer{Index: t.Index, Steps: t.Steps, Limit: t.Limit - t.all.Total, Tries: t.Tries}
	var which []int
	for a, ask := range asks {
		if ask.Want -= t.all.Placed[a]; ask.Want > 0 {
			ask.Least, ask.Members = least(&ask), ask.Members[t.all.Placed[a]:]
			ask.Shape.Follow(t.Index)
			rest.Asks, which = append(rest.Asks, ask), append(which, a)
		}
	}
	s := rest.pack(in.nodes)
	if s == nil || s.Total == 0 {
		return
	}
	if t.all.Total == 0 {
		t.all.Level, t.all.Domain = in.Level(), in.Domains[in.number].Name
	}
	for _, seat := range s.Seats {
		seat.Ask = which[seat.Ask]
		t.all.Seats = append(t.all.Seats, seat)
		t.all.Placed[seat.Ask]++
		t.all.Total++
	}
}
