package orbit_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// typeComment is the most lines that the comment of an exported type of the root may have. What is longer belongs to the package's
// documentation or to a page in docs.
const typeComment = 15

// TestTypeComments keeps the comments of types short: how a type works is said where its methods are.
func TestTypeComments(t *testing.T) {
	require.Contains(t, typeCommentLines(t, "."), "Engine")
	require.NoError(t, filepath.WalkDir(".", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		for name, n := range typeCommentLines(t, dir) {
			assert.LessOrEqual(t, n, typeComment, "lines of the comment of %s in %s", name, dir)
		}
		return nil
	}))
}

// TestPageLengths keeps the pages short that a newcomer reads first.
func TestPageLengths(t *testing.T) {
	pages, err := filepath.Glob("*/README.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for page, most := range map[string]int{"README.md": 130, "docs/core.md": 200, "docs/production.md": 60} {
		require.LessOrEqual(t, pageLines(t, page), most, "lines of %s", page)
	}
	for _, page := range pages {
		require.LessOrEqual(t, pageLines(t, page), 100, "lines of %s", page)
	}
}

func pageLines(t *testing.T, page string) int {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return strings.Count(string(text), "\n")
}

// typeCommentLines returns how many lines the comment of each exported type of a package has.
func typeCommentLines(t *testing.T, dir string) map[string]int {
	files := token.NewFileSet()
	found := map[string]int{}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			group, _ := d.(*ast.GenDecl)
			if group == nil || group.Tok != token.TYPE {
				continue
			}
			for _, spec := range group.Specs {
				s := spec.(*ast.TypeSpec)
				doc := s.Doc
				if doc == nil && len(group.Specs) == 1 {
					doc = group.Doc
				}
				if doc != nil && s.Name.IsExported() {
					found[s.Name.Name] = files.Position(doc.End()).Line - files.Position(doc.Pos()).Line + 1
				}
			}
		}
	}
	return found
}
