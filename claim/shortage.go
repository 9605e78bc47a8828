package claim

import (
	"context"
	"fmt"
	"time"
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
	// Calls that have not returned.
	calls int
}

// signalled is how a call of the hook has ended. It has no error: those are the importer's, and not looked at here.
type signalled struct {
	serial uint64
	// An earlier call was still running, and stood in for it.
	shared bool
	failed bool
}

// answered takes note of how a call has ended. It may have been for a shortage that is over.
func (s *shortage) answered(a signalled) {
	s.calls--
	switch {
	case a.serial != s.serial:
	case a.shared:
		s.told = 0 // the hook has not been told
	case a.failed:
		s.failed = true
	}
}

// over takes note that no request waits.
func (s *shortage) over() { *s = shortage{calls: s.calls, serial: s.serial + 1} }

// signal tells the hook of a shortage, and again where that is called for.
func (p *Pool) signal(deficit int, now time.Time) {
	s := &p.shortage
	if p.ScaleUp == nil || s.calls > 1 || s.told > 0 && (s.calls > 0 || now.Before(s.again)) {
		return
	}
	s.again = now.Add(p.set.pollMin)
	if s.told > 0 && !s.failed && deficit <= s.told {
		return
	}
	if s.since.IsZero() {
		s.since = now
	}
	s.told, s.failed = deficit, false
	s.calls++
	serial, tell := s.serial, Shortage{Pool: p, Deficit: s.told, Since: s.since}
	p.group.Go(func() { p.scaleUp(serial, tell) })
}

// scaleUp calls the hook. If it is still busy with an earlier shortage, this one waits for its end; the loop then
// tells it anew.
func (p *Pool) scaleUp(serial uint64, s Shortage) {
	called := false
	guard(func() error {
		_, err, _ := p.single.Do("scale-up", func() (any, error) {
			called = true
			p.scaleUps.Add(1)
			return nil, contained(func() error {
				ctx, cancel := context.WithTimeout(p.looking.ctx, p.set.timeout)
				defer cancel()
				return p.ScaleUp(ctx, s)
			})
		})
		return err
	}, func(err error) {
		p.mail.post(func(m *mail) { m.signalled = append(m.signalled, signalled{serial, !called, err != nil}) })
		if called && err != nil {
			p.report(&Error{Kind: ErrHook, Pool: p.Name, Cause: fmt.Errorf("scale-up: %w", err)})
		}
	})
}
