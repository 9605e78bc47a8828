package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

func fill(b *testing.B, board *telemetry.Board, nodes int) []orbit.Report {
	reports := make([]orbit.Report, nodes)
	for i := range reports {
		reports[i] = report(orbit.NodeID(fmt.Sprintf("node-%06d", i)), start)
		if err := board.Report(reports[i]); err != nil {
			b.Fatal(err)
		}
	}
	return reports
}

// underLeases gives every node a term, which all its reports name.
func underLeases(b *testing.B, board *telemetry.Board, reports []orbit.Report) {
	var ledger orbit.MemoryLedger
	board.Leases = &lease.Keeper{Ledger: &ledger, TTL: time.Hour}
	for i := range reports {
		term, err := board.Leases.Acquire(context.Background(), string(reports[i].Node), "agent")
		if err != nil {
			b.Fatal(err)
		}
		reports[i].Term = term.Epoch
		if err := board.Report(reports[i]); err != nil {
			b.Fatal(err)
		}
	}
}

// A report costs the same at 1,000 and at 100,000 nodes, apart from the processor's caches; under leases too, of which it is
// a refresh.
func BenchmarkReport(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		for _, kind := range []string{"repeated", "changed", "repeated, leased", "changed, leased"} {
			b.Run(fmt.Sprintf("%s/nodes=%d", kind, nodes), func(b *testing.B) {
				var board telemetry.Board
				board.Stale, board.PerSecond = -1, -1
				reports := fill(b, &board, nodes)
				if strings.HasSuffix(kind, "leased") {
					underLeases(b, &board, reports)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r := &reports[i*7919%nodes]
					r.At = r.At.Add(time.Millisecond)
					if strings.HasPrefix(kind, "changed") {
						r.FreeSlots++
					}
					if err := board.Report(*r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A flood costs less than what it would do.
func BenchmarkFlood(b *testing.B) {
	var board telemetry.Board
	r := fill(b, &board, 1000)[500]
	b.ReportAllocs()
	for b.Loop() {
		_ = board.Report(r)
	}
}

// A claim costs the same on any board, and no more on a node with many templates: what readers see is made when they ask.
// One operation is ten claims of a node and the report that ends them; read: and a reader who asks after each claim.
func BenchmarkClaim(b *testing.B) {
	for _, nodes := range []int{1000, 100_000} {
		for _, templates := range []int{1, 50} {
			for _, read := range []bool{false, true} {
				b.Run(fmt.Sprintf("read=%v/templates=%d/nodes=%d", read, templates, nodes), func(b *testing.B) {
					board := telemetry.Board{PerSecond: -1, Stale: -1}
					reports := fill(b, &board, nodes)
					for i := range reports {
						for k := range templates {
							reports[i].Warm[fmt.Sprint("t", k)] = 100
						}
						if err := board.Report(reports[i]); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						r := &reports[i*7919%nodes]
						for range 10 {
							board.Claim(r.Node, "t0")
							if read {
								board.Latest(r.Node)
							}
						}
						r.At = time.Now().Add(time.Second)
						if err := board.Report(*r); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10, "ns/claim")
				})
			}
		}
	}
}

// Asking costs what has changed: here nothing, and 10 nodes.
func BenchmarkReports(b *testing.B) {
	for _, nodes := range []int{1000, 100_000} {
		for _, changed := range []uint64{0, 10} {
			b.Run(fmt.Sprintf("changed=%d/nodes=%d", changed, nodes), func(b *testing.B) {
				var board telemetry.Board
				fill(b, &board, nodes)
				_, version, _ := board.Reports(context.Background(), 0)
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := board.Reports(context.Background(), version-changed); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
