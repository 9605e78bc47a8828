package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/diskledger"
)

// The commands print, verify and compact a folder, and name the place of damage.
func TestCommands(t *testing.T) {
	dir := t.TempDir()
	l, err := diskledger.Open(dir, diskledger.Options{})
	require.NoError(t, err)
	for i := range 3 {
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint("k", i), Value: "v"}}})
		require.NoError(t, err)
	}
	status, _, _ := call("verify", dir)
	require.Equal(t, 1, status, "in use")
	require.NoError(t, l.Close())
	status, out, _ := call("print", dir)
	require.Zero(t, status)
	require.Contains(t, out, `{"revision":3,"do":{"mark":{"key":"k2","value":"v"}}}`)
	status, before, _ := call("state", dir)
	require.Zero(t, status)
	require.Contains(t, before, `{"mark":{"key":"k1","value":"v","changed":2}}`)
	status, out, _ = call("compact", dir)
	require.Zero(t, status)
	require.Contains(t, out, "revision 3, 0 nodes, 0 capsules; 0 changes behind the checkpoint; 0 bytes of an unfinished write\nverify: ok\n")
	_, after, _ := call("state", dir)
	require.Equal(t, before, after)
	files, err := filepath.Glob(filepath.Join(dir, "*.checkpoint"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	content, err := os.ReadFile(files[0])
	require.NoError(t, err)
	content[100] ^= 1
	require.NoError(t, os.WriteFile(files[0], content, 0o600))
	for _, command := range []string{"print", "state", "verify", "compact"} {
		status, _, problem := call(command, dir)
		require.Equal(t, 1, status)
		require.Contains(t, problem, filepath.Base(files[0])+" at byte ")
	}
	for _, wrong := range [][]string{{}, {"verify"}, {"mend", dir}} {
		status, _, problem := call(wrong...)
		require.Equal(t, 2, status)
		require.Contains(t, problem, "usage")
	}
	for _, command := range []string{"verify", "compact"} {
		status, _, _ = call(command, t.TempDir())
		require.Equal(t, 1, status)
	}
}

func call(args ...string) (status int, out, problems string) {
	var o, p strings.Builder
	status = run(args, &o, &p)
	return status, o.String(), p.String()
}
