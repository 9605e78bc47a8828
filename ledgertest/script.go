package ledgertest

import (
	"math/rand/v2"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// action is one step of a worker. It is drawn before the workers start, but its proposal also depends on the view that
// the worker has when it takes the step.
type action struct {
	kind string
	// what is the number of a capsule, gang or mark, where the number of a node.
	what, where int
	// fresh says that the worker takes a snapshot first.
	fresh bool
	// choice selects the bet and other details.
	choice int
	// serial makes names that are used only once.
	serial uint32
}

// actions are the kinds of actions. The more often a kind is to be drawn, the more often the list has it.
var actions = []string{
	"place", "place", "place", "place", "place", "release", "release", "budget", "move", "swap", "preempt", "preempt", "preempt", "gang", "gang", "hold", "unhold", "assign", "quota", "respec", "reclaim",
	"mark", "describe", "leave", "churn", "cancel", "batch", "again", "snapshot", "changes", "wait",
}

// draw draws n actions.
func draw(rng *rand.Rand, n int) []action {
	out := make([]action, n)
	for i := range out {
		out[i] = action{actions[rng.IntN(len(actions))], rng.IntN(capsules), rng.IntN(nodes), rng.IntN(2) == 0, rng.IntN(12), rng.Uint32()}
	}
	return out
}

// walk carries out random actions one after another, each on the newest state.
type walk struct {
	*trial
	stage
}

// newWalk makes the stage and returns a walk on it.
func newWalk(t *trial) *walk {
	w := &walk{t, stage{}}
	for _, p := range w.setup() {
		p.ID = orbit.NewProposalID()
		t.admits(p)
	}
	return w
}

// step makes one random proposal, and compares the answer with that of State.Check.
func (w *walk) step() {
	a := draw(w.rng, 1)[0]
	s := w.seenBy(w.either())
	p := w.proposal(a, s)
	if len(p.Do) == 0 {
		return
	}
	p.ID, p.View = orbit.NewProposalID(), s.Revision()
	want := s.Check(p)
	rev, err := w.handles()[w.rng.IntN(len(w.handles()))].Propose(w.ctx, p)
	switch {
	case err == nil && want != nil:
		w.Failf("%s was committed at %d; State.Check says at the same state: %w", harness.Describe(p), rev, want)
	case err != nil && want == nil:
		w.Failf("%s was refused: %w; State.Check says at the same state that it holds", harness.Describe(p), err)
	case err != nil:
		w.Must(sameVerdict(err, want), harness.Describe(p)+" was refused as State.Check does not")
	}
}
