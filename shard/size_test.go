package shard

// raceDetector says that the test runs with the race detector, which takes ten times as long.
var raceDetector bool

// raceSkips returns n under the race detector and otherwise 0. Tests leave out that many of their cases that run in one
// goroutine, where the detector has nothing to find.
func raceSkips(n int) int {
	if raceDetector {
		return n
	}
	return 0
}
