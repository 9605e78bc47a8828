//go:build race

package shard

func init() { raceDetector = true }
