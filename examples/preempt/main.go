// Preempt: a full cluster on which everybody wants something at once. 500 nodes run services of priority 5, each with a budget that says how
// many of it may be missing, and tasks of priority 0. Urgent work of priority 10 comes, planned by two preempting navigators that
// know nothing of each other; a third finds room for services that were lost. An operator reboots racks, one after the other; a drainer empties them. A cloud takes spot
// nodes back: it says so two rounds before.
//
// All of them act at once, on one ledger, in goroutines of their own. What is printed was not asked of them: it is read from the
// ledger's history afterwards, by books of its own: who made way for whom, how many of each group ran, whether a wish ever left
// fewer than a budget says, and whether anybody was evicted twice for the same work. Who races whom differs from run to run; the
// last three lines do not.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	nodes := flag.Int("nodes", 500, "nodes of 8 cores; at least 100")
	rounds := flag.Int("rounds", 24, "rounds of the story; at least 16")
	seed := flag.Uint64("seed", 1, "seed of what happens")
	if flag.Parse(); flag.NArg() > 0 || *nodes < 100 || *rounds < 16 {
		flag.Usage()
		os.Exit(2)
	}
	w := open(*nodes, *seed)
	fmt.Printf("%d nodes of 8 cores, all in use: %d services in %d groups, %d tasks.\n", *nodes, w.services, len(w.groups), w.tasks)
	for round := range *rounds {
		w.happens(round)
		w.act()
	}
	w.settle()
	if !read(w).print() {
		os.Exit(1)
	}
}
