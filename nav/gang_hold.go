package nav

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Holds keep small gangs from starving a large one by taking all freed capacity before enough of it has accumulated.
// Invariants:
//
//   - At most one gang of a navigator has room held for it: the first in order of those that have waited for
//     HoldAfter plans. Any other gang with holds gives them up.
//   - Its holds are in one domain whose whole capacity takes the gang, and serve as many members as fit there. They
//     only grow, except that holds on a draining node are released. Their end moves only when they grow, so a gang
//     of n members holds for n times HoldFor at most, unless nodes drain. A gang whose holds have ended unused waits
//     twice as many plans as before until it may hold again, while other gangs may hold.
//   - A gang releases holds that block a gang before it in the order, of any navigator. Two gangs that each hold
//     half of what the other needs are ordered, so one of them is placed.
//
// A navigator finds holds in the state by their id and by the gang that they name, so holds outlive the navigator that
// made them. The next navigator places the gang in their place, or lets them end.

// holdPrefix begins the ids of holds for gangs.
const holdPrefix = "gang/"

// holdID names the nth hold made for a gang at a revision, with room for so many members. No two engines make
// it for different gangs, and one gang is planned by one engine. No later life makes it again either, unless on
// the very same revision, where the ledger takes it once.
func holdID(id orbit.GangID, at orbit.Revision, n, members int) orbit.HoldID {
	return orbit.HoldID(fmt.Sprintf("%s%s/%d/%d/%d", holdPrefix, groupHash(string(id)), at, n, members))
}

// heldMembers adds up for how many members there is room in holds.
func heldMembers(holds []orbit.Hold) (n int) {
	for i := range holds {
		id := string(holds[i].ID)
		if members, err := strconv.Atoi(id[strings.LastIndexByte(id, '/')+1:]); err == nil {
			n += members
		}
	}
	return n
}

// gangHolds returns the live holds for gangs, by gang, ordered by id. Those whose end has passed are left out: their
// engine is about to release them, or just has.
func gangHolds(state *orbit.State, now time.Time) map[orbit.GangID][]orbit.Hold {
	out := map[orbit.GangID][]orbit.Hold{}
	for h := range state.HoldsWith(holdPrefix) {
		id := orbit.GangID(h.For)
		ours := fmt.Sprintf("%s%s/", holdPrefix, groupHash(string(id)))
		if now.Before(h.Ends) && strings.HasPrefix(string(h.ID), ours) {
			out[id] = append(out[id], h)
		}
	}
	return out
}

// ends returns when the first of the holds ends.
func ends(holds []orbit.Hold) time.Time {
	return slices.MinFunc(holds, func(a, b orbit.Hold) int { return a.Ends.Compare(b.Ends) }).Ends
}

// mayHold reports whether room may be held for a gang in this plan: it has waited long enough or has some
// already, and no gang before it has that right.
func (r *gangPass) mayHold(m *pendingGang, w *gangWait) bool {
	if r.HoldAfter < 0 || r.HoldFor < 0 || !m.fresh() || w == nil || r.holderIn {
		return false
	}
	if len(r.holds[m.id]) == 0 && (r.vain == mostVain || w.plans>>w.lapses < cmp.Or(r.HoldAfter, 5)) {
		return false
	}
	if other := r.holder; other != "" && other != m.id {
		if before := loadGang(r.state, other); before != nil && before.total > 0 && before.fresh() &&
			len(r.holds[other]) > 0 && before.before(m) < 0 {
			return false // not handed over in this plan, but first
		}
	}
	return true
}

// mostVain limits for how many gangs that fit nowhere one plan searches a place for holds; the next plan searches for
// others.
const mostVain = 8

// hold keeps room for a gang that found none, grows what is kept, or gives it up.
func (r *gangPass) hold(m *pendingGang, w *gangWait) {
	holds := r.holds[m.id]
	if len(holds) == 0 && !w.until.IsZero() && !r.view.Now().Before(w.until) { // they have ended
		w.lapse()
		return
	}
	if !r.mayHold(m, w) {
		if len(holds) > 0 && (m.id == r.holder || r.holderIn) {
			r.giveUp(m.id, w)
		}
		return
	}
	fit, verdict := r.keep(m, holds)
	if fit == nil || fit.total == 0 {
		switch {
		case verdict == undecided && len(holds) > 0: // it may yet be of use
			r.holderIn = true
		case len(holds) > 0:
			r.giveUp(m.id, w)
		case verdict != possible: // others may hold, and it need not look again soon
			r.vain++
			w.lapse()
		}
		return
	}
	if r.holder != "" && r.holder != m.id {
		r.giveUp(r.holder, r.waits[r.holder])
	}
	r.holderIn = true
	fit.trim(r.limits.Commitments - max(len(holds), leastOf(m.asks(&r.index)))) // its places and releases are one proposal
	switch {
	case fit.substantial() > heldMembers(holds):
		r.renew(m, w, fit, holds, r.view.Now().Add(cmp.Or(r.HoldFor, 30*time.Second)))
	case r.drained(holds):
		r.renew(m, w, fit, holds, ends(holds))
	}
	if r.holder != m.id && len(holds) == 0 { // nothing of it can be held
		r.holderIn = false
		w.lapse()
	}
}

// substantial counts the seats of members that take anything, which alone can be held.
func (f *gangFit) substantial() (n int) {
	for _, s := range f.seats {
		if spec := f.asks[s.ask].spec; spec.Envelope.Reservation != (orbit.Resources{}) || s.devices != 0 {
			n++
		}
	}
	return n
}

// giveUp releases what is held for a gang, which then waits like any other.
func (r *gangPass) giveUp(id orbit.GangID, w *gangWait) {
	if w != nil {
		w.lapse()
	}
	if r.holder == id {
		r.holder = ""
	}
	if len(r.holds[id]) == 0 {
		return
	}
	for part := range slices.Chunk(r.holds[id], max(1, r.limits.Commitments)) {
		if r.index.release(part) == nil {
			r.plan.Proposals = append(r.plan.Proposals, r.index.draft.Propose())
		}
	}
	r.released += len(r.holds[id])
	r.index.givenUp++
	delete(r.holds, id)
}

// drained reports whether a hold is on a node that takes no work any more.
func (r *gangPass) drained(holds []orbit.Hold) bool {
	return slices.ContainsFunc(holds, func(h orbit.Hold) bool {
		n := r.state.Node(h.Node)
		return n == nil || !n.Node.Schedulable()
	})
}

// verdict says why no room is held for a gang now.
type verdict uint8

const (
	// It could come to fit, elsewhere or later.
	possible verdict = iota
	// It would fit nowhere even if nothing ran.
	hopeless
	// The search ran out of steps.
	undecided
)

// keep chooses where room is held and for which members, with a search of its own: the one for seats may have
// taken all its steps.
func (r *gangPass) keep(m *pendingGang, holds []orbit.Hold) (*gangFit, verdict) {
	start := r.index.draft.Checkpoint()
	defer r.index.draft.Rollback(start)
	if r.index.release(holds) != nil {
		return nil, undecided
	}
	steps := &stepBudget{ctx: r.ctx, left: max(0, min(r.stepsEach(), r.left))}
	p := &gangPacker{index: &r.index, asks: m.asks(&r.index), steps: steps}
	fit, none := r.promising(p, m, holds)
	r.left -= steps.taken
	r.steps += steps.taken
	switch {
	case fit == nil && steps.spent:
		return nil, undecided
	case fit == nil && none:
		return nil, hopeless
	}
	return fit, possible
}

// promising is the domain where room is held already, if the gang can still come to fit there; else, on the first
// level where it can in some domain, the one of those where most fits now. Nil if there is none that is free of gangs
// that come first. None says that there would be none even if nothing ran.
func (r *gangPass) promising(p *gangPacker, m *pendingGang, holds []orbit.Hold) (fit *gangFit, none bool) {
	levels := r.levels(m)
	blocked, some := r.blocked(m), p.withLeast(noneOf)
	for _, t := range levels {
		if d := r.heldIn(t, holds); d >= 0 && p.couldTake(t.domains[d].nodes) {
			if blocked(t.domains[d].nodes) {
				return nil, false
			}
			return some.fitIn(t, &t.domains[d]), false
		}
	}
	if len(holds) > 0 {
		return nil, false
	}
	none = true
	for _, t := range levels { // a domain that has nothing free now, or is blocked, counts as if it could take the gang
		fit, all := some.fullest(t, fewNodes, func(c *candidate) bool {
			if c.upper == 0 || blocked(c.nodes) {
				none = false
				return false
			}
			could := p.couldTake(c.nodes)
			none = none && !could
			return could
		})
		if none = none && all; fit != nil {
			return fit, false
		}
	}
	return nil, none
}

// heldIn returns the domain of a level that all holds are in, -1 if there is none.
func (r *gangPass) heldIn(t *domainTable, holds []orbit.Hold) int32 {
	nodes := make([]orbit.NodeID, len(holds))
	for i := range holds {
		nodes[i] = holds[i].Node
	}
	return t.shared(r.state, nodes)
}

// couldTake reports whether the whole capacity of a domain takes all members.
func (p *gangPacker) couldTake(nodes []int32) bool {
	bare := p.withLeast(allOf)
	bare.bare = true
	return bare.pack(nodes) != nil
}

// blocked returns a function that reports whether some of the given nodes are reserved for a gang before this one: the
// nodes of the narrowest domain of that gang's levels which has all its holds.
func (r *gangPass) blocked(m *pendingGang) func(nodes []int32) bool {
	taken := map[int32]bool{}
	for id, holds := range r.holds {
		if id == m.id {
			continue
		}
		other := loadGang(r.state, id)
		if other == nil || other.total == 0 || !other.fresh() || other.before(m) > 0 {
			continue
		}
		for _, t := range r.levels(other) {
			if d := r.heldIn(t, holds); d >= 0 {
				for _, i := range t.domains[d].nodes {
					taken[i] = true
				}
				break
			}
		}
	}
	return func(nodes []int32) bool {
		return len(taken) > 0 && slices.ContainsFunc(nodes, func(i int32) bool { return taken[i] })
	}
}

// renew holds the room of a seating instead of what is held so far, in one proposal.
func (r *gangPass) renew(m *pendingGang, w *gangWait, fit *gangFit, holds []orbit.Hold, until time.Time) {
	made, members := r.index.merge(fit)
	for i := range made {
		made[i].ID = holdID(m.id, r.view.Revision(), i, members[i])
		if len(made[i].ID) > r.limits.IDBytes {
			return // on this ledger nothing can be held
		}
		made[i].For, made[i].Ends = string(m.id), until
	}
	if len(made) == 0 {
		return
	}
	start := r.index.draft.Checkpoint()
	if r.index.release(holds) != nil {
		return
	}
	err := r.index.steps(len(made), func(i int) error { return r.index.draft.Hold(made[i]) })
	p := r.index.draft.Propose()
	if err != nil || len(p.If) > r.limits.Preconditions {
		r.index.draft.Rollback(start)
		return
	}
	r.plan.Proposals = append(r.plan.Proposals, p)
	r.made += len(made)
	r.released += len(holds)
	w.until, r.holder = until, m.id
}

// merge sums the room of seats up, so that there are few holds: one a node, and one more where members share
// instances or take different parts of them. It also returns for how many members each of them is.
func (x *gangIndex) merge(fit *gangFit) (out []orbit.Hold, members []int) {
	seats := slices.Clone(fit.seats)
	slices.SortStableFunc(seats, func(s, t seat) int { return cmp.Compare(x.id(s.node), x.id(t.node)) })
	begun := 0 // holds on the node that seats are at begin here
	for _, s := range seats {
		spec := fit.asks[s.ask].spec
		if spec.Envelope.Reservation == (orbit.Resources{}) && s.devices == 0 {
			continue // nothing to hold
		}
		if begun < len(out) && out[begun].Node != x.id(s.node) {
			begun = len(out)
		}
		at := slices.IndexFunc(out[begun:], func(h orbit.Hold) bool {
			apart := h.Milli == spec.Devices.Milli && h.Devices&s.devices == 0
			return s.devices == 0 || h.Devices == 0 || apart
		})
		if at += begun; at < begun {
			at = len(out)
			out, members = append(out, orbit.Hold{Node: x.id(s.node)}), append(members, 0)
		}
		members[at]++
		h := &out[at]
		h.Room, _ = h.Room.Add(spec.Envelope.Reservation) // it fits the node, so it does not overflow
		if s.devices != 0 {
			h.Devices, h.Milli = h.Devices|s.devices, spec.Devices.Milli
		}
	}
	return out, members
}
