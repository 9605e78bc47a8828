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

// TestReadme builds and runs what the README prints, in a module of its own outside the repository, as an
// importer would: first the import example, then the same with the navigator of one's own.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an importer's module")
	}
	blocks := goBlocks(t, "README.md")
	require.Len(t, blocks, 3, "the README has an import example and two navigators")
	program, navigator := blocks[0], packerImports+blocks[1]

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

// TestReadmeGangs builds and runs the README's navigator of gangs: a gang that fits is placed whole, and of one that does
// not nothing is, in the second pass either, when the engine hands over what it has not put aside. A member that is
// released comes back. And it keeps the rules that navtest checks, except those about levels and minimums.
func TestReadmeGangs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an importer's module")
	}
	gangs := gangsImports + goBlocks(t, "README.md")[2]
	_, body, _ := strings.Cut(gangs, ") Plan(")
	body, _, _ = strings.Cut(body, "\n}\n")
	require.LessOrEqual(t, strings.Count(body, "\n"), 15, "lines of Plan")
	out := runImporter(t, map[string]string{"gangs.go": gangs, "main.go": gangsProgram})
	require.Equal(t, "1 proposed, 1 committed\n0 proposed, 0 committed\n1 proposed, 1 committed\n3 placed\n", out)
	dir := importer(t, map[string]string{"gangs.go": gangs, "main.go": gangsProgram, "gangs_test.go": gangsSuite})
	goTool(t, dir, "test", ".")
}

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

// TestImporterLinks looks into the binary of an importer of the root package alone: orbit's own two modules are in it and
// nothing else, nothing of etcd above all.
func TestImporterLinks(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an importer's module")
	}
	dir := importer(t, map[string]string{"main.go": `package main

import (
	"context"

	"github.com/orbitsched/orbit"
)

func main() {
	(&orbit.Engine{Ledger: &orbit.MemoryLedger{}}).Pass(context.Background())
}
`})
	goTool(t, dir, "build", "-o", "importer", ".")
	info, err := buildinfo.ReadFile(filepath.Join(dir, "importer"))
	require.NoError(t, err)
	var modules []string
	for _, dep := range info.Deps {
		modules = append(modules, dep.Path)
	}
	require.Equal(t, []string{"github.com/google/btree", modulePath}, without(modules, "golang.org/x/sync"))
	for _, pkg := range strings.Fields(goTool(t, dir, "list", "-deps", ".")) {
		require.NotContains(t, pkg, "etcd")
	}
}

// without returns a list without one word, if it is there.
func without(list []string, word string) []string {
	return slices.DeleteFunc(list, func(w string) bool { return w == word })
}

// runImporter runs a program that imports this checkout, and returns what it prints.
func runImporter(t *testing.T, files map[string]string) string {
	dir := importer(t, files)
	goTool(t, dir, "vet", ".")
	return goTool(t, dir, "run", ".")
}

// importer writes a module that imports this checkout, and returns its folder.
func importer(t *testing.T, files map[string]string) string {
	root, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	files["go.mod"] = "module example.com/importer\n\ngo 1.26.0\n\nrequire github.com/orbitsched/orbit v0.0.0\n\nreplace github.com/orbitsched/orbit => " + root + "\n"
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	goTool(t, dir, "mod", "tidy")
	return dir
}

func goTool(t *testing.T, dir string, args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s:\n%s", strings.Join(args, " "), out)
	return string(out)
}
