package orbit

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// This file judges which victims of a proposal have to leave their nodes, and which are spared.

// sparing finds out which victims of a proposal need not leave.
type sparing struct {
	t     *tx
	nodes map[NodeID]*sparedNode
	// The capsules that the proposal places or lets grow, by the For or ForGang of evictions that make way for them.
	causes map[Evict][]*txCapsule
	// The queues as the proposal and the victims that stay leave them; nil until a victim names one.
	quotas *tx
}

// sparedNode is a node with victims, or with capsules that the proposal places there or lets grow (newcomers).
type sparedNode struct {
	n *txNode
	// The newcomers, highest priority first; sums[k] is the load of the first k of them together.
	newcomers []newcomer
	sums      []load
	// The load of all newcomers and new holds, and the load of the victims that are put back.
	new, back load
	// The newcomers are in an order that their priorities alone do not give (outranking).
	reordered bool
	// The nominations that claim room on the node; and a copy of the node whose loans count the victims that are put
	// back.
	claims []nominatedPart
	books  NodeState
}

// put puts a victim back on its node; with sign -1 it undoes that.
func (n *sparedNode) put(e *txCapsule, sign int32) {
	e.stays = sign > 0
	n.back.add(e.was.Spec, e.was.Devices, sign)
	n.books.borrow(e.was, sign)
}

// newcomer is a capsule that the proposal places, or lets grow where it is, with what it asks for: its spec, or its growth
// alone.
type newcomer struct {
	of       *txCapsule
	priority int32
	spec     *Spec
	devices  DeviceSet
}

// victims is a unit of eviction that is judged together: one capsule, or a gang that is evicted whole.
type victims struct {
	// The positions of their evictions in the proposal.
	at []int
	// Nil: it is one capsule.
	gang     *txGang
	priority int32
	// The gang was broken before the proposal.
	broken bool
}

// obstacle is the resources and devices that newcomers lack if a victim stays on its node; no node: they lack nothing.
type obstacle struct {
	node    NodeID
	room    [Dimensions]bool
	devices DeviceSet
	// The newcomers that a rule of company, or a quota, keeps out if the victim stays on its node.
	apart []*txCapsule
}

// spare judges the evictions of a proposal and removes the needless ones, and with them the descriptions of nodes that
// are as they were. In the order of the proposal it puts each
// victim back on its node if the victim fits there beside the capsules that are left, the newcomers that outrank it,
// and the nominations that outrank the work that it makes way for. Then it executes the proposal again without the
// needless evictions. One pass over the victims is enough: a victim that is put back only takes room, so a victim that
// did not fit before does not fit later. All commitments must have been executed.
func (t *tx) spare() error {
	if len(t.evictions)+len(t.passed)+len(t.equal) == 0 {
		return nil
	}
	s := sparing{t: t, nodes: map[NodeID]*sparedNode{}, causes: map[Evict][]*txCapsule{}}
	if err := s.prepare(); err != nil || t.replays {
		return err
	}
	drop := slices.Concat(t.passed, t.equal)
	for _, unit := range s.units() {
		if err := s.mayMakeWay(&unit); err != nil {
			return err
		}
		spared, obstacles := s.putBack(&unit)
		if len(obstacles) > 0 {
			if err := s.mustMakeWay(&unit, obstacles); err != nil {
				return err
			}
		}
		drop = append(drop, spared...)
	}
	if len(drop) == 0 {
		return nil
	}
	slices.Sort(drop)
	return t.without(drop)
}

// prepare collects the newcomers and the new holds by node, and checks that the proposal places the capsule or gang of
// each eviction, or lets the capsule grow.
func (s *sparing) prepare() error {
	for i := range s.t.capsules.entries {
		e := &s.t.capsules.entries[i]
		if !e.dirty || !e.now.Placed() || e.adopted || e.now.PlacedAt != s.t.rev && e.grows == nil {
			continue
		}
		n, c := s.node(e.now.Node), newcomer{e, s.t.priority(e), e.now.Spec, e.now.Devices}
		if e.grows != nil {
			c.spec, c.devices = e.grows, 0
		}
		n.newcomers = append(n.newcomers, c)
		n.new.add(c.spec, c.devices, 1)
		s.causes[Evict{For: e.now.ID}] = append(s.causes[Evict{For: e.now.ID}], e)
		if e.now.Gang() != "" && e.grows == nil {
			s.causes[Evict{ForGang: e.now.Gang()}] = append(s.causes[Evict{ForGang: e.now.Gang()}], e)
		}
	}
	for i := range s.t.holds.entries {
		if h := &s.t.holds.entries[i]; h.now != nil && h.now != h.was {
			n := s.node(h.now.Node)
			n.new.room = n.new.room.plus(h.now.Room)
			n.new.devices.add(h.now.Devices, int32(h.now.Milli))
		}
	}
	for _, n := range s.nodes {
		n.order(func(a, b *newcomer) int { return cmp.Compare(b.priority, a.priority) })
	}
	for _, at := range slices.Concat(s.t.evictions, s.t.passed) {
		c := s.t.p.Do[at].(Evict)
		if len(s.causesOf(&c)) == 0 {
			s.t.at = at
			return s.t.refuse(Rejection{Capsule: c.Capsule, Node: c.From}, 0,
				"capsule %q is evicted for %s, which the proposal neither places nor lets grow", c.Capsule, c.cause())
		}
	}
	return nil
}

// order sorts the newcomers and adds up their loads anew.
func (n *sparedNode) order(compare func(a, b *newcomer) int) {
	slices.SortStableFunc(n.newcomers, func(a, b newcomer) int { return compare(&a, &b) })
	n.sums = append(n.sums[:0], load{})
	for _, c := range n.newcomers {
		sum := n.sums[len(n.sums)-1]
		sum.add(c.spec, c.devices, 1)
		n.sums = append(n.sums, sum)
	}
}

// outranks reports whether a unit that stays must leave room for a newcomer: one of higher priority, or a member of a
// gang that replaces the unit. Between two queues, it must leave room for those that it is evicted for.
func (s *sparing) outranks(c *newcomer, unit *victims) bool {
	if victim := s.victim(unit.at[0]); s.t.reclaims(c.of, victim) {
		return slices.ContainsFunc(unit.at, func(at int) bool {
			do, _ := s.t.p.Do[at].(Evict)
			return slices.Contains(s.causesOf(&do), c.of)
		})
	}
	return c.priority > unit.priority || unit.broken && c.of.grows == nil && c.of.now.Gang() != "" && s.t.replaces(c.of.now.Gang(), unit.gang.was.Gang.ID)
}

// outranking puts the newcomers on a node first that outrank a unit, and returns how many these are.
func (s *sparing) outranking(n *sparedNode, unit *victims) int {
	if queued := s.victim(unit.at[0]).was.Spec.Queue != ""; unit.broken || queued || n.reordered {
		n.reordered = unit.broken || queued
		n.order(func(a, b *newcomer) int {
			return cmp.Or(btoi(s.outranks(b, unit))-btoi(s.outranks(a, unit)), cmp.Compare(b.priority, a.priority))
		})
	}
	return sort.Search(len(n.newcomers), func(i int) bool { return !s.outranks(&n.newcomers[i], unit) })
}

// node returns the sparedNode with this id, and makes it on the first call.
func (s *sparing) node(id NodeID) *sparedNode {
	n := s.nodes[id]
	if n == nil {
		n = &sparedNode{n: s.t.nodes.find(id), sums: make([]load, 1)}
		n.claims, n.books = s.t.nominatedOn(n.n), n.n.now
		s.nodes[id] = n
	}
	return n
}

// causesOf returns the capsules that the proposal places or lets grow and for which an eviction makes way.
func (s *sparing) causesOf(c *Evict) []*txCapsule {
	return s.causes[Evict{For: c.For, ForGang: c.ForGang}]
}

// units returns the victims in the order of the proposal. A gang that keeps no placement from before the proposal is
// one unit; of any other gang each victim is a unit.
func (s *sparing) units() (out []victims) {
	placed := map[*txGang]int{}
	for _, n := range s.nodes {
		for _, c := range n.newcomers {
			if g := s.t.gangs.find(c.of.now.Gang()); g != nil && c.of.grows == nil {
				placed[g]++
			}
		}
	}
	whole := map[*txGang]int{}
	for _, at := range s.t.evictions {
		c := s.t.p.Do[at].(Evict)
		e := s.t.capsules.find(c.Capsule)
		g := s.t.gangs.find(e.now.Gang())
		if g == nil || g.now.Total() > placed[g] {
			out = append(out, victims{at: []int{at}, priority: e.now.Spec.Priority})
			continue
		}
		i, known := whole[g]
		if !known {
			i = len(out)
			whole[g] = i
			_, highest := g.now.Priorities()
			out = append(out, victims{gang: g, priority: max(highest, e.now.Spec.Priority), broken: g.was != nil && g.was.Broken()})
		}
		out[i].at = append(out[i].at, at)
	}
	return out
}

// mayMakeWay checks that the work that victims make way for replaces their gang, or that it outranks them and Limits.NeverEvictFrom
// does not keep them.
func (s *sparing) mayMakeWay(unit *victims) error {
	for _, at := range unit.at {
		c := s.t.p.Do[at].(Evict)
		priority := int32(math.MaxInt32)
		for _, e := range s.causesOf(&c) {
			if !s.t.reclaims(e, s.victim(at)) { // else judgeReclaims judges
				priority = min(priority, s.t.priority(e))
			}
		}
		if priority == math.MaxInt32 && s.t.reclaims(s.causesOf(&c)[0], s.victim(at)) {
			continue
		}
		why, newest := s.t.s.limits.keeps(unit.priority, priority), Revision(0)
		if g := s.t.gangs.find(s.victim(at).now.Gang()); g != nil && c.ForGang != "" && why != "" { // the view may have shown both gangs as broken
			newest = max(g.newest(), s.t.gangs.find(c.ForGang).newest())
			if unit.broken && s.t.replaces(c.ForGang, unit.gang.was.Gang.ID) {
				continue
			}
		}
		if why != "" {
			s.t.at = at
			return s.t.refuse(Rejection{Capsule: c.Capsule, Node: c.From}, newest, "capsule %q does not make way for %s: %s", c.Capsule, c.cause(), why)
		}
	}
	return nil
}

// putBack puts the victims of a unit back on their nodes as far as they fit. It returns the positions of the needless
// evictions, and the obstacles that the other victims are. If not all members of a gang fit, those that fit are put
// back only if the gang and every role then have their minimums.
func (s *sparing) putBack(unit *victims) (spared []int, obstacles []obstacle) {
	for _, at := range unit.at {
		if o := s.stay(at, unit); o.node == "" {
			spared = append(spared, at)
		} else {
			obstacles = append(obstacles, o)
		}
	}
	if unit.gang == nil || len(obstacles) == 0 {
		return spared, obstacles
	}
	again := *unit.gang.now
	again.Placed = slices.Clone(again.Placed)
	for _, at := range spared {
		again.Placed[s.victim(at).now.inCommon().role]++
	}
	if again.wanting() {
		for _, at := range spared {
			e := s.victim(at)
			s.node(e.was.Node).put(e, -1)
			s.keep(e, -1)
		}
		return nil, obstacles
	}
	return spared, obstacles
}

// victim returns the capsule that the eviction at this position of the proposal evicts.
func (s *sparing) victim(at int) *txCapsule { return s.t.capsules.find(s.t.p.Do[at].(Evict).Capsule) }

// stay puts one victim back if it fits beside the newcomers that outrank its unit; else it returns the obstacle that the
// victim is.
func (s *sparing) stay(at int, unit *victims) (o obstacle) {
	e := s.victim(at)
	n := s.node(e.was.Node)
	k := s.outranking(n, unit)
	top, want := &n.sums[k], &e.was.Spec.Envelope.Reservation
	claimed := s.beside(n, e, s.claimed(at, n, k))
	for d := range want {
		free := n.n.now.Node.Capacity[d] - (n.n.now.used[d] - n.new.room[d] + top.room[d])
		if want[d] > 0 && top.room[d] > 0 && !within(free, n.back.room[d], claimed.room[d], want[d]) {
			o.node, o.room[d] = n.n.now.Node.ID, true
		}
	}
	for i, used := range n.n.now.deviceUse() {
		if !e.was.Devices.Has(i) || top.devices[i] == 0 {
			continue
		}
		if used-n.new.devices[i]+top.devices[i]+n.back.devices[i]+claimed.devices[i]+int32(e.was.Spec.Devices.Milli) > deviceMilli {
			o.node, o.devices = n.n.now.Node.ID, o.devices|1<<i
		}
	}
	if o.apart = append(s.keptOff(e, unit), s.overQuota(e, unit)...); len(o.apart) > 0 {
		o.node = n.n.now.Node.ID
	}
	if o.node == "" {
		n.put(e, 1)
		s.keep(e, 1)
	}
	return o
}

// claimed returns the room on a node of nominations that outrank the work for which the victim at this position is
// evicted. Loans of the victim and of the first k newcomers are deducted, those of the other newcomers are not. Only
// the resources and devices that the work asks for count.
func (s *sparing) claimed(at int, n *sparedNode, k int) *load {
	var sum load
	if len(n.claims) == 0 {
		return &sum
	}
	books := n.books
	for i := range n.newcomers[k:] {
		e := n.newcomers[k+i].of
		if books.borrow(&e.now, -1); e.grows != nil {
			books.borrow(e.was, 1)
		}
	}
	books.borrow(s.victim(at).was, 1)
	c := s.t.p.Do[at].(Evict)
	for _, cause := range s.causesOf(&c) {
		if cause.now.Node != n.n.now.Node.ID {
			continue
		}
		var beside load
		own := s.t.askOf(cause, cause.now.Devices)
		if cause.grows != nil {
			own = cause.grows.growth(&cause.now)
		}
		for _, p := range n.claims {
			if !own.yieldsTo(p.of) {
				continue
			}
			for d, want := range own.room {
				if x := books.claimed(p, d); want > 0 {
					beside.room[d] = min(beside.room[d], math.MaxInt64-x) + x
				}
			}
			for i := range beside.devices {
				beside.devices[i] += int32(btoi(own.devices.Has(i)) * books.claimedDevice(p, i))
			}
		}
		for d := range sum.room {
			sum.room[d] = max(sum.room[d], beside.room[d])
		}
		for i := range sum.devices {
			sum.devices[i] = max(sum.devices[i], beside.devices[i])
		}
	}
	return &sum
}

// mustMakeWay checks that each eviction helps the capsule or gang that it names: that must ask for something that the
// unit obstructs.
func (s *sparing) mustMakeWay(unit *victims, obstacles []obstacle) error {
	for _, at := range unit.at {
		c := s.t.p.Do[at].(Evict)
		blocks := slices.ContainsFunc(s.causesOf(&c), func(e *txCapsule) bool {
			return slices.ContainsFunc(obstacles, func(o obstacle) bool { return o.blocks(e) })
		})
		if !blocks {
			s.t.at = at
			newest := max(s.victim(at).newest(), s.t.nodes.find(c.From).newest())
			return s.t.refuse(Rejection{Capsule: c.Capsule, Node: c.From}, newest,
				"capsule %q is in the way of others, but not of %s, for which it is evicted", c.Capsule, c.cause())
		}
	}
	return nil
}

// beside adds to the claims beside a victim the load of the capsules that still stop on its node (stoppingBeside), and
// returns claimed.
func (s *sparing) beside(n *sparedNode, victim *txCapsule, claimed *load) *load {
	for _, r := range s.stoppingBeside(n, victim) {
		for d, x := range r.Spec.Envelope.Reservation {
			claimed.room[d] = min(claimed.room[d], math.MaxInt64-x) + x
		}
		for i := range claimed.devices {
			claimed.devices[i] += int32(btoi(r.Devices.Has(i)) * r.Spec.Devices.Milli)
		}
	}
	return claimed
}

// stoppingBeside returns the remains on a node if no capsule waits there for them to end ([NodeState.Free]); else nil.
// The remains of the victim itself and of spared victims are left out, because these run on.
func (s *sparing) stoppingBeside(n *sparedNode, victim *txCapsule) []*Remains {
	if !n.n.now.stops() {
		return nil
	}
	return slices.DeleteFunc(slices.Collect(n.n.now.leaving), func(r *Remains) bool {
		e := s.t.capsules.find(r.Capsule)
		return e != nil && e.was != nil && e.was.PlacedAt == r.Since && (e == victim || e.stays)
	})
}

// keptOff returns the newcomers that outrank a victim's unit and could not stay where the proposal places them if the
// victim stayed on its node: a rule Apart stands between them, or the node has too little of an extra for both.
func (s *sparing) keptOff(e *txCapsule, unit *victims) (out []*txCapsule) {
	if !e.was.Spec.hasCompany() {
		return nil
	}
	at, short := s.t.describes(e.was.Node), s.shortWith(e, unit)
	for _, n := range s.nodes {
		for i := range n.newcomers {
			c := &n.newcomers[i]
			off := func(x string) bool { return n.n.now.Node == at && amountOf(c.spec.Extras, x) > 0 }
			if s.outranks(c, unit) && (e.was.Spec.keepsOff(at, c.spec, n.n.now.Node) || slices.ContainsFunc(short, off)) {
				out = append(out, c.of)
			}
		}
	}
	return out
}

// shortWith returns the extras of which the victim's node has too little if the victim stays beside the newcomers that
// outrank its unit, the victims that stay already, and what still runs there.
func (s *sparing) shortWith(e *txCapsule, unit *victims) (names []string) {
	if len(e.was.Spec.Extras) == 0 || !s.t.countCompany() {
		return nil
	}
	n := s.node(e.was.Node)
	for _, x := range e.was.Spec.Extras {
		free := amountOf(n.n.now.Node.Extras, x.Name) - int64(s.t.company.in(companyDomain{extraGroup(x.Name), NodeKey, string(e.was.Node)})[membersPlaced])
		for i := range n.newcomers {
			free += amountOf(n.newcomers[i].spec.Extras, x.Name) * int64(btoi(!s.outranks(&n.newcomers[i], unit)))
		}
		for i := range s.t.capsules.entries {
			if o := &s.t.capsules.entries[i]; o.stays && o.was.Node == e.was.Node {
				free -= amountOf(o.was.Spec.Extras, x.Name)
			}
		}
		for _, r := range s.stoppingBeside(n, e) {
			free -= amountOf(r.Spec.Extras, x.Name)
		}
		if x.Amount > free {
			names = append(names, x.Name)
		}
	}
	return names
}

// blocks reports whether the obstacle keeps a newcomer out: it asks for room or devices that it would lack, or must be
// apart.
func (o *obstacle) blocks(e *txCapsule) bool {
	if slices.Contains(o.apart, e) {
		return true
	}
	if e.now.Node != o.node {
		return false
	}
	if e.grows != nil {
		return asksIn(&e.grows.Envelope.Reservation, &o.room)
	}
	return asksIn(&e.now.Spec.Envelope.Reservation, &o.room) || e.now.Devices&o.devices != 0
}

// asksIn reports whether a newcomer asks for a dimension that it would lack.
func asksIn(room *Resources, lacks *[Dimensions]bool) bool {
	for d, x := range room {
		if x > 0 && lacks[d] {
			return true
		}
	}
	return false
}

// without executes the proposal again without the commitments at the sorted positions drop. If none is left, an empty
// [Submit] stands for them in the proposal, so that its id is remembered; without an id, it is left empty.
func (t *tx) without(drop []int) error {
	s, rev, full, first := t.s, t.rev, t.p, t.origin
	t.reset()
	reduced := full
	reduced.Do = make([]Commitment, 0, len(full.Do)-len(drop))
	var origin []int
	for i, c := range full.Do {
		if _, dropped := slices.BinarySearch(drop, i); !dropped {
			if first != nil {
				i = first[i]
			}
			reduced.Do, origin = append(reduced.Do, c), append(origin, i)
		}
	}
	if len(reduced.Do) == 0 && !full.ID.IsZero() {
		reduced.Do, origin = append(reduced.Do, nothing), append(origin, 0)
	}
	t.begin(s, rev, &reduced)
	t.origin = origin
	return t.executeAll()
}

// nothing is a commitment that changes nothing, in the form in which ledgers keep it.
var nothing = Submit{Spec: (&Spec{}).clone().interned()}
