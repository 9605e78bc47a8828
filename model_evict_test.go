package orbit

import (
	"math"
	"math/big"
	"slices"
)

// What the model says of wishes: who may be taken off a node because somebody wants that.

// modelWishes is what one proposal wishes.
type modelWishes struct {
	readied   map[NodeID]bool       // nodes that it makes ready, at some point
	moved     map[CapsuleID]bool    // taken off their nodes to be placed again
	gangs     map[GangID]bool       // gangs that it takes members from
	drained   map[GangID]bool       // those of which a member leaves a cordoned node
	displaced map[GangID][]*refusal // those of which members leave ready nodes
	at        int                   // the commitment that is executed
	victims   []int                 // evictions that make way, and those whose victim has left
	passed    []int
	evicted   map[CapsuleID]bool
	evictedOf map[GangID]bool
	placed    map[CapsuleID]bool // what it places, and whether after everything that still runs there
	wished    map[CapsuleID]bool // by which members are taken off their nodes
}

func newModelWishes() modelWishes {
	return modelWishes{readied: map[NodeID]bool{}, moved: map[CapsuleID]bool{}, gangs: map[GangID]bool{},
		drained: map[GangID]bool{}, displaced: map[GangID][]*refusal{},
		evicted: map[CapsuleID]bool{}, evictedOf: map[GangID]bool{}, wished: map[CapsuleID]bool{}, placed: map[CapsuleID]bool{}}
}

// drains reports whether a node takes no work, before the proposal and all through it.
func (r *modelRound) drains(id NodeID) bool {
	was, ok := r.was.nodes[id]
	return ok && was.State != Ready && !r.wishes.readied[id]
}

// mayReturn says why a placed capsule may not be released back to pending.
func (r *modelRound) mayReturn(id CapsuleID, c modelCapsule) *refusal {
	w := &r.wishes
	if r.was.capsules[id].node == "" || r.now.nodes[c.node].State == Lost {
		return nil
	}
	w.wished[id] = true
	specified := r.was.nodes[c.node].spec
	switch {
	case c.gang == "" && r.drains(c.node):
		return nil
	case c.gang == "":
		return lostTo(max(specified, r.was.capsules[id].changed))
	}
	w.gangs[c.gang] = true
	if r.drains(c.node) {
		w.drained[c.gang] = true
	} else {
		w.displaced[c.gang] = append(w.displaced[c.gang], lostTo(max(specified, r.was.gangs[c.gang].changed, r.was.capsules[id].changed)))
	}
	return nil
}

// evict takes a capsule off its node for another place.
func (r *modelRound) evict(e Evict) *refusal {
	c, ok := r.now.capsules[e.Capsule]
	if e.For != "" || e.ForGang != "" {
		r.evictFor(e, c)
		return nil
	}
	if !ok {
		return lostTo(r.was.left.Capsules)
	}
	if no := r.unseen(e.Capsule); no != nil {
		return no
	}
	if c.node != e.From || c.placedAt != e.Since {
		return lostTo(r.was.capsules[e.Capsule].changed)
	}
	was, now := r.was.nodes[e.From].Node, r.now.nodes[e.From].Node
	expelled := modelExpels(was, c.spec) && modelExpels(now, c.spec)
	waits := r.waitsToBegin(e.Capsule, c)
	if c.spec.Ends && !c.spec.Movable && (c.begun || !now.Confirms) {
		return lostTo(max(r.was.nodes[e.From].spec, r.was.capsules[e.Capsule].changed))
	}
	if !waits && !c.spec.Movable && !r.drains(e.From) && !expelled && !r.was.covered(c.spec) {
		no := lostTo(max(r.was.nodes[e.From].spec, r.was.capsules[e.Capsule].changed, r.was.left.Budgets, r.was.gangs[c.gang].changed))
		if c.gang == "" || !r.was.broken(c.gang) {
			return no
		}
		r.wishes.displaced[c.gang] = append(r.wishes.displaced[c.gang], no)
	}
	if !waits && r.now.nodes[e.From].State != Lost {
		r.wishes.wished[e.Capsule] = true
	}
	r.now.touchNode(c.node)
	r.now.touchGang(c.gang)
	r.leave(e.Capsule, &c)
	c.node, c.devices, c.note, c.changed = "", 0, "", r.now.rev
	r.now.capsules[e.Capsule] = c
	r.wishes.moved[e.Capsule] = true
	if c.gang != "" && !waits {
		r.wishes.gangs[c.gang] = true
	}
	return nil
}

// unkind judges what the wishes of a proposal leave.
func (r *modelRound) unkind() (out []*refusal) {
	w := &r.wishes
	for id := range w.moved {
		if r.now.capsules[id].node == "" {
			out = append(out, lostTo(0))
		}
	}
	for id, why := range w.displaced {
		if (!w.drained[id] || !r.emptied[id]) && !r.rebuilt(id) {
			out = append(out, why...)
		}
		r.now.rebuilt += btoi(r.rebuilt(id) && sumOf(r.now.placed(id)) > 0)
	}
	for id := range w.gangs {
		was := r.was.placed(id)
		if was == nil {
			continue
		}
		short, fewer, any := r.now.lacking(id, r.now.placed(id)), false, false
		for i, placed := range r.now.placed(id) {
			fewer = fewer || i < len(was) && placed < was[i]
			any = any || placed > 0
		}
		if short && fewer && any {
			newest := r.was.gangs[id].changed
			for member := range w.wished {
				if was := r.was.capsules[member]; was.gang == id {
					newest = max(newest, was.changed)
				}
			}
			out = append(out, lostTo(newest))
		}
	}
	return out
}

// mixesStopped reports whether a proposal says that something has stopped, or confirms something, and does anything else but end
// capsules and place anew what has stopped.
func mixesStopped(do []Commitment) bool {
	other, agent, stopped := false, false, map[CapsuleID]bool{}
	for _, c := range do {
		switch c := c.(type) {
		case Confirm:
			agent = true
		case Release:
			if c.Stopped {
				agent, stopped[c.Capsule] = true, true
			}
			other = other || c.Hold != "" || !c.Stopped && !c.Final
		case Place:
			other = other || !stopped[c.Capsule]
		default:
			other = true
		}
	}
	return agent && other
}

// evictFor takes a victim off its node, if it is still there.
func (r *modelRound) evictFor(e Evict, c modelCapsule) {
	w := &r.wishes
	if c.node != e.From || c.placedAt != e.Since || r.was.capsules[e.Capsule].placedAt != e.Since {
		w.passed = append(w.passed, w.at)
		return
	}
	r.now.touchNode(c.node)
	r.now.touchGang(c.gang)
	r.mayEnd(e.Capsule, c)
	recalled := c.borrows == modelNominee{e.ForGang, e.For}
	r.leave(e.Capsule, &c)
	c.node, c.devices, c.note, c.changed = "", 0, "", r.now.rev
	r.now.capsules[e.Capsule] = c
	w.victims, w.evicted[e.Capsule] = append(w.victims, w.at), true
	if recalled {
		r.now.recalled++
	} else {
		w.wished[e.Capsule] = true
	}
	if c.gang == "" {
		return
	}
	w.gangs[c.gang], w.evictedOf[c.gang] = true, true
	if sumOf(r.now.placed(c.gang)) == 0 {
		if r.emptied == nil {
			r.emptied = map[GangID]bool{}
		}
		r.emptied[c.gang] = true
	}
}

// newcomers are the capsules that the proposal places, and those that grow, with the priorities at which they evict.
func (r *modelRound) newcomers() map[CapsuleID]int32 {
	out := map[CapsuleID]int32{}
	for id, c := range r.now.capsules {
		if _, grows := r.grows[id]; c.node == "" || !grows && (c.placedAt != r.now.rev || c.adopted) {
			continue
		}
		out[id] = c.spec.Priority
		if _, ok := r.now.gangs[c.gang]; ok {
			out[id] = min(out[id], slices.Min(r.now.priorities(c.gang)))
		}
	}
	return out
}

// causes are the newcomers that an eviction makes way for.
func (r *modelRound) causes(e Evict) (out []CapsuleID) {
	for id := range r.newcomers() {
		if _, grows := r.grows[id]; id == e.For || !grows && e.ForGang != "" && r.now.capsules[id].gang == e.ForGang {
			out = append(out, id)
		}
	}
	return out
}

// needless returns the evictions that are not needed.
func (r *modelRound) needless() (drop []int, no *refusal) {
	w := &r.wishes
	for _, at := range slices.Concat(w.victims, w.passed) {
		if len(r.causes(r.p.Do[at].(Evict))) == 0 {
			return nil, lostTo(0)
		}
	}
	drop = slices.Clone(w.passed)
	back := map[CapsuleID]bool{}
	for _, unit := range r.units() {
		spared, no := r.putBack(unit, back)
		if no != nil {
			return nil, no
		}
		drop = append(drop, spared...)
	}
	for _, at := range w.victims {
		if _, grows := r.grows[r.p.Do[at].(Evict).For]; grows && len(drop) == 0 {
			r.now.outgrown++
		}
	}
	return drop, nil
}

// units are single victims, and gangs that lose all that was placed.
func (r *modelRound) units() (out [][]int) {
	whole := map[GangID]int{}
	for _, at := range r.wishes.victims {
		id := r.p.Do[at].(Evict).Capsule
		gang := r.now.capsules[id].gang
		i, known := whole[gang]
		switch {
		case gang == "" || !r.goneWhole(gang):
			out = append(out, []int{at})
		case known:
			out[i] = append(out[i], at)
		default:
			whole[gang] = len(out)
			out = append(out, []int{at})
		}
	}
	return out
}

// putBack puts a unit back as far as it fits.
func (r *modelRound) putBack(unit []int, back map[CapsuleID]bool) (spared []int, no *refusal) {
	first := r.p.Do[unit[0]].(Evict).Capsule
	gang := r.now.capsules[first].gang
	priority, newcomers := r.now.capsules[first].spec.Priority, r.newcomers()
	whole := gang != "" && r.goneWhole(gang)
	if whole {
		priority = max(priority, slices.Max(r.now.priorities(gang)))
	}
	for _, at := range unit {
		cause, between := int32(math.MaxInt32), true
		for _, id := range r.causes(r.p.Do[at].(Evict)) {
			if !r.reclaims(id, r.p.Do[at].(Evict).Capsule) {
				cause, between = min(cause, newcomers[id]), false
			}
		}
		if between { // unjust says whether it may
			continue
		}
		truce := r.now.limits.NeverEvictFrom <= priority && cause <= r.now.limits.NeverEvictTo
		replaces, newest := false, Revision(0)
		if e := r.p.Do[at].(Evict); e.ForGang != "" && gang != "" {
			replaces, newest = whole && r.replaces(e.ForGang, gang), max(r.was.gangs[e.ForGang].changed, r.was.gangs[gang].changed)
		}
		if !replaces && (cause <= priority || truce) {
			return nil, lostTo(newest)
		}
		r.now.replaced += btoi(cause <= priority || truce)
	}
	over := func(id CapsuleID) bool {
		_, grows := r.grows[id]
		if r.reclaims(id, first) {
			return slices.ContainsFunc(unit, func(at int) bool { return slices.Contains(r.causes(r.p.Do[at].(Evict)), id) })
		}
		return newcomers[id] > priority || whole && !grows && r.replaces(r.now.capsules[id].gang, gang)
	}
	blocked, apart := map[NodeID]map[int]bool{}, map[CapsuleID]bool{}
	for _, at := range unit {
		e := r.p.Do[at].(Evict)
		off := append(r.keptOff(e, over, back), r.withoutQuota(e, over, back)...)
		for _, id := range off {
			apart[id] = true
		}
		if in := r.inTheWay(e, over, back); len(in)+len(off) == 0 {
			spared, back[e.Capsule] = append(spared, at), true
		} else {
			if blocked[e.From] == nil {
				blocked[e.From] = map[int]bool{}
			}
			for _, q := range in {
				blocked[e.From][q] = true
			}
		}
	}
	if len(blocked) == 0 {
		return spared, nil
	}
	if whole {
		again := r.now.placed(gang)
		for _, at := range spared {
			again[r.now.capsules[r.p.Do[at].(Evict).Capsule].role]++
		}
		if r.now.lacking(gang, again) {
			for _, at := range unit {
				delete(back, r.p.Do[at].(Evict).Capsule)
			}
			spared = nil
		}
	}
	for _, at := range unit { // all that it makes way for must ask for what it is in the way of
		e := r.p.Do[at].(Evict)
		if !slices.ContainsFunc(r.causes(e), func(id CapsuleID) bool {
			c := r.now.capsules[id]
			for q, want := range r.comes(id) {
				if want > 0 && blocked[c.node][q] {
					return true
				}
			}
			return apart[id]
		}) {
			return nil, lostTo(max(r.was.capsules[e.Capsule].changed, r.was.nodes[e.From].newest()))
		}
	}
	return spared, nil
}

// broken reports whether a gang has members placed, and too few of some role.
func (m *model) broken(id GangID) bool {
	placed := m.placed(id)
	return sumOf(placed) > 0 && m.lacking(id, placed)
}

// precedes reports whether one broken gang may be placed instead of another one.
func (m *model) precedes(a, b GangID) bool {
	first := func(id GangID) uint64 {
		out := uint64(math.MaxUint64)
		for _, c := range m.capsules {
			if c.gang == id && !c.released {
				out = min(out, c.submitted)
			}
		}
		return out
	}
	if a == b || !m.broken(a) || !m.broken(b) {
		return false
	}
	mine, other := slices.Min(m.priorities(a)), slices.Min(m.priorities(b))
	return mine > other || mine == other && first(a) < first(b)
}

// replaces reports whether a gang that was broken, and is not broken any more, precedes another one.
func (r *modelRound) replaces(a, b GangID) bool {
	if a == "" || !r.was.precedes(a, b) || r.now.broken(a) {
		return false
	}
	return sumOf(r.now.placed(a)) > 0
}

// rebuilt reports whether a broken gang has left all its places, and lacks nothing where it is now, if it is anywhere.
func (r *modelRound) rebuilt(id GangID) bool {
	for member, c := range r.was.capsules {
		if now := r.now.capsules[member]; c.gang == id && c.node != "" && now.node != "" && now.placedAt == c.placedAt {
			return false
		}
	}
	return r.was.broken(id) && !r.now.broken(id)
}

// goneWhole reports whether nothing is left of a gang that was placed before.
func (r *modelRound) goneWhole(gang GangID) bool {
	newcomers := r.newcomers()
	for id, c := range r.now.capsules {
		_, grows := r.grows[id]
		if _, comes := newcomers[id]; (!comes || grows) && c.gang == gang && c.node != "" {
			return false
		}
	}
	return true
}

// inTheWay returns the quantities that are short on its node with a victim put back, beside those that stay, have been put back,
// or outrank it.
func (r *modelRound) inTheWay(e Evict, over func(CapsuleID) bool, back map[CapsuleID]bool) (short []int) {
	n, newcomers, victim := r.now.nodes[e.From], r.newcomers(), r.was.capsules[e.Capsule]
	for q, want := range quantities(victim.spec.Envelope.Reservation, victim.devices, victim.spec.Devices.Milli) {
		sum, asked := big.NewInt(want), false
		add := func(room Resources, set DeviceSet, milli int) int64 {
			x := quantities(room, set, milli)[q]
			sum.Add(sum, big.NewInt(x))
			return x
		}
		for id, c := range r.now.capsules {
			_, comes := newcomers[id]
			switch {
			case back[id] && r.was.capsules[id].node == e.From:
				was := r.was.capsules[id]
				add(was.spec.Envelope.Reservation, was.devices, was.spec.Devices.Milli)
			case c.node == e.From && !comes:
				add(c.spec.Envelope.Reservation, c.devices, c.spec.Devices.Milli)
			case c.node == e.From:
				x := r.comes(id)[q]
				sum.Add(sum, big.NewInt(quantities(c.spec.Envelope.Reservation, c.devices, c.spec.Devices.Milli)[q]-x)) // what one that grows has already
				if over(id) {
					sum.Add(sum, big.NewInt(x))
					asked = asked || x > 0
				}
			}
		}
		for id, h := range r.now.holds {
			if was, ok := r.was.holds[id]; h.Node == e.From && ok && was.changed == h.changed {
				add(h.Room, h.Devices, h.Milli)
			}
		}
		for _, other := range r.now.remainsOn(e.From) {
			left, runsOn := r.now.capsules[other].remains, other == e.Capsule || back[other]
			if !n.Confirms && (!runsOn || left.since != r.was.capsules[other].placedAt) {
				add(left.spec.Envelope.Reservation, left.devices, left.spec.Devices.Milli)
			}
		}
		sum.Add(sum, r.claimedAbove(e, q, over, back))
		capacity := int64(1000)
		if q < Dimensions {
			capacity = n.Capacity[q]
		}
		if want > 0 && asked && sum.Cmp(big.NewInt(capacity)) > 0 {
			short = append(short, q)
		}
	}
	return short
}

// claimedAbove is what is claimed of a quantity on a node above what an eviction makes way for, if that asks for it there, with the victim
// put back, beside those that stay, have been put back, or outrank it.
func (r *modelRound) claimedAbove(e Evict, q int, over func(CapsuleID) bool, back map[CapsuleID]bool) *big.Int {
	most, newcomers, on := new(big.Int), r.newcomers(), map[CapsuleID]modelCapsule{}
	for id, c := range r.now.capsules {
		if _, comes := newcomers[id]; back[id] || id == e.Capsule {
			on[id] = r.was.capsules[id]
		} else if _, grows := r.grows[id]; !comes || over(id) {
			on[id] = c
		} else if grows {
			on[id] = r.was.capsules[id]
		}
	}
	for _, id := range r.causes(e) {
		c := r.now.capsules[id]
		if c.node != e.From || r.comes(id)[q] == 0 {
			continue
		}
		own, sum := r.asker(id, c.spec, c.gang, c.devices), new(big.Int)
		if _, grows := r.grows[id]; grows {
			own.ranked = modelNomination{}
		}
		for who, part := range r.now.claims(e.From) {
			if r.now.nominated[who].outranks(who, own) {
				sum.Add(sum, big.NewInt(stillClaimed(who, part, q, on)))
			}
		}
		if sum.Cmp(most) > 0 {
			most = sum
		}
	}
	return most
}

// comes is what a newcomer asks for: all that it takes, or what it takes more.
func (r *modelRound) comes(id CapsuleID) [Dimensions + MaxDevices]int64 {
	c := r.now.capsules[id]
	if grow, grows := r.grows[id]; grows {
		return quantities(grow.Envelope.Reservation, 0, 0)
	}
	return quantities(c.spec.Envelope.Reservation, c.devices, c.spec.Devices.Milli)
}

// without leaves commitments out.
func without(do []Commitment, drop []int) (out []Commitment) {
	for i, c := range do {
		if !slices.Contains(drop, i) {
			out = append(out, c)
		}
	}
	return out
}
