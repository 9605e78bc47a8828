package claim

import (
	"cmp"
	"slices"
)

// Surplus is how many slots are ready beyond what waits for them already: negative where requests wait for
// slots that are yet to come.
func (s Snapshot) Surplus() int {
	return s.IdleReady - max(0, s.QueueLen-s.InflightCAS)
}

// Compare orders pools by where a request would have a slot soonest: the larger surplus first, then fewer
// claims in flight, then the one that has not served for longest, so that equals take turns.
func Compare(a, b Snapshot) int {
	return cmp.Or(
		cmp.Compare(b.Surplus(), a.Surplus()),
		cmp.Compare(a.InflightCAS, b.InflightCAS),
		a.LastDispatchAt.Compare(b.LastDispatchAt),
	)
}

// Pools are pools of which any will do for a request. The ranking reads their snapshots and nothing else; since
// QueueLen counts a request from Enqueue on, callers that rank at the same time do not herd for long. What a
// request wants is not looked at: let such a request go to pools that have such slots.
type Pools []*Pool

// Best returns the pool where a request would have a slot soonest, the first among equals; nil if there is no
// pool. It allocates nothing.
func (p Pools) Best() *Pool {
	if len(p) == 0 {
		return nil
	}
	best, its := p[0], p[0].Snapshot()
	for _, pool := range p[1:] {
		if s := pool.Snapshot(); Compare(s, its) < 0 {
			best, its = pool, s
		}
	}
	return best
}

// Ranked returns all pools, the best first, by one snapshot of each.
func (p Pools) Ranked() []*Pool {
	type ranked struct {
		pool *Pool
		Snapshot
	}
	all := make([]ranked, len(p))
	for i, pool := range p {
		all[i] = ranked{pool, pool.Snapshot()}
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return Compare(a.Snapshot, b.Snapshot) })
	out := make([]*Pool, len(all))
	for i := range all {
		out[i] = all[i].pool
	}
	return out
}

// Enqueue hands the request to the best pool that takes it, and returns that pool; nil if all are full or shut
// down.
func (p Pools) Enqueue(req *Request) *Pool {
	if best := p.Best(); best == nil || best.Enqueue(req) {
		return best
	}
	for _, pool := range p.Ranked() {
		if pool.Enqueue(req) {
			return pool
		}
	}
	return nil
}
