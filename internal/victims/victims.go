// Package victims finds the capsules that have to leave so that another capsule, which fits nowhere, can be placed on a
// node.
//
//	find the capsules that a rule keeps apart from the new one: they have to leave, even other nodes
//	    ─► suppose that all capsules of lower priority leave the node
//	    ─► does the new capsule fit now?
//	    ─► put back each capsule that may stay and fits beside the new one, the most important first
//	    ─► the capsules that are not put back are the victims
//
// The ledger spares victims in the same order, so the victims found here are the ones that it evicts.
package victims

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// Search finds the victims for one capsule, on one node after another. Call Begin first, for each capsule. A Search is
// not for concurrent use.
type Search struct {
	// Gentle forbids to evict whole gangs.
	Gentle bool
	// Lower forbids to evict broken gangs that are not of lower priority. The ledger allows that only for all members that
	// a gang lacks together.
	Lower bool
	// Pick chooses the devices for the capsule on a node that has room for it; nil: [orbit.NodeState.PickDevices].
	Pick func(*orbit.NodeState, *orbit.Spec) orbit.DeviceSet
	// Refusal is the refusal by which the draft has kept a victim on its node because of a budget, since Begin; nil:
	// there was none. Of several it is the one with the lowest ids of budget and capsule, so it does not depend on the
	// order of the search.
	Refusal *orbit.Rejection

	draft *orbit.Draft
	state *orbit.State
	of    *orbit.Capsule
	spec  *orbit.Spec
	// The living nomination of the capsule or of its gang; nil: there is none.
	own *orbit.Nomination
	// Only capsules of lower priority than this may be evicted.
	ceiling int32
	// The capsules that the draft has refused to evict from the node that is searched.
	kept map[orbit.CapsuleID]bool
	// Buffers for the node that is searched: capsules without a gang, units, and gangs.
	found []*orbit.Capsule
	units []unit
	gangs []gangHere
	// The node that is searched; the capsules that have to leave because of rules of company; and those of them that
	// are on other nodes.
	at     orbit.NodeID
	forced map[orbit.CapsuleID]bool
	away   []*orbit.Capsule
	// The capsules in the way on the node that is searched, and those in larger domains.
	here    inTheWay
	domains domains
	queues  reclaim
}

// Key says how good the victims on a node are: the lowest key is the best.
type Key struct {
	// Last says that the capsule should rather not start on the node ([orbit.Draft.Avoids]): all other nodes come first.
	Last bool
	// Refused counts the capsules that would have been victims, but that the draft refused to evict; other capsules are
	// victims instead.
	Refused int
	// Highest is the highest priority of a victim; math.MinInt64 if there is no victim. The members of a gang that is
	// evicted whole all count with the priority of its highest role. If the capsule names a queue, the rank of the victim's
	// queue counts before its priority: the queues that borrow most come first, and victims that leave because of
	// their priority last.
	Highest int64
	// Sum is the sum of the victims' priorities, each counted from the lowest one that an int32 holds.
	Sum int64
	// Count is how many victims there are.
	Count int
	// Start is the earliest start of a victim of the highest priority.
	Start int64
}

// Compare orders keys: nodes that are not Last first, then the fewest refused, then the lowest Highest, the least Sum,
// the fewest victims, and the latest Start.
func (k *Key) Compare(o *Key) int {
	switch {
	case k.Last != o.Last:
		return btoi(k.Last) - btoi(o.Last)
	case k.Refused != o.Refused:
		return cmp.Compare(k.Refused, o.Refused)
	case k.Highest != o.Highest:
		return cmp.Compare(k.Highest, o.Highest)
	case k.Sum != o.Sum:
		return cmp.Compare(k.Sum, o.Sum)
	case k.Count != o.Count:
		return cmp.Compare(k.Count, o.Count)
	}
	return cmp.Compare(o.Start, k.Start)
}

// Priority returns the highest priority of a victim, math.MinInt32 if there is no victim.
func (k *Key) Priority() int32 {
	if k.Highest == math.MinInt64 {
		return math.MinInt32
	}
	return int32(k.Highest) // without the rank
}

// highest returns what a victim of this rank and priority counts for Key.Highest.
func highest(rank int64, priority int32) int64 { return rank<<33 + int64(priority) }

// None is the key of a node that has room for the capsule as it is.
var None = Key{Highest: math.MinInt64, Start: math.MaxInt64}

// Weight returns what a victim of this priority adds to Key.Sum.
func Weight(priority int32) int64 { return int64(priority) - math.MinInt32 }

// Start returns when a capsule was placed, as a number to compare. If the placement has no time, it is the revision,
// which is lower than any time in nanoseconds, so such a capsule counts as an old one.
func Start(c *orbit.Capsule) int64 { return cmp.Or(int64(c.PlaceTime), int64(c.PlacedAt)) }

// Found is the result of the search on one node: the victims there, and how good they are.
type Found struct {
	Key
	// Node is the node as the draft showed it, with the victims on it.
	Node *orbit.NodeState
	// Devices are the device instances that the capsule takes once the victims have left. Settle sets them.
	Devices orbit.DeviceSet
	// Victims are the capsules that leave, the most important first.
	Victims []*orbit.Capsule
	// Volatile says that the find depends on more than the node, such as a gang's members elsewhere, a nomination, or a
	// budget.
	Volatile bool
}

// Before reports whether f is better than o: by its key, and between equal keys by the lower node id.
func (f *Found) Before(o *Found) bool {
	c := f.Compare(&o.Key)
	return c < 0 || c == 0 && f.Node.Node.ID < o.Node.Node.ID
}

// Begin begins the search for victims of a capsule. The draft must have been synced with a view.
func (s *Search) Begin(draft *orbit.Draft, c *orbit.Capsule) {
	s.draft, s.state, s.of, s.spec, s.Refusal = draft, draft.View().State(), c, c.Spec, nil
	s.ceiling, s.own = Ceiling(s.state, c), c.Nomination()
	if g := s.state.Gang(c.Gang()); g != nil && !s.own.Lives() {
		s.own = g.Nomination
	}
	if !s.own.Lives() {
		s.own = nil
	}
	s.domains.sync(draft)
	s.beginReclaim()
}

// Ceiling returns the lowest priority that is safe from eviction for this capsule: only capsules below it may be
// victims. It is the priority of the capsule itself, or the lowest of its gang's roles with members left. If the range without
// evictions of the ledger's limits covers that priority, the ceiling is at most NeverEvictFrom.
func Ceiling(state *orbit.State, c *orbit.Capsule) int32 {
	priority := c.Spec.Priority
	if g := state.Gang(c.Gang()); g != nil {
		lowest, _ := g.Priorities()
		priority = min(priority, lowest)
	}
	if l := state.Limits(); priority <= l.NeverEvictTo {
		priority = min(priority, l.NeverEvictFrom)
	}
	return priority
}

// Evict returns the commitment that evicts a victim for the capsule, or for its gang.
func (s *Search) Evict(victim *orbit.Capsule) orbit.Evict {
	e := orbit.Evict{Capsule: victim.ID, From: victim.Node, Since: victim.PlacedAt}
	if s.of.Gang() == "" {
		e.For = s.of.ID
	} else {
		e.ForGang = s.of.Gang()
	}
	return e
}

// On finds the victims on a node; false: no evictions make the node take the capsule. On does not ask the draft whether
// the victims may be evicted; Settle does.
func (s *Search) On(n *orbit.NodeState) (f Found, ok bool) {
	s.forgive()
	s.onModel(n)
	return s.on(n)
}

// on does the same as On, but takes no capsule in kept as a victim. It first tries single capsules, and evicts whole
// gangs only if these do not make enough room.
func (s *Search) on(n *orbit.NodeState) (f Found, ok bool) {
	levels, ok := s.closed(n)
	if !ok || !n.Node.Confirms && Stops(s.of) || !s.force(n, levels, &f) {
		return f, false
	}
	f.Volatile = s.gather(n) || f.Volatile
	r := s.roomOf(n, &f)
	if !s.single() || !s.tryUnits(r, &f) {
		if s.Gentle || !s.wholeGangs() || !s.tryUnits(r, &f) {
			return f, false
		}
	}
	if len(f.Victims) == 0 && !s.addQuota(&f) {
		return f, false
	}
	f.Node, f.Last, f.Refused = n, s.draft.Avoids(n, s.spec), len(s.kept)
	return f, true
}

// gather lists the capsules that may leave the node and would make room, and those that have to leave other nodes. It
// leaves out a capsule that has begun on a node that no longer confirms, because such a capsule holds its room until it
// has stopped. It reports whether the list depends on more than the node.
func (s *Search) gather(n *orbit.NodeState) (volatile bool) {
	s.found, s.gangs = s.found[:0], s.gangs[:0]
	for v := range s.state.On(n.Node.ID) {
		may, later := s.mayLeave(v)
		if volatile = volatile || later; !may || v.Begun && !n.Node.Confirms {
			continue
		}
		if v.Gang() != "" {
			volatile = true
			g := s.gang(v.Gang())
			g.here = append(g.here, v)
			continue
		}
		s.found = append(s.found, v)
	}
	for _, v := range s.away {
		if v.Gang() != "" {
			g := s.gang(v.Gang())
			g.away = append(g.away, v)
			continue
		}
		s.found = append(s.found, v)
	}
	return volatile
}

// mayLeave reports whether a capsule may be a victim, as far as that is known without asking the draft. If it may not,
// later says that it may once its protection has ended, which is no change of a node.
func (s *Search) mayLeave(v *orbit.Capsule) (may, later bool) {
	if c := s.claimOn(v); c != nil && !c.may || c == nil && v.Spec.Priority >= s.ceiling && !s.replaces(v) {
		return false, false
	}
	if s.state.Protected(v.ID) > 0 {
		return false, true
	}
	return !s.kept[v.ID] && (v.Gang() == "" || v.Gang() != s.of.Gang()) && !s.draft.Uses(v.ID) &&
		!s.company(v), false
}

// company reports whether a capsule is in a group that the spec of the search has to be near.
func (s *Search) company(v *orbit.Capsule) bool {
	for near := range s.spec.AllNear {
		if v.Spec.IsIn(near.Group) {
			return true
		}
	}
	return false
}

// replaces reports whether a capsule is a member of a broken gang that the gang of the search precedes, and so may evict
// whole, whatever its priority.
func (s *Search) replaces(v *orbit.Capsule) bool {
	return !s.Lower && v.Gang() != "" && s.of.Gang() != "" && s.state.Precedes(s.of.Gang(), v.Gang())
}

// add counts one more victim, with this rank and priority for Highest.
func (k *Key) add(v *orbit.Capsule, rank int64, priority int32) {
	k.Sum += Weight(v.Spec.Priority)
	k.Count++
	switch at := highest(rank, priority); {
	case at > k.Highest:
		k.Highest, k.Start = at, Start(v)
	case at == k.Highest:
		k.Start = min(k.Start, Start(v))
	}
}

// Settle asks the draft whether it lets the victims go, which a budget may forbid, and adds victims where the capsule lacks
// quota. If the draft refuses to evict one, or the shares that all together would leave forbid it, Settle searches for other
// victims, enters them into f, and asks again. It reports false if no victims are left that
// make enough room. The draft is unchanged afterwards.
func (s *Search) Settle(f *Found) (ok bool) {
	s.forgive()
	s.onModel(f.Node)
	for {
		if len(f.Victims) > 0 && !s.addQuota(f) {
			return false
		}
		start := s.draft.Checkpoint()
		refused := s.unjust(f.Victims)
		if refused == nil {
			refused = s.evict(f.Victims)
		}
		if refused == nil {
			n := s.draft.Node(f.Node.Index())
			if ok = n.Fits(s.spec); ok {
				f.Devices = s.pick(n)
			}
			s.draft.Rollback(start)
			return ok
		}
		s.draft.Rollback(start)
		if s.kept == nil {
			s.kept = map[orbit.CapsuleID]bool{}
		}
		s.kept[refused.ID], s.queues.looked = true, false
		next, ok := s.on(f.Node)
		if !ok {
			return false
		}
		next.Volatile = true
		*f = next
	}
}

// pick chooses the devices that the capsule takes on a node with room for it.
func (s *Search) pick(n *orbit.NodeState) orbit.DeviceSet {
	if s.Pick != nil {
		return s.Pick(n, s.spec)
	}
	set, _ := n.PickDevices(s.spec) // no error: the node has room
	return set
}

// evict evicts the victims on the draft, the least important first, and returns the first one that the draft refuses to
// evict; nil: it has evicted all.
func (s *Search) evict(victims []*orbit.Capsule) (refused *orbit.Capsule) {
	for _, v := range slices.Backward(victims) {
		err := s.draft.Evict(s.Evict(v))
		if err == nil {
			continue
		}
		if r := (*orbit.Rejection)(nil); errors.As(err, &r) && r.Budget != "" {
			s.Refusal = First(s.Refusal, r)
		}
		return v
	}
	return nil
}

// First returns the refusal with the lower ids of budget and capsule; either may be nil.
func First(a, b *orbit.Rejection) *orbit.Rejection {
	if a == nil || b != nil && cmp.Or(cmp.Compare(b.Budget, a.Budget), cmp.Compare(b.Capsule, a.Capsule)) < 0 {
		return b
	}
	return a
}

// Stops reports whether a capsule still has to stop on another node before it can run anew: only a node that confirms
// takes such a capsule.
func Stops(c *orbit.Capsule) bool { return c.Remains() != nil || c.Begun }
