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

func main() { list(os.Stdout, readme) }

// list prints the rows of the first table of a page, each on one line: the name, the time, and what the program shows. What is not
// run by its name has its command on a line of its own.
func list(out io.Writer, page string) {
	fmt.Fprintln(out, "go run ./examples/NAME plays one of these stories; -h lists its flags.")
	for line := range strings.Lines(page) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.HasPrefix(cells[0], "| `") {
			continue
		}
		name, shows, takes := strings.Trim(cells[0], "| `"), strings.ReplaceAll(cells[1], "`", ""), strings.TrimRight(cells[2], " |")
		if strings.Contains(name, " ") {
			fmt.Fprintln(out, name)
			name = ""
		}
		fmt.Fprintf(out, "%-14s %-14s %s\n", name, takes, shows)
	}
}
