package shard

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// giveBack takes those out of a plan's unplaced that others are to try, and returns the proposals that say so.
func (s *Scheduler) giveBack(view *orbit.View, plan *orbit.Plan) (back []orbit.Proposal) {
	state := view.State()
	done := map[unit]bool{}
	placed := s.gangsPlaced(state, plan)
	for i := range plan.Unplaced {
		u := &plan.Unplaced[i]
		if u.Capsule == nil || !s.hopeless(u) {
			continue
		}
		who := unitOf(u.Capsule)
		if placed[who] || who.gang && runs(state, u.Capsule.Gang) {
			continue // it belongs where the others are
		}
		if err := who.failedMark().fits(who.id, state.Limits()); err != nil {
			u.Why = errors.Join(u.Why, err)
			continue
		}
		if !done[who] {
			done[who] = true
			back = append(back, s.back(view, who, u.Why)...)
		}
		u.Why = givenBackError(who, s.Name, u.Why)
	}
	s.forget(state)
	return back
}

// hopeless reports whether a capsule is to be given back, and counts how often it was left unplaced. A reason is the
// navigator's own code, which may panic: the engine contains that.
func (s *Scheduler) hopeless(u *orbit.Unplaced) bool {
	if nofit := (*orbit.NoFit)(nil); errors.As(u.Why, &nofit) {
		return true
	}
	patience := cmp.Or(s.Patience, 16)
	if patience < 0 {
		return false
	}
	if s.unplaced == nil {
		s.unplaced = map[orbit.CapsuleID]int{}
	}
	s.unplaced[u.Capsule.ID]++
	return s.unplaced[u.Capsule.ID] >= patience
}

// gangsPlaced returns the gangs of which a plan places a member.
func (s *Scheduler) gangsPlaced(state *orbit.State, plan *orbit.Plan) map[unit]bool {
	placed := map[unit]bool{}
	for i := range plan.Proposals {
		for _, c := range plan.Proposals[i].Do {
			if place, ok := c.(orbit.Place); ok {
				if c := state.Capsule(place.Capsule); c != nil && c.Gang != "" {
					placed[unitOf(c)] = true
				}
				delete(s.unplaced, place.Capsule)
			}
		}
	}
	return placed
}

// leaveDivided gives back the members of gangs whose other members wait with another scheduler, to which they belong, and
// returns what is left to plan. No scheduler could start such a gang. The scheduler does it, and not the dispatcher, because
// it alone knows that it is not placing them at this moment.
func (s *Scheduler) leaveDivided(state *orbit.State, pending []*orbit.Capsule) (rest []*orbit.Capsule, plan orbit.Plan) {
	homes, proposals := map[unit]string{}, map[unit]int{}
	for _, c := range pending {
		u := unitOf(c)
		home, known := homes[u]
		if !known {
			home = s.home(state, u)
			homes[u] = home
		}
		if home == s.Name {
			rest = append(rest, c)
			continue
		}
		if c.Owner == s.Name {
			if _, begun := proposals[u]; !begun {
				proposals[u] = len(plan.Proposals)
				plan.Proposals = append(plan.Proposals, orbit.Proposal{View: state.Revision()})
			}
			p := &plan.Proposals[proposals[u]]
			p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner})
		}
		why := givenBackError(u, s.Name, fmt.Errorf("its gang waits with scheduler %q", home))
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
	}
	return rest, plan
}

// home returns the scheduler that a unit belongs to: this one, unless it is a gang with nothing placed of which another
// scheduler has members that wait. Then it is the one that the gang is pinned to, or else the owner of the first of them.
func (s *Scheduler) home(state *orbit.State, u unit) string {
	if !u.gang || runs(state, orbit.GangID(u.id)) {
		return s.Name
	}
	first, others := "", false
	u.eachMember(state, func(c *orbit.Capsule) bool {
		if c.Pending() && c.Owner != "" {
			first = cmp.Or(first, c.Owner)
			others = others || c.Owner != s.Name
		}
		return true
	})
	if !others {
		return s.Name
	}
	pinned, _ := state.Mark(u.pinnedMark().key(u.id))
	return cmp.Or(pinned, first)
}

// runs reports whether any member of a gang is placed.
func runs(state *orbit.State, gang orbit.GangID) bool {
	g := state.Gang(gang)
	return g != nil && g.Total() > 0
}

// back returns the proposal that gives a unit back: it clears the owner, and its failed mark says which scheduler has
// failed it on which view.
// A mark that cannot be read is written anew. Where a ledger takes no proposal of that size the mark comes first, by
// itself: if only that is committed the unit stays for another pass, if only the rest is it may come again.
func (s *Scheduler) back(view *orbit.View, u unit, why error) []orbit.Proposal {
	state, kind := view.State(), u.failedMark()
	key := kind.key(u.id)
	value, at := state.Mark(key)
	list, _ := parseFailures(value) // corrupt: as if it were not there
	said := ""
	if why != nil {
		said = why.Error()
	}
	list = list.with(Failure{s.Name, view.Revision(), said})
	mark := orbit.Mark{Key: key, Value: list.value(state.Limits().ValueBytes)}
	bets := []orbit.Precondition{orbit.MarkAt{Key: key, Revision: at}}
	p := orbit.Proposal{View: view.Revision(), If: bets}
	u.eachMember(state, func(c *orbit.Capsule) bool {
		if c.Pending() && (c.Owner == s.Name || c.Owner == "") {
			p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner})
			delete(s.unplaced, c.ID)
		}
		return true
	})
	if len(p.Do)+1 > state.Limits().Commitments {
		p.If = nil
		return []orbit.Proposal{{View: view.Revision(), Do: []orbit.Commitment{mark}, If: bets}, p}
	}
	p.Do = append(p.Do, mark)
	return []orbit.Proposal{p}
}

// forget drops the counts of capsules that are not this scheduler's any more, now and then.
func (s *Scheduler) forget(state *orbit.State) {
	if len(s.unplaced) <= 2*s.swept+64 {
		return
	}
	for id := range s.unplaced {
		if c := state.Capsule(id); c == nil || !c.Pending() || c.Owner != s.Name {
			delete(s.unplaced, id)
		}
	}
	s.swept = len(s.unplaced)
}
