package orbit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// constellation is a ledger of so many nodes of so much cpu.
func constellation(b *testing.B, nodes int, cpu int64) *MemoryLedger {
	l := &MemoryLedger{}
	for from := 0; from < nodes; from += 1000 {
		var put []Commitment
		for i := from; i < min(from+1000, nodes); i++ {
			put = append(put, PutNode{machine(NodeID(fmt.Sprintf("node-%06d", i)), cpu)})
		}
		commit(b, l, put...)
	}
	return l
}

// toggles places n capsules on n nodes that lie apart, and with every call takes them off or puts them back.
func toggles(b *testing.B, l *MemoryLedger, nodes, n int) func() {
	ids := names("toggle", n)
	commit(b, l, Submit{IDs: ids, Spec: wants(1), Owner: "toggle"})
	placed := false
	return func() {
		for i, id := range ids {
			if placed {
				commit(b, l, Release{Capsule: id, Stopped: true})
			} else {
				commit(b, l, Place{Capsule: id, Node: NodeID(fmt.Sprintf("node-%06d", i*7919%nodes))})
			}
		}
		placed = !placed
	}
}

// BenchmarkSnapshot is what taking a snapshot costs, right after a commit: it must not grow with the ledger.
func BenchmarkSnapshot(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			l := constellation(b, nodes, 100)
			toggle := toggles(b, l, nodes, 1)
			var took time.Duration
			b.ReportAllocs()
			for b.Loop() {
				toggle()
				start := time.Now()
				snapshotOf(b, l)
				took += time.Since(start)
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/snapshot")
		})
	}
}

// BenchmarkViewRefresh is what bringing a view up to date costs for each node that has changed: it must not
// grow with the constellation.
func BenchmarkViewRefresh(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, changed := range []int{1, 30, 1_000} {
			b.Run(fmt.Sprintf("nodes=%d/changed=%d", nodes, changed), func(b *testing.B) {
				l := constellation(b, nodes, 100)
				toggle := toggles(b, l, nodes, changed)
				var v View
				from := source{ledger: l, owns: none}
				var took time.Duration
				for b.Loop() {
					toggle()
					start := time.Now()
					if _, err := v.refresh(context.Background(), &from, start); err != nil {
						b.Fatal(err)
					}
					took += time.Since(start)
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(changed), "ns/changed")
			})
		}
	}
}

// BenchmarkPassIdle is a pass in which nothing has changed: flat, and without allocation.
func BenchmarkPassIdle(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			l := constellation(b, nodes, 100)
			commit(b, l, Submit{IDs: names("theirs", nodes), Spec: wants(1), Owner: "them"})
			e := Engine{Ledger: l, Navigator: &greedy{}}
			ctx := context.Background()
			e.Pass(ctx)
			b.ReportAllocs()
			for b.Loop() {
				if r := e.Pass(ctx); r.active() {
					b.Fatal(r)
				}
			}
		})
	}
}

// BenchmarkRace lets navigators race until all is placed: on hot constellations, where a few nodes take
// exactly what there is, and on wide ones. It reports what the population gets done and what it loses.
func BenchmarkRace(b *testing.B) {
	for _, navigators := range []int{1, 2, 4, 8} {
		for name, nodes := range map[string]int{"hot": 8, "wide": 500} {
			b.Run(fmt.Sprintf("navigators=%d/%s", navigators, name), func(b *testing.B) {
				var conflicts atomic.Int64
				var took time.Duration
				for b.Loop() {
					took += raceOnce(b, navigators, nodes, &conflicts)
				}
				b.ReportMetric(float64(conflicts.Load())/float64(b.N), "conflicts/op")
				b.ReportMetric(raceCapsules*float64(b.N)/took.Seconds(), "placements/s")
			})
		}
	}
}

const raceCapsules = 2_000

// raceOnce sets a race up and returns how long it took.
func raceOnce(b *testing.B, navigators, nodes int, conflicts *atomic.Int64) time.Duration {
	cpu := int64(raceCapsules / nodes)
	if nodes > 100 {
		cpu *= 4
	}
	l := constellation(b, nodes, cpu)
	team := make([]*Engine, navigators)
	for i := range team {
		module := fmt.Sprint("m", i)
		team[i] = &Engine{Name: module, Ledger: l, MaxPlan: 100,
			Navigator: &greedy{claims: only(module), placement: scan{Seed: uint64(i + 1)}}}
		commit(b, l, Submit{IDs: names(module+"-", raceCapsules/navigators), Spec: ofModule(module, 1)})
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, e := range team {
		wg.Go(func() {
			for placed := 0; placed < raceCapsules/navigators; {
				r := e.Pass(context.Background())
				placed += r.Committed
				conflicts.Add(int64(r.Conflicts))
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
