package navtest

import (
	"context"
	"time"

	"github.com/orbitsched/orbit"
)

// The rule: a hold that a plan makes ends, after the view's instant and within Suite.HoldFor of it.

func checkHolds(t *trial) {
	t.scripts(func(w *world) {
		var now time.Time
		w.ask = func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
			now = view.Now()
			return w.under.Plan(ctx, view, pending)
		}
		w.during = func(c *call) error { return c.endless(now, t.suite.HoldFor) }
	}, nil)
}

// endless says which hold of a plan does not end in time.
func (c *call) endless(now time.Time, most time.Duration) error {
	for i, p := range c.plan.Proposals {
		for _, do := range p.Do {
			h, ok := do.(orbit.Hold)
			if !ok {
				continue
			}
			if lasts := h.Ends.Sub(now); lasts <= 0 || lasts > most {
				return c.fault("proposal %d makes hold %q, which ends %v after the view's instant; it must be more than nothing and at most %v", i, h.ID, lasts, most)
			}
		}
	}
	return nil
}
