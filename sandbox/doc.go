// Package sandbox places sandboxes: capsules that start from a template (Spec.Start), of which some nodes have
// slots warm.
//
//	Warm       the navigator for a queue of them: one engine, one pass after another
//	Gateway    creates one while the caller waits: choose, commit, start, in one call
//	WarmFirst  the score by which both choose; WarmSlots, the one it is made of
//
// Both choose on one ledger and one [telemetry.Board], and see what the other has promised before any node
// reports again. What cannot be placed has a [*WarmNoFit].
package sandbox
