//go:build race

package sim_test

func init() { raceDetector, *raceSeeds = true, 40 }
