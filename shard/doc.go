// Package shard divides one constellation among several schedulers. A [Dispatcher] assigns capsules to schedulers, and
// [Groups] assigns nodes to them. The [Mode] says what a scheduler may place on the nodes of the others: nothing (Strict),
// only what does not fit on its own nodes (Soft), or anything (Shared). [Import] submits capsules together with the
// scheduler that the user has chosen for them.
//
//	Import ─► Ledger ◄── Dispatcher    capsules to schedulers: Assign
//	            ▲   ◄── Groups         nodes to schedulers: a mark for each
//	            └────── schedulers     each an orbit.Engine whose navigator is wrapped in a Scheduler
//
// The parts never call each other. They communicate through assignments and marks in the ledger, so each of them may
// stop and start again, and a new process reads everything it needs from the ledger. Dispatchers and Groups may run
// several times at once, schedulers of one name only one at a time.
//
//	group/NODE       the scheduler that owns the node; in strict mode each placement on the node bets on this mark
//	leaving/NODE     the scheduler that gets the node next; the mark asks the owner to plan nothing more on the node
//	left/NODE        the owner's answer: none of its proposals is still under way to the node
//	pinned/CAPSULE   the scheduler that the user has chosen; pinned-gang/GANG for all members of a gang
//	scheduler/NAME   the lease of a scheduler (lease.Keeper with this prefix)
//	plan/capsule/failed/CAPSULE   the schedulers that could not place the capsule, and why. Schedulers write it in their
//	                              plans (orbit.PlanPrefix); plan/gang/failed/GANG for all members of a gang
//
// # First steps
//
// Make a [lease.Keeper] with [LeasePrefix]. It must keep the leases of schedulers only, because every name under the
// prefix counts as a scheduler. Run it and a [Dispatcher] (with its Strict set in strict mode), and in strict and soft
// mode [Groups] as well. Give all of them the ledger itself. Then make for each scheduler, with the same name
// everywhere:
//
//	partition := &shard.PartitionLedger{Ledger: ledger, Scheduler: "a", Mode: mode}
//	inside := partition.Navigator(func() orbit.Navigator { return &nav.Services{} })
//	scheduler := &shard.Scheduler{Name: "a", Navigator: inside, Leases: leases}
//	engine := &orbit.Engine{Name: "a", Ledger: partition, Navigator: scheduler}
//
// The [Scheduler] wraps the navigator that the [PartitionLedger] returns, not the other way round. [Scheduler.Keep]
// holds the lease; without a term the scheduler is assigned nothing and plans nothing. A scheduler plans every capsule
// that is assigned to it and ignores the Claims of its navigator: where schedulers differ in what they can place, a
// [PolicyFunc] has to choose the right one.
//
// [lease.Keeper]: https://pkg.go.dev/github.com/orbitsched/orbit/lease#Keeper
package shard
