package place_test

// raceDetector says that the tests run with the race detector, which takes ten times as long.
var raceDetector bool
