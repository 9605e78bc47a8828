package program

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpening(t *testing.T) {
	require.Equal(t, "Demo shows it.\nIt is hard.\n", Opening("// Demo shows it.\n// It is hard.\n//\n//\tgo run .\n//\n// How to read it.\npackage main\n"))
	require.Equal(t, "Demo.\n", Opening("// Demo.\npackage main\n"))
	require.Empty(t, Opening("package main\n// Later.\n"))
}
