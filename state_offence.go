package orbit

import (
	"fmt"
	"iter"
	"strings"
)

// This file says what a plan may not do.

// Offence returns the first act in a proposal of a plan that the plan's navigator may not do, as a *Rejection that
// wraps [ErrInvalid]; nil: there is none. An [Engine] does not send a proposal with an offence. The state must be that
// of the view on which the plan was made. Owns reports whether capsules with this owner and spec are the navigator's
// own: assigned to its engine, or assigned to no engine and claimed by the navigator.
//
// A plan may place, release, nominate and assign only work of its navigator. It may take other work off a node only by
// [Evict]: to make way for its own work that outranks the victim, or to place the victim again in the same proposal.
// The ledger judges both. It may end a nomination of other work only in a proposal that also makes a nomination of
// higher rank, on one of the same nodes or of a resource that the ended one claims.
//
// A plan says where work goes. It may not submit work, because with a high enough priority it could then evict anything:
// who may submit is a matter of access to the ledger. It may not say that a capsule has stopped, and may not change
// nodes, budgets and other records that are not work. It may make and release holds, and set marks, only under names
// that begin with [PlanPrefix], and may not delete a mark. It leaves the ids of its proposals to the engine, and their
// View is not newer than the state. Offence leaves to the ledger to judge capsules that are not in the state.
func (s *State) Offence(p Proposal, owns func(owner string, spec *Spec) bool) error {
	return s.offence(&p, &given{}, owns)
}

// offence is Offence for a navigator that was given some capsules, which are its own without a look at the state.
func (s *State) offence(p *Proposal, given *given, owns func(owner string, spec *Spec) bool) error {
	switch {
	case !p.ID.IsZero(): // it might be the id that another engine's next proposal has
		return s.offenceOf(-1, "", "sets the id of the proposal, which its engine sets")
	case p.View > s.rev: // the ledger would take it for aware of work that was submitted since, whose owner nobody has looked at
		return s.offenceOf(-1, "", fmt.Sprintf("View %d is newer than the view, which is at %d", p.View, s.rev))
	}
	t := tribunal{s, owns, given, p.Do, nil}
	for i, do := range p.Do {
		if id, why := t.offence(do); why != "" {
			return s.offenceOf(i, id, why)
		}
	}
	return nil
}

func (s *State) offenceOf(at int, id CapsuleID, why string) error {
	return &Rejection{Kind: ErrInvalid, Do: at, Capsule: id, Reason: why, At: s.rev}
}

// tribunal judges the commitments of one proposal, in their order.
type tribunal struct {
	s     *State
	owns  func(owner string, spec *Spec) bool
	given *given
	do    []Commitment
	// Capsules that the proposal evicts in order to place them again. It may place them, whoever owns them.
	moved map[CapsuleID]bool
}

// offence returns why the navigator may not make a commitment, and the capsule at fault; an empty why: it may.
func (t *tribunal) offence(do Commitment) (id CapsuleID, why string) {
	switch do := do.(type) {
	case Place:
		if t.moved[do.Capsule] {
			return "", ""
		}
		return do.Capsule, t.foreign(do.Capsule, "places")
	case Release:
		switch {
		case do.Hold != "":
			return "", unplanned("releases hold", string(do.Hold), "make and release only holds whose id")
		case do.Stopped:
			return do.Capsule, fmt.Sprintf("says that capsule %q has stopped, which the agent of its node would say", do.Capsule)
		}
		return do.Capsule, t.foreign(do.Capsule, "releases")
	case Evict:
		if t.moved == nil {
			t.moved = map[CapsuleID]bool{}
		}
		if t.moved[do.Capsule] = do.For == "" && do.ForGang == ""; t.moved[do.Capsule] {
			return "", ""
		}
		for id := range t.newcomers(&do) {
			if why := t.foreign(id, "evicts others for"); why != "" {
				return id, why
			}
		}
		if c := t.s.Capsule(do.Capsule); c != nil {
			if why := t.s.outranked(&do, c); why != "" {
				return do.Capsule, fmt.Sprintf("evicts capsule %q of priority %d for %s: %s", do.Capsule, c.Spec.Priority, do.cause(), why)
			}
		}
		return "", ""
	case Assign:
		return do.Capsule, t.foreign(do.Capsule, "assigns")
	case Protect:
		if do.For == 0 {
			return do.Capsule, fmt.Sprintf("ends the protection of capsule %q, which engines do", do.Capsule)
		}
		return do.Capsule, t.foreign(do.Capsule, "protects")
	case Nominate:
		return t.misnominated(&do)
	case Resize:
		return do.Capsule, t.oversized(&do)
	case Hold:
		return "", unplanned("makes hold", string(do.ID), "make and release only holds whose id")
	case Mark:
		return t.mismarked(&do)
	case Submit:
		return "", "submits work, which its owner does, not a plan"
	case PutNode, RemoveNode:
		return "", fmt.Sprintf("changes the constellation (%T)", do)
	}
	return "", fmt.Sprintf("holds a %T, which is not for a plan", do)
}

// mismarked returns why the navigator may not set or delete a mark; empty: it may.
func (t *tribunal) mismarked(do *Mark) (id CapsuleID, why string) {
	if why := unplanned("changes mark", do.Key, "change only marks whose key"); why != "" {
		return "", why
	}
	if do.Value == "" { // a bet (MarkAt) of a view from before it was first set would hold again
		return "", fmt.Sprintf("deletes mark %q; a plan may only set marks", do.Key)
	}
	about, name, _ := strings.Cut(do.Key[len(PlanPrefix):], "/")
	switch _, name, _ := strings.Cut(name, "/"); about {
	case "capsule":
		if id = CapsuleID(name); t.s.Capsule(id) == nil {
			return id, fmt.Sprintf("sets mark %q about a capsule that is not in its view", do.Key)
		}
		return id, t.foreign(id, "sets a mark about")
	case "gang":
		for c := range t.s.Members(GangID(name)) {
			if t.owns(c.Owner(), c.Spec) {
				return "", ""
			}
		}
		return "", fmt.Sprintf("sets mark %q about a gang of which no member is its own", do.Key)
	}
	return "", ""
}

// newcomers yields the capsules that an eviction makes way for: one capsule, or all members of a gang.
func (t *tribunal) newcomers(do *Evict) iter.Seq[CapsuleID] {
	return func(yield func(CapsuleID) bool) {
		if do.For != "" && !yield(do.For) {
			return
		}
		for c := range t.s.Members(do.ForGang) {
			if !yield(c.ID) {
				return
			}
		}
	}
}

// misnominated returns why the navigator may not make or end a nomination; empty: it may. It may end a nomination of
// other work only in a proposal that also makes a nomination of higher rank, on one of the same nodes or of a resource
// that the ended one claims (makesWay).
func (t *tribunal) misnominated(do *Nominate) (id CapsuleID, why string) {
	switch {
	case len(do.Parts) == 0 && t.s.makesWay(do, t.do):
		return "", ""
	case do.Gang == "":
		return do.Capsule, t.foreign(do.Capsule, "nominates")
	case t.s.Gang(do.Gang) == nil:
		return "", fmt.Sprintf("nominates gang %q, which is not in its view", do.Gang)
	}
	for c := range t.s.Members(do.Gang) {
		if why := t.foreign(c.ID, "nominates"); why != "" {
			return c.ID, why
		}
	}
	return "", ""
}

// oversized returns why the navigator may not resize a capsule; empty: it may. It may neither change the priority nor
// report that the new size has been applied.
func (t *tribunal) oversized(do *Resize) string {
	if c := t.s.Capsule(do.Capsule); do.Applied || c != nil && do.Spec != nil && c.Spec.Priority != do.Spec.Priority {
		return fmt.Sprintf("says that capsule %q takes less already, or changes its priority, which is not for a plan", do.Capsule)
	}
	return t.foreign(do.Capsule, "resizes")
}

// foreign returns why the navigator may not do something to a capsule (does is the verb): the capsule is not its own.
// Empty: the capsule is its own, or is not in the state.
func (t *tribunal) foreign(id CapsuleID, does string) string {
	if t.given.has(id) {
		return ""
	}
	c := t.s.Capsule(id)
	switch {
	case c == nil || t.owns(c.Owner(), c.Spec):
		return ""
	case c.Owner() != "":
		return fmt.Sprintf("%s capsule %q, which is assigned to %q", does, id, c.Owner())
	}
	return fmt.Sprintf("%s capsule %q of module %q and class %v, which it does not claim", does, id, c.Spec.Module, c.Spec.Class)
}

// unplanned returns why a plan may not do something to a hold or a mark: its name does not begin with PlanPrefix. Empty:
// it may. May names the holds or marks that a plan may use.
func unplanned(does, name, may string) string {
	if strings.HasPrefix(name, PlanPrefix) {
		return ""
	}
	return fmt.Sprintf("%s %q; a plan may %s begins with %q", does, name, may, PlanPrefix)
}
