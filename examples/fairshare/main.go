// Fairshare: teams lend their GPUs and get them back. Without borrowing, 56 GPUs idle through the night. A scheduler that
// lends and does not take back makes the teams wait in the morning, and one that takes back by priorities may evict for
// ever, or more than was borrowed. Here the ledger judges each eviction by the shares of the queues, and nav.Fair plans
// who is next: a day of four queues and 128 GPUs in virtual time.
//
//	go run ./examples/fairshare
//
// A tree of two levels divides the GPUs:
//
//	company
//	├─ product            ads has 32 GPUs, and lends at most 16 of them; maps has 24
//	└─ science            vision has 64 GPUs, and twice the weight of research, which has 8 and always more work
//
// Research borrows all that is idle. When a team has work
// again, research gives back what it has borrowed, at once and no more than that: its newest tasks are evicted, and wait. At 02:00
// vision starts a gang of 64 GPUs, all or none. By then research has borrowed at two levels of the tree, from vision and from
// product, and the gang may take back only what is vision's.
//
// The picture has one column for 20 minutes, and one letter for 8 GPUs: of ads, maps, vision and research. A capital is
// in use within the queue's own quota, a small letter is borrowed, and a dot is idle. The last three lines count, at every
// revision of the ledger, queues that used more than the tree allows; capsules that were evicted more than once; and how
// far the GPUs of each queue were from the ideal division (water-filling, water.go) in the mean. All of it is computed in
// this program, from the capsules that are placed, and not read from the ledger's own sums.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string

func main() {
	seed := flag.Uint64("seed", 1, "seed of the times that tasks take")
	verbose := flag.Bool("v", false, "print a line for each 10 minutes")
	if flag.Parse(); flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	fmt.Println(program.Opening(source))
	w, err := open(context.Background(), *seed)
	if err == nil {
		w.verbose = *verbose
		err = w.day(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fairshare:", err)
		os.Exit(1)
	}
	w.picture(os.Stdout)
	w.tell(os.Stdout)
	if !w.sum(os.Stdout) {
		os.Exit(1)
	}
}
