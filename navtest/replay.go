package navtest

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// replay commits the proposals of a plan one after another on a ledger of its own that starts at the plan's
// view, where no other engine is. It returns the state after that, or which one is refused and why. That a
// ledger says so, and not the suite, is what makes planner and referee agree.
func (c *call) replay() (*orbit.State, error) {
	l := &orbit.MemoryLedger{Start: c.state}
	for i, p := range c.plan.Proposals {
		if p.View == 0 {
			p.View = c.state.Revision()
		}
		if _, err := l.Propose(context.Background(), p); err != nil {
			return nil, fmt.Errorf("plan on revision %d: proposal %d of %d (%s) cannot be committed after those before it: %w",
				c.state.Revision(), i, len(c.plan.Proposals), harness.Describe(p), err)
		}
	}
	return l.Snapshot(context.Background())
}

// replays requires that the plan can be committed like that.
func (t *trial) replays(c *call) {
	_, err := c.replay()
	t.Must(err)
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
