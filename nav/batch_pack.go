package nav

import (
	"context"

	"github.com/orbitsched/orbit"
)

// levelPacker places the classes of one level in one order.
type levelPacker struct {
	*sweep
	level batchLevel
	// Of each class: how many are placed, and why there are no more.
	placed []int
	why    []error

	proposals []orbit.Proposal
}

// pack places what it can. Room only shrinks meanwhile, so a class that did not fit is not tried again, and at the
// end what is left over fits nowhere. When ctx ends it returns what it has, and the context's error.
func (s *sweep) pack(ctx context.Context, level batchLevel, order batchOrder) (*levelPacker, error) {
	p := &levelPacker{sweep: s, level: level, placed: make([]int, len(level)), why: make([]error, len(level))}
	p.proposals = make([]orbit.Proposal, 0, level.capsules())
	for round := 1; round <= order.rounds; round++ {
		for i := range level {
			if order.largeFirst {
				i = len(level) - 1 - i
			}
			if err := p.place(ctx, i, level[i].share*round/order.rounds); err != nil {
				return p, err
			}
		}
	}
	for i := range level {
		if err := p.place(ctx, i, len(level[i].capsules)); err != nil {
			return p, err
		}
	}
	return p, nil
}

// place places capsules of a class until there are so many, or no more fit.
func (p *levelPacker) place(ctx context.Context, i, upTo int) error {
	c := p.level[i]
	for p.placed[i] < upTo && p.why[i] == nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.draft.PlaceBest(p.placement, c.capsules[p.placed[i]]); err != nil {
			p.why[i] = err
			break
		}
		p.proposals = append(p.proposals, p.draft.Propose())
		p.placed[i]++
	}
	return nil
}

// unplaced lists what was left over, and why.
func (p *levelPacker) unplaced() (out []orbit.Unplaced) {
	for i, c := range p.level {
		if p.why[i] == nil {
			continue
		}
		for _, capsule := range c.capsules[p.placed[i]:] {
			out = append(out, orbit.Unplaced{Capsule: capsule, Why: p.why[i]})
		}
	}
	return out
}
