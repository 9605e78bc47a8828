package navtest

import "github.com/orbitsched/orbit/internal/harness"

// The rule: a navigator leaves the ids of its proposals to the engine. The engine does not send a proposal with an id of
// the navigator's own, because that might be the id of another proposal.

func checkIdentity(t *trial) {
	t.scripts(func(w *world) {
		w.during = func(c *call) error {
			for i, p := range c.plan.Proposals {
				if !p.ID.IsZero() {
					return c.fault("proposal %d (%s) has the id %v; leave that to the engine", i, harness.Describe(p), p.ID)
				}
			}
			return nil
		}
	}, nil)
}
