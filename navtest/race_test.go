//go:build race

package navtest_test

func init() { raceDetector, worlds = true, 4 }
