// Package claim hands out slots as fast as they are requested. A slot is one of many interchangeable things that have
// one user at a time, such as a warm sandbox or an idle node. Use the package if a caller waits for each slot. Work
// that can wait for a planned pass belongs to the engines of package orbit.
//
//	                    ┌────────────────────────── Pool ──────────────────────────┐
//	requests ─Enqueue─► │ queue ──┐                                                │
//	           Claim    │         ├─► reserve ─► claim (128 at most at a time) ────┼─► Source.Claim
//	                    │ ready ──┘                    │                           │   compare-and-swap
//	                    │   ▲                          ├─ claimed ─► the caller    │
//	                    │   │                          ├─ conflict ─► its old place│
//	Source.Idle ────────┼───┘ except reserved slots    └─ error ───► the caller    │
//	(Follow)            │                                                          │
//	NotifyIdle ─────────┼─► list the source, NotifyDelay later                     │
//	                    │   no idle slot: poll, and call ScaleUp with the deficit  │
//	                    └──────────────────────────────────────────────────────────┘
//
// # First steps
//
// Make a [Pool] with a [Source] and run it. The slots of a [LedgerSource] are the nodes of an orbit.Ledger, by default
// of a ledger that the source makes. For slots in another store, implement the three methods of Source. Ask with
// [Pool.Claim], which waits for the answer, or with [Pool.Enqueue], which does not. Give a slot back with the source's
// Return.
//
// # Requests
//
// Requests are served in order of arrival. A request with a [Want] gets the slot that has been idle longest among those
// whose labels match. Until a matching slot is idle the request waits, and later requests are served before it; if it
// ends without one, its error wraps ErrUnmatched. A request whose claim is a conflict returns to its place in the queue
// and gets the next slot.
//
// A request ends when its context ends or its deadline passes, and is answered at that moment. A claim that is then in
// flight is not cancelled, because its outcome would be unknown. If it is committed, the pool gives the slot back. So
// either the caller has the slot or the source has it.
//
// # Slots
//
// Slots are handed out in the order in which listings first showed them. A listing may be older than the last claims,
// so a slot that has been handed out is reserved: for ReserveFor after the answer to its claim, the pool ignores
// listings that show the slot as idle. The reservation ends earlier if a listing shows the slot with a version that
// includes the claim. So a slot of a ledger can be handed out again as soon as it is given back. ReserveFor must be
// longer than listings are late; otherwise requests run into conflicts. With listings that have no version, a slot that
// is given back early stays unused until its reservation ends.
//
// A ready slot that a later full listing does not show is dropped. A slot with a new uid is a new slot: it goes to the
// end of the queue, and reservations of the old slot do not apply to it.
//
// # Unknown outcomes
//
// A claim that may or may not have been committed (orbit.ErrUnknown, or the end of a context) is not a conflict. The
// pool repeats the same attempt, with the same id, until the source returns the outcome. The request is answered after
// Timeout at the latest; if the slot turns out to be claimed after that, the pool gives it back. The outcome stays
// unknown only if the pool ends first, or if the source panics. Then the slot is reported in an ErrLeak.
//
// # Shortage
//
// While requests wait and no slot is idle, the source is listed after 10 s, after another 20 s, and so on, at most 5
// min apart. A new request, an idle slot or a conflict causes a listing at once and starts over with 10 s. ScaleUp is
// called once for each shortage, with the number of missing slots.
//
// # Status
//
// [Pool.Status] returns the pool's labels, the number of pending requests and the latency of its dispatches, for
// exporters of metrics. Pool.OnStatus is called with the status when the number of pending requests has changed, for
// example to tell an autoscaler in another process about the demand.
//
// # Many pools
//
// [Pools] chooses among pools by their snapshots. [Pool.Snapshot] takes a few atomic loads, so it can be called for
// every request.
//
// # Failures
//
// If a call of the source panics, exits its goroutine, blocks or fails, only the request or listing that it was made
// for is affected. The same failures of a hook are reported. A caller that has gone away, or whose channel has no room
// for the answer, does not delay other callers. Shutdown answers every request and returns within twice Grace.
package claim
