package shard

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
)

// giveBack returns the proposals that give back the capsules of a plan's Unplaced that other schedulers have to try.
// The reason of each of these becomes ErrGivenBack.
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
		if placed[who] || who.gang && runs(state, u.Capsule.Gang()) {
			continue // the pending members of a running gang belong to the scheduler of the others
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

// hopeless reports whether a capsule is to be given back: at once for a NoFit, otherwise after Patience passes. The
// methods of a reason are the navigator's code and may panic; the engine contains that.
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

// gangsPlaced returns the gangs of which the plan places a member. It also forgets the counts of placed capsules.
func (s *Scheduler) gangsPlaced(state *orbit.State, plan *orbit.Plan) map[unit]bool {
	gangs := map[unit]bool{}
	for c := range placed(state, plan.Proposals) {
		if c.Gang() != "" {
			gangs[unitOf(c)] = true
		}
		delete(s.unplaced, c.ID)
	}
	return gangs
}

// leaveDivided gives back the members of gangs that are divided: some pending members are assigned to this scheduler,
// and the gang's home is another one. Neither scheduler could start such a gang. It returns the capsules that are left
// to plan, and the proposals. The dispatcher cannot do this, because only the scheduler knows that it is not placing
// the members at this moment.
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
		if c.Owner() == s.Name {
			if _, begun := proposals[u]; !begun {
				proposals[u] = len(plan.Proposals)
				plan.Proposals = append(plan.Proposals, orbit.Proposal{View: state.Revision()})
			}
			p := &plan.Proposals[proposals[u]]
			p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner()})
		}
		why := givenBackError(u, s.Name, fmt.Errorf("its gang waits with scheduler %q", home))
		plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: why})
	}
	return rest, plan
}

// home returns the scheduler that has to place a unit. It is this one, unless the unit is a gang with no placed member
// that has pending members with another scheduler. Then it is the scheduler that the gang is pinned to, or otherwise
// the owner of the gang's first pending member.
func (s *Scheduler) home(state *orbit.State, u unit) string {
	if !u.gang || runs(state, orbit.GangID(u.id)) {
		return s.Name
	}
	first, others := "", false
	for c := range u.members(state) {
		if c.Pending() && c.Owner() != "" {
			first = cmp.Or(first, c.Owner())
			others = others || c.Owner() != s.Name
		}
	}
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

// back returns the proposals that give a unit back: they clear the owners, and record in the failed mark that this
// scheduler has failed the unit on this view. A corrupt mark is written anew. It is one proposal if the ledger's limits
// allow. Otherwise the mark is proposed first and alone: if only the mark is committed the unit stays for another pass,
// and if only the owners are cleared the dispatcher may assign the unit to this scheduler again.
func (s *Scheduler) back(view *orbit.View, u unit, why error) []orbit.Proposal {
	state, kind := view.State(), u.failedMark()
	key := kind.key(u.id)
	value, at := state.Mark(key)
	list, _ := parseFailures(value) // a corrupt mark is an empty list
	said := ""
	if why != nil {
		said = why.Error()
	}
	list = list.with(Failure{s.Name, view.Revision(), said})
	mark := orbit.Mark{Key: key, Value: list.value(state.Limits().ValueBytes)}
	bets := []orbit.Precondition{orbit.MarkAt{Key: key, Revision: at}}
	p := orbit.Proposal{View: view.Revision(), If: bets}
	for c := range u.members(state) {
		if c.Pending() && (c.Owner() == s.Name || c.Owner() == "") {
			p.Do = append(p.Do, orbit.Assign{Capsule: c.ID, From: c.Owner()})
			delete(s.unplaced, c.ID)
		}
	}
	if len(p.Do)+1 > state.Limits().Commitments {
		p.If = nil
		return []orbit.Proposal{{View: view.Revision(), Do: []orbit.Commitment{mark}, If: bets}, p}
	}
	p.Do = append(p.Do, mark)
	return []orbit.Proposal{p}
}

// forget drops the counts of capsules that are no longer pending with this scheduler. It does so only when the counts
// have doubled, so that its cost is constant for each capsule.
func (s *Scheduler) forget(state *orbit.State) {
	if len(s.unplaced) <= 2*s.swept+64 {
		return
	}
	for id := range s.unplaced {
		if c := state.Capsule(id); c == nil || !c.Pending() || c.Owner() != s.Name {
			delete(s.unplaced, id)
		}
	}
	s.swept = len(s.unplaced)
}
