package cputime

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Sleeping costs nothing, working does, and what a goroutine spends the process has spent.
func TestOf(t *testing.T) {
	if Name != "CPU time" {
		t.Skip("this system tells only the time of day")
	}
	slept := Of(func() { time.Sleep(50 * time.Millisecond) })
	require.Less(t, slept, 40*time.Millisecond)
	before := Process()
	worked := Of(func() {
		for began := Process(); Process()-began < 20*time.Millisecond; {
		}
	})
	require.Positive(t, worked)
	require.GreaterOrEqual(t, Process()-before, worked)
}
