package claim

import (
	"cmp"
	"slices"
)

// Surplus is the number of ready slots less the number of waiting requests. It is negative if requests wait for slots
// that are not there yet.
func (s Snapshot) Surplus() int {
	return s.IdleReady - max(0, s.QueueLen-s.InflightCAS)
}

// Compare orders pools by how soon a request would get a slot: the larger surplus first, then fewer claims in flight,
// then the earlier last dispatch, so that equal pools take turns.
func Compare(a, b Snapshot) int {
	return cmp.Or(
		cmp.Compare(b.Surplus(), a.Surplus()),
		cmp.Compare(a.InflightCAS, b.InflightCAS),
		a.LastDispatchAt.Compare(b.LastDispatchAt),
	)
}

// Pools are interchangeable pools. They are ranked by their snapshots only. QueueLen counts a request from Enqueue on,
// so callers that rank at the same time soon see each other's requests and spread. The ranking does not consider
// Request.Want: send a request with a Want only to pools that have matching slots.
type Pools []*Pool

// Best returns the first pool in the order of Compare; nil if there is no pool. It allocates nothing.
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

// Enqueue hands the request to the best pool that accepts it, and returns that pool; nil if all pools are full or shut
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
