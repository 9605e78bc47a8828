package orbit_test

import (
	"context"
	"testing"

	"github.com/orbitsched/orbit"
)

func BenchmarkFollow(b *testing.B) {
	w := newBenchWorld(b, 10000)
	start, _ := w.ledger.Snapshot(context.Background())
	mirror := &orbit.MemoryLedger{Start: start}
	var changes []orbit.Change
	_, changes = w.ledger.Commit(w.proposals)
	b.ResetTimer()
	for i := 0; i < b.N; {
		b.StopTimer()
		mirror.Reset(start)
		b.StartTimer()
		for from := 0; from < len(changes) && i < b.N; from += 1000 {
			part := changes[from:min(from+1000, len(changes))]
			if err := mirror.Apply(part); err != nil {
				b.Fatal(err)
			}
			i += len(part)
		}
	}
}
func BenchmarkJudgeAll(b *testing.B) {
	w := newBenchWorld(b, 10000)
	start, _ := w.ledger.Snapshot(context.Background())
	mirror := &orbit.MemoryLedger{Start: start}
	b.ResetTimer()
	for i := 0; i < b.N; {
		b.StopTimer()
		mirror.Reset(start)
		b.StartTimer()
		for from := 0; from < len(w.proposals) && i < b.N; from += 1000 {
			part := w.proposals[from:min(from+1000, len(w.proposals))]
			mirror.Commit(part)
			i += len(part)
		}
	}
}
