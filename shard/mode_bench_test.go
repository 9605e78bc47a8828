package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// BenchmarkModes fills a constellation of 400 nodes of 80 cores with capsules of 1 to 4 cores up to a share, and
// measures the last tenth, in passes of 50 capsules. Each scheduler has capsules of its own, as a dispatcher assigns
// them. The conflict fraction is that of all proposals.
func BenchmarkModes(b *testing.B) {
	for _, mode := range []Mode{Strict, Soft, Shared} {
		for _, schedulers := range []int{1, 2, 4, 8} {
			for _, fill := range []int{50, 90, 99} {
				b.Run(fmt.Sprintf("%v/schedulers=%d/fill=%d", mode, schedulers, fill), func(b *testing.B) {
					placed, took, conflicts, proposed, left := 0, time.Duration(0), 0, 0, 0
					for b.Loop() {
						f := fillUp(b, mode, schedulers, fill)
						placed, took, left = placed+f.placed, took+f.took, left+f.left
						conflicts, proposed = conflicts+int(f.conflicts.Load()), proposed+int(f.proposed.Load())
					}
					b.ReportMetric(float64(placed)/took.Seconds(), "placements/s")
					b.ReportMetric(float64(conflicts)/float64(max(1, proposed)), "conflicts/proposal")
					b.ReportMetric(float64(left)/float64(placed+left), "unplaced")
				})
			}
		}
	}
}

// filling is the result of filling the last tenth.
type filling struct {
	placed, left        int
	took                time.Duration
	conflicts, proposed atomic.Int64
}

// fillUp fills all but the last tenth with one scheduler, and then measures the others.
func fillUp(b *testing.B, mode Mode, schedulers, fill int) *filling {
	const nodes, cores = 400, 80
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 20}}
	var do []orbit.Commitment
	for i := range nodes {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%03d", i)), Capacity: orbit.Resources{cores, cores}}})
	}
	commit(b, ledger, do...)
	names := benchNames(schedulers)
	g := &Groups{Ledger: ledger, Schedulers: names}
	if mode != Shared {
		require.True(b, g.Step(context.Background()).Balanced)
	}
	number := 0
	load := func(share int, owners []string) {
		for used := 0; used < nodes*cores*share/100; number++ {
			size := int64(1 + number%4)
			spec := &orbit.Spec{Module: fmt.Sprint("m", size), Envelope: orbit.Envelope{Reservation: orbit.Resources{size, size}}}
			commit(b, ledger, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", number))}, Spec: spec, Owner: owners[number/4%len(owners)]})
			used += int(size)
		}
	}
	load(fill-10, []string{"filler"})
	filler := &orbit.Engine{Name: "filler", Ledger: ledger, Navigator: &nav.Services{}}
	for filler.Pass(context.Background()).Committed > 0 {
	}
	load(10, names)
	before := snapshot(b, ledger).PendingCount()
	f := &filling{}
	start := time.Now()
	var wg sync.WaitGroup
	for i, name := range names {
		partition := &PartitionLedger{Ledger: ledger, Scheduler: name, Mode: mode}
		navigator := partition.Navigator(func() orbit.Navigator {
			return &nav.Services{Placement: &place.Indexed{Seed: uint64(i + 1)}}
		})
		engine := &orbit.Engine{Name: name, Ledger: partition, Navigator: navigator, MaxPlan: 50}
		wg.Go(func() {
			for idle := 0; idle < 3; {
				r := engine.Pass(context.Background())
				f.conflicts.Add(int64(r.Conflicts))
				f.proposed.Add(int64(r.Proposed))
				if idle++; r.Committed > 0 || r.Conflicts > 0 {
					idle = 0
				}
			}
		})
	}
	wg.Wait()
	f.took = time.Since(start)
	f.left = snapshot(b, ledger).PendingCount()
	f.placed = before - f.left
	return f
}
