package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/program"
)

// TestList finds every program in the list, and no line that is too wide.
func TestList(t *testing.T) {
	var out strings.Builder
	list(&out, readme)
	for _, program := range programs(t) {
		dir := filepath.Dir(program)
		require.Regexp(t, "(?m)(^|/)"+filepath.Base(dir)+"( |$)", out.String())
	}
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, len(line), 120)
		if name, _, ok := strings.Cut(line, " "); ok && name != "" && name != "go" && name != "cd" {
			require.DirExists(t, name, "the list names what is not there")
		}
	}
}

// TestOpenings demands that each program says in at most 6 lines what it shows and why that is hard, and prints that first.
func TestOpenings(t *testing.T) {
	for _, name := range programs(t) {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		opening := program.Opening(string(source))
		require.GreaterOrEqual(t, strings.Count(opening, "\n"), 3, "lines of the opening of %s", name)
		require.LessOrEqual(t, strings.Count(opening, "\n"), 6, "lines of the opening of %s", name)
		require.Equal(t, 1, printsOpening(t, filepath.Dir(name)), "%s prints its opening", name)
	}
}

// printsOpening counts the files of a program that print its opening. Quickstart has a text of its own, because strangers copy that
// program, and they cannot import internal packages.
func printsOpening(t *testing.T, dir string) (n int) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(text), "program.Opening(source)") || strings.Contains(string(text), "fmt.Println(opening)") {
			n++
		}
	}
	return n
}

// programs returns the examples of this folder and of other modules, as far as they are there: a module that was downloaded has only
// its own.
func programs(t *testing.T) (all []string) {
	for _, pattern := range []string{"*/main.go", "../diskledger/examples/*/main.go", "../etcdledger/itest/examples/*/main.go"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		all = append(all, found...)
	}
	require.NotEmpty(t, all)
	return all
}
