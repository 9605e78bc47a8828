package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
)

// progress prints on stderr how many runs have finished.
type progress struct {
	mu       sync.Mutex
	finished int
	total    int
}

func (p *progress) done(policy string, seed uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finished++
	state := "verified"
	if err != nil {
		state = err.Error()
	}
	fmt.Fprintf(os.Stderr, "%3d/%d %s, seed %d: %s\n", p.finished, p.total, policy, seed, state)
}

// printTable prints the mean curve of every policy, from the row at which they begin to differ, and a line with the end
// of each curve.
func printTable(out io.Writer, names []string, results [][]curve, all bool) {
	fmt.Fprintf(out, "Allocated devices, by how many have been asked for, in %% of all there are; mean of the seeds.\n\n%8s", "asked")
	for _, name := range names {
		fmt.Fprintf(out, " %9s", name)
	}
	fmt.Fprintln(out)
	rows := 0
	for _, curves := range results {
		for _, c := range curves {
			rows = max(rows, len(c))
		}
	}
	first := 0
	for !all && first < rows-1 && allocateAll(results, first) {
		first++
	}
	if first > 1 {
		fmt.Fprintf(out, "%8s what is asked for finds a place, whatever the policy\n", fmt.Sprintf("0 to %d", 10*(first-1)))
	}
	for i := first; i < rows; i++ {
		label := strconv.Itoa(10 * i)
		if i == rows-1 {
			label = "end"
		}
		fmt.Fprintf(out, "%8s", label)
		for p := range names {
			fmt.Fprintf(out, " %9.2f", mean(results[p], i))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
	for p, name := range names {
		fmt.Fprintf(out, "allocation %s %.2f\n", name, mean(results[p], rows-1))
	}
}

// allocateAll reports whether every policy has allocated all requested devices in a row.
func allocateAll(results [][]curve, row int) bool {
	for _, curves := range results {
		if mean(curves, row) < float64(10*row) {
			return false
		}
	}
	return true
}

// mean returns the mean of entry i. A shorter curve counts with its last entry.
func mean(curves []curve, i int) float64 {
	sum := 0.0
	for _, c := range curves {
		sum += c[min(i, len(c)-1)]
	}
	return sum / float64(len(curves))
}
