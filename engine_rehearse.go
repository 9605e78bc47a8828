package orbit

import "errors"

// rehearsal decides whether a refused proposal is its navigator's mistake. A draft lets a proposal rest on earlier ones of
// its plan: on room that they free, for example, or on members that a rule Even counts. If one of these was not committed,
// or perhaps not, the ledger may say that the later proposal never held in its view. It did, after the earlier ones.
type rehearsal struct {
	// The proposals of the plan, with their ids; nil: what is sent belongs to no plan.
	plan []Proposal
	// A proposal of the plan was not committed, as far as the engine knows, and that is not its navigator's mistake.
	missing bool
	// How many proposals are conflicts only because an earlier one is missing. They have not lost to other engines.
	excused int
	// The view with the first proposals of the plan, as far as they are taken, and how many these are.
	state *State
	first int
}

// holds reports whether a proposal of the plan is taken in the view after all proposals before it. The questions must be
// in the order of the plan, so that it tries each proposal once.
func (r *rehearsal) holds(id ProposalID) bool {
	for r.first < len(r.plan) && r.plan[r.first].ID != id {
		if next, err := r.state.With(r.plan[r.first]); err == nil {
			r.state = next
		}
		r.first++
	}
	return r.first < len(r.plan) && r.state.Check(r.plan[r.first]) == nil
}

// judged returns the outcome of a proposal as the engine counts it: a proposal of a plan that is infeasible only because an
// earlier one is missing is a conflict, which is planned again.
func (r *rehearsal) judged(p *Proposal, o Outcome) Outcome {
	var refused *Rejection
	if r.missing && errors.Is(o.Err, ErrInfeasible) && errors.As(o.Err, &refused) && r.holds(p.ID) {
		conflict := *refused
		conflict.Kind = ErrConflict
		conflict.Reason += "; that is so without an earlier proposal of the plan, which was not committed, or perhaps not"
		o.Err = &conflict
		r.excused++
	}
	r.missing = r.missing || o.Err != nil && !errors.Is(o.Err, ErrInfeasible) && !errors.Is(o.Err, ErrInvalid)
	return o
}

// rehearse begins a rehearsal of a plan that is about to be sent. It completes the proposals.
func (e *Engine) rehearse(plan []Proposal, view Revision) {
	e.complete(plan, view)
	e.rehearsal = rehearsal{plan: plan, state: e.view.state}
}
