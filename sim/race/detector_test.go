//go:build race

package race_test

func init() { raceDetector, *raceSeeds, *patienceSeeds, *companySeeds = true, 40, 40, 40 }
