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
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	_, code, found := strings.Cut(page, "```go\n")
	code, _, closed := strings.Cut(code, "```\n")
	if !found || !closed {
		t.Fatal("README.md has no program between ```go and ```")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput(); err != nil {
		t.Fatalf("the program in README.md does not compile: %v\n%s", err, out)
	}
	return page
}
