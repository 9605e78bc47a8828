package nav

import (
	"context"
	"math"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/moves"
	"github.com/orbitsched/orbit/internal/victims"
	"github.com/orbitsched/orbit/place"
)

// How a Preempting makes room by moves: before it evicts, it looks for movable capsules that fit on other nodes.

const (
	// mostMovedFor is how many capsules are moved at most for one capsule or one gang.
	mostMovedFor = 16
	// domainsMoved is how many domains of a level are searched for a gang, each with domainSteps steps.
	domainsMoved, domainSteps = 64, 20_000
)

// mover begins the search for moves; nil: none may be made any more, or none can help.
func (r *preemptPass) mover(c *orbit.Capsule) *moves.Search {
	if r.movesLeft <= 0 || r.withheld[r.waiterOf(c)] || r.unmovable[c.Spec] {
		return nil
	}
	if r.moves.Engine == nil {
		r.moves = moves.Search{Draft: &r.draft, Engine: &place.Indexed{Filter: r.Filter, FilterVersion: r.FilterVersion}, Note: "moved to make room"}
	}
	r.moves.Excluded = r.filtered
	r.moves.Most = min(mostMovedFor, r.movesLeft)
	return &r.moves
}

// moveFor moves capsules and places this one in their stead. It reports false if no moves make room, or none are needed.
func (r *preemptPass) moveFor(c *orbit.Capsule) bool {
	m := r.mover(c)
	if m == nil {
		return false
	}
	m.Steps = 0
	f := m.Room([]*orbit.Capsule{c}, nil)
	if f == nil && m.Hopeful() {
		r.hoping[c.Spec] = true
	}
	if f == nil && !c.Nomination().Lives() && !victims.Stops(c) {
		r.unmovable[c.Spec] = true // within a plan free room only shrinks, and no more capsules become movable
	}
	return f != nil && r.move(f)
}

// moveForGang moves capsules and places the members of a gang in their stead, in one domain of the first level where
// that is possible: in the domain with the fewest moves. It reports false if no moves make room, or none are needed.
func (r *preemptPass) moveForGang(ctx context.Context, of *orbit.Capsule, members []*orbit.Capsule, levels [][]string) bool {
	m := r.mover(of)
	if m == nil {
		return false
	}
	m.Steps = domainSteps
	r.rooms.Begin(&r.draft, math.MaxInt)
	r.rooms.Follow()
	for _, level := range levels {
		var best *moves.Found
		t, tried := r.rooms.Table(level...), 0
		for d := range t.Domains {
			if !r.mayBeIn(t, d) {
				continue
			}
			if tried++; tried > domainsMoved || ctx.Err() != nil {
				break
			}
			if f := m.Room(members, t.Domains[d].Nodes); f != nil && (best == nil || f.Before(best)) {
				best = f
			}
		}
		if best != nil {
			var bets []orbit.Precondition
			if r.home == nil {
				bets = append(bets, orbit.GangUnplaced{Gang: of.Gang()})
			}
			return r.move(best, bets...)
		}
	}
	return false
}

// move adds a proposal with the moves that were found to the plan.
func (r *preemptPass) move(f *moves.Found, bets ...orbit.Precondition) bool {
	start, limits := r.draft.Checkpoint(), r.state.Limits()
	if len(f.Moved) == 0 || f.On(&r.draft) != nil {
		return false
	}
	made := r.draft.Propose(bets...)
	if len(made.Do) > limits.Commitments || len(made.If) > limits.Preconditions {
		r.draft.Rollback(start)
		return false
	}
	r.plan.Proposals = append(r.plan.Proposals, made)
	r.moved += len(f.Moved)
	r.movesLeft -= len(f.Moved)
	return true
}
