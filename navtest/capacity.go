package navtest

// The rule: a plan keeps its own books. All its proposals commit, one after another, on a ledger that is at
// the very revision of the plan's view and where no other engine is: in every dimension, device by device, where
// use is over a capacity that has shrunk, and with everything that others hold.

func checkCapacity(t *trial) {
	t.scripts(nil, (*call).replays)
	t.Where = "more work than room: "
	w := t.world()
	w.racks(1)
	for _, p := range t.mine {
		for range 12 { // three nodes have 48 cores; each pair wants 60
			w.submit(small(p), 5)
		}
	}
	w.passes(1, (*call).replays)
}
