package main

import (
	"context"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// preempting plans as Services does, and where there is no room it has the best victims make way: each proposal evicts them and places
// the one that they make way for.
type preempting struct {
	*nav.Services
	draft  orbit.Draft
	engine place.Indexed
}

func (p *preempting) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
	p.draft.Sync(view)
	for _, c := range pending {
		e, err := p.engine.BestEvicting(&p.draft, c)
		if err == nil {
			err = e.On(&p.draft, c)
		}
		if err != nil {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: err})
			continue
		}
		plan.Proposals = append(plan.Proposals, p.draft.Propose())
	}
	return plan, ctx.Err()
}
