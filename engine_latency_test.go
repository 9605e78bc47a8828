package orbit_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// openLedger returns a ledger that has nodes with room, and pending classes that fit on none of them.
func openLedger(t testing.TB, nodes, classes int) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	for from := 0; from < nodes; from += 1000 {
		var do []orbit.Commitment
		for i := from; i < min(from+1000, nodes); i++ {
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("node-%05d", i)),
				Capacity: orbit.Resources{orbit.CPU: 32_000, orbit.Memory: 128 << 30}}})
		}
		submit(t, l, do...)
	}
	for i := range classes {
		submit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("huge", i))}, Spec: asks(int64(33_000 + i))})
	}
	return l
}

func asks(cpu int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu, orbit.Memory: 1 << 20}}}
}

func submit(t testing.TB, l orbit.Ledger, do ...orbit.Commitment) {
	_, err := l.Propose(context.Background(), orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	require.NoError(t, err)
}

// BenchmarkJob is a job of one capsule, from Submit through one Pass, beside so many that are placed.
func BenchmarkJob(b *testing.B) {
	for _, c := range []struct{ nodes, placed int }{{1_000, 0}, {10_000, 0}, {50_000, 0}, {50_000, 1_000_000}} {
		b.Run(fmt.Sprintf("nodes=%d/placed=%d", c.nodes, c.placed), func(b *testing.B) {
			l := openLedger(b, c.nodes, 0)
			e, spec := &orbit.Engine{Ledger: l, Navigator: &nav.Services{}}, asks(1)
			for from := 0; from < c.placed; from += 1000 {
				ids, do := make([]orbit.CapsuleID, 1000), make([]orbit.Commitment, 1, 1001)
				for i := range ids {
					ids[i] = orbit.CapsuleID(fmt.Sprint("placed", from+i))
					do = append(do, orbit.Place{Capsule: ids[i], Node: orbit.NodeID(fmt.Sprintf("node-%05d", (from+i)%c.nodes))})
				}
				do[0] = orbit.Submit{IDs: ids, Spec: spec}
				submit(b, l, do...)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				submit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("job", i))}, Spec: spec})
				if r := e.Pass(b.Context()); r.Committed != 1 {
					b.Fatal(r)
				}
			}
		})
	}
}

// BenchmarkArrivals is how long a capsule that fits waits from the start of its Submit until it is placed, with Run, at 5,000
// arrivals a second. Beside them wait classes that fit nowhere. Each of these is tried again after ParkFor: in a storm of
// retries every second, by default every 30 s.
func BenchmarkArrivals(b *testing.B) {
	for _, c := range []struct {
		unfit   int
		parkFor time.Duration
	}{{0, time.Second}, {1_000, time.Second}, {10_000, time.Second}, {10_000, 30 * time.Second}} {
		b.Run(fmt.Sprintf("unfit=%d/parkfor=%v", c.unfit, c.parkFor), func(b *testing.B) {
			l := openLedger(b, 10_000, c.unfit)
			e := &orbit.Engine{Ledger: l, Navigator: &nav.Services{}, ParkFor: c.parkFor}
			submit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{"first"}, Spec: asks(1)}) // so that the index is there
			for e.Pass(b.Context()).Pending > 0 {
			}
			time.Sleep(time.Second) // with a ParkFor of a second all are due when the first capsule arrives
			var waits []time.Duration
			for b.Loop() {
				waits = append(waits, arrivals(b, l, e, b.N)...)
			}
			slices.Sort(waits)
			b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "max-µs")
		})
	}
}

const (
	arrivalsEach = 5_000
	arrivalGap   = time.Second / 5_000
)

// arrivals submits capsules at a fixed rate for a second, and returns how long each waited for its place. It does not wait for
// the earlier ones, so a slow engine does not lower the rate.
func arrivals(b *testing.B, l *orbit.MemoryLedger, e *orbit.Engine, serial int) (waits []time.Duration) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	state, err := l.Snapshot(ctx)
	require.NoError(b, err)
	ran, watched := make(chan error, 1), make(chan struct{})
	go func() { ran <- e.Run(ctx) }()
	var mu sync.Mutex
	born := map[orbit.CapsuleID]time.Time{}
	go func() {
		defer close(watched)
		for changes, err := range orbit.Follow(ctx, l, state.Revision()) {
			if err != nil {
				return
			}
			mu.Lock()
			for i := range changes {
				if p, ok := changes[i].Do.(orbit.Place); ok {
					waits = append(waits, time.Since(born[p.Capsule]))
				}
			}
			done := len(waits) >= arrivalsEach
			mu.Unlock()
			if done {
				return
			}
		}
	}()
	spec, start := asks(1), time.Now()
	for i := range arrivalsEach {
		for time.Since(start) < time.Duration(i)*arrivalGap {
			time.Sleep(arrivalGap / 4)
		}
		id := orbit.CapsuleID(fmt.Sprint("a", start.UnixNano(), "-", serial, "-", i))
		mu.Lock()
		born[id] = time.Now()
		mu.Unlock()
		submit(b, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec})
	}
	<-watched
	cancel()
	require.NoError(b, <-ran)
	return waits
}
