// Constellation: thousands of machines and capsules, scheduled from scratch through the real loop and ledger. The best
// machine for a capsule is one of all, and each placement changes which is best for the next. A scheduler that rates every
// machine every time is right, and too late; several at once that ask no referee oversubscribe machines. This one chooses
// what the slow one would choose. What does a placement cost beside merely recording it, which is the floor?
//
//	go run ./examples/constellation
//	go run ./examples/constellation -nodes 50000 -capsules 1000000 -classes 1000 -rounds 1
//
// How to read it: the table shows the wall-clock time of each stage of the loop. The lines below it compare processor
// time over all rounds, to which other programs on the machine do not add: a placement beside the floor, and beside one
// choice of a scheduler that rates every machine. Machines and work are generated from a seed. The last line sums up.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// engines are the placement engines by name. Each navigator has an engine of its own with a seed of its own. All of
// them rate nodes by the default score.
var engines = map[string]func(seed uint64) orbit.PlacementEngine{
	"exhaustive": func(seed uint64) orbit.PlacementEngine { return &place.Exhaustive{Score: scoring, Seed: seed} },
	"indexed":    func(seed uint64) orbit.PlacementEngine { return &place.Indexed{Score: scoring, Seed: seed} },
	"sampled":    func(seed uint64) orbit.PlacementEngine { return &place.Sampled{Score: scoring, Seed: seed} },
}

var (
	engineNames = []string{"indexed", "exhaustive", "sampled"}
	orderNames  = []string{"shuffled", "grouped"}
	scoring     = score.Spread{}
)

type options struct {
	nodes, capsules, classes int
	engine, order            string
	navigators, rounds       int
	seed                     uint64
	verbose                  bool
	// enough is the processor time that the rounds take together at least, progressEvery how often the progress is
	// printed. Only tests set them; there are no flags for them.
	enough, progressEvery time.Duration
}

func main() {
	program.Main("constellation", parse, func(ctx context.Context, o options, out io.Writer) error {
		return schedule(ctx, o, out, os.Stderr)
	})
}

func parse(args []string, w io.Writer) (o options, err error) {
	o.enough, o.progressEvery = 2*time.Second, 2*time.Second
	f := program.Flags("constellation", "Constellation schedules made-up capsules on made-up machines from scratch, and says what it cost.", w)
	f.IntVar(&o.nodes, "nodes", 5_000, "machines, of five kinds, in three zones")
	f.IntVar(&o.capsules, "capsules", 100_000, "capsules to place: services, batch sweeps, best effort, work for devices; 20 a node fill a third of the constellation")
	f.IntVar(&o.classes, "classes", 200, "kinds of capsules; all of a kind ask for the same")
	f.StringVar(&o.engine, "engine", "indexed", "how a node is chosen: indexed (the best, by an index over all nodes), exhaustive (the best, by rating every node for every capsule: slow), sampled (the best of some)")
	f.IntVar(&o.navigators, "navigators", 1, "schedulers that work at the same time, each on a share of the kinds")
	f.StringVar(&o.order, "order", "shuffled", "order of submission: shuffled (kinds at random), or grouped (kind by kind)")
	f.IntVar(&o.rounds, "rounds", 3, "rounds at least, each of which places everything anew; more follow until they have taken 2 s of processor time together, and the median round is reported")
	f.Uint64Var(&o.seed, "seed", 1, "decides what is made up; the same seed gives the same")
	f.BoolVar(&o.verbose, "v", false, "also say what the placement engine counted")
	err = program.Parse(f, args, o.check)
	return o, err
}

func (o *options) check() error {
	for _, c := range []struct {
		flag        string
		value, most int
	}{
		{"-nodes", o.nodes, 10_000_000}, {"-capsules", o.capsules, 100_000_000}, {"-classes", o.classes, 1_000_000},
		{"-navigators", o.navigators, 1_000}, {"-rounds", o.rounds, 1_000},
	} {
		if c.value < 1 || c.value > c.most {
			return fmt.Errorf("%s is %d; it must be at least 1 and at most %d", c.flag, c.value, c.most)
		}
	}
	if o.classes > o.capsules {
		return fmt.Errorf("-classes is %d, but there are only %d capsules; each class needs one", o.classes, o.capsules)
	}
	if engines[o.engine] == nil {
		return fmt.Errorf("unknown engine %q; there are %s", o.engine, strings.Join(engineNames, ", "))
	}
	if !slices.Contains(orderNames, o.order) {
		return fmt.Errorf("unknown order %q; there are %s", o.order, strings.Join(orderNames, ", "))
	}
	return nil
}
