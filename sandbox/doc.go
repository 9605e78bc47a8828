// Package sandbox places sandboxes: capsules that start from a template (Spec.Start). Some nodes keep warm slots of a
// template, from which a sandbox starts at once.
//
//	Warm       the navigator for a queue of sandboxes: one engine, one pass after another
//	Gateway    creates one sandbox while the caller waits: choose, commit, start, in one call
//	WarmFirst  the score by which both choose; WarmSlots, the score that it is made of
//
// Both choose on one ledger and one [telemetry.Board], and see each other's promises before any node reports again. If
// a sandbox cannot be placed, the reason is a [*WarmNoFit].
package sandbox
