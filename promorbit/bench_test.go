package promorbit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/promorbit"
)

// large returns a ledger with a number of nodes and twenty capsules placed on each, and some that wait.
func large(b testing.TB, nodes, pending int) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	for i := 0; i < nodes; i += 100 {
		var do []orbit.Commitment
		for n := i; n < min(i+100, nodes); n++ {
			id := orbit.NodeID(fmt.Sprint("n", n))
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 32_000, orbit.Memory: 128 << 30}}})
			var ids []orbit.CapsuleID
			for c := range 20 {
				ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%d-%d", n, c)))
			}
			do = append(do, orbit.Submit{IDs: ids, Spec: &orbit.Spec{Module: fmt.Sprint("m", n%1000), Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1500, orbit.Memory: 4 << 30}}}})
			for _, c := range ids {
				do = append(do, orbit.Place{Capsule: c, Node: id})
			}
		}
		commit(b, l, do...)
	}
	for i := range pending {
		commit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("p", i))}, At: orbit.Instant(time.Now().UnixNano()),
			Spec: &orbit.Spec{Group: fmt.Sprint("g", i%500), Envelope: wants(1).Envelope}})
	}
	return l
}

// BenchmarkScrape measures a scrape of a ledger: the first, which looks at all capsules, and later ones, with a number of changes
// since the scrape before.
func BenchmarkScrape(b *testing.B) {
	for _, nodes := range []int{1000, 50_000} {
		l := large(b, nodes, 10_000)
		collect := func(m *promorbit.Ledger) {
			ch := make(chan prometheus.Metric, 10_000)
			m.Collect(ch)
			require.Greater(b, len(ch), 20)
		}
		b.Run(fmt.Sprintf("%d_nodes/first", nodes), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				collect(&promorbit.Ledger{Ledger: l})
			}
		})
		metrics, next := &promorbit.Ledger{Ledger: l}, 10_000
		collect(metrics)
		for _, changes := range []int{0, 1000, 50_000} {
			b.Run(fmt.Sprintf("%d_nodes/%d_changes", nodes, changes), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					for range changes / 2 { // one comes and one ends
						commit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("p", next))}, Spec: wants(1)},
							orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("p", next-10_000)), Final: true})
						next++
					}
					b.StartTimer()
					collect(metrics)
				}
			})
		}
	}
}
