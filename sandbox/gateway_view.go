package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
)

// refreshing is a refresh of the view that is in progress. The goroutine that starts it does the work; the others wait
// for it.
type refreshing struct {
	number uint64
	done   chan struct{}
	// Why it failed, for all who waited: the ledger's fault. Set before done is closed.
	err error
}

// wait returns when the refresh is over: its error, or the context's.
func (r *refreshing) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// due reports whether a create must wait for a newer view: there is none, a receipt tells of a newer state, or
// it is too old. One from after the create came is never too old, or a cache shorter than a refresh would have
// it wait for ever. It requires the lock.
func (g *Gateway) due(c *create) bool {
	cache := g.cache()
	if g.unreported {
		cache = min(cache, failedPace)
	}
	return g.fetched.IsZero() || g.revision < g.wanted || g.viewNumber <= c.since && time.Since(g.fetched) >= cache
}

// beginRefresh announces a refresh, and returns what does it. It requires the lock, and that there is none.
func (g *Gateway) beginRefresh() func(context.Context) error {
	g.refreshesBegun++
	r := &refreshing{number: g.refreshesBegun, done: make(chan struct{})}
	g.refreshing, g.refreshBegan = r, time.Now()
	return func(ctx context.Context) error { return g.refresh(ctx, r) }
}

// refresh brings the view up to date and the loads with it. Telemetry that fails leaves the old reports; a
// ledger that fails leaves everything.
func (g *Gateway) refresh(ctx context.Context, r *refreshing) error {
	defer g.endRefresh(r)
	now, err := g.refreshView(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Refreshes++
	if err != nil {
		err = fmt.Errorf("view: %w", err)
		if ctx.Err() == nil {
			r.err = err // else another one who waits tries
		}
		return err
	}
	g.fetched, g.viewNumber, g.revision = now, r.number, g.view.Revision()
	g.unreported = g.watched != nil && g.watched.err != nil
	if g.unreported {
		g.stats.Partitions++
	}
	g.loads.sync(&g.view)
	g.recharge(g.view.State(), !g.unreported)
	return nil
}

// endRefresh lets those go on who wait, whatever has become of the refresh.
func (g *Gateway) endRefresh(r *refreshing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refreshing = nil
	close(r.done)
}

// refreshView refreshes the view until it has reached what the gateway has been told of.
func (g *Gateway) refreshView(ctx context.Context) (now time.Time, err error) {
	g.mu.Lock()
	wanted := g.wanted
	g.mu.Unlock()
	for {
		now = time.Now()
		err = g.readPlanes(ctx, now)
		seen := g.view.Revision()
		if err != nil || seen >= wanted {
			return now, err
		}
		if err := g.catchUp(ctx, seen); err != nil {
			return now, err
		}
	}
}

// readPlanes asks both planes. What telemetry says of itself is in g.watched.
func (g *Gateway) readPlanes(ctx context.Context, now time.Time) error {
	if g.watched == nil {
		return g.view.Refresh(ctx, g.Ledger, nil, now)
	}
	g.watched.err = nil
	err := g.view.Refresh(ctx, g.Ledger, g.watched, now)
	if g.watched.err != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// watchedTelemetry is telemetry that remembers whether it failed.
type watchedTelemetry struct {
	orbit.Telemetry
	err error
}

// Reports asks the telemetry.
func (e *watchedTelemetry) Reports(ctx context.Context, after uint64) (reports []orbit.Report, version uint64, err error) {
	reports, version, err = e.Telemetry.Reports(ctx, after)
	e.err = err
	return reports, version, err
}
