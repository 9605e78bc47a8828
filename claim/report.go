package claim

import (
	"context"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// pause waits, and reports whether the context did not end meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// report tells the importer what has no caller to be told. It is never called from the loop.
func (p *Pool) report(err error) {
	if p.Report != nil {
		guard.Call(func() error { p.Report(err); return nil }, func(error) {})
	}
}
