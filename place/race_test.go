//go:build race

package place_test

func init() { raceDetector = true }
