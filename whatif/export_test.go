package whatif

import (
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// State returns what the World's constellation is after the last step.
func (w *World) State() *orbit.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state(context.Background())
}

// MostSeatings bounds Seatings.
const MostSeatings = mostSeatingsInAll

// Seatings is how often the search for fixes has seated the gang.
func (e *GangExplanation) Seatings() int { return e.seatings }

// SeatsGang reports whether the planner that fixes are tried with seats a gang as things are.
func SeatsGang(state *orbit.State, id orbit.GangID) bool {
	e, err := ExplainGang(context.Background(), state, id)
	if err != nil {
		return false
	}
	draft, err := draftAt(context.Background(), state)
	if err != nil {
		return false
	}
	a := &gangAsker{ctx: context.Background(), state: state, gang: state.Gang(id), draft: draft, left: 1 << 20}
	needs, ok := needsOf(state, a.gang, a.gang.Gang)
	return ok && slices.ContainsFunc(e.Domains, func(d DomainFit) bool {
		p := gangPlace{level: d.Level, domain: d.Domain}
		return a.seat(draft, p.in(draft, nil), needs, nil) != nil
	})
}
