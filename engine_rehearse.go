package orbit

import "errors"

// rehearsal decides whether the navigator is to blame for a proposal that the ledger calls infeasible. A proposal of a
// plan may rest on earlier ones of the plan, for example on room that they free. If an earlier one was not committed,
// the ledger judges the later one without it, and may call it infeasible although the plan was right. So a rehearsal
// tries the proposal on the view with the earlier proposals applied. If it holds there, the engine counts it as a
// conflict.
type rehearsal struct {
	// The proposals of the plan, with their ids; nil: what is sent belongs to no plan.
	plan []Proposal
	// A proposal of the plan was not committed, as far as the engine knows, and that is not its navigator's mistake.
	missing bool
	// How many proposals are conflicts only because an earlier one is missing. They have not lost to other engines.
	excused int
	// The view after the proposals plan[:first], without those of them that are refused there.
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
		conflict.Reason += "; it would hold after an earlier proposal of the plan that was not committed, or whose outcome is unknown"
		o.Err = &conflict
		r.excused++
	}
	r.missing = r.missing || o.Err != nil && !errors.Is(o.Err, ErrInfeasible) && !errors.Is(o.Err, ErrInvalid)
	return o
}

// beginRehearsal prepares e.rehearsal for a plan that is about to be sent. It first completes the proposals with their ids,
// views and times, because the rehearsal finds a proposal by its id.
func (e *Engine) beginRehearsal(plan []Proposal, view Revision) {
	e.complete(plan, view)
	e.rehearsal = rehearsal{plan: plan, state: e.view.state}
}
