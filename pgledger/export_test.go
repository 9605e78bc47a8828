package pgledger

import "time"

// SetClock sets the clock of Refreshes.
func (r *Refreshes) SetClock(now func() time.Time) { r.now = now }

// Seen returns how many tokens the Refreshes remember.
func (r *Refreshes) Seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}
