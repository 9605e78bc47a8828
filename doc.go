// Package orbit lets an orchestrator run several schedulers at once over one cluster, safely, without a
// lock manager and without a leader: each scheduler plans on its own view, states its bet, and one small
// ledger settles who won.
//
//	          ┌───────────────────── Engine.Pass ─────────────────────┐
//	Ledger ─► View ─────► Navigator + PlacementEngine ─► Proposal ─────► Ledger.Propose
//	Telemetry (join,      (plan)                         (bet)            (referee)
//	           changes)                                                    └─ conflict ─► next pass
//
// # Words
//
// A [Capsule] is what is placed: one [Envelope] of resources on one node. What it asks for is its [Spec],
// shared by all capsules with an equal spec. A [Node] is a machine. A [Navigator] is a scheduler: it claims pending
// capsules and plans where they go. An [Engine] runs one navigator; a [Population] runs several. A
// [Proposal] holds commitments and the bets they rest on: commit me only if this still holds. The [Ledger] is
// a compare-and-swap on the world: it commits all of a proposal or nothing, and enforces by itself that no
// node is ever oversubscribed, whatever a navigator says. A conflict means that another proposal was first; it
// is expected, silent, and planned again in the next pass.
//
// # First steps
//
// Make a [MemoryLedger], tell it of nodes ([PutNode]) and capsules ([Submit]), and run an [Engine] with a
// navigator from package nav, or with one of your own: implement [Navigator], or wrap a function in nav.Func. A
// [PlacementEngine] does the choosing: one of package place, Indexed unless there is a reason for Exhaustive or Sampled.
//
// # What to look for
//
//	send a proposal again                    [NewProposalID], [ErrUnknown]
//	tell a lost race from a mistake          [ErrConflict], [ErrInfeasible], [Rejection]
//	cordon, drain or remove a node           [Node.Cordon] and [PutNode]; nav.Drain; [RemoveNode]
//	change the labels or capacity of a node  [Node.Clone] of [State.Node], and [PutNode]
//	list what waits, and why                 [State.Pending], [Backlog]; Round.Unplaced; whatif.Explain
//	submit a gang, or add members            [Submit] with a [Gang]; Submit.Join
//	keep replicas apart, even or near        [Spec]: Apart, Even, Nears
//	bound how many may be missing            [PutBudget]
//	let teams share by quota                 [PutQueue], [Spec]: Queue
//	change what waits or runs                [Respec], [Adopt]
//	say what an agent sees                   [Confirm]
//	end work                                 [Release] with Final
//	follow commits                           Ledger.Changes, Ledger.Wait; package watch
//	save and restore a ledger                [State.Dump], [State.Restore]
//
// # Safety
//
// There are two layers. Within one plan a navigator reserves what it has promised, so it never oversubscribes a node by
// itself. Between navigators the ledger judges every proposal against the world as it is.
//
// Whatever a navigator proposes, no node is oversubscribed. A capsule that runs on a ready node goes back to pending
// only if it is evicted: to make way for a capsule of strictly higher priority, in the commit that places that capsule,
// and only if the room is needed ([Evict] and [Release] name the exceptions, such as gangs that are broken). On nodes with agents that confirm what begins and what has stopped ([Confirm]), no
// capsule is started beside others with which it does not fit, and none runs twice, however long it takes to stop. Only
// capsules that were found running ([Adopt]) may exceed the capacity of a node; then nothing more is admitted there.
//
// Any proposal may submit work at any priority, release a capsule for good, cordon or remove a node, and change a mark:
// the ledger does not ask who proposes. An [Engine] does: it sends no proposal of a plan that does one of these to
// something that is not its navigator's ([State.JudgePlan]). A plan places the work that there is. It submits none, uses
// only the marks and holds that are meant for plans ([PlanPrefix]), and cannot use the proposal ids of another engine.
// It is up to the importer who else may reach the ledger, and what else runs in the process.
//
// # Waiting work
//
// What an [Engine] guarantees to work that waits:
//
//   - A change that frees room on a node where a waiting capsule, or a member of a waiting gang, then fits begins a
//     pass at once: they do not wait for the backoff.
//   - Every pass plans in order of priority. Among equals nominees come first, then what was submitted first.
//   - Work of lower priority of this engine does not take room that waiting work could use by the rules of the ledger,
//     even when bets are lost. There is one exception: when eight full batches in a row have lost all their bets, the
//     work behind them is planned.
//   - A class that fits nowhere is planned again when a change could help it, when the version of a filter that refused
//     it changes, after [Engine.Nudge], and after ParkFor in any case.
//   - Against the other engines of a [Population] that is Strict, work of higher priority is planned first, too.
//   - Against engines of other processes, and for room that is freed little by little, waiting work needs a nomination
//     ([Nominate]), which nav.Patient makes.
//
// # Concurrency
//
// A ledger's methods may be called from any goroutine. A [State] is immutable. A [View], a
// [PlacementEngine] and a navigator belong to one engine. Values that a ledger hands out (capsules, specs,
// nodes, gangs, nominations, changes) are shared and must not be written to. A plain copy shares their maps and lists:
// to change a node, a spec or a gang, change what [Node.Clone], [Spec.Clone] or [Gang.Clone] returns. A ledger refuses
// as [ErrInvalid] to replace a node or a nomination that was changed through a plain copy, and to take such a copy of a
// spec; [State.Verify] reports every such change.
//
// # Sources
//
// The loop is that of "Many Schedulers, One Commit Loop"; the idea of schedulers that share state and resolve
// collisions when they commit is Omega's (Schwarzkopf et al., EuroSys 2013), and the scoring of machines,
// with equivalence classes and relaxed randomization, is Borg's (Verma et al., EuroSys 2015).
package orbit
