package orbit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme builds and runs what the README prints, in a module of its own outside the repository, as an
// importer would: first the import example, then the same with the navigator of one's own.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an importer's module")
	}
	blocks := goBlocks(t, "README.md")
	require.Len(t, blocks, 2, "the README has an import example and a navigator")
	program, navigator := blocks[0], blocks[1]

	t.Run("import example", func(t *testing.T) {
		out := runImporter(t, map[string]string{"main.go": program})
		require.Contains(t, out, "3 committed, 0 conflicts")
		require.Contains(t, out, "web-1 on node-a\nweb-2 on node-b\nweb-3 on node-a\n", "the services navigator spreads")
	})
	t.Run("own navigator", func(t *testing.T) {
		require.Contains(t, program, "&nav.Services{}")
		program := strings.ReplaceAll(program, "&nav.Services{}", "&Packer{}")
		program = strings.ReplaceAll(program, "\t\"github.com/orbitsched/orbit/nav\"\n", "")
		out := runImporter(t, map[string]string{"main.go": program, "packer.go": navigator})
		require.Contains(t, out, "3 committed, 0 conflicts")
		require.Contains(t, out, "web-1 on node-a\nweb-2 on node-a\nweb-3 on node-a\n", "the packer packs")
	})
}

// goBlocks returns the fenced Go code of a markdown file.
func goBlocks(t *testing.T, path string) []string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var blocks []string
	for _, part := range strings.Split(string(text), "```go\n")[1:] {
		block, _, ended := strings.Cut(part, "```")
		require.True(t, ended)
		blocks = append(blocks, block)
	}
	return blocks
}

// runImporter runs a program that imports this checkout, and returns what it prints.
func runImporter(t *testing.T, files map[string]string) string {
	root, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	files["go.mod"] = "module example.com/importer\n\ngo 1.26.0\n\nrequire github.com/orbitsched/orbit v0.0.0\n\nreplace github.com/orbitsched/orbit => " + root + "\n"
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"vet", "."}} {
		goTool(t, dir, args...)
	}
	return goTool(t, dir, "run", ".")
}

func goTool(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}
