//go:build race

package race_test

func init() { raceDetector, *raceSeeds, *patienceSeeds = true, 40, 40 }
