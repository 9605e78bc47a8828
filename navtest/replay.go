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
			return nil, c.fault("proposal %d of %d (%s) cannot be committed after those before it: %w", i, len(c.plan.Proposals), harness.Describe(p), err)
		}
	}
	return l.Snapshot(context.Background())
}

// replays returns an error if the plan cannot be committed like that.
func (c *call) replays() error {
	_, err := c.replay()
	return err
}

// fault returns an error that says which plan it is about.
func (c *call) fault(format string, args ...any) error {
	return fmt.Errorf("plan on revision %d: %w", c.state.Revision(), fmt.Errorf(format, args...))
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
