package promorbit

import (
	"cmp"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit/claim"
)

// Pools is a collector that shows pools of package claim at the time of a scrape, each by its Pool.Labels. Set the
// fields before the first scrape.
type Pools struct {
	// Pools returns the pools to show; it is called once in each scrape, perhaps by several goroutines at a time. Required.
	Pools func() []*claim.Pool
	// Names is the largest number of pools that are shown with their labels; default 100. All later pools in the list
	// are summed up as the pool "other", so Pools must return them in a stable order.
	Names int
}

var (
	poolLabels   = []string{"namespace", "pool", "team", "user", "env"}
	descRequests = desc("claim_pending_requests", "Requests that have not been answered.", poolLabels...)
	descDispatch = desc("claim_dispatch_seconds", "Time that callers have waited for their slots, from Request.EnqueuedAt on.", poolLabels...)
)

// Describe implements [prometheus.Collector].
func (p *Pools) Describe(ch chan<- *prometheus.Desc) {
	ch <- descRequests
	ch <- descDispatch
}

// Collect implements [prometheus.Collector].
func (p *Pools) Collect(ch chan<- prometheus.Metric) {
	if p.Pools == nil {
		return
	}
	sums, most := map[claim.Labels]*claim.Status{}, cmp.Or(max(p.Names, 0), defaultNames)
	for i, pool := range p.Pools() {
		if pool == nil {
			continue
		}
		s := pool.Status()
		l := claim.Labels{Pool: other}
		if i < most {
			l = claim.Labels{Namespace: text(s.Labels.Namespace), Pool: text(s.Labels.Pool), Team: text(s.Labels.Team), User: text(s.Labels.User), Env: text(s.Labels.Env)}
		}
		sum := sums[l]
		if sum == nil {
			sums[l] = &s
			continue
		}
		sum.PendingRequests += s.PendingRequests
		sum.Dispatch.Sum += s.Dispatch.Sum
		for b := range s.Dispatch.Buckets {
			sum.Dispatch.Buckets[b].Count += s.Dispatch.Buckets[b].Count
		}
	}
	for l, s := range sums {
		labels := []string{l.Namespace, l.Pool, l.Team, l.User, l.Env}
		gauge(ch, descRequests, float64(s.PendingRequests), labels...)
		buckets, below := map[float64]uint64{}, uint64(0)
		for _, b := range s.Dispatch.Buckets {
			if below += b.Count; b.AtMost != math.MaxInt64 {
				buckets[b.AtMost.Seconds()] = below
			}
		}
		ch <- prometheus.MustNewConstHistogram(descDispatch, below, s.Dispatch.Sum.Seconds(), buckets, labels...)
	}
}
