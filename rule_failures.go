package orbit

import "slices"

// Failed starts are counted by capsule and node.

// countFailure adds a failure of a placed capsule on its node to the capsule's record. Attempt is false if the capsule
// has not failed but only not begun.
func (t *tx) countFailure(e *txCapsule, at Instant, attempt bool) {
	if e.failures == nil && e.was != nil && !e.anew {
		e.failures = t.s.failuresOf(e.now.ID)
	}
	if e.failures == nil {
		e.failures = &Failures{}
	}
	e.failures = e.failures.plus(NodeFailure{Node: e.now.Node, At: at, Revision: t.rev}, e.now.PlaceTime, attempt)
}

// endExhausted makes the release final if the capsule has failed as often as its spec permits. The history has the final
// release, so every reader of it sees the end, and a replay ends the capsule whatever the spec says by then.
func (t *tx) endExhausted(e *txCapsule, c *Release) {
	if most := e.now.Spec.Attempts; c.Final || t.replays || most == 0 || e.failures.Attempts < most {
		return
	}
	c.Final = true
	t.p.Do = slices.Clone(t.p.Do) // the proposer may have kept the list
	t.p.Do[t.at] = *c
}

// publishFailures writes the records of failures to which the proposal has added.
func (s *State) publishFailures(t *tx) {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.failures != nil {
			s.failed.ReplaceOrInsert(failureRecord{e.now.ID, e.failures})
		}
	}
}

// failures checks that each record of failures is that of a capsule, and can be.
func (v *verifier) failures() {
	v.s.failed.Ascend(func(r failureRecord) bool {
		if why := r.of.fault(v.s.rev); r.of == nil || why != "" || v.s.Capsule(r.capsule) == nil {
			v.fail("capsule %q has a record of failures: %s; it has no record of its own, or that cannot be", r.capsule, why)
		}
		return true
	})
}
