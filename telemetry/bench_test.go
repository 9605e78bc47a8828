package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
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

// A report costs the same at 1,000 and at 100,000 nodes, but for the processor's caches.
func BenchmarkReport(b *testing.B) {
	for _, nodes := range []int{1000, 10_000, 100_000} {
		for _, kind := range []string{"repeated", "changed"} {
			b.Run(fmt.Sprintf("%s/nodes=%d", kind, nodes), func(b *testing.B) {
				var board telemetry.Board
				board.Stale, board.PerSecond = -1, -1
				reports := fill(b, &board, nodes)
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					r := &reports[i*7919%nodes]
					r.At = r.At.Add(time.Millisecond)
					if kind == "changed" {
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
