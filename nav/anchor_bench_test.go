package nav_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// BenchmarkAnchor plans and commits groups of 20, from Submit to the last member, beside a group that is there, on
// racks of 40 nodes: what a placement costs when the constellation grows. A level of 4 zones is the wide case.
func BenchmarkAnchor(b *testing.B) {
	for _, level := range []string{"rack", "zone"} {
		for _, nodes := range []int{1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", level, nodes), func(b *testing.B) {
				l := &orbit.MemoryLedger{}
				for i := range nodes {
					n := rackNode(fmt.Sprint("n", i), fmt.Sprint("r", i/40), 64)
					n.Node.Labels["zone"] = fmt.Sprint("z", i*4/nodes)
					commit(b, l, n)
				}
				e := anchored(l)
				placed := 0
				for i := 0; b.Loop(); i++ {
					for g := range 10 {
						s := near(fmt.Sprintf("g%d-%d", i, g), 2)
						s.Near.Level = level
						submit(b, l, s.Group, 20, s)
					}
					for range 2 {
						e.Pass(b.Context())
					}
					for g := range 10 {
						for k := range 20 {
							commit(b, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprintf("g%d-%d-%d", i, g, k)), Final: true})
							placed++
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(placed), "µs/placement")
			})
		}
	}
}

// BenchmarkAnchorSelfMatch plans and commits the first members of ten groups in a pass, each group of its own spec, which
// start without an anchor.
func BenchmarkAnchorSelfMatch(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 50_000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			l := &orbit.MemoryLedger{}
			racked(b, l, nodes/40, 40, 64)
			e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}, SelfMatch: true}}
			started := 0
			var planning time.Duration
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				for g := range 10 {
					s := near(fmt.Sprintf("g%d-%d", i, g), 2)
					submit(b, l, s.Group, 4, s)
				}
				b.StartTimer()
				r := e.Pass(b.Context())
				b.StopTimer()
				require.Equal(b, 10, r.Committed)
				if i > 0 { // the first pass builds the index
					planning += r.Planning
					started += 10
				}
				for g := range 10 {
					for k := range 4 {
						commit(b, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprintf("g%d-%d-%d", i, g, k)), Final: true})
					}
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(planning.Nanoseconds())/1e3/float64(max(1, started)), "µs/group")
		})
	}
}

// BenchmarkAnchorWithoutGroups is what an Anchor adds to the plans of Services where there is no group.
func BenchmarkAnchorWithoutGroups(b *testing.B) {
	for name, navigator := range map[string]func() orbit.Navigator{
		"services": func() orbit.Navigator { return &nav.Services{} },
		"anchor":   func() orbit.Navigator { return &nav.Anchor{Navigator: &nav.Services{}} },
	} {
		b.Run(name, func(b *testing.B) {
			l := &orbit.MemoryLedger{}
			racked(b, l, 25, 40, 64)
			submit(b, l, "s", 1000, spec(1, 0))
			n := navigator()
			for b.Loop() {
				if _, err := planned(b.Context(), l, n); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
