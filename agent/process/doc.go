// Package process is an [agent.Runtime] that runs capsules as processes of the operating system, on Linux and other Unix
// systems.
//
//	agent.Agent ──► Runtime ── command.json ──► supervisor ──► the process
//	                   │ Extend: until ───────────► │ reads it, and stops the process in time
//	                   └ List ◄── lock, exit.json ──┘
//
// Each capsule has a supervisor, a copy of the agent's program that outlives the agent ([Init]). So an agent can be
// replaced while all processes run on. And processes stop in time even if the agent is dead or suspended: a supervisor
// stops its process at the time in the file named "until", which makes the Runtime an [agent.Watchdog].
//
// A lock shows whether an instance still runs. The supervisor and the process inherit the lock from the agent that has
// started them. The kernel holds the lock until the last of them is gone, so no process is overlooked, whichever of
// them was killed.
//
// The package has three limits. While a supervisor itself is suspended, it stops nothing. If a supervisor is killed, its
// process is killed with it (on Linux), but not the children of that process. And nothing keeps a process within what its
// capsule asks for. Control groups have none of these limits: a runtime of containers is as small as this one, and must
// keep the same three things: names that are unique to the instance, a list of instances that outlives the agent, and a
// time at which everything stops by itself.
package process
