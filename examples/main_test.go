package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestList finds every program of this folder in the list, and no line that is too wide. The orchestrator has a page of its own.
func TestList(t *testing.T) {
	var out strings.Builder
	list(&out, readme)
	programs, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	for _, program := range programs {
		if name := filepath.Dir(program); name != "orchestrator" {
			require.Contains(t, out.String(), "\n"+name+" (")
		}
	}
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), width+1)
		if name, _, ok := strings.Cut(line, " ("); ok && !strings.HasPrefix(line, " ") {
			_, err := os.Stat(name)
			require.NoError(t, err, "the list names what is not there")
		}
	}
}
