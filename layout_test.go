package orbit_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/orbitsched/orbit"

// sourceImport is one import of one file of this module.
type sourceImport struct {
	file string // relative to the root
	room string // the folder, "." for the root
	path string
	test bool
}

// TestImports keeps the rooms apart: data flows through the root package, not between rooms.
func TestImports(t *testing.T) {
	for _, i := range readImports(t) {
		if why := offends(i); why != "" {
			t.Errorf("%s imports %s: %s", i.file, i.path, why)
		}
	}
}

// offends says which rule an import breaks.
func offends(i sourceImport) string {
	inside, isOurs := strings.CutPrefix(i.path, modulePath)
	inside = strings.TrimPrefix(inside, "/")
	external := strings.Contains(strings.SplitN(i.path, "/", 2)[0], ".") && !isOurs
	program := strings.HasPrefix(i.room, "examples/")
	switch {
	case i.test || program || i.room == "etcdledger/itest" || strings.HasPrefix(i.room, "etcdledger/itest/"):
		return ""
	case i.room == "etcdledger" && external:
		if !strings.HasPrefix(i.path, "go.etcd.io/etcd/client/v3") && !strings.HasPrefix(i.path, "go.etcd.io/etcd/api/v3/") {
			return "etcdledger depends on etcd's client, and the types of its protocol, alone"
		}
		return ""
	case external && !slices.Contains([]string{"github.com/google/btree"}, i.path) && !strings.HasPrefix(i.path, "golang.org/x/sync/"):
		return "production code depends on google/btree and golang.org/x/sync alone"
	case i.room == "." && isOurs && !strings.HasPrefix(inside, "internal/"):
		return "the root imports only internal packages"
	case inside == "sim" || strings.HasPrefix(inside, "sim/"):
		return "only tests and examples import sim"
	case i.room == "lease" && isOurs && inside != "" && !strings.HasPrefix(inside, "internal/"):
		return "lease imports orbit and internal packages alone"
	case inside == "place" && slices.Contains([]string{"nav", "sandbox", "shard"}, i.room):
		return ""
	case isOurs && i.room != "sim" && i.room != "sim/race" && inside != "" && !slices.Contains([]string{"score", "telemetry", "lease"}, inside) && !strings.HasPrefix(inside, "internal/"):
		return "rooms import orbit, score, lease and telemetry, those of navigators place too, and never each other"
	}
	return ""
}

// TestImportRuleBites shows that the rule can fail.
func TestImportRuleBites(t *testing.T) {
	for _, bad := range []sourceImport{
		{room: ".", path: modulePath + "/nav"},
		{room: ".", path: "github.com/stretchr/testify/require"},
		{room: "nav", path: modulePath + "/telemetry/sub"},
		{room: "nav", path: modulePath + "/sim"},
		{room: "place", path: modulePath + "/nav"},
		{room: "telemetry", path: modulePath + "/place"},
		{room: "lease", path: modulePath + "/telemetry"},
		{room: "telemetry", path: "pgregory.net/rapid"},
		{room: "nav", path: "go.etcd.io/etcd/client/v3"},
		{room: "nav", path: modulePath + "/etcdledger"},
		{room: "sandbox", path: modulePath + "/nav"},
		{room: "nav", path: modulePath + "/sandbox"},
		{room: "etcdledger", path: "go.etcd.io/etcd/server/v3/embed"},
		{room: "etcdledger", path: modulePath + "/nav"},
	} {
		require.NotEmpty(t, offends(bad), "%s importing %s", bad.room, bad.path)
	}
}

func readImports(t *testing.T) []sourceImport {
	var out []sourceImport
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			out = append(out, sourceImport{path, filepath.ToSlash(filepath.Dir(path)), imported, strings.HasSuffix(path, "_test.go")})
		}
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, out)
	return out
}
