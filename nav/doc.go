// Package nav has navigators that are ready to run. Each claims one class of work and places it well. [Default] runs all of
// them side by side on one ledger; or run those that you need, each in an [orbit.Engine] of its own.
//
//	Services  latency-sensitive and best-effort capsules: spread, one at a time, the best node for each
//	Batch     batch capsules: packed, as many as possible, with a bound that says how many more there could be
//	Gang      gangs: all members in one rack, block or zone, or none of them
//	Anchor    wraps a navigator: starts co-location groups, whose members wait for each other
//	Patient   wraps a navigator: nominates freed room for work that has waited long
//	Preempting wraps a navigator: moves others, or evicts work of lower priority, for work that fits nowhere
//	Fair      wraps a navigator: orders the work of queues so that they share fairly
//
// Anchor, Patient, Preempting and Fair wrap any navigator, also one of your own. [Drain] and [Defrag] are no navigators, though they
// plan like one: beside the engines, they empty cordoned nodes, and gather free room in one place. Sandboxes that start from
// warm slots have a package of their own, package sandbox.
//
// The zero values of Services, Batch and Gang work; Anchor, Patient, Preempting and Fair need their Navigator, Drain its
// Ledger, and Defrag its Ledger and a Goal. A navigator belongs to one engine. Each navigator explains why it did not place a capsule: with counts of
// nodes ([orbit.NoFit]), by level of topology ([GangNoFit]), or with the groups that wait for each other ([Deadlock]).
// These reasons are in Round.Unplaced, and measurements are in Round.Notes: [orbit.Engine.Pass] returns the round, and
// Engine.OnRound is called with it.
//
// Work that several engines of a Population claim belongs to the first of them in its list. So a navigator for some
// modules stands before those that claim all; and an Anchor, which claims what the navigator in it claims, takes the place of that one. A
// capsule that is submitted with the name of an engine (Submit.Owner) belongs to that engine.
//
// Priorities order the work of one navigator. Between navigators, the first to commit gets the room, unless the
// Population is Strict. A sweep that fills the nodes leaves none to a gang or a large service of any priority, unless a
// Patient nominates it.
package nav
