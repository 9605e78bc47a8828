// Dispatcher: one population of capsules, given out to several schedulers. Schedulers with nodes of their own never collide,
// but the nodes of one may be full while those of another are empty. Schedulers that share all nodes pack better, and take
// the same room at once. And one of them dies half way: its capsules must get another scheduler, and what it still sends must
// not count, or capsules are lost or placed twice. The three modes of package shard, side by side.
//
//	go run ./examples/dispatcher
//
// In strict mode each scheduler has its own nodes, in shared mode all schedulers use all nodes, and in soft mode each begins
// with its own nodes. A dispatcher assigns the capsules, in waves that fill the constellation.
//
// How to read it: one row for each mode and number of schedulers, with the figures at the end of its run. Strict has no
// conflicts, shared has many, soft has few. All modes place every capsule, even if a scheduler dies. -v shows each
// wave.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/shard"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// options are what the flags set.
type options struct {
	nodes      int
	schedulers []int
	policy     string
	seed       uint64
	verbose    bool
}

func main() { program.Main("dispatcher", parse, run) }

// policies are the policies of a dispatcher by name.
var policies = map[string]func(seed uint64) shard.Policy{
	"roundrobin": func(uint64) shard.Policy { return &shard.RoundRobin{} },
	"random":     func(seed uint64) shard.Policy { return &shard.Random{Seed: seed} },
	"least":      func(uint64) shard.Policy { return shard.LeastLoaded{} },
	"hash":       func(uint64) shard.Policy { return shard.Hash{} },
}

func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("dispatcher", "Dispatcher fills one constellation with several schedulers in strict, soft and shared mode, and kills one of them half way.", w)
	f.IntVar(&o.nodes, "nodes", 300, "machines, of three sizes")
	list := f.String("schedulers", "1,8", "how many schedulers, one run for each")
	f.StringVar(&o.policy, "policy", "roundrobin", "how capsules are given out: roundrobin, random, least or hash")
	f.Uint64Var(&o.seed, "seed", 1, "decides what is made up; who wins which race is another matter")
	f.BoolVar(&o.verbose, "v", false, "a row for each wave")
	err = program.Parse(f, args, func() error { return o.check(*list) })
	return o, err
}

// check returns an error if a flag has an invalid value. It also parses the list of numbers of schedulers.
func (o *options) check(list string) error {
	switch {
	case o.nodes < 50 || o.nodes > 100_000:
		return fmt.Errorf("-nodes is %d; it must be at least 50 and at most 100000", o.nodes)
	case policies[o.policy] == nil:
		return fmt.Errorf("-policy is %q; it must be roundrobin, random, least or hash", o.policy)
	}
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 64 {
			return fmt.Errorf("-schedulers has %q; it must be numbers from 1 to 64, with commas between", part)
		}
		o.schedulers = append(o.schedulers, n)
	}
	return nil
}

// run plays every mode with every number of schedulers, each on a ledger of its own.
func run(ctx context.Context, o options, out io.Writer) error {
	w := makeWorld(o)
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, `%d capsules for %d nodes, in waves that ask for %s of the cpu, given out to several schedulers (%s, seed %d).

strict  each scheduler sees its own nodes only
soft    each takes its own nodes first, and any other if a capsule does not fit there
shared  all schedulers see all nodes

`, w.capsules(), len(w.nodes), fills(), o.policy, o.seed)
	printHead(out, o.verbose)
	var sums []sum
	for _, mode := range []shard.Mode{shard.Strict, shard.Soft, shard.Shared} {
		s := sum{mode: mode}
		for _, n := range o.schedulers {
			rows, err := play(ctx, w, mode, n, o)
			if err != nil {
				return err
			}
			if o.verbose {
				printRows(out, rows)
			} else {
				printRun(out, rows)
			}
			s.add(rows)
		}
		sums = append(sums, s)
	}
	printLegend(out, o.verbose)
	fmt.Fprintln(out, "all runs of a mode together; conflicts are a number here, not a share")
	for _, s := range sums {
		fmt.Fprintf(out, "mode %v placed %.1f%% conflicts %d\n", s.mode, percent(s.placed, s.capsules), s.conflicts)
	}
	return nil
}

// percent returns part of all in percent; 100 if all is 0.
func percent(part, all int) float64 {
	if all == 0 {
		return 100
	}
	return 100 * float64(part) / float64(all)
}
