// Spread shows hard rules between capsules. 2,000 nodes stand in 40 racks of three zones and run replica sets. Each set
// has rules: no two replicas on one node, none in a rack with a certain other set, about as many in each zone. A
// scheduler alone cannot keep such rules: while it decides, others place replicas too, and each decision is right only
// by itself. Here eight navigators, which know nothing of each other, place the replicas of every set at the same time,
// and the ledger refuses placements that would break a rule.
//
//   - A zone fails while they work. What ran there waits, and is placed anew in the other zones as far as the rules admit.
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
	"flag"
	"os"
)

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
