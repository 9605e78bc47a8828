//go:build race

package race_test

func init() { raceDetector, *raceSeeds = true, 40 }
