package agent_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// serving returns how many capsules have a process that runs and is ready.
func (w *world) serving() int {
	ready := map[orbit.CapsuleID]bool{}
	w.books.mu.Lock()
	defer w.books.mu.Unlock()
	now := time.Now()
	for _, m := range w.books.machines {
		for _, p := range m.procs {
			if p.runs(now) && !now.Before(p.began.Add(readyAfter)) {
				ready[p.task.Capsule] = true
			}
		}
	}
	return len(ready)
}

// TestSurged drains one node after the other while half of all starts fail. The capsules permit surges, and their budget lets none be
// missing. At no instant serve fewer than there are, and each is moved in the end.
func TestSurged(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := begin(t, 3, false)
		web := spec(orbit.LatencySensitive, 1, 0)
		web.Surge, web.Group = true, "web"
		w.commit(orbit.Submit{IDs: ids("web-", 4), Spec: web}, orbit.PutBudget{Budget: orbit.Budget{ID: "web", Group: "web", Expected: 4}})
		w.pass(3 * sec)
		w.atRest()
		flaky := rand.New(rand.NewPCG(1, 2))
		w.books.mu.Lock()
		for _, h := range w.hosts {
			h.flaky = flaky
		}
		w.books.mu.Unlock()
		for range 4 {
			for n := range w.hosts {
				w.drain(n, true)
				for step := 0; step < 200 || step < 20_000 && len(w.hosts[n].running()) > 0; step++ { // starts that fail are delayed, more each time
					w.pass(50 * ms)
					require.Equal(t, 4, w.serving())
				}
				require.Empty(t, w.hosts[n].running())
				w.sound()
				w.drain(n, false)
			}
		}
		w.atRest()
		failed := 0
		for _, id := range ids("web-", 4) {
			failed += len(w.state().Failures(id).Nodes)
		}
		require.NotZero(t, failed, "no start has failed")
	})
}
