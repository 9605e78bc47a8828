package navtest

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// The rule: a navigator leaves the ids of its proposals to the engine, or gives each one that no other proposal
// has, in this plan or an earlier one. The very same proposal may keep its id.
//
// Why: a proposal's id applies at most once (SCENARIOS 4, kubernetes #96579; I12). The ledger takes the second
// one for the first, sent again, and says that it is committed; nothing happens, and nobody learns why.

func checkIdentity(t *trial) {
	t.scripts(func(w *world) {
		used := map[orbit.ProposalID]string{}
		w.during = func(c *call) error {
			for i, p := range c.plan.Proposals {
				content := fmt.Sprintf("%v if %v", p.Do, p.If)
				if was, is := used[p.ID]; is && !p.ID.IsZero() && was != content {
					return fmt.Errorf("plan on revision %d: proposal %d (%s) has the id %v, which another proposal has had",
						c.state.Revision(), i, describe(p), p.ID)
				}
				used[p.ID] = content
			}
			return nil
		}
	}, nil)
}
