package whatif_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/whatif"
)

// full returns a state of so many nodes, each with 3 of 4 cores in use.
func full(t require.TestingT, nodes int) *orbit.State {
	l := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for i := range nodes {
		id := orbit.CapsuleID(fmt.Sprint("c", i))
		do = append(do,
			orbit.PutNode{Node: orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: 4}, Labels: map[string]string{"rack": fmt.Sprint(i / 40), "disk": "hdd"}}},
			orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: wants(3, 0)}, orbit.Place{Capsule: id, Node: nodeID(i)})
		if len(do) > 30_000 || i == nodes-1 {
			commit(t, l, do...)
			do = do[:0]
		}
	}
	return snapshot(t, l)
}

// BenchmarkWith is the cost of one hypothetical placement: what it touches, at any size.
func BenchmarkWith(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			state := full(b, nodes)
			p := orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: wants(1, 0)}, orbit.Place{Capsule: "new", Node: "n7"}}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := state.With(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkExplain compares the counts with a search of Exhaustive that finds nothing and says why, on the same state, and
// tells what the fixes cost beside them.
func BenchmarkExplain(b *testing.B) {
	for _, nodes := range []int{1000, 50_000} {
		state := full(b, nodes)
		spec := wants(2, 0)
		spec.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"hdd", "ssd"}}}
		shared, err := spec.Share()
		require.NoError(b, err)
		b.Run(fmt.Sprintf("nodes=%d/counts", nodes), func(b *testing.B) {
			for b.Loop() {
				_, err := whatif.Count(context.Background(), state, shared)
				require.NoError(b, err)
			}
		})
		b.Run(fmt.Sprintf("nodes=%d/explain", nodes), func(b *testing.B) {
			for b.Loop() {
				e, err := whatif.Explain(context.Background(), state, shared)
				require.NoError(b, err)
				require.NotEmpty(b, e.Fixes)
			}
		})
		b.Run(fmt.Sprintf("nodes=%d/exhaustive", nodes), func(b *testing.B) {
			view, draft, engine := &orbit.View{}, &orbit.Draft{}, &place.Exhaustive{}
			require.NoError(b, view.Refresh(context.Background(), &orbit.MemoryLedger{Start: state}, nil, time.Now()))
			for b.Loop() {
				draft.Sync(view)
				_, err := engine.Best(draft, shared)
				require.ErrorContains(b, err, "lack cpu")
			}
		})
	}
}

// BenchmarkExplainRuled is what an explanation costs where each rack has a member that a newcomer has to be apart from.
func BenchmarkExplainRuled(b *testing.B) {
	for _, nodes := range []int{1000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			l := &orbit.MemoryLedger{Start: full(b, nodes)}
			spec := wants(1, 0)
			spec.Group, spec.Apart = "db", []orbit.Apart{{Group: "db", Level: "rack"}}
			for i := 0; i < nodes; i += 40 {
				id := orbit.CapsuleID(fmt.Sprint("m", i))
				commit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: nodeID(i)})
			}
			state := snapshot(b, l)
			for b.Loop() {
				e, err := whatif.Explain(context.Background(), state, spec)
				require.NoError(b, err)
				require.Len(b, e.Fixes, 1, "%v", e)
			}
		})
	}
}

// BenchmarkShadow is what a shadow does for one placement of the real engine: it plans it too, commits both plans on forks and rates
// both. BenchmarkShadow/round is what the real engine waits for: that it hands a round over.
func BenchmarkShadow(b *testing.B) {
	const batch = 1000
	l := &orbit.MemoryLedger{Start: full(b, 10_000)}
	commit(b, l, submit(20_000, 20_000+batch, wants(1, 0)))
	var round orbit.Round
	e := &orbit.Engine{Name: "real", Ledger: l, Navigator: &nav.Services{}, OnRound: func(orbit.Round) {}}
	round = e.Pass(b.Context())
	require.Equal(b, batch, round.Committed)
	b.Run("pass", func(b *testing.B) {
		shadow := shadowOf(l, &nav.Services{})
		for b.Loop() {
			if _, err := shadow.Pass(b.Context(), round); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/batch, "µs/placement")
	})
	b.Run("round", func(b *testing.B) {
		shadow := shadowOf(l, &nav.Services{})
		b.ReportAllocs()
		for b.Loop() {
			shadow.Round(round)
		}
	})
}
