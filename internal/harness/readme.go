package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Readme returns the text of the README in the current folder. It fails the test if the first program in it does not
// compile.
func Readme(t testing.TB) string {
	t.Helper()
	return Page(t, "README.md", "")
}

// Page returns the text of a page. It fails the test if the first program in it, behind what it leaves out, such as its
// imports, does not compile.
func Page(t testing.TB, name, leftOut string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, code, found := strings.Cut(page, "```go\n")
	code, _, closed := strings.Cut(code, "```\n")
	if !found || !closed {
		t.Fatalf("%s has no program between ```go and ```", name)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(leftOut+code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput(); err != nil {
		t.Fatalf("the program in %s does not compile: %v\n%s", name, err, out)
	}
	return page
}
