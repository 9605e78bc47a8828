// Package rate bounds how often something happens.
package rate

import "time"

// Allowance lets something happen a bounded number of times at once, and after that at a steady pace. It takes the
// memory of one instant, however often it is used: the instant at which the allowance is full again. The zero value is
// a full allowance.
type Allowance struct{ paid time.Time }

// Take uses up one unit of an allowance of burst units, of which one comes back after each period every. It returns 0
// if there was a unit, and otherwise uses none and returns the time until there is one.
func (a *Allowance) Take(now time.Time, every time.Duration, burst int) (wait time.Duration) {
	whole := time.Duration(burst) * every
	// Each unit that is used up and has not come back yet adds every to the debt.
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
