package nav

import (
	"cmp"
	"slices"
)

// gangFit is where the members of a gang go.
type gangFit struct {
	*seating
	asks []memberAsk
	// The level and the domain; the empty level is all nodes.
	level, domain string
	// How much room there was in the domain before, as in slack.
	slack float64
	// Fewer members have seats than there is room for: a proposal takes no more.
	trimmed bool
}

// fit is a seating in a domain of the level.
func (t *domainTable) fit(p *gangPacker, s *seating, c *candidate) *gangFit {
	return &gangFit{seating: s, asks: p.asks, level: t.level, domain: t.domains[c.number].name, slack: c.slack}
}

// candidate is a domain that may take members.
type candidate struct {
	number int32
	// No more members than this fit.
	upper int64
	slack float64
}

// Which domain of a level a gang goes to. The slack of a domain says how many times over its members would fit
// there: for every ask, how many of its shape would fit by themselves, node by node, in units of how many the
// gang has; summed over the asks. For a gang of one shape, slack less one is exactly what is left after
// placing it. The domain with the least slack is the tightest; among equals the first by name.
//
// Slack counts whole members and not milli-cores, so what is left in pieces too small for any member, or is
// short of another resource, does not make a domain look roomy.

// candidates returns the domains of a level in which every ask has room for need of it by itself.
func candidates(t *domainTable, asks []memberAsk, need func(*memberAsk) int) []candidate {
	var out []candidate
	sums := make([][]int64, len(asks))
	for a := range asks {
		sums[a] = asks[a].shape.by(t)
	}
next:
	for d := range t.domains {
		if len(t.domains[d].nodes) == 0 {
			continue
		}
		c := candidate{number: int32(d)}
		for a := range asks {
			n := sums[a][d]
			if n < int64(need(&asks[a])) {
				continue next
			}
			c.upper += min(n, int64(asks[a].want))
			c.slack += float64(n) / float64(asks[a].want)
		}
		out = append(out, c)
	}
	return out
}

// tighter orders candidates by slack, and then by name.
func (t *domainTable) tighter(a, b *candidate) int {
	if a.slack != b.slack {
		return cmp.Compare(a.slack, b.slack)
	}
	return cmp.Compare(t.domains[a.number].name, t.domains[b.number].name)
}

// fuller orders candidates by how many members may fit, most first, and then as tighter does.
func (t *domainTable) fuller(a, b *candidate) int {
	if a.upper != b.upper {
		return cmp.Compare(b.upper, a.upper)
	}
	return t.tighter(a, b)
}

// inOrder visits candidates in order until one is taken. It sorts only as far as it has to, with a heap: mostly the
// first few will do.
func inOrder(list []candidate, order func(a, b *candidate) int, visit func(candidate) (done bool)) {
	for i := len(list)/2 - 1; i >= 0; i-- {
		sink(list, i, order)
	}
	for len(list) > 0 && !visit(list[0]) {
		last := len(list) - 1
		list[0] = list[last]
		list = list[:last]
		sink(list, 0, order)
	}
}

// sink moves the candidate at i down to where both below it come later.
func sink(list []candidate, i int, order func(a, b *candidate) int) {
	for {
		next := 2*i + 1
		if next >= len(list) {
			return
		}
		if next+1 < len(list) && order(&list[next+1], &list[next]) < 0 {
			next++
		}
		if order(&list[i], &list[next]) <= 0 {
			return
		}
		list[i], list[next] = list[next], list[i]
		i = next
	}
}

// atLeast returns a packer for the same members with another least of every ask.
func (p *gangPacker) atLeast(least func(*memberAsk) int) *gangPacker {
	q := &gangPacker{index: p.index, asks: slices.Clone(p.asks), steps: p.steps}
	for a := range q.asks {
		q.asks[a].least = least(&q.asks[a])
	}
	return q
}

// none asks for no least.
func none(*memberAsk) int { return 0 }

// whole returns the tightest domain of a level that takes all members, nil if none does.
func (p *gangPacker) whole(t *domainTable) (best *gangFit) {
	all := p.atLeast(func(a *memberAsk) int { return a.want })
	list := candidates(t, all.asks, func(a *memberAsk) int { return a.want })
	inOrder(list, t.tighter, func(c candidate) bool {
		if s := all.pack(t.domains[c.number].nodes); s != nil {
			best = t.fit(p, s, &c)
		}
		return best != nil || p.steps.ctx.Err() != nil
	})
	return best
}

// most returns the domain of a level that takes most members, at least the least of every ask, the tightest
// among equals; nil if none does. It goes through the domains by how many they might take, until none can take
// more than the best so far.
func (p *gangPacker) most(t *domainTable) (best *gangFit) {
	list := candidates(t, p.asks, func(a *memberAsk) int { return a.least })
	bestAt := candidate{}
	inOrder(list, t.fuller, func(c candidate) bool {
		if best != nil && c.upper < int64(best.total) || p.steps.ctx.Err() != nil {
			return true
		}
		if best != nil && c.upper == int64(best.total) && t.tighter(&c, &bestAt) > 0 {
			return false
		}
		s := p.pack(t.domains[c.number].nodes)
		if s != nil && (best == nil || s.total > best.total || s.total == best.total && t.tighter(&c, &bestAt) < 0) {
			best, bestAt = t.fit(p, s, &c), c
		}
		return false
	})
	return best
}

// place finds where a gang that has yet to be placed goes: all of it on the first level where a domain takes
// it; else, if fewer will do, as much of it as the best domain takes on the first level where one takes enough.
func (p *gangPacker) place(levels []*domainTable, limit int) *gangFit {
	if wanted(p.asks) <= limit {
		for _, t := range levels {
			if fit := p.whole(t); fit != nil {
				return fit
			}
		}
	}
	if !flexible(p.asks) {
		return nil
	}
	for _, t := range levels {
		if fit := p.most(t); fit != nil && fit.trim(limit) {
			return fit
		}
	}
	return nil
}

// trim gives up seats, those of the last ask first, until there are at most so many. It reports false if that
// would take the gang below its minimum.
func (f *gangFit) trim(most int) bool {
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
		f.trimmed = f.trimmed || spare > 0
	}
	return f.total <= most
}
