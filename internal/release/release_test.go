package release

import (
	"encoding/json"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	root       = "../.."
	modulePath = "github.com/orbitsched/orbit"
)

// released is one line of the order of tags in docs/releasing.md.
type released struct {
	dir     string // of the module below the root, "" for the root module
	version string
}

func (r released) path() string { return path.Join(modulePath, r.dir) }

// tagged finds the tags in the numbered list of docs/releasing.md.
var tagged = regexp.MustCompile("(?m)^\\d+\\. `(?:([a-z/]+)/)?(v\\d+\\.\\d+\\.\\d+)`")

// order returns the modules that are published, in the order of docs/releasing.md.
func order(t *testing.T) (all []released) {
	page, err := os.ReadFile(filepath.Join(root, "docs/releasing.md"))
	require.NoError(t, err)
	for _, m := range tagged.FindAllStringSubmatch(string(page), -1) {
		all = append(all, released{m[1], m[2]})
	}
	require.NotEmpty(t, all)
	return all
}

// TestVersions demands one version everywhere: in the tags of docs/releasing.md, in what each module requires of the others, and in
// CHANGELOG.md. A module is tagged after all that it requires, because it could not be fetched before.
func TestVersions(t *testing.T) {
	needGit(t)
	tags := order(t)
	version := tags[0].version
	at := map[string]int{}
	for i, r := range tags {
		at[r.path()] = i
		require.Equal(t, version, r.version, "the tag of %s", r.path())
	}
	for _, name := range goMods(t) {
		file := parse(t, name)
		own, isReleased := at[file.Module.Mod.Path]
		for _, r := range file.Require {
			if r.Mod.Path != modulePath && !strings.HasPrefix(r.Mod.Path, modulePath+"/") {
				continue
			}
			require.Equal(t, version, r.Mod.Version, "%s requires %s", name, r.Mod.Path)
			require.Contains(t, at, r.Mod.Path, "%s requires a module that docs/releasing.md does not tag", name)
			if isReleased {
				require.Less(t, at[r.Mod.Path], own, "%s requires %s, which has a later tag", name, r.Mod.Path)
			}
		}
	}
	log, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	require.Contains(t, string(log), "\n## "+version, "CHANGELOG.md has an entry of this version")
}

// TestPublication publishes the committed tree in a proxy of files, as the tags of docs/releasing.md would, and does what each README
// and page of docs says, in a fresh module outside the repository: its `go get`, then its program.
func TestPublication(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles every module as an importer would")
	}
	needGit(t)
	tags := order(t)
	stranger := publish(t, tags)
	for _, page := range pages(t) {
		t.Run(page.path, func(t *testing.T) { stranger.follow(t, page) })
	}
	t.Run("every module by itself", func(t *testing.T) {
		for _, r := range tags {
			stranger.run(t, fresh(t), "go", "get", r.path()+"@"+r.version)
		}
	})
	t.Run("orbitlog as a tool", func(t *testing.T) {
		dir := fresh(t)
		stranger.run(t, dir, "go", "get", "-tool", modulePath+"/orbitlog")
		stranger.run(t, dir, "go", "build", "-o", dir, modulePath+"/orbitlog")
	})
}

// quick are the programs that end by themselves and need no server, each with what it prints last.
var quick = map[string]string{
	"README.md":            "web-3 on node-a\n",
	"docs/core.md":         "a: 0 left\n",
	"diskledger/README.md": "web-1 on node-a\n",
}

// follow does what a page says, without a `go mod tidy` in between.
func (s stranger) follow(t *testing.T, p page) {
	dir := fresh(t)
	s.run(t, dir, strings.Fields(p.get)...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(p.program), 0o600))
	s.run(t, dir, "go", "build", "-o", "program", ".")
	if last, runs := quick[p.path]; runs {
		require.Contains(t, s.run(t, dir, "./program"), last)
	}
}

// page is a README or a page of docs that tells strangers what to fetch.
type page struct{ path, get, program string }

var getLine = regexp.MustCompile(`(?m)^    (go get .*)$`)

// pages returns every page with a `go get`. The fenced Go blocks of each, in order, are one program.
func pages(t *testing.T) (found []page) {
	for _, name := range strings.Fields(tool(t, root, "git", "ls-files", "README.md", "*/README.md", "docs/*.md")) {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		get := getLine.FindStringSubmatch(string(text))
		if get == nil {
			continue
		}
		program := ""
		for _, block := range strings.Split(string(text), "```go\n")[1:] {
			code, _, _ := strings.Cut(block, "```")
			program += code + "\n"
		}
		require.Contains(t, program, "package main", "%s says what to fetch, and has no program", name)
		found = append(found, page{name, get[1], program})
	}
	require.NotEmpty(t, found)
	return found
}

// stranger runs commands with nothing of orbit but what is published.
type stranger struct{ env []string }

// publish writes every module into a proxy of files. All else in it is linked from the machine's module cache, which is not written
// to: a version that was never tagged must not get into it.
func publish(t *testing.T, tags []released) stranger {
	for _, r := range tags {
		cmd := exec.Command("go", "mod", "download")
		cmd.Dir, cmd.Env = filepath.Join(root, r.dir), append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("needs the dependencies of %s, which cannot be fetched: %s", r.path(), out)
		}
	}
	checkout, proxy := t.TempDir(), t.TempDir()
	tool(t, root, "git", "clone", "-q", "--shared", "--no-checkout", ".", checkout)
	for _, r := range tags {
		write(t, checkout, proxy, r)
	}
	cache := filepath.Join(strings.TrimSpace(tool(t, root, "go", "env", "GOMODCACHE")), "cache", "download")
	link(t, cache, proxy)
	link(t, filepath.Join(cache, "github.com"), filepath.Join(proxy, "github.com"))
	return stranger{append(os.Environ(), "GOPROXY=file://"+filepath.ToSlash(proxy), "GOMODCACHE="+t.TempDir(), "GOSUMDB=off", "GOPRIVATE=",
		"GONOPROXY=", "GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=-modcacherw -trimpath")} // -trimpath: one build cache for all runs
}

// link makes a symbolic link in one folder to each entry of another, unless the folder has an entry of that name.
func link(t *testing.T, from, to string) {
	entries, err := os.ReadDir(from)
	require.NoError(t, err)
	for _, e := range entries {
		target := filepath.Join(to, e.Name())
		if _, err := os.Stat(target); err != nil {
			require.NoError(t, os.Symlink(filepath.Join(from, e.Name()), target))
		}
	}
}

// write adds a module to the proxy: its zip, its go.mod, and the list of its versions.
func write(t *testing.T, checkout, proxy string, r released) {
	dir := filepath.Join(proxy, filepath.FromSlash(r.path()), "@v")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	put := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	out, err := os.Create(filepath.Join(dir, r.version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromVCS(out, module.Version{Path: r.path(), Version: r.version}, checkout, "HEAD", r.dir))
	require.NoError(t, out.Close())
	info, err := json.Marshal(map[string]any{"Version": r.version, "Time": time.Unix(1e9, 0).UTC()})
	require.NoError(t, err)
	put(r.version+".info", info)
	put(r.version+".mod", []byte(tool(t, checkout, "git", "show", "HEAD:"+path.Join(r.dir, "go.mod"))))
	put("list", []byte(r.version+"\n"))
}

// run runs a command as the stranger and returns what it prints.
func (s stranger) run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, s.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s:\n%s", strings.Join(args, " "), out)
	return string(out)
}

// fresh returns the folder of a new module without requirements.
func fresh(t *testing.T) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/stranger\n\ngo 1.26.0\n"), 0o600))
	return dir
}

// needGit skips a test outside a git checkout, such as in a module that was downloaded: only git knows which files are published.
func needGit(t *testing.T) {
	if out, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("needs git and a checkout: %v %s", err, out)
	}
}

// tool runs a command of this checkout and returns what it prints.
func tool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err, strings.Join(args, " "))
	return string(out)
}

func goMods(t *testing.T) []string {
	names := strings.Fields(tool(t, root, "git", "ls-files", "go.mod", "*/go.mod"))
	require.NotEmpty(t, names)
	return slices.DeleteFunc(names, func(name string) bool { return strings.Contains(name, "testdata/") })
}

func parse(t *testing.T, name string) *modfile.File {
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	file, err := modfile.Parse(name, text, nil)
	require.NoError(t, err)
	return file
}
