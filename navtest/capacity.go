package navtest

// The rule: a plan keeps its own books. All its proposals commit, one after another, on a ledger that is at
// the very revision of the plan's view and where nobody else is: in every dimension, device by device, where
// use is over a capacity that has shrunk, and with everything that others hold.
//
// Why: between navigators the ledger is the referee, but a navigator that promises the same room twice makes
// it refuse the navigator's own second proposal, pass after pass. Where planner and referee disagreed on fit,
// plans were rejected for ever (SCENARIOS 18, nomad #9506; I10); capacity that shrank below use let others in
// (SCENARIOS 13, volcano #3392), and sums wrapped (SCENARIOS 11, kubernetes #102134).

func checkCapacity(t *trial) {
	t.scripts(nil, func(w *world, c *call) {
		_, err := c.replay()
		t.must(err)
	})
	t.where = "more work than room: "
	w := t.world()
	w.racks(1)
	for _, p := range t.mine {
		for range 12 { // three nodes have 48 cores; each pair wants 60
			w.submit(small(p), 5)
		}
	}
	if c := w.pass(); c != nil {
		_, err := c.replay()
		t.must(err)
	}
}
