package nav

import (
	"errors"

	"github.com/orbitsched/orbit"
)

// Reasons why no capsule is evicted for work that a plan leaves out. Texts are built when they are read, because the
// text of a [orbit.NoFit] costs a look at each node.

// limited is a reason that may not hold in the next plan any more, so the engine must not park a class for it.
type limited struct{ why string }

func (e limited) Error() string { return e.why }

var (
	errNobody    = errors.New("evicting work of lower priority would not help")
	errNoDomain  = limited{"evicting work of lower priority would not help in any domain"}
	errReclaims  = limited{"this plan places work of a queue that borrows from its queue; the next plan takes back what that borrows"}
	errDeferred  = limited{"victims of several queues would leave for it, and others are evicted in this plan; the next plan decides"}
	errCutOff    = limited{"the search for victims was cut off by the end of the plan's time; the next plan goes on with it"}
	errNominated = limited{"proposals for it were lost to others; room is nominated for it first"}
)

// besides joins the wrapped navigator's reason (why) and the reason why nothing is evicted (more).
type besides struct {
	why, more error
	// What Unwrap returns: the wrapped navigator's reason, for which the engine may park a class.
	parks error
}

func (e *besides) Error() string { return e.why.Error() + "; " + e.more.Error() }

func (e *besides) Unwrap() error { return e.parks }

// unparked is a reason for which the engine must not park a class.
type unparked struct{ error }

// because joins the wrapped navigator's reason and the reason why nothing is evicted. If the latter is limited, the
// result does not wrap a *orbit.NoFit, so that the engine parks no class. Otherwise the engine brings the class back also
// when evictions may help.
func because(why, more error) error {
	var soon limited
	var nofit *orbit.NoFit
	switch {
	case more == nil || why == nil || why == more: //nolint:errorlint // is it the very same error?
		return more
	case errors.As(why, new(*ofGang)): // it is not a question of room
		return why
	case errors.As(more, &soon):
		return unparked{&besides{why, more, why}}
	case errors.As(why, &nofit):
		var refusal *orbit.Rejection
		return &besides{why, more, nofit.DespiteEvictions(errors.As(more, &refusal))}
	}
	return &besides{why, more, why}
}

// despiteMoves adds to a reason that others might move if any node gained room ([orbit.NoFit.DespiteMoves]). The text stays.
func despiteMoves(why error) error {
	var nofit *orbit.NoFit
	if !errors.As(why, &nofit) {
		return why
	}
	return &hopes{why, nofit.DespiteMoves()}
}

// hopes is a reason whose NoFit, which says how the engine parks the class, is replaced by another.
type hopes struct {
	error
	parks *orbit.NoFit
}

func (e *hopes) Unwrap() []error { return []error{e.parks, e.error} }

// keptBy adds to a reason why evictions would not help that a budget has kept a victim on its node, unless the refusal is nil.
func keptBy(why error, refusal *orbit.Rejection) error {
	if refusal == nil {
		return why
	}
	return &keptByBudget{why, refusal}
}

// keptByBudget is a reason, and the refusal by which a budget has kept a victim on its node.
type keptByBudget struct {
	why     error
	refusal *orbit.Rejection
}

func (e *keptByBudget) Error() string {
	return e.why.Error() + " while a budget keeps some of it: " + e.refusal.Reason
}

func (e *keptByBudget) Unwrap() []error { return []error{e.why, e.refusal} }
