package navtest

// The rule: all proposals of a plan can be committed one after another on a ledger at the revision of the plan's view,
// if no other engine commits. That includes every dimension, every device, nodes whose capacity has shrunk below what
// is in use, and what others hold.

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
