package nav_test

import "testing"

// raceDetector: everything takes ten times as long.
var raceDetector bool

// raceSkips returns how much of a long test of one goroutine's figures is left out under the race detector, which has
// nothing to find in it: n there, else nothing.
func raceSkips(n int) int {
	if raceDetector {
		return n
	}
	return 0
}

// compares marks a test that compares figures: they are the same without the race detector, in a tenth of the time.
func compares(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("its figures are the same without the race detector")
	}
}
