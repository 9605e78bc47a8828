// Package claim hands out slots as fast as they are asked for: warm sandboxes, idle nodes, anything of which
// one is as good as another and each has one user at a time. It is for requests whose callers wait; work
// that can be planned is for the engines of package orbit.
//
//	                    ┌────────────────────────── Pool ──────────────────────────┐
//	requests ─Enqueue─► │ queue ──┐                                                │
//	           Claim    │         ├─► reserve ─► claim (128 at most at a time) ────┼─► Source.Claim
//	                    │ ready ──┘                    │                           │   compare-and-swap
//	                    │   ▲                          ├─ claimed ─► the caller    │
//	                    │   │                          ├─ conflict ─► head of queue│
//	Source.Idle ────────┼───┘ but what is reserved     └─ error ───► the caller    │
//	(Follow)            │                                                          │
//	NotifyIdle ─────────┼─► list the source, NotifyDelay later                     │
//	                    │   nothing idle: poll, and tell ScaleUp how many wait     │
//	                    └──────────────────────────────────────────────────────────┘
//
// # First steps
//
// Make a [Pool] with a [Source] and run it. With a [LedgerSource] slots are the nodes of an orbit.Ledger, by
// default one of the pool's own; a store of one's own is a Source of three methods. Ask with [Pool.Claim],
// which waits, or with [Pool.Enqueue], which does not; give a slot back with the source's Return.
//
// # Requests
//
// They are served in order of arrival. A request whose Want names images, labels or a phase gets the slot that
// has been idle longest of those that have all of it among their labels; where there is none it waits, others
// pass it, and if it ends like that its error wraps ErrUnmatched. A request that meets a conflict keeps its
// place: it goes back to the head of the queue, and gets the next slot. A request ends when its context does or
// its deadline passes, and is answered at that moment, wherever it is. If its claim is in flight just then, the
// claim is not cut off, because its outcome would be unknown: if it is committed after all, it is undone. Either
// the caller has the slot, or the source has it back.
//
// # Slots
//
// They are handed out in the order in which listings first showed them. A listing may lag behind, so a slot
// that has been handed out is reserved, and a listing that shows it as idle is not believed, until ReserveFor
// after the claim has been answered. It is believed earlier if it says what version of the store it has seen
// and that has the claim; thus with a ledger a slot that is given back is ready at once. ReserveFor must be
// longer than listings lag behind, or requests run into conflicts; where slots become idle again sooner than
// that, and listings have no version, they lie idle for the rest of it.
//
// A slot that is ready and that a later full listing does not show is dropped. A slot whose uid has changed is
// another slot: it goes to the end, and no reservation of the old one holds it back.
//
// # Unknown outcomes
//
// A claim that may or may not have been committed (orbit.ErrUnknown, or a context that has ended) is not a
// conflict: the same attempt is made again, with the same id, until the source says. The request has its answer
// after Timeout at the latest; the slot is given back if it turns out to be claimed. Only a pool that ends
// before, and a source that panics, leave it open; that is reported as ErrLeak, with the slot.
//
// # Shortage
//
// While requests wait and nothing is idle the source is listed 10 s later, then after 20 s, up to every 5
// min; a new request, an idle slot and a conflict list it at once and start over. ScaleUp is told once per
// shortage how many slots are wanting.
//
// # Status
//
// [Pool.Status] has the pool's labels, its pending requests and the latency of its dispatches, for
// exporters of metrics. Pool.OnStatus mirrors it elsewhere whenever the pending requests have changed, so that an
// autoscaler in another process sees the demand.
//
// # Many pools
//
// [Pools] picks among pools by their snapshots. [Pool.Snapshot] costs a few loads, so it may be on the hot
// path.
//
// # Failures
//
// A source that panics, exits its goroutine, blocks or fails costs the requests that it was asked for, and
// nothing else. A hook that does the same is reported. A caller that has gone, or has made no room for its
// answer, holds up no other. Shutdown answers every request, within twice Grace.
package claim
