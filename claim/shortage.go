package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/orbitsched/orbit/internal/guard"
)

// Shortage is what the scale-up hook is told: requests wait, and the source has nothing idle.
type Shortage struct {
	// Whose it is. Its Snapshot says how many wait when the hook gets round to it, which may be more.
	Pool *Pool
	// How many slots are wanting: the requests that wait and for which nothing idle will do.
	Deficit int
	// When it was noticed.
	Since time.Time
}

// shortage is what the loop knows of one. It lasts until no request waits.
type shortage struct {
	// Tells shortages apart.
	serial uint64
	since  time.Time
	// The deficit that the hook was last told of; 0: not told.
	told int
	// The last call has failed.
	failed bool
	// When to tell again, if there is reason to.
	again time.Time
	// A call has not returned. The next one waits for that, also where it is for another shortage.
	calling bool
}

// signalled is how a call of the hook has ended. It has no error: those are the importer's, and not looked at
// here.
type signalled struct {
	serial uint64
	failed bool
}

// answered takes note of how a call has ended. It may have been for a shortage that is over.
func (s *shortage) answered(a signalled) {
	s.calling = false
	if a.serial == s.serial {
		s.failed = a.failed
	}
}

// over takes note that no request waits.
func (s *shortage) over() { *s = shortage{calling: s.calling, serial: s.serial + 1} }

// signal tells the hook of a shortage, and again where that is called for.
func (p *Pool) signal(deficit int, now time.Time) {
	s := &p.shortage
	if s.since.IsZero() {
		s.since = now
	}
	if p.ScaleUp == nil || s.calling || s.told > 0 && now.Before(s.again) {
		return
	}
	s.again = now.Add(p.set.pollMin)
	if s.told > 0 && !s.failed && deficit <= s.told {
		return
	}
	s.told, s.failed, s.calling = deficit, false, true
	serial, tell := s.serial, Shortage{Pool: p, Deficit: s.told, Since: s.since}
	p.group.Go(func() { p.scaleUp(serial, tell) })
}

// scaleUp calls the hook, and tells the loop how that has ended.
func (p *Pool) scaleUp(serial uint64, s Shortage) {
	p.scaleUps.Add(1)
	err := guard.Run(func() error {
		ctx, cancel := context.WithTimeout(p.looking.ctx, p.set.timeout)
		defer cancel()
		return p.ScaleUp(ctx, s)
	})
	p.mail.post(func(m *mail) { m.signalled = append(m.signalled, signalled{serial, err != nil}) })
	if err != nil {
		p.report(&Error{Kind: ErrHook, Pool: p.Name, Cause: fmt.Errorf("scale-up: %w", err)})
	}
}
