package orbit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
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
	program := strings.HasPrefix(i.room, "examples/") || strings.HasPrefix(i.room, "kubeorbit/cmd/") || i.room == "orbitlog"
	switch {
	case i.test || program || i.room == "etcdledger/itest" || strings.HasPrefix(i.room, "etcdledger/itest/"):
		return ""
	case i.room == "etcdledger" && external:
		if !strings.HasPrefix(i.path, "go.etcd.io/etcd/client/v3") && !strings.HasPrefix(i.path, "go.etcd.io/etcd/api/v3/") {
			return "etcdledger depends on etcd's client, and the types of its protocol, alone"
		}
		return ""
	case strings.HasPrefix(i.room, "diskledger/examples/"):
		return ""
	case i.room == "diskledger" && external:
		if i.path != "github.com/cockroachdb/pebble/v2/record" && i.path != "github.com/cockroachdb/pebble/v2/vfs" {
			return "diskledger depends on pebble's records and file layer alone"
		}
		return ""
	case i.room == "logledger" && external:
		if i.path != "github.com/klauspost/compress/zstd" {
			return "logledger depends on zstd alone"
		}
		return ""
	case i.room == "pgledger" && external:
		if i.path != "github.com/jackc/pgx/v5" && !strings.HasPrefix(i.path, "github.com/jackc/pgx/v5/") {
			return "pgledger depends on pgx alone"
		}
		return ""
	case (i.room == "logledger/logtest" || i.room == "diskledger" || i.room == "etcdledger" || i.room == "pgledger") && (inside == "logledger" || inside == "logledger/logtest"):
		return ""
	case i.room == "kubeorbit" && external:
		if !strings.HasPrefix(i.path, "k8s.io/") && !strings.HasPrefix(i.path, "sigs.k8s.io/yaml") && !strings.HasPrefix(i.path, "golang.org/x/sync/") || strings.HasPrefix(i.path, "k8s.io/kubernetes/") {
			return "kubeorbit depends on Kubernetes' client libraries alone, not on Kubernetes"
		}
		return ""
	case i.room == "kubeorbit/fit" && isOurs:
		return "the judge of clusters shares nothing with what it judges"
	case i.room == "kubeorbit/fit" && external:
		if !strings.HasPrefix(i.path, "k8s.io/api") && !strings.HasPrefix(i.path, "k8s.io/component-helpers/") {
			return "the judge of clusters depends on Kubernetes' types and helpers alone"
		}
		return ""
	case i.room == "kubeorbit" && inside == "nav": // for its Population
		return ""
	case i.room == "promorbit" && external:
		if i.path != "github.com/prometheus/client_golang/prometheus" {
			return "promorbit depends on Prometheus's client alone"
		}
		return ""
	case i.room == "promorbit" && (inside == "claim" || inside == "nav"): // nav for its GroupWatch
		return ""
	case i.room == "otelorbit" && external:
		if !slices.Contains([]string{"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/trace"}, i.path) {
			return "otelorbit depends on the API of OpenTelemetry alone; the SDK is the importer's"
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
	case i.room == "inspect" && inside == "whatif": // to explain what waits
		return ""
	case inside == "place" && slices.Contains([]string{"nav", "sandbox", "shard", "whatif"}, i.room):
		return ""
	case inside == "watch" && i.room == "agent", inside == "agent" && i.room == "agent/process":
		return ""
	case isOurs && i.room != "sim" && i.room != "sim/race" && inside != "" && !slices.Contains([]string{"score", "telemetry", "lease"}, inside) && !strings.HasPrefix(inside, "internal/"):
		return "rooms import orbit, score, lease and telemetry, those of navigators place too, agent watch too, runtimes of it agent, and never each other"
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
		{room: "nav", path: modulePath + "/logledger"},
		{room: "logledger", path: modulePath + "/diskledger"},
		{room: "logledger", path: "github.com/jackc/pgx/v5"},
		{room: "pgledger", path: "github.com/lib/pq"},
		{room: "pgledger", path: "github.com/klauspost/compress/zstd"},
		{room: "pgledger", path: modulePath + "/nav"},
		{room: "pgledger", path: modulePath + "/etcdledger"},
		{room: "nav", path: modulePath + "/pgledger"},
		{room: "sandbox", path: modulePath + "/nav"},
		{room: "nav", path: modulePath + "/sandbox"},
		{room: "etcdledger", path: "go.etcd.io/etcd/server/v3/embed"},
		{room: "etcdledger", path: modulePath + "/nav"},
		{room: "diskledger", path: "github.com/cockroachdb/pebble/v2"},
		{room: "diskledger", path: modulePath + "/nav"},
		{room: "diskledger", path: modulePath + "/etcdledger"},
		{room: "kubeorbit", path: "k8s.io/kubernetes/pkg/scheduler"},
		{room: "kubeorbit", path: modulePath + "/sandbox"},
		{room: "kubeorbit/fit", path: modulePath},
		{room: "promorbit", path: "github.com/prometheus/prometheus/promql/parser"},
		{room: "promorbit", path: modulePath + "/sandbox"},
		{room: "otelorbit", path: "go.opentelemetry.io/otel/sdk/trace"},
		{room: "otelorbit", path: modulePath + "/promorbit"},
		{room: "nav", path: modulePath + "/claim"},
		{room: "inspect", path: modulePath + "/nav"},
		{room: "nav", path: modulePath + "/agent"},
		{room: "telemetry", path: modulePath + "/watch"},
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

// testName finds tests and benchmarks in a text. With func the text declares it; with dots it means all that begin so.
var testName = regexp.MustCompile(`(func )?\b((?:Test|Benchmark)[A-Z]\w*)(\.\.\.)?`)

// TestNamesInDocs looks for every test and benchmark that README.md, docs and the READMEs and BENCHMARKS of rooms name. Those that a page
// declares itself, as an example, need not exist, and docs/rfcs may speak of what is gone.
func TestNamesInDocs(t *testing.T) {
	scale.Sequential(t)
	if _, err := os.Stat("etcdledger/itest/go.mod"); err != nil {
		t.Skip("the other modules are not here, and pages name their tests")
	}
	pages, declared := map[string][][]string{}, []string{}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "rfcs" || path != "." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		isPage := d.Name() == "README.md" || d.Name() == "BENCHMARKS.md" || filepath.Dir(path) == "docs"
		if d.IsDir() || !isPage && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range testName.FindAllStringSubmatch(string(text), -1) {
			switch {
			case isPage && m[1] == "":
				pages[path] = append(pages[path], m)
			case !isPage && m[1] != "":
				declared = append(declared, m[2])
			}
		}
		return err
	}))
	require.NotEmpty(t, pages)
	for page, names := range pages {
		for _, m := range names {
			exists := slices.ContainsFunc(declared, func(name string) bool {
				return name == m[2] || m[3] != "" && strings.HasPrefix(name, m[2])
			})
			if !exists {
				t.Errorf("%s names %s, which does not exist", page, m[2])
			}
		}
	}
}

// fileName finds file names in docs/architecture.md, each with the names in backticks that follow it directly.
var fileName = regexp.MustCompile("([a-z_/]+\\.go)((?: (?:and )?`[A-Za-z.]+`,?)*)")

// TestNamesInArchitecture looks for every file that docs/architecture.md names, and in it for the declarations that the page says
// are there, so that a question of the page never leads to a file without the answer.
func TestNamesInArchitecture(t *testing.T) {
	if _, err := os.Stat("etcdledger/go.mod"); err != nil {
		t.Skip("the other modules are not here, and the page names their files")
	}
	page, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	found := fileName.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		text, err := os.ReadFile(m[1])
		if err != nil {
			t.Errorf("docs/architecture.md names %s: %v", m[1], err)
			continue
		}
		for i, name := range strings.Split(m[2], "`") {
			if i%2 == 0 { // between two names
				continue
			}
			name = name[strings.LastIndex(name, ".")+1:]
			if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |\t)` + name + `\b`).Match(text) {
				t.Errorf("docs/architecture.md says that %s declares %s, which it does not", m[1], name)
			}
		}
	}
}

// layers are the files of the root package, from the nouns up to what runs. A file knows those of its own layer and below.
var layers = [][]string{
	{"doc.go", "resources.go", "limits.go", "predicate.go", "company.go", "spec.go", "spec_company.go", "capsule.go", "gang.go", "node.go", "node_taints.go", "node_stops.go", "node_nominated.go", "nomination.go", "budget.go", "quota.go", "commitment.go", "commitment_effect.go", "proposal.go", "proposal_json.go"},
	{"state.go", "state_nominated.go", "state_gang.go", "state_company.go", "state_failures.go", "state_size.go", "state_even.go", "state_movable.go", "state_budget.go", "state_quota.go"},
	{"txn.go", "txn_judge.go", "txn_spare.go", "txn_plan.go", "proposal_check.go", "state_offence.go", "rules.go", "rule_node.go", "rule_place.go", "rule_capacity.go", "rule_devices.go", "rule_evict.go", "rule_protect.go", "rule_budget.go", "rule_stops.go", "rule_surge.go", "rule_gang.go", "rule_company.go", "rule_near.go", "rule_nominate.go", "rule_respec.go", "rule_adopt.go", "rule_failures.go", "rule_hold.go", "rule_owner.go", "rule_mark.go", "rule_quota.go", "state_publish.go", "state_verify.go"},
	{"state_check.go", "state_dump.go", "state_build.go"},
	{"ledger.go", "ledger_history.go", "ledger_store.go"},
	{"view.go", "queue.go", "queue_aging.go", "queue_shares.go", "queue_ends.go", "queue_park.go", "queue_nominated.go", "queue_delayed.go", "queue_reasons.go"},
	{"draft.go", "draft_propose.go", "draft_policy.go", "draft_company.go", "draft_failures.go", "draft_quota.go", "quotas.go", "draft_choice.go", "score.go"},
	{"navigator.go", "population.go", "population_strict.go", "engine.go", "engine_strict.go", "engine_guard.go", "engine_rehearse.go", "engine_propose.go", "engine_wait.go", "engine_waits.go", "engine_backlog.go"},
}

// mostUpward is how many references may lead up.
const mostUpward = 10

// TestLayers keeps the root package readable from the bottom up: few of its files refer to what is declared in a layer
// above their own.
func TestLayers(t *testing.T) {
	layerOf := map[string]int{}
	for i, files := range layers {
		for _, name := range files {
			layerOf[name] = i
		}
	}
	told, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	for _, files := range layers {
		layer := strings.ReplaceAll(strings.TrimPrefix(strings.Join(files, " "), "doc.go "), ".go", "")
		require.Regexp(t, `(?m)^    \S.* `+layer+`(,|$)`, string(told), "the layers in docs/architecture.md")
	}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		require.Contains(t, layerOf, name, "name its layer")
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		files = append(files, file)
	}
	// What other packages declare is of no interest, so they are empty, and the errors that this leads to are ignored.
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Error: func(error) {}, Importer: noImports{}}
	root, _ := config.Check("orbit", fset, files, &info)
	upward := map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != root || !declared(root, object) {
			continue
		}
		from, to := fset.Position(id.Pos()).Filename, fset.Position(object.Pos()).Filename
		if layerOf[from] < layerOf[to] {
			upward[from+" refers to "+object.Name()+" in "+to] = true
		}
	}
	if len(upward) > mostUpward {
		t.Errorf("%d references lead up, there may be %d:\n%s", len(upward), mostUpward, strings.Join(slices.Sorted(maps.Keys(upward)), "\n"))
	}
}

// alsoServes are the prefixes of files that have methods of other families' types: the queue is a part of a view, and a rule has
// its part of each step of a commit: of the form of a commitment, of the write-set, of what is published and of what is verified.
var alsoServes = map[string][]string{"queue": {"view"}, "rule": {"commitment", "proposal", "txn", "state"}}

// mostOutside is how many methods may stand outside their type's family.
const mostOutside = 20

// TestFamilies keeps a type's methods where a reader looks for them: in files that begin with the same word as the file in which
// the type is declared.
func TestFamilies(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	home, methods := map[string]string{}, map[string][]string{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		family, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if is, ok := spec.(*ast.TypeSpec); ok {
						home[is.Name.Name] = family
					}
				}
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[name] = append(methods[name], receiverOf(d.Recv.List[0].Type)+"."+d.Name.Name)
				}
			}
		}
	}
	var outside []string
	for name, list := range methods {
		family, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
		for _, m := range list {
			of, _, _ := strings.Cut(m, ".")
			if at := home[of]; at != family && !slices.Contains(alsoServes[family], at) {
				outside = append(outside, m+" in "+name+", its type is in "+at+"*.go")
			}
		}
	}
	slices.Sort(outside)
	if len(outside) > mostOutside {
		t.Errorf("%d methods stand outside their type's family, there may be %d:\n%s", len(outside), mostOutside, strings.Join(outside, "\n"))
	}
}

// mostSwitches is how many type switches over commitments there may be in the root package.
const mostSwitches = 3

// TestCommitmentSwitches keeps what a commitment does with the commitment: who switches over the kinds of commitments must be
// found and changed for each new kind.
func TestCommitmentSwitches(t *testing.T) {
	kinds := []string{"PutNode", "RemoveNode", "Submit", "Place", "Release", "Evict", "Confirm", "Adopt", "Respec", "Hold", "Nominate", "Assign", "Mark", "PutBudget", "RemoveBudget", "Protect", "PutQueue", "RemoveQueue"}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var found []string
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.TypeSwitchStmt)
			if !ok {
				return true
			}
			for _, clause := range s.Body.List {
				for _, of := range clause.(*ast.CaseClause).List {
					if id, ok := of.(*ast.Ident); ok && slices.Contains(kinds, id.Name) {
						found = append(found, fset.Position(s.Pos()).String())
						return true
					}
				}
			}
			return true
		})
	}
	if len(found) > mostSwitches {
		t.Errorf("%d switches over commitments, there may be %d; give the commitments a method:\n%s", len(found), mostSwitches, strings.Join(found, "\n"))
	}
}

// TestRuleFiles looks for the file of each rule, and for a rule or a commitment in each such file.
func TestRuleFiles(t *testing.T) {
	text, err := os.ReadFile("rules.go")
	require.NoError(t, err)
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`\{name: "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		require.FileExists(t, "rule_"+m[1]+".go")
		found["rule_"+m[1]+".go"] = true
	}
	require.NotEmpty(t, found)
	files, err := filepath.Glob("rule_*.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") && !found[file] {
			require.Regexp(t, `\) execute\(t \*tx\)`, string(text), "%s has neither a rule of rules.go nor a commitment", file)
		}
	}
}

// receiverOf returns the name of a receiver's type.
func receiverOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverOf(e.X)
	case *ast.IndexExpr:
		return receiverOf(e.X)
	case *ast.IndexListExpr:
		return receiverOf(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// declared reports whether an object stands by itself in a file: a package-level name or a method.
func declared(root *types.Package, object types.Object) bool {
	if f, ok := object.(*types.Func); ok && f.Signature().Recv() != nil {
		return !types.IsInterface(f.Signature().Recv().Type())
	}
	return object.Parent() == root.Scope()
}

// noImports imports empty packages.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	p := types.NewPackage(path, filepath.Base(path))
	p.MarkComplete()
	return p, nil
}
