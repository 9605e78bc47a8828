package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// A round of trouble does what the program says: the cluster is full, urgent work takes the room of tasks, a zone is
// lost, and a rack is drained; and what is counted of it is what the metrics count.
func TestARoundOfTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := open(ctx, time.Minute)
		require.NoError(t, err)
		scrape := func() map[string]float64 {
			w := httptest.NewRecorder()
			c.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			parser := expfmt.NewTextParser(model.UTF8Validation)
			all, err := parser.TextToMetricFamilies(w.Body)
			require.NoError(t, err)
			return map[string]float64{
				"evict": sum(all, "orbit_ledger_changes_total", "kind", "evict"), "move": sum(all, "orbit_ledger_changes_total", "kind", "move"),
				"release": sum(all, "orbit_ledger_changes_total", "kind", "release"),
			}
		}
		scrape() // it counts from here on
		ended := make(chan struct{})
		go func() { c.live(ctx); close(ended) }()
		time.Sleep(29*time.Second + 200*time.Millisecond) // between two ticks
		percent, waiting, err := c.fullness(ctx)
		require.NoError(t, err)
		require.Greater(t, percent, int64(95))
		require.Greater(t, waiting, 100)
		require.Greater(t, c.moves.preempted.Load(), int64(10))
		time.Sleep(27 * time.Second)
		left, err := c.onRack(ctx, "c", 3)
		require.NoError(t, err)
		require.Zero(t, left)
		require.Positive(t, c.moves.moved.Load()+c.moves.returned.Load())
		require.Greater(t, c.moves.failed.Load(), int64(500))
		cancel()
		<-ended
		require.NoError(t, c.print(t.Context()))
		got, m := scrape(), &c.moves
		require.EqualValues(t, m.preempted.Load(), got["evict"])
		require.EqualValues(t, m.moved.Load(), got["move"])
		require.EqualValues(t, m.failed.Load()+m.returned.Load(), got["release"])
	})
}
