package orbit

import (
	"fmt"
	"strings"
)

// This file says what a plan may not do.

// JudgePlan returns the first act in a proposal of a plan that the plan's navigator may not do, as a *Rejection that
// wraps [ErrInvalid]; nil: there is none. An [Engine] does not send a proposal with an offence. The state must be that
// of the view on which the plan was made. Owns reports whether capsules with this owner and spec are the navigator's
// own: assigned to its engine, or assigned to no engine and claimed by the navigator.
//
// A plan may place, release, respecify, protect, nominate and assign only work of its navigator. A [Respec] may change
// only the envelope and may not be Applied, and a plan may not end a protection. It may take other work off a node only by
// [Evict]: to make way for its own work that outranks the victim, or to place the victim again in the same proposal.
// JudgePlan judges the rank, by the priorities in the state; only the ledger judges whether the victim is placed again. A
// plan may end a nomination of other work only in a proposal that also makes a nomination of higher rank, on one of the
// same nodes or of a resource that the ended one claims.
//
// A plan says where work goes. It may not submit work, because with a high enough priority it could then evict anything:
// who may submit is a matter of access to the ledger. It may not say that a capsule has stopped, and may not change
// nodes, budgets and other records that are not work. It may make and release holds, and set marks, only under names
// that begin with [PlanPrefix], and may not delete a mark. It may not set the id of a proposal, which the engine does,
// nor a View that is newer than the state. A commitment about a capsule that is not in the state is no offence, because
// the ledger judges it; but a mark about a capsule or gang that is not in the state, and a nomination of such a gang,
// is an offence.
func (s *State) JudgePlan(p Proposal, owns func(owner string, spec *Spec) bool) error {
	return s.offence(&p, &given{}, owns)
}

// offence is JudgePlan for an engine. The given capsules are known to be the navigator's own, because the engine took
// them from the navigator's pending work, so offence need not look them up in the state.
func (s *State) offence(p *Proposal, given *given, owns func(owner string, spec *Spec) bool) error {
	switch {
	case !p.ID.IsZero(): // it might be the id that another engine's next proposal has
		return s.offenceOf(-1, "", "sets the id of the proposal, which its engine sets")
	case p.View > s.rev: // else the ledger would accept commitments about work that was submitted after s, whose owner is not checked here
		return s.offenceOf(-1, "", fmt.Sprintf("sets View to %d, which is newer than the view, at revision %d", p.View, s.rev))
	}
	t := planCheck{s, owns, given, p.Do, nil}
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

// planCheck looks for what a plan may not do in the commitments of one proposal, in their order.
type planCheck struct {
	s     *State
	owns  func(owner string, spec *Spec) bool
	given *given
	do    []Commitment
	// Capsules that the proposal evicts in order to place them again. It may place them, whoever owns them.
	moved map[CapsuleID]bool
}

// offence returns why the navigator may not make a commitment, and the capsule at fault; an empty why: it may. A commitment
// without a method offence is not for a plan.
func (t *planCheck) offence(do Commitment) (id CapsuleID, why string) {
	if p, ok := do.(interface {
		offence(*planCheck) (CapsuleID, string)
	}); ok && isCommitment(do) {
		return p.offence(t)
	}
	return "", fmt.Sprintf("holds a %T, which is not for a plan", do)
}

// foreign returns why the navigator may not do something to a capsule (does is the verb): the capsule is not its own.
// Empty: the capsule is its own, or is not in the state.
func (t *planCheck) foreign(id CapsuleID, does string) string {
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

// notForPlans returns why a plan may not do something to the hold or the mark of this name: the name does not begin with
// PlanPrefix. Empty: it may. Does begins the text, such as "makes hold"; may completes its second half, such as "make
// and release only holds whose id".
func notForPlans(does, name, may string) string {
	if strings.HasPrefix(name, PlanPrefix) {
		return ""
	}
	return fmt.Sprintf("%s %q; a plan may %s begins with %q", does, name, may, PlanPrefix)
}

// given answers whether a capsule is one of those that the navigator was given. Looking a capsule up in a large state
// causes several cache misses, while most plans name each given capsule once and many plans name them in the given
// order. So given first compares with the next capsule in that order.
type given struct {
	// The capsules that come next in the given order, as long as the questions follow that order.
	next []*Capsule
	// The ids of the capsules that were left when a question first departed from the order; nil: none has.
	ids map[CapsuleID]struct{}
}

// has reports whether a capsule is among the given ones. Ask once for each capsule: a second question about it may be
// answered with false.
func (g *given) has(id CapsuleID) bool {
	if g.ids == nil {
		if len(g.next) == 0 {
			return false
		}
		if g.next[0].ID == id {
			g.next = g.next[1:]
			return true
		}
		g.ids = make(map[CapsuleID]struct{}, len(g.next))
		for _, c := range g.next {
			g.ids[c.ID] = struct{}{}
		}
	}
	_, has := g.ids[id]
	return has
}

// PlanPrefix begins the ids of all holds and the keys of all marks that plans may use, so no plan touches the other ones,
// such as the terms of leases. All plans share these names: a navigator that keeps marks adds a word of its own, as in
// "plan/anchor/". Marks about work are for the navigator of that work alone: a plan may set "plan/capsule/KIND/ID" only
// if capsule ID is its navigator's, and "plan/gang/KIND/ID" only if a member of gang ID is, for any KIND without a slash.
const PlanPrefix = "plan/"
