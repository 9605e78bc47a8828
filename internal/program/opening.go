package program

import "strings"

// Opening returns the first paragraph of the package comment of a program's source, without the slashes. It says what the
// program shows and why that is hard, and each example prints it first; so there is one such text, which go doc shows, too.
func Opening(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		text, isComment := strings.CutPrefix(line, "// ")
		if !isComment {
			break
		}
		b.WriteString(text)
	}
	return b.String()
}
