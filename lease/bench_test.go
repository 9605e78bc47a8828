package lease_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// A refresh asks no ledger and costs the same however many leases there are.
func BenchmarkRefresh(b *testing.B) {
	for _, leases := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			var ledger orbit.MemoryLedger
			l := &lease.Keeper{Ledger: &ledger, TTL: time.Hour}
			terms := make([]lease.Term, leases)
			for i := range terms {
				var err error
				if terms[i], err = l.Acquire(context.Background(), fmt.Sprintf("node-%06d", i), "agent"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := l.Refresh(terms[i*7919%leases]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A step that has nothing to do, while all leases are refreshed now and then.
func BenchmarkStep(b *testing.B) {
	for _, leases := range []int{1000, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			var ledger orbit.MemoryLedger
			l := &lease.Keeper{Ledger: &ledger, TTL: time.Hour}
			for i := range leases {
				if _, err := l.Acquire(context.Background(), fmt.Sprintf("node-%06d", i), "agent"); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := l.Step(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
