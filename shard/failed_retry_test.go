package shard

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// TestRetriesAgreeWithAMap compares the heap, whose entries may be void, with a plain map of due times.
func TestRetriesAgreeWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRetries(orbit.Backoff{Initial: time.Second, Max: 8 * time.Second, Jitter: -1})
		dues := map[unit]time.Time{}
		now := time.Unix(0, 0)
		units := rapid.Map(rapid.IntRange(0, 200), func(i int) unit { return unit{id: string(rune('a' + i)), gang: i%3 == 0} })
		t.Repeat(map[string]func(*rapid.T){
			"put off": func(t *rapid.T) {
				u := units.Draw(t, "unit")
				w := r.record(u)
				delay := r.delay(w.tries)
				if r.putOff(w, now); dues[u].IsZero() {
					dues[u] = now.Add(delay)
				}
			},
			"forget": func(t *rapid.T) {
				u := units.Draw(t, "unit")
				r.forget(u)
				delete(dues, u)
			},
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
				var want []unit
				for u, due := range dues {
					if !now.Before(due) {
						want = append(want, u)
						delete(dues, u)
					}
				}
				got := r.due(now)
				for _, u := range got {
					require.True(t, r.takeReady(u))
					require.False(t, r.takeReady(u), "only once")
				}
				require.ElementsMatch(t, want, got)
			},
			"": func(t *rapid.T) {
				next := time.Time{}
				if len(dues) > 0 {
					next = slices.MinFunc(slices.Collect(maps.Values(dues)), time.Time.Compare)
				}
				require.Equal(t, next, r.next())
				require.LessOrEqual(t, len(r.heap), 2*len(r.waits)+65, "void entries")
			},
		})
	})
}

// TestVoidRetriesAreRemoved shows that forgotten units do not fill the heap before they are due.
func TestVoidRetriesAreRemoved(t *testing.T) {
	r := newRetries(orbit.Backoff{Initial: time.Hour, Max: time.Hour})
	for i := range 10_000 {
		u := unit{id: string(rune(i))}
		r.putOff(r.record(u), time.Unix(0, 0))
		if i >= 100 {
			r.forget(u)
		}
	}
	require.LessOrEqual(t, len(r.heap), 2*100+65)
	require.Len(t, r.due(time.Unix(1e6, 0)), 100)
}
