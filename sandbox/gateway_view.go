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
	// The ledger's error, for all creates that waited. Set before done is closed.
	err error
}

// wait waits until the refresh is over, and returns its error or the context's.
func (r *refreshing) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// due reports whether a create must wait for a newer view: there is none, a rejection named a newer revision, the view
// is older than the cache, or mostPlanned creates were planned on it. A view that was begun after the create is never
// too old: otherwise, with a cache that is shorter than a refresh, the create would wait for ever. The caller holds the
// lock.
func (g *Gateway) due(c *create) bool {
	cache := g.cache()
	if g.unreported {
		cache = min(cache, failedPace)
	}
	return g.fetched.IsZero() || g.revision < g.wanted || g.viewNumber <= c.since && (time.Since(g.fetched) >= cache || g.planned >= mostPlanned)
}

// beginRefresh announces a refresh, and returns the function that does it. The caller holds the lock, and no other
// refresh runs.
func (g *Gateway) beginRefresh() func(context.Context) error {
	g.refreshesBegun++
	r := &refreshing{number: g.refreshesBegun, done: make(chan struct{})}
	g.refreshing, g.refreshBegan = r, time.Now()
	return func(ctx context.Context) error { return g.refresh(ctx, r) }
}

// refresh brings the view and the loads up to date. If telemetry fails, the view keeps the old reports; if the ledger
// fails, it does not change.
func (g *Gateway) refresh(ctx context.Context, r *refreshing) error {
	defer g.endRefresh(r)
	now, err := g.refreshView(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Refreshes++
	if err != nil {
		err = fmt.Errorf("view: %w", err)
		if ctx.Err() == nil {
			r.err = err // if ctx has ended, another create that waits tries instead
		}
		return err
	}
	g.fetched, g.viewNumber, g.revision, g.planned = now, r.number, g.view.Revision(), 0
	g.unreported = g.watched != nil && g.watched.err != nil
	if g.unreported {
		g.stats.Partitions++
	}
	g.loads.failing.forget(now)
	g.loads.sync(&g.view)
	g.recharge(g.view.State(), !g.unreported)
	return nil
}

// endRefresh wakes the creates that wait for the refresh, whether or not it has failed.
func (g *Gateway) endRefresh(r *refreshing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refreshing = nil
	close(r.done)
}

// refreshView refreshes the view until it has reached the newest revision that any rejection has named.
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

// readPlanes refreshes the view from ledger and telemetry. Whether telemetry has failed is in g.watched.
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
