package victims

import (
	"cmp"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file groups the capsules on a node into units that leave or stay as a whole, and chooses the units that leave.

// unit is a set of capsules that leave or stay together: one capsule, or a whole gang.
type unit struct {
	// The rank of the victim's queue, see Key.Highest; 0 if the capsule of the search names none.
	rank     int64
	priority int32
	// Whether the unit is one capsule on another node than the one that is searched. The field stands here so that it
	// does not make the unit larger: units are sorted.
	away  bool
	start int64
	// The gang; nil: the unit is one capsule.
	gang *gangHere
	// The capsule, or one member of the gang.
	capsule *orbit.Capsule
}

// gangHere is a gang with members on the node that is searched.
type gangHere struct {
	state *orbit.GangState
	// How many members of each role may leave without breaking the role's minimum, and how many in all.
	surplus []int
	spare   int
	// The members on the node that may leave, and the members on other nodes that have to leave.
	here, away []*orbit.Capsule
	// All placed members, on any node; nil: the gang may not be evicted whole.
	all []*orbit.Capsule
	// The priority of the highest role of the gang that has members left.
	highest int32
}

// gang returns the entry for a gang with members on the node. The first call for a gang reads all its members.
func (s *Search) gang(id orbit.GangID) *gangHere {
	for i := range s.gangs {
		if s.gangs[i].state.Gang.ID == id {
			return &s.gangs[i]
		}
	}
	g := gangHere{state: s.state.Gang(id)}
	_, g.highest = g.state.Priorities()
	g.surplus = make([]int, len(g.state.Gang.Roles))
	whole, left := true, 0
	for i := range g.state.Gang.Roles {
		for _, member := range g.state.Gang.Roles[i].Members {
			c := s.state.Capsule(member)
			if c == nil || c.Gang() != id || !c.Placed() {
				continue
			}
			if s.draft.Uses(member) || s.kept[member] || s.state.Protected(member) > 0 {
				whole = false
			}
			if !s.draft.Uses(member) {
				g.surplus[i]++
			}
			g.all = append(g.all, c)
		}
		g.spare += g.surplus[i]
		left += g.state.Left(i)
		g.surplus[i] -= g.state.Minimum(i)
	}
	g.spare -= min(g.state.Gang.Min, left)
	if !whole || !s.mayEnd(&g) {
		g.all = nil
	}
	if slices.Min(g.surplus) < 0 || g.spare < 0 { // a gang that is below a minimum already can only be evicted whole
		clear(g.surplus)
		g.spare = 0
	}
	s.gangs = append(s.gangs, g)
	return &s.gangs[len(s.gangs)-1]
}

// mayEnd reports whether a gang may be evicted whole, by the priorities or by the queues of its members.
func (s *Search) mayEnd(g *gangHere) bool {
	if s.queues.on {
		byPriority := false
		for _, m := range g.all {
			c := s.claimOn(m)
			if byPriority = byPriority || c == nil; c != nil && !c.may {
				return false
			}
		}
		if !byPriority {
			return true
		}
	}
	return g.highest < s.ceiling || !s.Lower && s.state.Precedes(s.of.Gang(), g.state.Gang.ID)
}

// single makes a unit of each capsule that may leave alone. Of a gang these are the members beyond the minimums of its
// roles. It reports false if a member that has to leave is not among them.
func (s *Search) single() (ok bool) {
	s.withoutGang()
	for i := range s.gangs {
		if !s.beyond(&s.gangs[i]) {
			return false
		}
	}
	byImportance(s.units)
	return true
}

// withoutGang makes a unit of each capsule that is in no gang.
func (s *Search) withoutGang() {
	s.units = s.units[:0]
	for _, v := range s.found {
		s.units = append(s.units, unit{rank: s.rankOf(v), priority: v.Spec.Priority, start: Start(v), capsule: v, away: s.elsewhere(v)})
	}
}

// beyond adds a unit for each member that its gang can do without. In each role it takes the members that have to leave
// first, and then the newest ones on the node. It reports false if the gang cannot do without all members that have to
// leave.
func (s *Search) beyond(g *gangHere) (ok bool) {
	free := g.spare // what may leave beside the members that have to
	for _, c := range slices.Concat(g.here, g.away) {
		free -= btoi(s.forced[c.ID])
	}
	if free < 0 {
		return false
	}
	for i := range g.state.Gang.Roles {
		here := slices.DeleteFunc(slices.Concat(g.here, g.away), func(c *orbit.Capsule) bool {
			return !slices.Contains(g.state.Gang.Roles[i].Members, c.ID)
		})
		slices.SortFunc(here, func(a, b *orbit.Capsule) int {
			return cmp.Or(btoi(s.forced[b.ID])-btoi(s.forced[a.ID]), cmp.Compare(Start(b), Start(a)), cmp.Compare(b.ID, a.ID))
		})
		if n := g.surplus[i]; n < len(here) && s.forced[here[n].ID] {
			return false
		}
		for _, v := range here[:min(len(here), g.surplus[i])] {
			if !s.forced[v.ID] {
				if free == 0 {
					break
				}
				free--
			}
			s.units = append(s.units, unit{rank: s.rankOf(v), priority: v.Spec.Priority, start: Start(v), capsule: v, away: s.elsewhere(v)})
		}
	}
	return true
}

// wholeGangs makes the units anew: each gang that may be evicted whole is one unit; all other units are as single makes
// them. It reports whether there is such a gang and all capsules that have to leave are among the units.
func (s *Search) wholeGangs() (there bool) {
	s.withoutGang()
	for i := range s.gangs {
		g := &s.gangs[i]
		if g.all == nil {
			if !s.beyond(g) {
				return false
			}
			continue
		}
		there = true
		u := unit{rank: s.rankOf(g.all[0]), priority: g.highest, start: math.MaxInt64, gang: g, capsule: g.all[0]}
		for _, m := range g.all {
			u.start = min(u.start, Start(m))
		}
		s.units = append(s.units, u)
	}
	byImportance(s.units)
	return there
}

// compare puts the more important unit first: the one whose queue borrows less, then the higher priority, then a gang before a capsule, a larger gang before a
// smaller one, and the one that started earlier.
func (u *unit) compare(o *unit) int {
	if u.rank != o.rank {
		return cmp.Compare(o.rank, u.rank)
	}
	if u.priority != o.priority {
		return cmp.Compare(o.priority, u.priority)
	}
	if u.gang != nil || o.gang != nil {
		if c := cmp.Compare(o.size(), u.size()); c != 0 {
			return c
		}
	}
	if u.start != o.start {
		return cmp.Compare(u.start, o.start)
	}
	return cmp.Compare(u.capsule.ID, o.capsule.ID)
}

// size returns how many members a gang has; 0 for a single capsule.
func (u *unit) size() int {
	if u.gang == nil {
		return 0
	}
	return len(u.gang.all)
}

// byImportance sorts units, the most important first.
func byImportance(units []unit) {
	slices.SortFunc(units, func(a, b unit) int { return a.compare(&b) })
}

// tryUnits takes all units off the node, puts back those that may stay and fit beside the capsule, and enters the
// others into f as victims. It reports false if the capsule does not fit even without all units.
func (s *Search) tryUnits(r room, f *Found) bool {
	for _, u := range s.units {
		for _, v := range u.here() {
			r.take(v, -1)
		}
	}
	if !r.fits(s.spec) {
		return false
	}
	f.Key, f.Victims = None, nil
	for _, u := range s.units {
		leave, whole := s.stay(&u, &r)
		for _, v := range leave {
			f.Victims = append(f.Victims, v)
			if whole {
				f.add(v, u.rank, u.priority)
			} else {
				f.add(v, u.rank, v.Spec.Priority)
			}
		}
	}
	return true
}

// here returns the capsules of a unit that are on the node.
func (u *unit) here() []*orbit.Capsule {
	switch {
	case u.gang != nil:
		return u.gang.here
	case u.away:
		return nil
	}
	return []*orbit.Capsule{u.capsule}
}

// stay puts back the capsules of a unit that fit and do not have to leave, and returns those that leave. If that leaves
// a gang or a role of it with fewer members than its minimum, all placed members of the gang leave, and whole is true.
func (s *Search) stay(u *unit, r *room) (leave []*orbit.Capsule, whole bool) {
	var back []*orbit.Capsule
	for _, v := range u.here() {
		if r.take(v, 1); !s.mustLeave(v) && r.fits(s.spec) {
			back = append(back, v)
		} else {
			r.take(v, -1)
			leave = append(leave, v)
		}
	}
	if u.away {
		leave = append(leave, u.capsule)
	}
	if u.gang == nil {
		return leave, false
	}
	if leave = append(leave, u.gang.away...); len(leave) == 0 {
		return nil, false
	}
	remain := *u.gang.state // without those that leave
	remain.Placed = slices.Clone(remain.Placed)
	for i := range remain.Gang.Roles {
		for _, v := range leave {
			remain.Placed[i] -= btoi(slices.Contains(remain.Gang.Roles[i].Members, v.ID))
		}
	}
	if remain.LacksInAll() == 0 {
		return leave, false
	}
	for _, v := range back {
		r.take(v, -1)
	}
	return u.gang.all, true
}
