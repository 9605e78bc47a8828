// Preempt: urgent work comes to a cluster that is full. Others must make way, but not too many, never twice for the same
// work, and never so many of one service that it breaks. Meanwhile an operator drains racks to reboot them, and a cloud takes
// back spot nodes, so capsules leave for three reasons at once, and none of those who take them knows of the others. Here
// each eviction is one proposal with the placement that it is for, and the ledger keeps the budgets of all services.
//
//	go run ./examples/preempt
//
// 500 nodes run five groups of services, of priority 5, and tasks of priority 0. Each group has a budget that says how many
// of its services may be missing.
//
//   - Urgent work of priority 10 is submitted. Two preempting navigators, which know nothing of each other, evict others for it.
//   - A third preempting navigator places services that have lost their node.
//   - An operator cordons one rack after the other to reboot it, and a drain empties the racks.
//   - A cloud takes back spot nodes, and says so two rounds before.
//
// All of them act on one ledger, each in a goroutine of its own. The output is not their own account: the program reads
// it from the ledger's history afterwards. It says which capsule made way for which, how many of each group ran,
// whether an eviction, a move or a release ever broke a budget, and whether a capsule was evicted twice for the same
// work. The goroutines race, so the output differs from run to run; only the last three lines are always the same.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

func main() {
	nodes := flag.Int("nodes", 500, "number of nodes, each with 8 cores; at least 100")
	rounds := flag.Int("rounds", 24, "number of rounds; at least 16")
	seed := flag.Uint64("seed", 1, "seed of the random choice of tasks that end")
	if flag.Parse(); flag.NArg() > 0 || *nodes < 100 || *rounds < 16 {
		flag.Usage()
		os.Exit(2)
	}
	fmt.Println(program.Opening(source))
	w := open(*nodes, *seed)
	fmt.Printf("%d nodes of 8 cores, all cores in use: by %d services in %d groups, and %d tasks.\n", *nodes, w.services, len(w.groups), w.tasks)
	for round := range *rounds {
		w.happens(round)
		w.act()
	}
	w.settle()
	if !read(w).print() {
		os.Exit(1)
	}
}
