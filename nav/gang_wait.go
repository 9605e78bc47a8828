package nav

import (
	"time"

	"github.com/orbitsched/orbit"
)

// gangWait is the record of a gang that found no room. It tells whether another try can succeed, and how long the gang
// has waited while other capsules were placed and ended.
type gangWait struct {
	// Tells a gang from a later one with its id.
	gang *orbit.Gang
	// What the answer rested on.
	seen waitMark
	why  error
	// Plans in which it found no room although others had moved.
	plans int
	// When the holds that were made for it end; zero: none were.
	until time.Time
	// How often holds for it ended in vain.
	lapses int
}

// lapse begins the wait again, for twice as long, after holds that led to nothing.
func (w *gangWait) lapse() {
	w.plans, w.until = 0, time.Time{}
	w.lapses = min(w.lapses+1, mostLapses)
}

// mostLapses bounds the wait for holds to 256 times what it is at first.
const mostLapses = 8

// waitMark is what a misfit depends on: it stays a misfit while the mark is equal. Capacity that other work takes
// cannot change that.
type waitMark struct {
	// Sums of when the gang's shapes last gained room, and when nodes last changed domain. They rise with any of it.
	gained, moved uint64
	changed       orbit.Revision
	waiting       int
	holds         int
}

// mostWaits is how many gangs are remembered. Those beyond are tried in every plan, and never held for.
const mostWaits = 1 << 16

// markOf returns what an answer to the gang rests on now.
func markOf(x *gangIndex, m *pendingGang, asks []memberAsk, levels []*domainTable, holds int) waitMark {
	w := waitMark{changed: m.state.Changed, waiting: m.total, holds: holds}
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
func (g *Gang) failed(m *pendingGang, seen waitMark, why error) {
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
}

// forget drops what is remembered of gangs that are gone, or that do not wait any more.
func (g *Gang) forget(state *orbit.State) {
	for id, w := range g.waits {
		now := state.Gang(id)
		if now == nil || now.Gang != w.gang || now.Changed != w.seen.changed && !now.Short() && now.Total() > 0 {
			delete(g.waits, id)
		}
	}
}
