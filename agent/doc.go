// Package agent is what every node agent needs: it joins, reports, learns what is to run on its node, and starts and stops that
// by a [Runtime], so that no capsule runs twice.
//
//	                      ┌── Join, Report ────► lease.Members, telemetry.Board
//	Runtime ◄── Agent ────┼── Watch ───────────► watch.Index, Ledger
//	   List, Start,       └── Confirm ─────────► Ledger: Begun, Ready, Stopped
//	   Stop, Forget        Control
//
// An [Agent] runs in each node's process. It knows the rest of the world as a [Control], which is a [Local] in the process of the
// ledger, and a [Client] elsewhere, which speaks to the [Handler] of a Local.
//
// # What it does
//
// For each capsule that is placed on the node the agent proposes [orbit.Confirm] with Begun, and starts it once that is committed; it says
// Ready and NotReady as the runtime does. What has been taken off the node it stops, and then says so. What has ended by itself it
// reports: as done, and the capsule is released for good, or as stopped, and it returns to pending. What runs and is not the node's
// any more it stops.
//
// An agent that is started anew asks the runtime what runs. It goes on with what is still placed on the node, and says Stopped of what
// has begun and does not run. So a capsule whose Begun was committed, and of which it cannot be known whether it ran, is placed again.
//
// # Fencing
//
// A node whose reports are not received is lost some time later, and its capsules are placed elsewhere. The agent stops
// everything before that. When it joins it is told for how long nothing is given to others after a report ([Lease]). It counts that from
// the moment at which it has sent the last report that was accepted, and begins to stop [Agent.Stopping] earlier. It joins again
// only when nothing runs.
//
//	report sent           Stopping before Fence                     Fence: lost, at the earliest
//	 │ accepted            │ no report was accepted: stop everything │
//	 ▼                     ▼                                         ▼
//	 ├───── TTL: may be cordoned ─────┼────── lesser of TTL, Gone ───┤
//
// An agent that is dead or suspended stops nothing. A [Watchdog] does: a runtime whose capsules stop by themselves unless
// the agent has extended their time. Without one, a capsule may run twice while an agent is dead and its node is not, and an
// agent that is started anew, which does not know when its predecessor was last heard, stops everything if it cannot join within one
// [Agent.Every].
//
// An operator who puts a node as Lost, or removes it, says that nothing runs there. The agent then stops everything as soon as it
// reads that, but others may have been started before.
package agent
