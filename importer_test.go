package orbit_test

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// importers returns the files of one importer of every kind, each a package of the same module, so that what they share is
// compiled once.
//
//	example   the README's import example
//	packer    the same with the navigator of single capsules of docs/navigator.md
//	gangs     the navigator of gangs there, with a test that calls navtest
//	core      the blocks of docs/core.md, in order
//	alone     imports the root package and nothing else
func importers(t *testing.T) map[string]string {
	programs, navigators := goBlocks(t, "README.md"), goBlocks(t, "docs/navigator.md")
	require.Len(t, programs, 1, "the README has an import example")
	require.Len(t, navigators, 2, "docs/navigator.md has a navigator of single capsules and one of gangs")
	program, gangs := programs[0], gangsImports+navigators[1]
	loop := "\tfor _, engine := range population.Engines {\n"
	require.Contains(t, program, loop)
	page, err := os.ReadFile("docs/navigator.md")
	require.NoError(t, err)
	_, lines, _ := strings.Cut(string(page), "    packer := ")
	lines, _, _ = strings.Cut(lines, "\n\n")
	packs := strings.ReplaceAll(program, loop, "packer := "+lines+"\n"+loop)
	packs = strings.Replace(packs, "import (", "import (\n\"slices\"", 1)
	return map[string]string{
		"example/main.go": program,
		"packer/main.go":  packs, "packer/packer.go": packerImports + navigators[0],
		"gangs/main.go": gangsProgram, "gangs/gangs.go": gangs, "gangs/gangs_test.go": gangsSuite,
		"core/main.go":  strings.Join(goBlocks(t, "docs/core.md"), "\n"),
		"alone/main.go": aloneProgram,
	}
}

// TestImporters builds and runs what the README, docs/navigator.md and docs/core.md print, as an importer would.
func TestImporters(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an importer's module")
	}
	dir := importer(t, importers(t))
	goTool(t, dir, "vet", "./...")
	run := func(name string) string { return goTool(t, dir, "run", "./"+name) }
	t.Run("example", func(t *testing.T) {
		out := run("example")
		require.Contains(t, out, "3 committed, 0 conflicts")
		require.Contains(t, out, "web-1 on node-a\nweb-2 on node-b\nweb-3 on node-a\n", "the services navigator spreads")
	})
	t.Run("own navigator", func(t *testing.T) {
		out := run("packer")
		require.Contains(t, out, "3 committed, 0 conflicts")
		require.Contains(t, out, "web-1 on node-a\nweb-2 on node-a\nweb-3 on node-a\n", "the packer packs")
	})
	t.Run("gangs", func(t *testing.T) { readmeGangs(t, dir, run("gangs")) })
	t.Run("core", func(t *testing.T) { readmeCore(t, run("core")) })
	t.Run("links", func(t *testing.T) { importerLinks(t, dir) })
}

// readmeGangs looks at the navigator of gangs of docs/navigator.md: a gang that fits is placed whole, and of one that does not fit
// nothing is placed, not even in the second pass, when the engine hands over what it has not put aside. A member that is
// released comes back. And the navigator keeps the rules that navtest checks, except those about levels and minimums.
func readmeGangs(t *testing.T, dir, out string) {
	_, body, _ := strings.Cut(goBlocks(t, "docs/navigator.md")[1], ") Plan(")
	body, _, _ = strings.Cut(body, "\n}\n")
	require.LessOrEqual(t, strings.Count(body, "\n"), 15, "lines of Plan")
	require.Equal(t, "1 proposed, 1 committed\n0 proposed, 0 committed\n1 proposed, 1 committed\n3 placed\n", out)
	goTool(t, dir, "test", "./gangs")
}

// importerLinks looks into the binary of an importer of the root package alone: orbit and its one dependency are in it
// and nothing else, in particular nothing of etcd.
func importerLinks(t *testing.T, dir string) {
	goTool(t, dir, "build", "-o", "importer", "./alone")
	info, err := buildinfo.ReadFile(filepath.Join(dir, "importer"))
	require.NoError(t, err)
	var modules []string
	for _, dep := range info.Deps {
		modules = append(modules, dep.Path)
	}
	require.Equal(t, []string{"github.com/google/btree", modulePath}, without(modules, "golang.org/x/sync"))
	for _, pkg := range strings.Fields(goTool(t, dir, "list", "-deps", "./alone")) {
		require.NotContains(t, pkg, "etcd")
	}
}

const aloneProgram = `package main

import (
	"context"

	"github.com/orbitsched/orbit"
)

func main() {
	(&orbit.Engine{Ledger: &orbit.MemoryLedger{}}).Pass(context.Background())
}
`

const packerImports = `package main

import (
	"context"
	"errors"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

`

const gangsImports = `package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

`

const gangsProgram = `package main

import (
	"context"
	"fmt"

	"github.com/orbitsched/orbit"
)

func gang(id orbit.GangID, roles ...orbit.Role) orbit.Submit { return orbit.Submit{Gang: &orbit.Gang{ID: id, Roles: roles}} }

func role(name string, cpu int64, members ...orbit.CapsuleID) orbit.Role {
	spec := &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
	return orbit.Role{Name: name, Members: members, Spec: spec}
}

func main() {
	ctx, ledger := context.Background(), &orbit.MemoryLedger{}
	do := func(do ...orbit.Commitment) {
		if _, err := ledger.Propose(ctx, orbit.Proposal{Do: do}); err != nil {
			panic(err)
		}
	}
	engine := &orbit.Engine{Name: "gangs", Ledger: ledger, Navigator: &Gangs{}}
	pass := func() {
		r := engine.Pass(ctx)
		fmt.Printf("%d proposed, %d committed\n", r.Proposed, r.Committed)
		if len(r.Errors) > 0 {
			panic(r.Errors)
		}
	}
	do(orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 10}}},
		gang("fits", role("a", 1, "a-1", "a-2"), role("b", 2, "b-1")),
		gang("large", role("small", 1, "s-1"), role("large", 11, "l-1")))
	pass()
	pass()
	do(orbit.Release{Capsule: "a-2", Stopped: true})
	pass()
	state, _ := ledger.Snapshot(ctx)
	placed := 0
	for c := range state.Capsules() {
		if c.Placed() {
			placed++
		}
	}
	fmt.Println(placed, "placed")
}
`

const gangsSuite = `package main

import (
	"testing"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/navtest"
)

func TestGangs(t *testing.T) {
	navtest.Suite{Worlds: 20, Skip: map[string]string{"gangs": "it knows no levels"}}.Run(t, func() orbit.Navigator { return &Gangs{} })
}
`

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

// readmeCore compares what the program of docs/core.md prints with what the page says.
func readmeCore(t *testing.T, out string) {
	says := printed(goBlocks(t, "docs/core.md"))
	require.NotEmpty(t, says)
	require.Equal(t, says, out)
}

// printed returns what a page says that its functions print: the comment after "Output:" at the end of each.
func printed(blocks []string) (out string) {
	for _, block := range blocks {
		_, lines, _ := strings.Cut(block, "\t// Output:\n")
		for line := range strings.Lines(lines) {
			if text, comment := strings.CutPrefix(line, "\t// "); comment {
				out += text
			}
		}
	}
	return out
}

// without returns a list without one word, if it is there.
func without(list []string, word string) []string {
	return slices.DeleteFunc(list, func(w string) bool { return w == word })
}

// importer writes a module that imports this checkout, and returns its folder.
func importer(t *testing.T, files map[string]string) string {
	root, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	files["go.mod"] = "module example.com/importer\n\ngo 1.26.0\n\nrequire github.com/orbitsched/orbit v0.0.0\n\nreplace github.com/orbitsched/orbit => " + root + "\n"
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	goTool(t, dir, "mod", "tidy")
	return dir
}

// goTool runs a command of the go tool and returns what it prints. With -trimpath the folder, which is another one in each
// run, does not count for the build cache, so programs that have not changed are not linked again.
func goTool(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -trimpath")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}
