//go:build race

package ledgertest_test

func init() { raceDetector = true }
