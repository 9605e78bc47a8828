package nav

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
)

// gangWait is the record of a gang that found no room. It tells whether another try can succeed.
type gangWait struct {
	// Tells a gang from a later one with its id.
	gang *orbit.Gang
	// What the answer rested on.
	seen waitMark
	why  error
	// What it asks for, if other gangs may ask for the same; and who owns its members.
	demand *gangDemand
	owner  string
}

// waitMark is what a misfit depends on: it stays a misfit while the mark is equal. Capacity that other work takes
// cannot change that.
type waitMark struct {
	// Sums of when the gang's shapes last gained room, and of when nodes last changed domain. They rise with any of it.
	gained, moved uint64
	changed       orbit.Revision
	waiting       int
}

// mostWaits is how many gangs are remembered. Those beyond are tried in every plan.
const mostWaits = 1 << 16

// markOf returns what an answer to a gang rests on now; without a gang, one to all that ask for this.
func markOf(x *gangIndex, m *pendingGang, asks []memberAsk, levels []*domainTable) waitMark {
	w := waitMark{}
	if m != nil {
		w.changed, w.waiting = m.state.Changed, m.total
	}
	for i := range asks {
		w.gained += asks[i].shape.gained
	}
	if len(asks) > 1 {
		w.gained += x.gained
	}
	for _, t := range levels {
		w.moved += t.version
	}
	return w
}

// waiting returns what is remembered of a gang, nil if nothing is.
func (g *Gang) waiting(m *pendingGang) *gangWait {
	if w := g.waits[m.id]; w != nil && w.gang == m.gang {
		return w
	}
	return nil
}

// failed remembers that a gang found no room.
func (r *gangPass) failed(m *pendingGang, seen waitMark, why error) {
	g := r.Gang
	w := g.waiting(m)
	if w == nil {
		if g.waits == nil {
			g.waits = map[orbit.GangID]*gangWait{}
		}
		if len(g.waits) >= mostWaits && g.waits[m.id] == nil {
			return
		}
		w = &gangWait{gang: m.gang}
		g.waits[m.id] = w
	}
	w.seen, w.why = seen, why
	d := r.demand(m)
	if fit, ok := why.(*GangNoFit); ok && d != nil { //nolint:errorlint // made here, and never wrapped
		d.seen, d.why = d.mark(r), fit
		if w.demand != d {
			w.demand, w.owner = d, m.owner
			d.gangs.Push(waitingGang{m.id, m.priority, m.first})
		}
	}
}

// mostForgotten is how many gangs a plan looks at to find those that do not wait any more.
const mostForgotten = 64

// forget drops what is remembered of some gangs that are gone, or that do not wait any more: in the end of all, because
// each plan begins somewhere else.
func (g *Gang) forget(state *orbit.State) {
	looked := 0
	for id, w := range g.waits {
		if looked++; looked > mostForgotten {
			return
		}
		now := state.Gang(id)
		if now == nil || now.Gang != w.gang || now.Changed != w.seen.changed && !now.Short() && now.Total() > 0 {
			delete(g.waits, id)
		}
	}
	for key, d := range g.demands {
		if looked++; looked > 2*mostForgotten {
			return
		}
		if len(d.gangs) == 0 {
			delete(g.demands, key)
		}
	}
}

// gangDemand is what gangs that wait ask for that are alike: as many members of the same shapes, on the same levels. Where
// the first of them fits nowhere, none does.
type gangDemand struct {
	asks   []memberAsk
	levels []string
	loose  bool
	seen   waitMark
	why    *GangNoFit
	// The gangs that wait, first in order first. Some may have been placed or may be gone.
	gangs heap.Heap[waitingGang]
}

// waitingGang is a gang in the order of those with one demand, as it was when it found no room.
type waitingGang struct {
	id       orbit.GangID
	priority int32
	first    uint64
}

// Before orders gangs as they are planned.
func (a waitingGang) Before(b waitingGang) bool {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.first, b.first), cmp.Compare(a.id, b.id)) < 0
}

// demand returns what a gang asks for together with others; nil if its answer is its own, because it runs.
func (r *gangPass) demand(m *pendingGang) *gangDemand {
	if !m.fresh() {
		return nil
	}
	asks := m.asks(&r.index)
	text := fmt.Appendf(nil, "%t %q", m.gang.Loose, m.gang.Levels)
	for i := range asks {
		text = fmt.Appendf(text, " %d/%d of %s", asks[i].least, asks[i].want, r.index.keys[asks[i].askedBy])
	}
	key := string(text)
	d := r.demands[key]
	if d == nil {
		if r.demands == nil {
			r.demands = map[string]*gangDemand{}
		}
		d = &gangDemand{levels: m.gang.Levels, loose: m.gang.Loose}
		for i := range asks {
			d.asks = append(d.asks, memberAsk{shape: asks[i].shape, askedBy: asks[i].askedBy, want: asks[i].want, least: asks[i].least})
		}
		r.demands[key] = d
	}
	return d
}

// mark returns what an answer to the demand rests on now.
func (d *gangDemand) mark(r *gangPass) waitMark {
	for i := range d.asks { // another shape, if the index has forgotten it
		d.asks[i].shape = r.index.shape(d.asks[i].askedBy)
	}
	return markOf(&r.index, nil, d.asks, r.tables(d.levels, d.loose))
}

// answer returns what has been found of gangs with the demand, for one of them; nil if that may not hold any more.
func (d *gangDemand) answer(r *gangPass, id orbit.GangID) error {
	if d == nil || d.why == nil || d.seen != d.mark(r) {
		return nil
	}
	why := *d.why
	why.Gang = id
	return &why
}

// returning yields, of the gangs that were not handed over, the first of each demand that may fit now; and after one that
// was placed the next.
func (r *gangPass) returning(here map[orbit.GangID]bool) (out []*pendingGang) {
	for _, d := range r.demands { // in any order: the gangs are put in order afterwards
		if d.why != nil && len(d.gangs) > 0 && d.counted(&r.index) && d.seen != d.mark(r) {
			if m := r.next(d, here); m != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// counted reports whether the index has the counts of all shapes of the demand.
func (d *gangDemand) counted(x *gangIndex) bool {
	return !slices.ContainsFunc(d.asks, func(a memberAsk) bool { return x.shapes[x.keys[a.askedBy]] == nil })
}

// next returns the first gang of a demand that waits still, has not been planned in this pass, and has the owner that it
// had. Those that it passes over for good come back when they are handed over and find no room.
func (r *gangPass) next(d *gangDemand, here map[orbit.GangID]bool) *pendingGang {
	for len(d.gangs) > 0 {
		first := d.gangs[0]
		if here[first.id] {
			r.planned = append(r.planned, plannedGang{d, d.gangs.Pop()})
			continue
		}
		w := r.waits[first.id]
		if w != nil && w.demand == d {
			if m := loadGang(r.state, first.id); m != nil && m.gang == w.gang && m.total > 0 && m.priority == first.priority && m.first == first.first {
				m.age(r.view)
				m.owner = w.owner
				if m.fault = m.inspect(); m.fault == nil && r.demand(m) == d {
					return m
				}
			}
			w.demand = nil
		}
		d.gangs.Pop()
	}
	return nil
}

// plannedGang is a gang of a demand that this plan has planned.
type plannedGang struct {
	demand *gangDemand
	gang   waitingGang
}

// setBack lets the demands remember the gangs that have been planned, which wait on unless their proposals are committed.
func (r *gangPass) setBack() {
	for _, p := range r.planned {
		p.demand.gangs.Push(p.gang)
	}
}
