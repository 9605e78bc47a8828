package orbit_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// BenchmarkEngines is what a placement takes when so many engines of one process, each with a seed of its own, share 200,000
// capsules on 10,000 nodes: jobs of 100, each with a spec of its own. All engines start at the same time. It is processor time,
// the collector's with it, because other programs on the machine do not add to that. The first wave of work includes each
// engine's first view, which looks at all capsules; the second finds the engines at work.
func BenchmarkEngines(b *testing.B) {
	for _, engines := range []int{1, 2, 4, 8, 16, 64, 128} {
		b.Run(fmt.Sprintf("engines=%d", engines), func(b *testing.B) {
			var spent, wall [2]time.Duration
			for range b.N {
				l, all := enginesFor(b, engines)
				for wave := range spent {
					submitJobs(b, l, wave, engines)
					start, from := cputime.Process(), time.Now()
					var group sync.WaitGroup
					for _, e := range all {
						group.Go(func() {
							for r := e.Pass(b.Context()); r.Pending > 0; r = e.Pass(b.Context()) {
							}
						})
					}
					group.Wait()
					spent[wave] += cputime.Process() - start
					wall[wave] += time.Since(from)
					s, err := l.Snapshot(b.Context())
					require.NoError(b, err)
					require.Zero(b, s.PendingCount())
				}
			}
			for wave, name := range []string{"first", "then"} {
				b.ReportMetric(float64(spent[wave].Nanoseconds())/1000/float64(b.N*shareJobs*shareEach), name+"-cpu-µs/placement")
				b.ReportMetric(float64(b.N*shareJobs*shareEach)/wall[wave].Seconds(), name+"-placements/s")
			}
		})
	}
}

const (
	shareJobs = 2_000
	shareEach = 100
)

// enginesFor returns a ledger and engines on it.
func enginesFor(b *testing.B, engines int) (l *orbit.MemoryLedger, all []*orbit.Engine) {
	l = openLedger(b, 10_000, 0)
	for i := range engines {
		all = append(all, &orbit.Engine{Name: strconv.Itoa(i), Ledger: l, PlanTimeout: time.Hour,
			Navigator: &nav.Services{Placement: &place.Indexed{Seed: uint64(i + 1)}}})
	}
	return l, all
}

// submitJobs submits a wave of jobs that are assigned to engines in turn.
func submitJobs(b *testing.B, l orbit.Ledger, wave, engines int) {
	for job := range shareJobs {
		ids := make([]orbit.CapsuleID, shareEach)
		for i := range ids {
			ids[i] = orbit.CapsuleID(fmt.Sprintf("job-%d-%d-%d", wave, job, i))
		}
		spec := asks(int64(1 + job/2)) // two jobs ask for the same CPU, and differ in memory
		spec.Envelope.Reservation[orbit.Memory] += int64(job % 2)
		submit(b, l, orbit.Submit{IDs: ids, Spec: spec, Owner: strconv.Itoa(job % engines)})
	}
}
