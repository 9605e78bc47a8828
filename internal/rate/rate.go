// Package rate bounds how often something happens.
package rate

import "time"

// Allowance lets something happen a bounded number of times at once, and after that at a steady pace. It is one
// instant, however much has happened: the one at which all that has been used is allowed again. The zero value
// is a full allowance.
type Allowance struct{ paid time.Time }

// Take uses up one of burst, of which one comes back every so often. It returns zero, or how long it will be until
// there is one again.
func (a *Allowance) Take(now time.Time, every time.Duration, burst int) (wait time.Duration) {
	whole := time.Duration(burst) * every
	debt := a.paid.Sub(now)
	if debt < 0 || debt > whole { // nothing is owed, or the clock was set back
		debt = 0
	}
	if debt > whole-every {
		return debt - (whole - every)
	}
	a.paid = now.Add(debt + every)
	return 0
}
