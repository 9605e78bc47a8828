// Package agent has the node agent: it joins its node, sends reports, learns which capsules are placed on the node, and
// starts and stops them through a [Runtime], so that no capsule runs twice.
//
//	                      ┌── Join, Report ────► lease.Members, telemetry.Board
//	Runtime ◄── Agent ────┼── Watch ───────────► watch.Index, Ledger
//	   List, Start,       └── Confirm ─────────► Ledger: Begun, Ready, Stopped
//	   Stop, Forget        Control
//
// An [Agent] runs in a process on each node. It talks to the ledger, the leases and the telemetry through a [Control].
// In the process of the ledger the Control is a [Local]. In any other process it is a [Client], which calls the
// [Handler] of a Local.
//
// # What it does
//
// For each capsule that is placed on the node, the agent proposes [orbit.Confirm] with Begun, and starts the capsule
// once that is committed. When the runtime says that a capsule serves, or no longer serves, the agent confirms Ready or
// NotReady. When a capsule is taken off the node, the agent stops it and confirms Stopped. When a capsule ends by
// itself, the agent says Finished if its work is done, and the capsule is released for good; otherwise it says Stopped,
// and the capsule returns to pending. The agent also stops everything that runs without being placed on the node.
//
// A restarted agent asks the runtime what runs. It goes on with the capsules that are still placed on the node, and
// says Stopped of each capsule that has begun and does not run. So if Begun was committed and the capsule may or may
// not have run, the capsule is placed again.
//
// # Fencing
//
// If no reports of a node arrive, the node is lost some time later, and its capsules are placed elsewhere. The agent
// stops everything before that. When it joins, it learns for how long after a report the node's capsules are placed
// nowhere else ([Lease].Fence). It counts this time from the moment at which it sent the last accepted report, and
// begins to stop everything [Agent.Stopping] before the end. It joins again only when nothing runs.
//
//	report sent           Stopping before Fence                     Fence: lost, at the earliest
//	 │ accepted            │ no report was accepted: stop everything │
//	 ▼                     ▼                                         ▼
//	 ├───── TTL: may be cordoned ─────┼────── lesser of TTL, Gone ───┤
//
// A dead or suspended agent stops nothing. A [Watchdog] does: it is a runtime whose capsules stop by themselves unless
// the agent extends their time. Without a Watchdog, a capsule may run twice if the agent is dead or suspended (SIGSTOP, a
// virtual machine that is paused) and its capsules are not; [Agent.Run] reports [ErrUnguarded] when it begins. A
// restarted agent without a Watchdog does not know when its predecessor's last report was accepted, so it stops
// everything if it hears nothing from Control within one [Agent.Every].
//
// # One agent a node
//
// The lease of a node is held by a machine ([Agent.Machine]) and one run of the agent on it. So if two machines have got
// the same node id, or two agents run on one machine, the second one is refused for as long as the first one reports,
// and reports that as an error. When the first one ends or dies, the second one gets the node; see [Agent.Machine] for
// when.
//
// An operator who puts a node as Lost, or removes it, asserts that nothing runs there. The agent stops everything as
// soon as it reads of that, but the capsules may have been started elsewhere before.
package agent
