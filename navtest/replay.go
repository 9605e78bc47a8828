package navtest

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
)

// replay commits the proposals of a plan one after another on a ledger of its own that starts at the plan's
// view, where nobody else is. It returns the state after that, or which one is refused and why. That a
// ledger says so, and not the suite, is what makes planner and referee agree.
func (c *call) replay() (*orbit.State, error) {
	l := &orbit.MemoryLedger{Start: c.state}
	for i, p := range c.plan.Proposals {
		if p.View == 0 {
			p.View = c.state.Revision()
		}
		if _, err := l.Propose(context.Background(), p); err != nil {
			return nil, fmt.Errorf("plan on revision %d: proposal %d of %d (%s) cannot be committed after those before it: %w",
				c.state.Revision(), i, len(c.plan.Proposals), describe(p), err)
		}
	}
	return l.Snapshot(context.Background())
}

// describe names a proposal by the first thing that it does.
func describe(p orbit.Proposal) string {
	if len(p.Do) == 0 {
		return "which does nothing"
	}
	text := fmt.Sprintf("%T", p.Do[0])
	switch do := p.Do[0].(type) {
	case orbit.Place:
		text = fmt.Sprintf("Place %q on %q", do.Capsule, do.Node)
	case orbit.Release:
		text = fmt.Sprintf("Release %q%q", do.Capsule, do.Hold)
	case orbit.Hold:
		text = fmt.Sprintf("Hold %q on %q", do.ID, do.Node)
	}
	if len(p.Do) > 1 {
		text += fmt.Sprintf(" and %d more", len(p.Do)-1)
	}
	return text
}

// places returns the placements of the plan, in order.
func (c *call) places() (out []orbit.Place) {
	for _, p := range c.plan.Proposals {
		for _, do := range p.Do {
			if place, ok := do.(orbit.Place); ok {
				out = append(out, place)
			}
		}
	}
	return out
}
