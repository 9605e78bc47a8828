package nav

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/heap"
	"github.com/orbitsched/orbit/internal/seats"
)

// gangWait is the record of a gang that found no room. It tells whether another try can succeed.
type gangWait struct {
	// The gang's definition, which distinguishes it from a later gang with the same id.
	gang *orbit.Gang
	// The mark on which the diagnosis depends, and the diagnosis.
	seen waitMark
	why  error
	// What the gang asks for, if other gangs may ask for the same; and the owner of its members.
	demand *gangDemand
	owner  string
	tried  gangTry
	// For a broken gang: the revision of its last change, since when the gang was seen so, the revision at which all
	// repairs were last tried, and how many of the gangs that it precedes were tried since.
	broken   orbit.Revision
	since    time.Time
	repaired orbit.Revision
	replaced int
}

// waitMark is the state on which a diagnosis depends: while the mark is the same, the gang still fits nowhere. Capacity
// that other work takes cannot change that.
type waitMark struct {
	// Sums of the clocks when the gang's shapes last gained room, or rules began or ceased to apply to them, and of the
	// versions of its levels' tables. Each such change raises them.
	gained, moved uint64
	// The clock when a node last changed, if rules of company apply to a member. Otherwise the clock when a node last
	// gained room, if the members have several shapes. It is no part of a sum, because it falls when rules cease to apply.
	nodes   uint64
	changed orbit.Revision
	waiting int
	// How much quota is missing for all members that wait; "" if they name no queue or nothing is missing. A gang that found no
	// room has here what was missing beside the rest of that plan, of which some may not be committed.
	quota string
}

// mostWaits is how many gangs are remembered. Further gangs are searched for in every plan.
const mostWaits = 1 << 16

// markOf returns the current mark of a gang; if m is nil, the mark that all gangs with these asks and levels share.
func markOf(x *seats.Index, m *pendingGang, asks []seats.Ask, levels []*seats.Table) waitMark {
	w := waitMark{}
	if m != nil {
		w.changed, w.waiting = m.state.Changed, m.total
	}
	ruled := false
	for i := range asks {
		w.gained += asks[i].Shape.Gained
		ruled = ruled || asks[i].Shape.Ruled
	}
	switch {
	case ruled:
		w.nodes = x.Changed
	case len(asks) > 1:
		w.nodes = x.Gained
	}
	for _, t := range levels {
		w.moved += t.Version
	}
	return w
}

// waiting returns the record of a gang; nil if there is none.
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
		g.drop(m.id) // the record of a former gang with this id
		if g.waits == nil {
			g.waits = map[orbit.GangID]*gangWait{}
		}
		if len(g.waits) >= mostWaits {
			return
		}
		w = &gangWait{gang: m.gang}
		g.waits[m.id] = w
	}
	w.seen, w.why = seen, why
	w.noteBroken(m.state, r.view.Now())
	fit, ok := why.(*GangNoFit) //nolint:errorlint // made here, and never wrapped
	if !ok || !m.fresh() || r.outranks(m) {
		return
	}
	d := r.newDemand(m)
	if d.seen, d.why, d.plan = d.mark(r), fit, r.index.Plan; w.demand != d {
		g.join(w, d)
		w.owner = m.owner
		d.gangs.Push(waitingGang{m.id, m.priority, m.first})
	}
	d.seen.quota = seen.quota
}

// drop forgets the record of a gang, if there is one.
func (g *Gang) drop(id orbit.GangID) {
	if w := g.waits[id]; w != nil {
		g.join(w, nil)
		delete(g.waits, id)
	}
}

// join makes a demand that of a record, which leaves the demand that it had; nil: it has none then. Demands of no record
// are dropped.
func (g *Gang) join(w *gangWait, d *gangDemand) {
	if was := w.demand; was != nil {
		if was.records--; was.records == 0 {
			delete(g.demands, was.key)
		}
	}
	if w.demand = d; d != nil {
		d.records++
	}
}

// mostForgotten is how many records a plan checks at least to find gangs that no longer wait.
const mostForgotten = 64

// forget drops the records of gangs that are gone or no longer wait. It checks only some records in each plan, more than
// the plan can add. Over the plans it reaches all, because Go's map order begins somewhere else each time.
func (g *Gang) forget(state *orbit.State, planned int) {
	looked := 0
	for id, w := range g.waits {
		if looked++; looked > mostForgotten+2*planned {
			return
		}
		now := state.Gang(id)
		if now == nil || now.Gang != w.gang || now.Changed != w.seen.changed && !now.Short() && now.Total() > 0 || !waits(state, id) {
			g.drop(id)
		}
	}
}

// waits reports whether any member of a gang is pending. If the gang waits, the first member usually is.
func waits(state *orbit.State, id orbit.GangID) bool {
	for c := range state.Members(id) {
		if c.Pending() {
			return true
		}
	}
	return false
}

// gangDemand is what several waiting gangs ask for alike: as many members of the same shapes, on the same levels. If
// the first of them fits nowhere, none of them does.
type gangDemand struct {
	key string
	// How many records of gangs have this demand.
	records int
	asks    []seats.Ask
	levels  []string
	loose   bool
	seen    waitMark
	why     *GangNoFit
	tried   gangTry
	// The plan in which seen and why were found.
	plan uint64
	// The waiting gangs in the order in which they are planned. Some may have been placed since, or may be gone.
	gangs heap.Heap[waitingGang]
}

// waitingGang is a gang in the queue of its demand, as it was when it found no room.
type waitingGang struct {
	id       orbit.GangID
	priority int32
	first    uint64
}

// Before orders gangs as they are planned.
func (a waitingGang) Before(b waitingGang) bool {
	return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.first, b.first), cmp.Compare(a.id, b.id)) < 0
}

// demand returns the demand that a gang shares with others; nil if none of them has one, or if the gang runs or outranks
// a nomination, because then its diagnosis is its own.
func (r *gangPass) demand(m *pendingGang) *gangDemand {
	if !m.fresh() || len(r.demands) == 0 || r.outranks(m) {
		return nil
	}
	return r.demands[r.demandKey(m)]
}

// demandKey describes what a gang asks for.
func (r *gangPass) demandKey(m *pendingGang) string {
	if m.demandKey == "" {
		asks := m.asks(&r.index)
		text := fmt.Appendf(nil, "%t %q %d", m.gang.Loose, m.gang.Levels, m.least())
		for i := range asks {
			text = fmt.Appendf(text, " %d/%d in %q of %s", asks[i].Least, asks[i].Want, asks[i].Spec.Queue, r.index.Keys[asks[i].Request])
		}
		m.demandKey = string(text)
	}
	return m.demandKey
}

// newDemand returns the demand of a gang that does not run, and makes it if there is none.
func (r *gangPass) newDemand(m *pendingGang) *gangDemand {
	key := r.demandKey(m)
	if d := r.demands[key]; d != nil {
		return d
	}
	if r.demands == nil {
		r.demands = map[string]*gangDemand{}
	}
	asks := m.asks(&r.index)
	d := &gangDemand{key: key, levels: m.gang.Levels, loose: m.gang.Loose}
	for i := range asks {
		d.asks = append(d.asks, seats.Ask{Shape: asks[i].Shape, Request: asks[i].Request, Want: asks[i].Want, Least: asks[i].Least})
	}
	r.demands[key] = d
	return d
}

// mark returns the current mark of the demand.
func (d *gangDemand) mark(r *gangPass) waitMark {
	for i := range d.asks { // the index returns a new shape if it has dropped the old one
		d.asks[i].Shape = r.index.ShapeOf(d.asks[i].Request)
	}
	w := markOf(&r.index, nil, d.asks, r.tables(d.levels, d.loose))
	if w.quota = d.seen.quota; d.plan != r.index.Plan { // a plan does not get more quota as it goes
		w.quota = quotaMark(&r.quotas, d.asks)
	}
	return w
}

// quotaMark returns what is missing of each resource for all members that wait. Of devices of any model it returns what is missing for
// each model that the quotas name.
func quotaMark(quotas *orbit.Quotas, asks []seats.Ask) string {
	var text []byte
	for i := range asks {
		spec, n := asks[i].Spec, asks[i].Want
		q, queued := quotas.Queue(spec.Queue)
		if !queued {
			continue
		}
		models := append([]string{""}, spec.Devices.Models...)
		if spec.Devices.Count > 0 && len(models) == 1 {
			for _, name := range slices.Sorted(maps.Keys(q.Available())) {
				if model, is := strings.CutPrefix(name, "device/"); is {
					models = append(models, model)
				}
			}
		}
		for _, model := range models {
			if short := quotas.Short(spec, model, n); len(short) > 0 {
				text = fmt.Appendf(text, "%d %s %v ", i, model, short)
			}
		}
		model := spec.Devices.Model()
		quotas.Charge(spec, model, n)
		defer quotas.Charge(spec, model, -n)
	}
	return string(text)
}

// missing returns the part quota of a mark as the plan leaves it.
func (r *gangPass) missing(m *pendingGang) string {
	asks := m.asks(&r.index)
	if !slices.ContainsFunc(asks, func(a seats.Ask) bool { return a.Spec.Queue != "" }) {
		return ""
	}
	var quotas orbit.Quotas
	quotas.Follow(&r.index.Draft)
	return quotaMark(&quotas, asks)
}

// answer returns the diagnosis of this demand, in the name of one gang; nil if it may no longer hold.
func (d *gangDemand) answer(r *gangPass, id orbit.GangID) error {
	if d == nil || d.why == nil || d.seen != d.mark(r) {
		return nil
	}
	why := *d.why
	why.Gang = id
	return &why
}

// returning returns remembered gangs to plan again: for each demand that may fit now, its first gang that is not in the
// batch. When that gang is placed, planAll goes on with the next one of the demand.
func (r *gangPass) returning(here map[orbit.GangID]bool) (out []*pendingGang) {
	for _, d := range r.demands { // map order will do: planAll orders the gangs
		if d.why != nil && len(d.gangs) > 0 && d.counted(&r.index) && d.seen != d.mark(r) {
			if m := r.next(d, here); m != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// counted reports whether the index has the counts of all shapes of the demand.
func (d *gangDemand) counted(x *seats.Index) bool {
	return !slices.ContainsFunc(d.asks, func(a seats.Ask) bool { return x.Shapes[x.Keys[a.Request]] == nil })
}

// next returns the first gang of a demand that still waits, has not been planned in this pass, and has the same owner
// as before. Gangs that it drops join the demand again when they are pending and find no room.
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
				m.delay(r.view)
				m.owner = w.owner
				if m.fault = cmp.Or(m.fault, m.inspect()); m.fault == nil && r.demand(m) == d {
					return m
				}
			}
			r.join(w, nil)
		}
		d.gangs.Pop()
	}
	return nil
}

// plannedGang is a gang that this plan has planned, with the demand that it was taken from.
type plannedGang struct {
	demand *gangDemand
	gang   waitingGang
}

// setBack returns the planned gangs to their demands, because they still wait unless their proposals are committed.
func (r *gangPass) setBack() {
	for _, p := range r.planned {
		if w := r.waits[p.gang.id]; w != nil && w.demand == p.demand {
			p.demand.gangs.Push(p.gang)
		}
	}
}
