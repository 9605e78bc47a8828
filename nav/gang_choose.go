package nav

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// gangFit says where the members of a gang are placed.
type gangFit struct {
	*seating
	asks []memberAsk
	// The level and the domain; the empty level is all nodes.
	level, domain string
	// Fewer members have seats than there is room for, because a proposal takes no more.
	trimmed bool
}

// candidate is a domain that may take members.
type candidate struct {
	*domain
	number int32
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

// candidates returns the domains of a level in which the minimum of each ask, taken alone, has room.
func (p *gangPacker) candidates(t *domainTable) []candidate {
	out := p.index.candidates[:0] // reused: only one search at a time reads it
	sums := make([][]int64, len(p.asks))
	for a := range p.asks {
		sums[a] = p.asks[a].shape.byDomain(t)
	}
next:
	for d := range t.domains {
		if len(t.domains[d].nodes) == 0 {
			continue
		}
		c := candidate{domain: &t.domains[d], number: int32(d)}
		for a := range p.asks {
			n := sums[a][d]
			if n < int64(p.asks[a].least) {
				continue next
			}
			c.upper += min(n, int64(p.asks[a].want))
			c.slack += float64(n) / float64(p.asks[a].want)
		}
		out = append(out, c)
	}
	p.index.candidates = out
	return out
}

// tighter orders candidates by slack, and then by name.
func tighter(a, b *candidate) int {
	if a.slack != b.slack {
		return cmp.Compare(a.slack, b.slack)
	}
	return cmp.Compare(a.name, b.name)
}

// fuller orders candidates by how many members may fit, most first, and then as tighter does.
func fuller(a, b *candidate) int {
	if a.upper != b.upper {
		return cmp.Compare(b.upper, a.upper)
	}
	return tighter(a, b)
}

// fewFirst is how many of the first candidates are picked one by one before the rest is sorted, because mostly the
// first will do.
const fewFirst = 3

// inOrder yields the candidates in order, and sorts them in place.
func inOrder(list []candidate, order func(a, b *candidate) int) iter.Seq[*candidate] {
	return func(yield func(*candidate) bool) {
		for k := range list {
			if k == fewFirst {
				slices.SortFunc(list[k:], func(a, b candidate) int { return order(&a, &b) })
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

// withLeast returns a packer for the same members with another minimum for each ask.
func (p *gangPacker) withLeast(least func(*memberAsk) int) *gangPacker {
	q := *p
	q.asks = slices.Clone(p.asks)
	for a := range q.asks {
		q.asks[a].least = least(&q.asks[a])
	}
	return &q
}

// allOf makes all members the minimum.
func allOf(a *memberAsk) int { return a.want }

// noneOf makes the minimum zero.
func noneOf(*memberAsk) int { return 0 }

// fitIn seats members in a domain; nil if the minimum does not fit.
func (p *gangPacker) fitIn(t *domainTable, d *domain) *gangFit {
	if s := p.pack(d.nodes); s != nil {
		return &gangFit{seating: s, asks: p.asks, level: t.level(), domain: d.name}
	}
	return nil
}

// tightest returns a seating in the tightest domain of a level that takes the minimum of each ask; nil if none does.
func (p *gangPacker) tightest(t *domainTable) *gangFit {
	for c := range inOrder(p.candidates(t), tighter) {
		if fit := p.fitIn(t, c.domain); fit != nil || p.steps.ctx.Err() != nil {
			return fit
		}
	}
	return nil
}

// fullest returns the seating with the most members that one domain of a level takes, at least the minimum of each ask;
// among equals the one in the tightest domain. It tries the accepted domains, those with the highest upper bound first,
// until none can be better than the best so far. all is false if it has stopped before that, because ctx has ended or
// it has made tries attempts.
func (p *gangPacker) fullest(t *domainTable, tries int, accept func(*candidate) bool) (best *gangFit, all bool) {
	var at *candidate
	for c := range inOrder(p.candidates(t), fuller) {
		if best != nil && (c.upper < int64(best.total) || c.upper == int64(best.total) && tighter(c, at) > 0) {
			return best, true
		}
		if p.steps.ctx.Err() != nil {
			return best, false
		}
		if !accept(c) {
			continue
		}
		if tries == 0 {
			return best, false
		}
		tries--
		fit := p.fitIn(t, c.domain)
		if fit != nil && (best == nil || fit.total > best.total || fit.total == best.total && tighter(c, at) < 0) {
			best, at = fit, c
		}
	}
	return best, true
}

// anyDomain accepts all candidates.
func anyDomain(*candidate) bool { return true }

// place finds seats for a gang of which nothing is placed: for all of it on the first level where a domain takes it;
// else, if fewer will do, for as many members as the best domain takes on the first level where a domain takes the
// minimum.
func (p *gangPacker) place(levels []*domainTable) *gangFit {
	if wanted(p.asks) <= p.limit {
		whole := p.withLeast(allOf)
		for _, t := range levels {
			if fit := whole.tightest(t); fit != nil {
				fit.asks = p.asks
				return fit
			}
		}
	}
	if leastOf(p.asks) == wanted(p.asks) {
		return nil
	}
	for _, t := range levels {
		if fit, _ := p.fullest(t, math.MaxInt, anyDomain); fit != nil && fit.trim(p.limit) {
			return fit
		}
	}
	return nil
}

// trim gives up seats, beginning with the last ask, until at most that many are left. It reports false if that would
// take the gang below its minimum.
func (f *gangFit) trim(most int) bool {
	f.trimmed = f.total >= most && most < wanted(f.asks)
	for a := len(f.asks) - 1; a >= 0 && f.total > most; a-- {
		spare := min(f.placed[a]-f.asks[a].least, f.total-most)
		kept := f.placed[a] - spare
		n := 0
		f.seats = slices.DeleteFunc(f.seats, func(s seat) bool {
			if s.ask != a {
				return false
			}
			n++
			return n > kept
		})
		f.placed[a] -= spare
		f.total -= spare
	}
	return f.total <= most
}

// How a running gang that has fallen short is topped up: where its running members are. Members go to the domain that
// all running members share on the first listed level on which they share one. Members that do not fit there go to the
// domain that they share on the next level, and so on. If the gang's levels are only preferred, the remaining members
// may go to any node.

// topUp seats as many waiting members of a running gang as fit, up to the limit; nil if none fits.
func (p *gangPacker) topUp(m *pendingGang, levels []*domainTable) *gangFit {
	draft := &p.index.draft
	start := draft.Checkpoint()
	defer draft.Rollback(start)
	all := &gangFit{seating: &seating{placed: make([]int, len(p.asks)), ordered: p.ruled()}, asks: p.asks}
	for _, t := range levels {
		d := m.domain(t, draft.View().State())
		if d < 0 || all.total == wanted(p.asks) || p.steps.ctx.Err() != nil {
			continue
		}
		draft.Rollback(start)
		if p.index.place(p.asks, all.seating) != nil {
			return nil
		}
		s, which := p.rest(all.placed, t.domains[d].nodes)
		if s.total > 0 && all.total == 0 {
			all.level, all.domain = t.level(), t.domains[d].name
		}
		for _, one := range s.seats {
			one.ask = which[one.ask]
			all.seats = append(all.seats, one)
			all.placed[one.ask]++
			all.total++
		}
	}
	if all.trim(p.limit); all.total == 0 || all.total > p.limit {
		return nil
	}
	return all
}

// rest seats as many members without a seat as fit on the nodes. The asks of its seats are positions in which, and
// which has their positions in p.asks.
func (p *gangPacker) rest(placed []int, nodes []int32) (s *seating, which []int) {
	rest := &gangPacker{index: p.index, steps: p.steps, limit: p.limit - sum(placed), tries: p.tries}
	for a, ask := range p.asks {
		if ask.want -= placed[a]; ask.want > 0 {
			ask.least = 0
			ask.shape.follow(p.index)
			rest.asks, which = append(rest.asks, ask), append(which, a)
		}
	}
	return rest.pack(nodes), which
}

// domain returns the domain of a table that all running members are in; -1 if there is none.
func (m *pendingGang) domain(t *domainTable, state *orbit.State) int32 {
	nodes := make([]orbit.NodeID, len(m.running))
	for i, c := range m.running {
		nodes[i] = c.Node
	}
	return t.shared(state, nodes)
}
