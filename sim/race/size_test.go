package race_test

// raceDetector: everything takes ten times as long.
var raceDetector bool
