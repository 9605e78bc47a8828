package victims

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file finds victims for a capsule that names a queue. Those of other queues leave only if their queue borrows, at any
// priority, and only as far as the rules of [orbit.Queue] let them. Beside room on a node, the capsule may need quota: then
// capsules leave that take it, on any nodes.

// reclaim is what a search knows of the queues.
type reclaim struct {
	on     bool
	quotas orbit.Quotas
	// The placed capsules of each queue, with those of no queue under "", and the state of which they are.
	placed map[orbit.QueueID][]*orbit.Capsule
	state  *orbit.State
	// The model of the devices that the capsule would get, and what follows for each queue.
	model  string
	claims map[orbit.QueueID]*claim
	// The victims that make room by quota alone, if they have been looked for, and whether there are enough.
	looked, enough bool
	quota          Found
}

// claim is what the capsule of the search may take back from another queue.
type claim struct {
	// Capsules of the queue may leave, as long as its share is not less than that of the capsule's own (mine), and not as high as
	// before.
	may          bool
	in           orbit.QueueID
	mine, before orbit.Share
	// Queues that borrow more have a lower number.
	rank int64
}

// ownRank is the rank of victims that leave because of their priority: those that borrow leave before.
const ownRank = 1 << 20

// beginReclaim begins the search with the queues as the draft leaves them.
func (s *Search) beginReclaim() {
	r := &s.queues
	if r.on = Reclaims(s.state, s.of); !r.on {
		return
	}
	if r.state != s.state {
		r.state, r.placed = s.state, map[orbit.QueueID][]*orbit.Capsule{}
		for n := range s.draft.Nodes() {
			for v := range s.state.On(n.Node.ID) {
				queue := v.Spec.Queue
				if _, there := s.state.Queue(queue); !there {
					queue = ""
				}
				r.placed[queue] = append(r.placed[queue], v)
			}
		}
	}
	r.quotas.Follow(s.draft)
	r.weigh(s, s.spec.Devices.Model())
}

// Reclaims reports whether victims of a capsule are found by the rules of queues.
func Reclaims(state *orbit.State, c *orbit.Capsule) bool {
	_, there := state.Queue(c.Spec.Queue)
	return there
}

// onModel makes the search count the devices of a node.
func (s *Search) onModel(n *orbit.NodeState) {
	if r := &s.queues; r.on && s.spec.Devices.Count > 0 && n.Node.Devices.Model != r.model {
		r.weigh(s, n.Node.Devices.Model)
	}
}

// weigh finds out from which queues capsules may leave for a capsule that gets devices of a model.
func (r *reclaim) weigh(s *Search, model string) {
	r.model, r.claims, r.looked = model, map[orbit.QueueID]*claim{}, false
	ids := make([]orbit.QueueID, 0, len(r.placed))
	for id := range r.placed {
		ids = append(ids, id)
	}
	r.addClaims(s, ids...)
	var shares []orbit.Share
	for _, c := range r.claims {
		shares = append(shares, c.before)
	}
	slices.SortFunc(shares, func(a, b orbit.Share) int { return b.Compare(a) })
	shares = slices.Compact(shares)
	for _, c := range r.claims {
		c.rank = int64(slices.Index(shares, c.before))
	}
}

// addClaims finds out what may be taken back from queues; those of other trees are left out.
func (r *reclaim) addClaims(s *Search, ids ...orbit.QueueID) {
	var of []orbit.QueueID
	for _, id := range ids {
		in, ok := r.quotas.Meet(s.spec.Queue, id)
		if id == s.spec.Queue || !ok {
			continue
		}
		c := &claim{in: in}
		c.before, c.may = r.quotas.Below(in, id, s.spec, r.model)
		r.claims[id], of = c, append(of, id)
	}
	s.chargeNewcomers(1)
	for _, id := range of {
		c := r.claims[id]
		c.mine, _ = r.quotas.Below(c.in, s.spec.Queue, s.spec, r.model)
		c.may = c.may && (c.mine.Compare(c.before) < 0 || s.mayLower(c.in))
	}
	s.chargeNewcomers(-1)
}

// mayLower reports whether capsules may leave that count for the share of the capsule's own side below an ancestor: those of its own queue
// because of their priority, those of the queues between because they borrow.
func (s *Search) mayLower(ancestor orbit.QueueID) bool {
	own := s.spec.Queue
	if of, _ := s.queues.quotas.Queue(own); own != ancestor && of.Queue.Parent != ancestor {
		return true
	}
	return slices.ContainsFunc(s.queues.placed[own], func(v *orbit.Capsule) bool { return v.Spec.Priority < s.ceiling })
}

// MayReclaim reports whether capsules of a queue may leave for the capsule of the search because the queue borrows.
func (s *Search) MayReclaim(queue orbit.QueueID) bool {
	if s.queues.on && s.queues.claims[queue] == nil {
		s.queues.addClaims(s, queue)
	}
	c := s.queues.claims[queue]
	return s.queues.on && c != nil && c.may
}

// chargeNewcomers counts the capsule as placed, and with it all that its gang needs beside what the plan has placed
// already: a gang counts whole. With the sign -1 they no longer count.
func (s *Search) chargeNewcomers(sign int) {
	r := &s.queues
	r.quotas.Charge(s.spec, r.model, sign)
	g := s.state.Gang(s.of.Gang())
	if g == nil {
		return
	}
	for i := range g.Gang.Roles {
		needs := g.Lacks(i)
		for _, member := range g.Gang.Roles[i].Members {
			if c := s.state.Capsule(member); member == s.of.ID || c != nil && c.Pending() && s.draft.Uses(member) {
				needs--
			}
		}
		r.quotas.Charge(g.Gang.Roles[i].Spec, g.Gang.Roles[i].Spec.Devices.Model(), sign*max(0, needs))
	}
}

// claimOn returns what the search may take back from the queue of a capsule; nil: the priorities decide about the capsule.
func (s *Search) claimOn(v *orbit.Capsule) *claim {
	if !s.queues.on || v.Spec.Queue == "" || v.Spec.Queue == s.spec.Queue {
		return nil
	}
	if c := s.queues.claims[v.Spec.Queue]; c != nil {
		return c
	}
	if _, there := s.state.Queue(v.Spec.Queue); there {
		return &claim{} // in another tree
	}
	return nil
}

// rankOf returns the rank of a victim: of those with a lower one, more borrow.
func (s *Search) rankOf(v *orbit.Capsule) int64 {
	switch c := s.claimOn(v); {
	case c != nil:
		return c.rank
	case s.queues.on:
		return ownRank
	}
	return 0
}

// Hopeless reports whether no capsule may leave for the one of the search, on any node.
func (s *Search) Hopeless() bool {
	r := &s.queues
	if !r.on || s.of.Gang() != "" || s.spec.Devices.Count > 0 && r.model == "" { // the model depends on the node
		return false
	}
	for _, c := range r.claims {
		if c.may {
			return false
		}
	}
	for _, id := range []orbit.QueueID{"", s.spec.Queue} {
		if slices.ContainsFunc(r.placed[id], func(v *orbit.Capsule) bool { return v.Spec.Priority < s.ceiling }) {
			return false
		}
	}
	return true
}

// uncharge counts a capsule on its node as gone; with the sign -1 it is back.
func (s *Search) uncharge(v *orbit.Capsule, sign int) {
	model := ""
	if n := s.state.Node(v.Node); n != nil {
		model = n.Node.Devices.Model
	}
	s.queues.quotas.Charge(v.Spec, model, -sign)
}

// unjust returns a victim that must not leave together with all the others because of the shares that this would leave; nil: all may.
func (s *Search) unjust(leave []*orbit.Capsule) (who *orbit.Capsule) {
	if !s.queues.on {
		return nil
	}
	for _, v := range leave {
		s.uncharge(v, 1)
	}
	s.chargeNewcomers(1)
	for _, v := range leave {
		if c := s.claimOn(v); c != nil && who == nil && !s.just(s.leavesWith(v, leave), c) {
			who = v
		}
	}
	s.chargeNewcomers(-1)
	for _, v := range leave {
		s.uncharge(v, -1)
	}
	return who
}

// leavesWith returns the victim, or all of its gang if they leave whole.
func (s *Search) leavesWith(v *orbit.Capsule, leave []*orbit.Capsule) (unit []*orbit.Capsule) {
	if g := s.state.Gang(v.Gang()); g != nil {
		for _, m := range leave {
			if m.Gang() == v.Gang() {
				unit = append(unit, m)
			}
		}
		if len(unit) >= g.Total() {
			return unit
		}
	}
	return []*orbit.Capsule{v}
}

// just reports whether victims of one queue, a capsule or a whole gang, may be gone as the queues are now counted, with the newcomers: by the
// shares, and because their queue would still borrow if they had stayed.
func (s *Search) just(unit []*orbit.Capsule, c *claim) bool {
	r, of := &s.queues, unit[0].Spec.Queue
	mine, _ := r.quotas.Below(c.in, s.spec.Queue, s.spec, r.model)
	theirs, _ := r.quotas.Below(c.in, of, s.spec, r.model)
	if !c.may || mine.Compare(theirs) > 0 || mine == theirs && theirs.Compare(c.before) >= 0 {
		return false
	}
	for _, v := range unit {
		s.uncharge(v, -1)
	}
	borrows := r.quotas.Borrows(c.in, of, s.spec, r.model)
	for _, v := range unit {
		s.uncharge(v, 1)
	}
	return borrows
}

// within reports whether the quotas admit the capsule as they are counted now.
func (s *Search) within() bool {
	return s.queues.quotas.Takes(s.spec, s.queues.model, 1)
}

// addQuota adds victims to a find until the quotas admit the capsule beside all that remain. It reports false if they do not
// even then.
func (s *Search) addQuota(f *Found) bool {
	r := &s.queues
	if !r.on {
		return true
	}
	if len(f.Victims) > 0 {
		found := s.findQuota(f)
		if found {
			s.putBack(f)
		}
		return found
	}
	if !r.looked { // the same for all nodes with room
		r.looked, r.quota = true, Found{Key: None}
		r.enough = s.findQuota(&r.quota)
	}
	f.Key, f.Victims = r.quota.Key, slices.Clone(r.quota.Victims)
	f.Volatile = f.Volatile || len(f.Victims) > 0
	return r.enough
}

// findQuota lets capsules leave until the quotas admit the capsule of the search, one after the other: from the queue with the
// highest share, that of the lowest priority, the newest. Then it puts back those that need not leave, the last first.
func (s *Search) findQuota(f *Found) (ok bool) {
	for _, v := range f.Victims {
		s.uncharge(v, 1)
	}
	defer func() {
		for _, v := range f.Victims {
			s.uncharge(v, -1)
		}
	}()
	if s.within() {
		return true
	}
	leave := s.untilWithin(s.candidates(f))
	if ok = s.within(); !ok {
		for _, u := range leave {
			s.unchargeAll(u, -1)
		}
		return false
	}
	for _, u := range slices.Backward(leave) {
		if s.unchargeAll(u, -1); s.within() {
			continue
		}
		s.unchargeAll(u, 1)
		for _, v := range u.members() {
			f.Victims = append(f.Victims, v)
			f.add(v, u.rank, u.priority)
		}
	}
	return true
}

// untilWithin counts units as gone, one after the other, until the quotas admit the capsule of the search or no other unit helps, and
// returns them. A unit whose leaving would not be just may be so after others have left, so it is tried again then.
func (s *Search) untilWithin(by map[orbit.QueueID][]*unit) (leave []*unit) {
	again, helped := map[orbit.QueueID][]*unit{}, false
	for !s.within() {
		u := s.nextUnit(by)
		switch {
		case u == nil && !helped:
			return leave
		case u == nil:
			by, again, helped = again, map[orbit.QueueID][]*unit{}, false
		case s.helps(u):
			leave, helped = append(leave, u), true
		default:
			again[u.capsule.Spec.Queue] = append(again[u.capsule.Spec.Queue], u)
		}
	}
	return leave
}

// putBack takes single capsules out of a find that need not leave any more, because others that leave for quota make room, too: the ledger would
// spare them.
func (s *Search) putBack(f *Found) {
	r, last, refused := s.roomOf(f.Node, f), f.Last, f.Refused
	for _, v := range f.Victims {
		s.uncharge(v, 1)
		if v.Node == f.Node.Node.ID {
			r.take(v, -1)
		}
	}
	var leave []*orbit.Capsule
	for _, v := range f.Victims {
		here := v.Node == f.Node.Node.ID
		s.uncharge(v, -1)
		if here {
			r.take(v, 1)
		}
		if v.Gang() == "" && !s.mustLeave(v) && r.fits(s.spec) && s.within() {
			continue
		}
		s.uncharge(v, 1)
		if here {
			r.take(v, -1)
		}
		leave = append(leave, v)
	}
	for _, v := range leave {
		s.uncharge(v, -1)
	}
	if len(leave) == len(f.Victims) {
		return
	}
	f.Key, f.Victims = None, leave
	f.Last, f.Refused = last, refused
	for _, v := range leave {
		priority := v.Spec.Priority
		if g := s.state.Gang(v.Gang()); g != nil {
			_, priority = g.Priorities()
		}
		f.add(v, s.rankOf(v), priority)
	}
}

// unchargeAll counts all capsules of a unit as gone; with the sign -1 they are back.
func (s *Search) unchargeAll(u *unit, sign int) {
	for _, v := range u.members() {
		s.uncharge(v, sign)
	}
}

// members returns the capsules of a unit.
func (u *unit) members() []*orbit.Capsule {
	if u.gang != nil {
		return u.gang.all
	}
	return []*orbit.Capsule{u.capsule}
}

// candidates returns the units that may leave for quota, by queue, in the order in which they leave.
func (s *Search) candidates(f *Found) map[orbit.QueueID][]*unit {
	by := map[orbit.QueueID][]*unit{}
	seen := map[orbit.GangID]bool{}
	for id, placed := range s.queues.placed {
		if c := s.queues.claims[id]; id != s.spec.Queue && (c == nil || !c.may) {
			continue
		}
		for _, v := range placed {
			n := s.state.Node(v.Node)
			if may, _ := s.mayLeave(v); !may || v.Begun && !n.Node.Confirms || slices.Contains(f.Victims, v) {
				continue
			}
			if v.Gang() == "" {
				by[id] = append(by[id], &unit{rank: s.rankOf(v), priority: v.Spec.Priority, start: Start(v), capsule: v})
			} else if !seen[v.Gang()] && !s.Gentle {
				seen[v.Gang()] = true
				if u := s.gangUnit(v); u != nil {
					by[id] = append(by[id], u)
				}
			}
		}
		slices.SortFunc(by[id], func(a, b *unit) int { return b.compare(a) })
	}
	return by
}

// gangUnit returns the gang of a capsule as a unit; nil: it may not be evicted whole.
func (s *Search) gangUnit(v *orbit.Capsule) *unit {
	g := *s.gang(v.Gang())
	if g.all == nil || slices.ContainsFunc(g.all, func(m *orbit.Capsule) bool { return m.Begun && !s.state.Node(m.Node).Node.Confirms }) {
		return nil
	}
	u := &unit{rank: s.rankOf(v), priority: g.highest, start: math.MaxInt64, gang: &g, capsule: g.all[0]}
	for _, m := range g.all {
		u.start = min(u.start, Start(m))
	}
	return u
}

// nextUnit removes and returns the next unit: of the queue with the highest share now, and of the capsule's own queue last.
func (s *Search) nextUnit(by map[orbit.QueueID][]*unit) *unit {
	var best orbit.QueueID
	var highest orbit.Share
	for id, units := range by {
		if len(units) == 0 {
			delete(by, id)
			continue
		}
		if id == s.spec.Queue {
			if best == "" {
				best = id
			}
			continue
		}
		share, _ := s.queues.quotas.Below(s.queues.claims[id].in, id, s.spec, s.queues.model)
		if best == "" || best == s.spec.Queue || cmp.Or(share.Compare(highest), cmp.Compare(best, id)) > 0 {
			best, highest = id, share
		}
	}
	if best == "" {
		return nil
	}
	u := by[best][0]
	by[best] = by[best][1:]
	return u
}

// helps counts a unit as gone if that makes quota for the capsule and its queue's share stays high enough, and reports whether it
// does.
func (s *Search) helps(u *unit) bool {
	before := s.short()
	s.unchargeAll(u, 1)
	just := true
	if c := s.claimOn(u.capsule); c != nil {
		s.chargeNewcomers(1)
		just = s.just(u.members(), c)
		s.chargeNewcomers(-1)
	}
	if now := s.short(); just {
		for r, lacks := range before {
			if now[r] < lacks {
				return true
			}
		}
	}
	s.unchargeAll(u, -1)
	return false
}

// short returns how much quota the capsule lacks, by resource.
func (s *Search) short() map[string]int64 {
	return s.queues.quotas.Short(s.spec, s.queues.model, 1)
}

// forgive forgets which capsules the draft has refused to evict.
func (s *Search) forgive() {
	s.queues.looked = s.queues.looked && len(s.kept) == 0
	clear(s.kept)
}
