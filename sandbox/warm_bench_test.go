package sandbox_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// bigFleet is hosts that support some templates each and have some slots of them warm.
func bigFleet(b testing.TB, hosts, templates int) (*fleet, []*orbit.Spec) {
	f := newFleet(b)
	var specs []*orbit.Spec
	for k := range templates {
		specs = append(specs, bootSpec(fmt.Sprint("template-", k)))
	}
	var do []orbit.Commitment
	for i := range hosts {
		id := orbit.NodeID(fmt.Sprintf("host-%05d", i))
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.Slots: 16_384}}})
		r := orbit.Report{Node: id, At: time.Now(), FreeSlots: 16_384, CPUPercent: float64(i*37%100) + 1, Warm: map[string]int{}}
		for k := range specs {
			if (i+k)%3 > 0 || hosts < 3 {
				r.Templates = append(r.Templates, specs[k].Start.Template)
				r.Warm[specs[k].Start.Template] = (i*7 + k) % 20
			}
		}
		require.NoError(b, f.board.Report(r))
	}
	commit(b, f.ledger, do...)
	return f, specs
}

// percentiles reports p50 and p99 of what was measured.
func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1e3 }
	b.ReportMetric(at(0.50), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}

// BenchmarkWarmDecision is what it takes to choose a node for one create, beside the plain scan: score every node.
// Creates go round the templates, and are committed, so the debits of each are there for the next.
func BenchmarkWarmDecision(b *testing.B) {
	for _, templates := range []int{1, 50} {
		for _, hosts := range []int{10, 100, 1000, 10_000, 50_000} {
			b.Run(fmt.Sprintf("templates=%d/hosts=%d/gateway", templates, hosts), func(b *testing.B) {
				f, specs := bigFleet(b, hosts, templates)
				g := f.gateway()
				ctx, serial := context.Background(), 0
				next := func() sandbox.Created {
					serial++
					made, err := g.Create(ctx, orbit.CapsuleID(fmt.Sprint("c", serial)), specs[serial%templates])
					require.NoError(b, err)
					return made
				}
				for range 2 * templates { // views and ranks are made
					next()
				}
				var took []time.Duration
				for b.Loop() {
					took = append(took, next().Decision)
				}
				percentiles(b, took)
			})
			b.Run(fmt.Sprintf("templates=%d/hosts=%d/scan", templates, hosts), func(b *testing.B) {
				f, specs := bigFleet(b, hosts, templates)
				var view orbit.View
				require.NoError(b, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
				var took []time.Duration
				serial := 0
				for b.Loop() {
					serial++
					start := time.Now()
					scanned = scanAll(&view, specs[serial%templates])
					took = append(took, time.Since(start))
				}
				percentiles(b, took)
			})
		}
	}
}

// BenchmarkWarmUnknown is a create of a template that no host supports, with another name each time, beside creates that
// are committed.
func BenchmarkWarmUnknown(b *testing.B) {
	for _, hosts := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			f, specs := bigFleet(b, hosts, 1)
			w := sandbox.Warm{Board: f.board}
			submit(b, f.ledger, "c", 1, specs[0])
			var view orbit.View
			serial := 0
			require.NoError(b, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
			_, err := w.Plan(context.Background(), &view, view.State().Pending()) // what is kept is made
			require.NoError(b, err)
			for b.Loop() {
				b.StopTimer()
				serial++
				submit(b, f.ledger, fmt.Sprint("u", serial), 1, bootSpec(fmt.Sprint("unknown-", serial)))
				require.NoError(b, view.Refresh(context.Background(), f.ledger, f.board, time.Now()))
				c := view.State().Capsule(orbit.CapsuleID(fmt.Sprintf("u%d-0", serial)))
				b.StartTimer()
				plan, err := w.Plan(context.Background(), &view, []*orbit.Capsule{c})
				require.NoError(b, err)
				require.ErrorIs(b, plan.Unplaced[0].Why, sandbox.ErrNoTemplate)
			}
		})
	}
}

var scanned *orbit.NodeState

// scanAll is the plain way: a query for the hosts that are fresh and support the template, and a score for each.
func scanAll(view *orbit.View, spec *orbit.Spec) (best *orbit.NodeState) {
	value, tie := math.Inf(1), 0.0
	for n := range view.State().Nodes() {
		report := view.Report(n)
		if report.Stale || !slices.Contains(report.Templates, spec.Start.Template) || !n.Fits(spec) {
			continue
		}
		if v, t := (sandbox.WarmFirst{}).Score(n, report, spec); v < value || v == value && t < tie {
			best, value, tie = n, v, t
		}
	}
	return best
}

// BenchmarkWarmNewView is a create that finds every host changed since the last view: the most that one can have to wait
// for. With the default cache that is one in 30 s, and one more for each template.
func BenchmarkWarmNewView(b *testing.B) {
	for _, hosts := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) {
			f, specs := bigFleet(b, hosts, 1)
			g := f.gateway()
			g.Cache = -1
			var reports []orbit.Report
			for n := range snapshot(b, f.ledger).Nodes() {
				r, _ := f.board.Latest(n.Node.ID)
				reports = append(reports, r)
			}
			var took []time.Duration
			for serial := 0; b.Loop(); serial++ {
				b.StopTimer()
				for _, r := range reports {
					r.At, r.FreeSlots = time.Now(), 1000+serial%1000
					require.NoError(b, f.board.Report(r))
				}
				b.StartTimer()
				made, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("c", serial)), specs[0])
				require.NoError(b, err)
				took = append(took, made.Decision)
			}
			percentiles(b, took)
		})
	}
}

// BenchmarkGatewayCreates is creates a second through the ledger, each committed and then deleted some time later, by
// so many creators at once.
func BenchmarkGatewayCreates(b *testing.B) {
	for _, creators := range []int{1, 64} {
		b.Run(fmt.Sprintf("creators=%d", creators), func(b *testing.B) {
			f, specs := bigFleet(b, 1000, 10)
			g := f.gateway()
			var serial atomic.Int64
			b.ResetTimer()
			var all sync.WaitGroup
			for range creators {
				all.Go(func() {
					for {
						n := int(serial.Add(1))
						if n > b.N {
							return
						}
						_, err := g.Create(context.Background(), orbit.CapsuleID(fmt.Sprint("c", n)), specs[n%len(specs)])
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
		})
	}
}
