package nav

import (
	"context"
	"log/slog"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// sweep is the state of one call of Plan.
type sweep struct {
	placement orbit.PlacementEngine
	draft     *orbit.Draft
	state     *orbit.State
	score     *packScore
	plan      orbit.Plan
	pending   int
	scarce    []int
	// last says that the current level is the last one.
	last bool
	// bound is the upper bound for all levels; -1: it was not computed.
	bound int
	tried int
}

// The fraction of the bound at which a search stops, and how many nodes may be evaluated for each capsule of a level to
// compute the bound.
const (
	closeEnough = 0.995
	worthNodes  = 64
)

// run packs the levels, and computes the bound if capsules are left over.
func (s *sweep) run(ctx context.Context, levels []batchLevel, free *freeTally) error {
	all := slices.Concat(levels...)
	demand, asked := free.demand(all), demandVector{}
	s.scarce = demand.scarce()
	for i, level := range levels {
		s.last = i == len(levels)-1
		level.sort(&demand, &free.sum)
		over := false // whether there cannot be room for all
		for d, part := range free.demand(level) {
			asked[d] += part
			over = over || asked[d] > 1
		}
		best, err := s.level(ctx, level, over)
		s.plan.Proposals = append(s.plan.Proposals, best.proposals...)
		for i, c := range level {
			if best.why[i] == nil {
				continue
			}
			for _, capsule := range c.capsules[best.placed[i]:] {
				s.plan.Unplaced = append(s.plan.Unplaced, orbit.Unplaced{Capsule: capsule, Why: best.why[i]})
			}
		}
		if err != nil {
			return err
		}
	}
	if s.bound < 0 && len(s.plan.Proposals) < s.pending {
		s.bound, _ = boundOf(ctx, s.state.Nodes(), all)
	}
	return nil
}

// level packs one level. Over says that the capsules of the level cannot all fit.
func (s *sweep) level(ctx context.Context, level batchLevel, over bool) (*batchTrial, error) {
	t := levelSearch{sweep: s, level: level, start: s.draft.Checkpoint()}
	alike := len(level) == 1 // then any order is as good as another
	if !over || alike {
		err := t.try(ctx, snug)
		if err != nil || alike || len(t.best.proposals) == level.capsules() {
			return t.best, err
		}
	}
	if level.capsules()*worthNodes < s.state.NodeCount() {
		if t.best != nil {
			return t.best, nil
		}
		err := t.try(ctx, batchOrder{})
		return t.best, err
	}
	s.draft.Rollback(t.start)
	t.drafted = false
	bound, shares := boundOf(ctx, s.draft.Nodes(), level)
	if level.capsules() == s.pending {
		s.bound = bound
	}
	for i, c := range level {
		c.share = shares[i]
	}
	err := t.search(ctx, int(math.Ceil(closeEnough*float64(bound))))
	return t.best, err
}

// levelSearch packs one level in several orders.
type levelSearch struct {
	*sweep
	level batchLevel
	start int

	best  *batchTrial
	order batchOrder
	// drafted says that the draft shows the best result.
	drafted bool
}

// search tries orders until goal capsules are placed.
func (t *levelSearch) search(ctx context.Context, goal int) error {
	for _, order := range crowded {
		if t.best != nil && len(t.best.proposals) >= goal {
			break
		}
		if err := t.try(ctx, order); err != nil {
			return err
		}
	}
	if t.drafted || t.last {
		return nil
	}
	best := t.best
	t.best = nil
	err := t.try(ctx, t.order)
	if err != nil {
		t.best = best
	}
	return err
}

// try packs in one order, and keeps the result if it places more capsules than the best one so far.
func (t *levelSearch) try(ctx context.Context, order batchOrder) error {
	t.draft.Rollback(t.start)
	t.score.set(t.scarce, &order)
	t.tried++
	p, err := t.pack(ctx, t.level, order)
	t.drafted = t.best == nil || len(p.proposals) > len(t.best.proposals)
	if t.drafted {
		t.best, t.order = p, order
	}
	return err
}

// batchTrial is how many capsules of each class of a level one order places, and why not more.
type batchTrial struct {
	placed    []int
	why       []error
	proposals []orbit.Proposal
}

// pack places as many capsules as fit, in one order. Free capacity only shrinks meanwhile, so a class that did not fit
// is not tried again, and capsules that remain at the end fit nowhere. If ctx ends, pack returns the result so far and
// the context's error.
func (s *sweep) pack(ctx context.Context, level batchLevel, order batchOrder) (*batchTrial, error) {
	p := &batchTrial{placed: make([]int, len(level)), why: make([]error, len(level))}
	p.proposals = make([]orbit.Proposal, 0, level.capsules())
	for round := 1; round <= order.rounds; round++ {
		for i := range level {
			if order.largeFirst {
				i = len(level) - 1 - i
			}
			if err := s.fill(ctx, p, level[i], i, level[i].share*round/order.rounds); err != nil {
				return p, err
			}
		}
	}
	for i, c := range level {
		if err := s.fill(ctx, p, c, i, len(c.capsules)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// fill places capsules of class i until the class has the wanted number or no more fit.
func (s *sweep) fill(ctx context.Context, p *batchTrial, c *batchClass, i, upTo int) error {
	for p.placed[i] < upTo && p.why[i] == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		if p.why[i] = s.draft.PlaceBest(s.placement, c.capsules[p.placed[i]]); p.why[i] == nil {
			p.proposals = append(p.proposals, s.draft.Propose())
			p.placed[i]++
		}
	}
	return nil
}

// note returns the quality of the packing for Plan.Notes.
func (s *sweep) note() {
	placed, bound, gap := len(s.plan.Proposals), s.bound, 0.0
	if bound < 0 {
		bound = s.pending
	}
	if bound > 0 {
		gap = 1 - float64(placed)/float64(bound)
	}
	s.plan.Notes = append(s.plan.Notes, slog.Int("pending", s.pending), slog.Int("placed", placed),
		slog.Int("bound", bound), slog.Float64("gap", gap), slog.Int("tried", s.tried))
}
