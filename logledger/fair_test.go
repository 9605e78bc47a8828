package logledger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

func TestFairDbg(t *testing.T) {
	for _, lat := range [][]time.Duration{{1, 1, 1, 1}, {1, 1, 1, 10}, {1, 10}, {1, 2, 3, 4}, {1}, {10}} {
		for _, callers := range []int{1, 16, 128} {
			synctest.Test(t, func(t *testing.T) {
				store := &logtest.Store{}
				ctx, cancel := context.WithCancel(t.Context())
				var all []*logledger.Ledger
				var wg sync.WaitGroup
				counts := make([]atomic.Int64, len(lat))
				var worst atomic.Int64
				for k, d := range lat {
					l := open(t, store.Open(logtest.Faults{Latency: d * time.Millisecond / 2}), logledger.Options{})
					all = append(all, l)
					for c := range callers {
						wg.Go(func() {
							for i := 0; ctx.Err() == nil; i++ {
								start := time.Now()
								_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint(k, "-", c, "-", i%10), Value: "x"}}})
								if err == nil {
									counts[k].Add(1)
									worst.Store(max(worst.Load(), int64(time.Since(start))))
								}
							}
						})
					}
				}
				time.Sleep(5 * time.Second)
				cancel()
				wg.Wait()
				out := ""
				for k := range counts {
					s := all[k].Stats()
					out += fmt.Sprintf(" %d (entries %d lost %d posts %d)", counts[k].Load()/5, s.Entries, s.Lost, s.Posts)
				}
				t.Log(lat, callers, "callers, each per s:", out, "worst", time.Duration(worst.Load()))
			})
		}
	}
}
