package nav_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim"
)

const sweepTasks = 5000

// BenchmarkSweep is one pass over 5,000 pending tasks on 10,000 empty nodes, through the loop and the ledger, by Batch
// and by Services in turn. The tasks are all alike or of eight shapes. In its first pass an engine has its index
// to build; before a later one the tasks of the last are taken off again. It reports placements a second of both,
// their ratio, and what part of Batch's time is proposing.
//
//	go test -run '^$' -bench BenchmarkSweep -benchtime 10x ./nav
func BenchmarkSweep(b *testing.B) {
	nodes := sim.Constellation(sim.Fleet{Seed: 1, Nodes: 10_000})
	alike := task(1000, 2<<30)
	alike.Module, alike.Envelope.Reservation[orbit.Slots] = "sweep", 1
	for _, c := range []struct {
		name  string
		tasks []sim.Capsule
		first bool
	}{
		{"alike/first", sim.Expand([]sim.Class{{Spec: alike, Count: sweepTasks}}), true},
		{"alike/later", sim.Expand([]sim.Class{{Spec: alike, Count: sweepTasks}}), false},
		{"mixed/first", eightShapes(1, nodes, 1)[:sweepTasks], true},
		{"mixed/later", eightShapes(1, nodes, 1)[:sweepTasks], false},
	} {
		b.Run(c.name, func(b *testing.B) {
			var times [2]sweepTime
			rivals := func() (out [2]*orbit.Engine) {
				for i, navigator := range []orbit.Navigator{&nav.Batch{}, &anyClass{}} {
					out[i] = sweeper(b, nodes, c.tasks, navigator)
					submitAll(b, out[i].Ledger, c.tasks)
				}
				return out
			}
			engines := rivals()
			for _, e := range engines {
				new(sweepTime).run(b, e, c.tasks)
			}
			for b.Loop() {
				if c.first {
					engines = rivals()
				}
				for i, e := range engines {
					times[i].run(b, e, c.tasks)
				}
			}
			rate := func(d time.Duration) float64 { return sweepTasks * float64(b.N) / d.Seconds() }
			b.ReportMetric(rate(times[0].all), "batch/s")
			b.ReportMetric(rate(times[1].all), "services/s")
			b.ReportMetric(times[1].all.Seconds()/times[0].all.Seconds(), "×services")
			b.ReportMetric(times[0].proposing.Seconds()/times[0].all.Seconds(), "proposing")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// sweepTime is what passes have taken.
type sweepTime struct{ all, proposing time.Duration }

// run places the tasks in one pass, of which it takes the time, and takes them off again.
func (s *sweepTime) run(b *testing.B, e *orbit.Engine, tasks []sim.Capsule) {
	round := e.Pass(context.Background())
	require.Equal(b, sweepTasks, round.Committed)
	s.all += round.Viewing + round.Planning + round.Proposing
	s.proposing += round.Proposing
	for _, c := range tasks {
		commit(b, e.Ledger, orbit.Release{Capsule: c.ID, Stopped: true})
	}
}
