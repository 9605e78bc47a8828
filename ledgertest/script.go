package ledgertest

import (
	"math/rand/v2"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// action is one step of a script: what to do, and to what. It is drawn before anything runs; what it proposes
// depends on the view of the worker that carries it out.
type action struct {
	kind string
	// Numbers of a capsule (or gang, or mark) and of a node.
	what, where int
	// Look at the world first.
	fresh bool
	// Which bet, and other choices.
	choice int
	// Makes names that are used once.
	serial uint32
}

// actions are the kinds, as often as they are drawn.
var actions = []string{
	"place", "place", "place", "place", "place", "release", "release", "move", "swap", "gang", "gang", "hold", "unhold", "assign",
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

// walk carries out actions one after another, each on the newest state.
type walk struct {
	*trial
	stage
}

// newWalk makes the stage.
func newWalk(t *trial) *walk {
	w := &walk{t, stage{}}
	for _, p := range w.setup() {
		p.ID = orbit.NewProposalID()
		t.admits(p)
	}
	return w
}

// step proposes what is drawn, and holds the answer against what State.Check says.
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
