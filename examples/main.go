// Examples lists the programs of this folder, as README.md tells them: what each shows, and how long it takes.
package main

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"strings"
)

//go:embed README.md
var readme string

// width is the number of columns of a printed line.
const width = 110

func main() { list(os.Stdout, readme) }

// list prints the rows of the first table of a page: the name, what follows in columns of its own, and the time.
func list(out io.Writer, page string) {
	fmt.Fprintln(out, "go run ./examples/NAME plays one of these stories; -h lists its flags.")
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "| `") {
			continue
		}
		fmt.Fprintf(out, "\n%s (%s)\n", strings.Trim(cells[0], "| `"), strings.TrimRight(cells[2], " |"))
		text := ""
		for _, word := range strings.Fields(strings.ReplaceAll(cells[1], "`", "")) {
			if text != "" && len(text)+1+len(word) > width-4 {
				fmt.Fprintf(out, "    %s\n", text)
				text = ""
			}
			text = strings.TrimSpace(text + " " + word)
		}
		fmt.Fprintf(out, "    %s\n", text)
	}
}
