package claim_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/sim"
)

const (
	benchSlots   = 500
	benchCallers = 64
)

// taker claims slots until none is left, each once.
type taker func() (claim.Slot, error)

// rivals are the ways to hand out slots that the benchmark compares. The returned function ends the goroutines that a
// way has started.
var rivals = []struct {
	name  string
	start func(b *testing.B, src claim.Source) (take taker, end func())
}{
	{"pool", func(b *testing.B, src claim.Source) (taker, func()) {
		p := &claim.Pool{Source: src}
		go func() { _ = p.Run(context.Background()) }()
		for p.Snapshot().IdleReady < benchSlots {
			time.Sleep(10 * us)
		}
		return func() (claim.Slot, error) { return p.Claim(context.Background()) }, p.Shutdown
	}},
	{"channel", func(b *testing.B, src claim.Source) (taker, func()) {
		l := benchList(b, src)
		c := make(chan claim.Slot, len(l))
		for _, s := range l {
			c <- s
		}
		return func() (claim.Slot, error) { return benchClaim(src, <-c) }, func() {}
	}},
	{"naive", func(b *testing.B, src claim.Source) (taker, func()) {
		l := benchList(b, src)
		used := make([]bool, len(l))
		var mu sync.Mutex // held from the search for an idle slot to its claim, so that no other goroutine takes the slot between them
		return func() (claim.Slot, error) {
			mu.Lock()
			defer mu.Unlock()
			i := slices.Index(used, false)
			used[i] = true
			return benchClaim(src, l[i])
		}, func() {}
	}},
}

func benchList(b *testing.B, src claim.Source) []claim.Slot {
	l, err := src.Idle(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return l.Slots
}

func benchClaim(src claim.Source, s claim.Slot) (claim.Slot, error) {
	claimed, _, err := src.Claim(context.Background(), claim.Attempt{ID: orbit.NewProposalID(), Slot: s})
	return claimed, err
}

// memory is a source that costs almost nothing, so that the benchmark measures the pool.
type memory struct {
	slots []claim.Slot
	taken atomic.Int64
}

func (m *memory) Idle(context.Context) (claim.Listing, error) {
	return claim.Listing{Slots: m.slots}, nil
}

func (m *memory) Claim(_ context.Context, a claim.Attempt) (claim.Slot, uint64, error) {
	m.taken.Add(1)
	return a.Slot, 0, nil
}

func (m *memory) Return(context.Context, claim.Slot) error { return nil }

var benchSources = []struct {
	name string
	make func(b *testing.B) claim.Source
}{
	{"memory", func(*testing.B) claim.Source {
		m := &memory{}
		for _, name := range names(benchSlots) {
			m.slots = append(m.slots, claim.Slot{Name: name, UID: "1"})
		}
		return m
	}},
	{"ledger", func(b *testing.B) claim.Source {
		src := &claim.LedgerSource{}
		if err := src.Join(context.Background(), nodes(benchSlots)...); err != nil {
			b.Fatal(err)
		}
		return src
	}},
	{"store 1ms away", func(*testing.B) claim.Source {
		return store(&sim.StaleStore{Latency: ms}, names(benchSlots)...)
	}},
}

// BenchmarkClaim lets 64 callers claim 500 slots again and again. One operation is the claim of all 500.
func BenchmarkClaim(b *testing.B) {
	for _, src := range benchSources {
		for _, rival := range rivals {
			b.Run(src.name+"/"+rival.name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					b.StopTimer()
					take, end := rival.start(b, src.make(b))
					b.StartTimer()
					took = append(took, burst(b, take)...)
					b.StopTimer()
					end()
					b.StartTimer()
				}
				slices.Sort(took)
				b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "claims/s")
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-µs")
				b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "p99-µs")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// burst claims all slots and returns the latency of each claim.
func burst(b *testing.B, take taker) []time.Duration {
	took := make([]time.Duration, benchSlots)
	var next atomic.Int64
	var all sync.WaitGroup
	for range benchCallers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < benchSlots; i = next.Add(1) - 1 {
				start := time.Now()
				if _, err := take(); err != nil {
					b.Error(err)
				}
				took[i] = time.Since(start)
			}
		})
	}
	all.Wait()
	return took
}

// BenchmarkChurn lets 64 callers claim a slot of a ledger and give it back, again and again. Every return wakes the
// pool.
func BenchmarkChurn(b *testing.B) {
	src := &claim.LedgerSource{}
	if err := src.Join(context.Background(), nodes(benchSlots)...); err != nil {
		b.Fatal(err)
	}
	p := &claim.Pool{Source: src}
	go func() { _ = p.Run(context.Background()) }()
	defer p.Shutdown()
	b.SetParallelism(benchCallers / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			slot, err := p.Claim(context.Background())
			if err == nil {
				err = src.Return(context.Background(), slot)
			}
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
	b.ReportMetric(float64(p.Stats().Conflicts)/float64(b.N), "conflicts/claim")
}

// BenchmarkChurnBesideUnserved measures the same with one caller, while 4,000 requests wait that no slot matches.
func BenchmarkChurnBesideUnserved(b *testing.B) {
	src := &claim.LedgerSource{}
	if err := src.Join(context.Background(), nodes(benchSlots)...); err != nil {
		b.Fatal(err)
	}
	p := &claim.Pool{Source: src}
	go func() { _ = p.Run(context.Background()) }()
	defer p.Shutdown()
	for i := range 4000 {
		want := claim.Want{Images: map[string]string{"main": fmt.Sprint(i)}}
		if !p.Enqueue(&claim.Request{Want: want, Result: make(chan claim.Result, 1)}) {
			b.Fatal("full")
		}
	}
	for b.Loop() {
		slot, err := p.Claim(context.Background())
		if err == nil {
			err = src.Return(context.Background(), slot)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot reads a busy pool's counters; BenchmarkBest ranks 16 pools by theirs.
func BenchmarkSnapshot(b *testing.B) {
	p := &claim.Pool{Source: &memory{}}
	b.ReportAllocs()
	for b.Loop() {
		_ = p.Snapshot()
	}
}

func BenchmarkBest(b *testing.B) {
	pools := make(claim.Pools, 16)
	for i := range pools {
		pools[i] = &claim.Pool{Source: &memory{}}
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = pools.Best()
	}
}

// BenchmarkEnqueue measures Enqueue alone, which callers pay on the hot path; the answers come from another goroutine.
func BenchmarkEnqueue(b *testing.B) {
	for _, end := range []string{"never", "context", "deadline"} {
		b.Run("ends "+end, func(b *testing.B) {
			p := &claim.Pool{Queue: 1 << 30, Source: &memory{}}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				req := &claim.Request{Result: make(chan claim.Result, 1)}
				switch end {
				case "context":
					req.Ctx = ctx
				case "deadline":
					req.Deadline = time.Now().Add(time.Hour)
				}
				p.Enqueue(req)
			}
			b.StopTimer()
			p.Shutdown()
		})
	}
}
