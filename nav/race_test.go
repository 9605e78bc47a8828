//go:build race

package nav_test

func init() { raceDetector = true }
