package nav

import (
	"context"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// sweep is the work of one Plan.
type sweep struct {
	placement orbit.PlacementEngine
	draft     *orbit.Draft
	state     *orbit.State
	score     *packing
	plan      orbit.Plan
	pending   int
	scarce    []int
	// Nothing is packed after this level.
	last bool
	// -1: not computed.
	bound int
	tried int
}

// What part of the bound is near enough, and how many nodes may be looked at for each capsule of a level to price the
// room.
const (
	closeEnough = 0.995
	worthNodes  = 64
)

// run packs the levels, and looks for the bound if something is left over.
func (s *sweep) run(ctx context.Context, levels []batchLevel, free *freeTally) error {
	all := slices.Concat(levels...)
	load, asked := free.load(all), loadVector{}
	s.scarce = load.scarce()
	for i, level := range levels {
		s.last = i == len(levels)-1
		level.sort(&load, &free.sum)
		asked.add(free.load(level))
		best, err := s.level(ctx, level, asked.over())
		s.plan.Proposals = append(s.plan.Proposals, best.proposals...)
		s.plan.Unplaced = append(s.plan.Unplaced, best.unplaced()...)
		if err != nil {
			return err
		}
	}
	if s.bound < 0 && len(s.plan.Proposals) < s.pending {
		s.bound, _ = price(ctx, s.state.NodeBound(), s.state.NodeByIndex, all)
	}
	return nil
}

// price returns a bound on how many capsules of the classes fit on the nodes, whose indices are below limit, and how
// many of each to place. It holds also when ctx ends meanwhile, but says less then.
func price(ctx context.Context, limit int, node func(int) *orbit.NodeState, classes []*batchClass) (bound int, shares []int) {
	m := newMarket(limit, node, classes)
	p, shares := m.solve(ctx)
	return m.bound(p), shares
}

// level packs one level. Over says that there cannot be room for all.
func (s *sweep) level(ctx context.Context, level batchLevel, over bool) (*levelPacker, error) {
	t := trials{sweep: s, level: level, start: s.draft.Checkpoint()}
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
	t.undo()
	bound, shares := price(ctx, s.draft.Bound(), s.draft.Node, level)
	if level.capsules() == s.pending {
		s.bound = bound
	}
	for i, c := range level {
		c.share = shares[i]
	}
	err := t.search(ctx, int(math.Ceil(closeEnough*float64(bound))))
	return t.best, err
}

// trials packs one level in one order after another.
type trials struct {
	*sweep
	level batchLevel
	start int

	best  *levelPacker
	order batchOrder
	// The best is what the draft shows.
	stands bool
}

// undo takes back what the last trial has placed.
func (t *trials) undo() {
	t.draft.Rollback(t.start)
	t.stands = false
}

// search tries orders until so many capsules are placed.
func (t *trials) search(ctx context.Context, goal int) error {
	for _, order := range crowded {
		if t.best != nil && len(t.best.proposals) >= goal {
			break
		}
		if err := t.try(ctx, order); err != nil {
			return err
		}
	}
	if t.stands || t.last {
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

// try packs in one order and keeps what places most. The first that does wins.
func (t *trials) try(ctx context.Context, order batchOrder) error {
	t.undo()
	t.score.set(t.scarce, order.tight)
	t.tried++
	p, err := t.pack(ctx, t.level, order)
	t.stands = t.best == nil || len(p.proposals) > len(t.best.proposals)
	if t.stands {
		t.best, t.order = p, order
	}
	return err
}
