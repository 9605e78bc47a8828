package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// Shortage is the argument of Pool.ScaleUp: requests wait, and the source has no suitable idle slot.
type Shortage struct {
	// Pool is the pool that has the shortage. Its Snapshot says how many requests wait now, which may be more than
	// Deficit.
	Pool *Pool
	// Deficit is the number of missing slots: the waiting requests for which no idle slot is suitable.
	Deficit int
	// Since is when the shortage was noticed.
	Since time.Time
}

// shortage is the record of a shortage, which lasts until no request waits.
type shortage struct {
	since time.Time
	// told is the deficit in the last call of ScaleUp; 0: it has not been called.
	told int
	// failed says that the last call has failed.
	failed bool
	// again is the earliest time of the next call.
	again time.Time
}

// tellShortage calls ScaleUp for a new shortage, and calls it again if the last call failed or the deficit has grown.
// There is no call while another one runs, even if that one is for an earlier shortage.
func (p *Pool) tellShortage(deficit int, now time.Time) {
	if p.shortage == nil {
		p.shortage = &shortage{since: now}
	}
	s := p.shortage
	if p.ScaleUp == nil || p.scaling || s.told > 0 && now.Before(s.again) {
		return
	}
	s.again = now.Add(p.set.pollMin)
	if s.told > 0 && !s.failed && deficit <= s.told {
		return
	}
	s.told, s.failed, p.scaling = deficit, false, true
	p.stats.ScaleUps++
	tell := Shortage{Pool: p, Deficit: deficit, Since: s.since}
	p.calls.Go(func() { p.scaleUp(s, tell) })
}

// scaleUp calls ScaleUp and notes whether it failed.
func (p *Pool) scaleUp(s *shortage, tell Shortage) {
	err := guard.Run(func() error {
		ctx, cancel := context.WithTimeout(p.looking.ctx, p.set.timeout)
		defer cancel()
		return p.ScaleUp(ctx, tell)
	})
	p.update(func(time.Time) { s.failed, p.scaling = err != nil, false })
	if err != nil {
		p.report(&Error{Kind: ErrHook, Pool: p.Name, Cause: fmt.Errorf("scale-up: %w", err)})
	}
}
