//go:build race

package scale

// Race says whether the race detector is at work, with which everything takes about ten times as long.
const Race = true
