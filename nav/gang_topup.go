package nav

import (
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// A gang that runs and has fallen short is completed where its running members are: in the domain that all of
// them share on the narrowest listed level on which they share one, and with what does not fit there in the
// domain they share on the next, and so on. If its levels are only preferred, what is then left goes anywhere.

// topUp seats as many waiting members as fit, up to a limit; nil if none does.
func (p *gangPacker) topUp(m *muster, levels []*domainTable, limit int) *gangFit {
	all := &gangFit{seating: &seating{placed: make([]int, len(p.asks))}, asks: p.asks}
	for _, t := range levels {
		d := m.domain(t, p.books)
		if d < 0 || all.total == wanted(p.asks) || p.steps.ctx.Err() != nil {
			continue
		}
		undo := p.books.try(p.asks, all.seating)
		s, which := p.rest(all.placed, t.domains[d].nodes)
		undo()
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
	rest := &gangPacker{books: p.books, steps: p.steps}
	for a, ask := range p.asks {
		if ask.want -= placed[a]; ask.want > 0 {
			ask.least = 0
			ask.shape.sync(p.books)
			rest.asks, which = append(rest.asks, ask), append(which, a)
		}
	}
	return rest.pack(nodes), which
}

// domain returns the domain that all running members are in, -1 if there is none.
func (m *muster) domain(t *domainTable, b *gangBooks) int32 {
	return t.shared(b.view.State(), len(m.running), func(k int) orbit.NodeID { return m.running[k].Node })
}

// try takes seats in the books for as long as the caller goes on trying, and returns what undoes it.
func (b *gangBooks) try(asks []memberAsk, s *seating) (undo func()) {
	was := map[int32]nodeRoom{}
	reserved := map[int32]bool{}
	for _, one := range s.seats {
		n := &b.nodes[one.node]
		if _, known := was[one.node]; !known {
			was[one.node], reserved[one.node] = n.nodeRoom, n.reserved
		}
		room := n.nodeRoom
		room.take(asks[one.ask].spec, one.devices)
		b.set(one.node, room, true)
	}
	return func() {
		for _, i := range slices.Sorted(maps.Keys(was)) {
			b.set(i, was[i], reserved[i])
		}
	}
}

// shareable keeps the levels on which the running members share a domain.
func (m *muster) shareable(levels []*domainTable, b *gangBooks) (out []*domainTable) {
	for _, t := range levels {
		if m.domain(t, b) >= 0 {
			out = append(out, t)
		}
	}
	return out
}
