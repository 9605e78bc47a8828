package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// The floor does what a ledger must do at least: it takes what fits, and no more.
func TestRecorder(t *testing.T) {
	r := sim.NewFloor()
	r.Join("a", orbit.Resources{orbit.CPU: 3, orbit.Memory: 1})
	require.True(t, r.Place("x", "a", orbit.Resources{orbit.CPU: 2}))
	require.False(t, r.Place("y", "a", orbit.Resources{orbit.CPU: 2}))
	require.False(t, r.Place("y", "a", orbit.Resources{orbit.Memory: 2}))
	require.True(t, r.Place("y", "a", orbit.Resources{orbit.CPU: 1, orbit.Memory: 1}))
	require.Equal(t, 2, r.Placed())
}
