package claim

import "time"

// poll says when to look at the source though nothing has happened, in case something was missed. Each wait is
// twice as long as the one before, from min to max.
type poll struct {
	min, max time.Duration
	// The wait that is on, or comes next.
	wait time.Duration
	// When it ends; zero: there is no need to look.
	at time.Time
}

// reset starts over with the shortest wait. It puts off nothing: whatever comes in all the time, each wait
// ends.
func (p *poll) reset(now time.Time) {
	p.wait = p.min
	if at := now.Add(p.wait); at.Before(p.at) {
		p.at = at
	}
}

// need begins to wait if there is need to look, and stops if there is none.
func (p *poll) need(needed bool, now time.Time) {
	switch {
	case !needed:
		p.at = time.Time{}
	case p.at.IsZero():
		p.at = now.Add(p.wait)
	}
}

// due reports whether it is time to look. The next wait is longer.
func (p *poll) due(now time.Time) bool {
	if p.at.IsZero() || now.Before(p.at) {
		return false
	}
	p.at = time.Time{}
	p.wait = min(p.max, 2*min(p.wait, p.max/2+1))
	return true
}
