// Package shard divides one constellation among several schedulers: which capsules are whose ([Dispatcher]), and
// which nodes. What schedulers may do on each other's nodes is a setting, from nothing at all (partition) to
// everything (optimism).
//
//	Import ─► Ledger ◄── Dispatcher    capsules to schedulers: Assign
//	            ▲   ◄── Groups         nodes to schedulers: a mark for each
//	            └────── schedulers     each an orbit.Engine whose navigator is wrapped in a Scheduler
//
// Nobody talks to anybody: what the parts say to each other are assignments and marks in the ledger, so any of them
// may stop, start again or run twice. All that a new one needs to know is in the ledger.
//
//	group/NODE       the scheduler whose node it is; what is placed there in strict mode bets on this mark
//	leaving/NODE     the scheduler that is to have it next: its owner is asked to plan nothing more there
//	left/NODE        its owner's answer: nothing of it is on its way to the node
//	failed/CAPSULE   which schedulers could not place it, and why; failed-gang/GANG for all members of a gang
//	pinned/CAPSULE   the scheduler that the user has chosen; pinned-gang/GANG for all members of a gang
//	scheduler/NAME   the lease of a scheduler (lease.Keeper with this prefix)
//
// # First steps
//
// Make a [lease.Keeper] with [LeasePrefix], of schedulers and nothing else: every name under it is taken for a
// scheduler. Run it, and a [Dispatcher]; in strict mode with its Strict set, and in strict and soft mode [Groups]
// beside it. All of them have the ledger itself. Then for each scheduler, under the same name everywhere:
//
//	lens := &shard.Lens{Ledger: ledger, Scheduler: "a", Mode: mode}
//	inside := lens.Navigator(func() orbit.Navigator { return &nav.Services{} })
//	scheduler := &shard.Scheduler{Name: "a", Navigator: inside, Leases: leases}
//	engine := &orbit.Engine{Name: "a", Ledger: lens, Navigator: scheduler}
//
// The [Scheduler] is around what the [Lens] returns, not in it. [Scheduler.Keep] holds the lease; without a term
// nothing is given to the scheduler, and nothing planned. A scheduler plans what it is given, whatever the navigator in
// it claims: where schedulers differ in what they can place, a [PolicyFunc] tells them apart.
//
// [lease.Keeper]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#Keeper
package shard
