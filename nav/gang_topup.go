package nav

import (
	"github.com/orbitsched/orbit"
)

// A gang that runs and has fallen short is completed where its running members are: in the domain that all of
// them share on the narrowest listed level on which they share one, and with what does not fit there in the
// domain they share on the next, and so on. If its levels are only preferred, what is then left goes anywhere.

// topUp seats as many waiting members as fit, up to a limit; nil if none does.
func (p *gangPacker) topUp(m *muster, levels []*domainTable, limit int) *gangFit {
	draft := &p.index.draft
	start := draft.Checkpoint()
	defer draft.Rollback(start)
	all := &gangFit{seating: &seating{placed: make([]int, len(p.asks))}, asks: p.asks}
	for _, t := range levels {
		d := m.domain(t, draft.View().State())
		if d < 0 || all.total == wanted(p.asks) || p.steps.ctx.Err() != nil {
			continue
		}
		draft.Rollback(start)
		if p.index.place(p.asks, all.seats) != nil {
			return nil
		}
		s, which := p.rest(all.placed, t.domains[d].nodes)
		if s.total > 0 && all.total == 0 {
			all.level, all.domain = t.level, t.domains[d].name
		}
		for _, one := range s.seats {
			one.ask = which[one.ask]
			all.seats = append(all.seats, one)
			all.placed[one.ask]++
			all.total++
		}
	}
	if all.trim(limit); all.total == 0 || all.total > limit {
		return nil
	}
	return all
}

// rest seats, as far as they fit on the nodes, those who have no seat yet; seats name asks by position in which.
func (p *gangPacker) rest(placed []int, nodes []int32) (s *seating, which []int) {
	rest := &gangPacker{index: p.index, steps: p.steps}
	for a, ask := range p.asks {
		if ask.want -= placed[a]; ask.want > 0 {
			ask.least = 0
			ask.shape.sync(p.index)
			rest.asks, which = append(rest.asks, ask), append(which, a)
		}
	}
	return rest.pack(nodes), which
}

// domain returns the domain that all running members are in, -1 if there is none.
func (m *muster) domain(t *domainTable, state *orbit.State) int32 {
	return t.shared(state, len(m.running), func(k int) orbit.NodeID { return m.running[k].Node })
}

// shareable keeps the levels on which the running members share a domain.
func (m *muster) shareable(levels []*domainTable, state *orbit.State) (out []*domainTable) {
	for _, t := range levels {
		if m.domain(t, state) >= 0 {
			out = append(out, t)
		}
	}
	return out
}
