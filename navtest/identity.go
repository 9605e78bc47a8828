package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// The rule: a navigator leaves the ids of its proposals to the engine, or gives each one that no other proposal
// has, in this plan or an earlier one. The very same proposal may keep its id.

func checkIdentity(t *trial) {
	t.scripts(func(w *world) {
		used := map[orbit.ProposalID]string{}
		w.during = func(c *call) error {
			for i, p := range c.plan.Proposals {
				content := fmt.Sprintf("%v if %v", p.Do, p.If)
				if was, is := used[p.ID]; is && !p.ID.IsZero() && was != content {
					return c.fault("proposal %d (%s) has the id %v, which another proposal has had", i, harness.Describe(p), p.ID)
				}
				used[p.ID] = content
			}
			return nil
		}
	}, nil)
}
