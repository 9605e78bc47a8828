package orbit_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
)

var (
	// testCommand finds a go test command in a page.
	testCommand = regexp.MustCompile("go test [^`#\n]*")
	// selects finds what a command selects by -run or -bench.
	selects = regexp.MustCompile(`-(?:run|bench) '?([^' ]+)`)
	// declares finds the tests and benchmarks that a file declares.
	declares = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
)

// TestCommandsInDocs looks for the tests and benchmarks that the commands of all pages select, in the folder that a command names,
// or in all folders. A page of docs/rfcs may speak of what is gone.
func TestCommandsInDocs(t *testing.T) {
	scale.Sequential(t)
	if _, err := os.Stat("etcdledger/itest/go.mod"); err != nil {
		t.Skip("the other modules are not here, and pages name their tests")
	}
	commands, declared := map[string][]string{}, map[string][]string{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "rfcs" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		isPage := filepath.Ext(path) == ".md"
		if d.IsDir() || !isPage && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if isPage {
			commands[path] = testCommand.FindAllString(string(text), -1)
			return err
		}
		for _, m := range declares.FindAllStringSubmatch(string(text), -1) {
			declared[filepath.Dir(path)] = append(declared[filepath.Dir(path)], m[1])
		}
		return err
	}))
	require.NotEmpty(t, commands["docs/benchmarks.md"])
	for page, all := range commands {
		for _, command := range all {
			if !selectsSomething(t, command, filepath.Dir(page), declared) {
				t.Errorf("%s: %q selects no test or benchmark", page, command)
			}
		}
	}
}

// selectsSomething reports whether a command selects a test or benchmark that is declared. A selection of nothing, as of no tests
// beside benchmarks, is meant so.
func selectsSomething(t *testing.T, command, page string, declared map[string][]string) bool {
	for _, m := range selects.FindAllStringSubmatch(command, -1) {
		name, _, _ := strings.Cut(m[1], "/")
		if name == "^$" || name == "xxx" {
			continue
		}
		pattern, err := regexp.Compile(name)
		require.NoError(t, err, command)
		found := slices.ContainsFunc(folders(command, page, declared), func(dir string) bool {
			return slices.ContainsFunc(declared[dir], pattern.MatchString)
		})
		if !found {
			return false
		}
	}
	return true
}

// folders returns those in which a command looks: the ones that it names, below the root or beside its page, and otherwise all.
func folders(command, page string, declared map[string][]string) (named []string) {
	for word := range strings.FieldsSeq(command) {
		if dir, ok := strings.CutPrefix(word, "./"); ok && dir != "..." && dir != "mine" {
			named = append(named, dir, filepath.Join(page, dir))
		}
	}
	if named == nil {
		for dir := range declared {
			named = append(named, dir)
		}
	}
	return named
}
