package nav_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

// BenchmarkCollidingEngines is what 1, 2, 4 and 8 engines place on 1,000 nodes that are 99% full, each in a goroutine of its own,
// when 800 capsules have ended and 800 have come, in passes of 20. All variants take turns, so that they meet the same load of
// the machine: without parts (most=1) and with them, on a ledger that answers at once and on one that takes a millisecond.
func BenchmarkCollidingEngines(b *testing.B) {
	type variant struct {
		engines, most int
		slow          time.Duration
	}
	var variants []variant
	for _, slow := range []time.Duration{0, time.Millisecond} {
		for _, engines := range []int{1, 2, 4, 8} {
			variants = append(variants, variant{engines, 1, slow}, variant{engines, 0, slow})
		}
	}
	herds, took, spent := map[variant]*herd{}, map[variant]time.Duration{}, map[variant]time.Duration{}
	placed, lost := map[variant]int64{}, map[variant]int64{}
	for _, v := range variants {
		herds[v], _ = newHerd(v.engines, orbit.LatencySensitive, func() orbit.Navigator {
			return &nav.Services{Placement: &place.Indexed{Score: score.BestFit{}, MostParts: v.most}}
		})
		for _, e := range herds[v].engines {
			e.Ledger, e.MaxPlan = &slowLedger{MemoryLedger: herds[v].MemoryLedger, takes: v.slow}, 20
		}
	}
	for b.Loop() {
		for _, v := range variants {
			h := herds[v]
			h.churn(b, 800)
			waiting := snapshot(b, h.MemoryLedger).PendingCount()
			var conflicts atomic.Int64
			var all sync.WaitGroup
			start, spentBefore := time.Now(), cputime.Process()
			for _, e := range h.engines {
				all.Go(func() {
					for {
						r := e.Pass(b.Context())
						conflicts.Add(int64(r.Conflicts))
						if r.Committed+r.Conflicts == 0 {
							return
						}
					}
				})
			}
			all.Wait()
			took[v] += time.Since(start)
			spent[v] += cputime.Process() - spentBefore
			placed[v] += int64(waiting - snapshot(b, h.MemoryLedger).PendingCount())
			lost[v] += conflicts.Load()
		}
	}
	for _, v := range variants {
		name := fmt.Sprintf("engines=%d/most=%d/takes=%v", v.engines, v.most, v.slow)
		b.ReportMetric(float64(placed[v])/took[v].Seconds(), name+"/placed/s")
		b.ReportMetric(float64(placed[v])/spent[v].Seconds(), name+"/placed/cpu-s")
		b.ReportMetric(float64(lost[v])/float64(placed[v]), name+"/lost/placed")
	}
	b.ReportMetric(0, "ns/op")
}

// slowLedger takes its time for each batch, before it commits it.
type slowLedger struct {
	*orbit.MemoryLedger
	takes time.Duration
}

// ProposeBatch implements [orbit.Batcher].
func (l *slowLedger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	time.Sleep(l.takes)
	return l.MemoryLedger.ProposeBatch(ctx, batch)
}
