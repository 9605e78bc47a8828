// Spread: hard rules between capsules. Replicas of one service must not fail together: no two on one node, about as many in
// each zone, none beside a certain other service. A scheduler alone cannot keep such rules: its decision is right for what it
// has seen, and meanwhile others place replicas, too. Here eight navigators, which know nothing of each other, place all sets
// at the same time; zones fail, come back and open; and the ledger refuses each placement that would break a rule.
//
//	go run ./examples/spread
//
// 2,000 nodes stand in 40 racks of three zones and run replica sets.
//
//   - A zone fails while the navigators work. What ran there waits, and is placed anew in the other zones as far as the rules admit.
//   - The zone comes back, empty. Now the sets are uneven. State.Skewed says where, and a loop repairs it by moves.
//   - A fourth zone opens with one small node. A set which is to be even over all zones that there are stops growing; sets that
//     declare their zones do not.
//   - The fourth zone gets more nodes, and that set grows again.
//
// The program prints a table for each moment: how many replicas of each set are in which zone. The last line does not
// come from the library. It is a brute-force recount of the ledger's history: after each commit it compares all pairs
// of replicas for the rules Apart, and checks each replica that has just been placed for the rules Even. Skew is the
// largest difference between the domain of such a replica and the emptiest domain, in replicas. The navigators race, so
// the node of each replica differs from run to run; that no rule is broken does not.
package main

import (
	_ "embed"
	"flag"
	"os"
)

//go:embed main.go
var source string // the program prints its first paragraph first

func main() {
	nodes := flag.Int("nodes", 2000, "number of nodes in the first three zones, each with 8 cores; at least 400. With twice as many the recount takes up to eight times as long")
	seed := flag.Uint64("seed", 1, "seed of the random choice of who places which replica, and of where what is moved goes")
	if flag.Parse(); flag.NArg() > 0 || *nodes < 400 {
		flag.Usage()
		os.Exit(2)
	}
	w := open(*nodes, *seed, os.Stdout)
	w.play()
	if !w.sumUp() {
		os.Exit(1)
	}
}
