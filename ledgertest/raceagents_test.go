package ledgertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// Nothing starts on a machine that is off, though its node is not yet declared lost: the capsule would be placed and started elsewhere.
func TestNothingStartsOnAMachineThatIsOff(t *testing.T) {
	m := &machines{runs: map[orbit.CapsuleID]process{}, power: map[orbit.NodeID]int{}}
	c := &orbit.Capsule{ID: "c", Node: "off", Spec: cpu(1)}
	m.flip("off")
	m.start(c, m.begun("off"))
	moved := *c
	moved.Node = "on"
	m.start(&moved, m.begun("on"))
	require.NoError(t, m.verdict())
	require.Equal(t, 1, m.starts)
}
