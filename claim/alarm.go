package claim

import "time"

// alarm is a timer that is only touched when the time to wake up is another.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

// set makes it ring at a time; zero: not at all.
func (a *alarm) set(at time.Time) {
	if at.Equal(a.at) {
		return
	}
	a.at = at
	switch {
	case a.timer == nil:
		a.timer = time.NewTimer(time.Until(at))
	case at.IsZero():
		a.timer.Stop()
	default:
		a.timer.Reset(time.Until(at))
	}
}

// rings returns where it rings, once for each time set.
func (a *alarm) rings() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C
}
