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
	index, err := indexOf(context.Background(), state)
	if err != nil {
		return false
	}
	a := &gangAsker{ctx: context.Background(), state: state, gang: state.Gang(id), index: index, left: 1 << 20}
	a.needs = needsOf(state, a.gang, a.gang.Gang)
	return slices.ContainsFunc(a.domains(), func(p gangPlace) bool { return a.seat(index, p.nodes, &a.needs, nil) != nil })
}

// Work returns how much an answer has cost, in steps of searches and placements.
func (s *Scaling) Work() int { return s.work }
