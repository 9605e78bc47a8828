// Rackgang: groups of capsules that want to share a rack, started in three ways. "Where another member runs" has no answer
// for the first member, so with affinity alone every group waits for ever. And a group that is begun in a rack without room
// for the rest is stuck half way, while services and batch work take the same room. An anchor starts a group, or a gang
// navigator places it whole, and the ledger settles who was first.
//
//	go run ./examples/rackgang
//
// How to read it: the first table shows how much of all work is bound (placed) after each pass. The second shows how
// the groups fared. The third shows how often navigators that plan at the same moment conflict. The last lines sum up
// the first table.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// options are what the flags set.
type options struct {
	nodes, capsules, plan, passes int
	seed                          uint64
}

func main() { program.Main("rackgang", parse, run) }

// check returns an error if a flag has an invalid value.
func (o *options) check() error {
	switch {
	case o.nodes < 20 || o.nodes > 100_000:
		return fmt.Errorf("-nodes is %d; it must be at least 20, one rack, and at most 100000", o.nodes)
	case o.capsules < 100 || o.capsules > 10_000_000:
		return fmt.Errorf("-capsules is %d; it must be at least 100 and at most 10000000", o.capsules)
	case o.plan < 1 || o.passes < 1:
		return errors.New("-plan and -passes must be at least 1")
	}
	return nil
}

func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("rackgang", "Rackgang starts same-rack groups by affinity alone, with anchors, and as gangs, and shows how many capsules get bound.", w)
	f.IntVar(&o.nodes, "nodes", 500, "machines, in racks of 20")
	f.IntVar(&o.capsules, "capsules", 4000, "capsules to place; about 15% of them are in same-rack groups")
	f.IntVar(&o.plan, "plan", 500, "most capsules a navigator plans in one pass")
	f.IntVar(&o.passes, "passes", 20, "passes of each navigator")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the generated cluster and work; the same seed gives the same, except for which navigator wins the race")
	err = program.Parse(f, args, o.check)
	return o, err
}

// run starts the groups in each of the three ways, each on a ledger of its own, and then runs the race.
func run(ctx context.Context, o options, out io.Writer) error {
	w := makeWorld(o)
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, `The same work is started in three ways, each on a ledger of its own. Bound means placed.
  affinity  capsule by capsule, a member of a group only in a rack where another member runs
  anchors   the same, but one member of each group, its anchor, is placed first, and the rest follow into its rack
  gang      all members of a group at once, in one rack, or none

%d nodes in %d racks; %d capsules, of which %d (%.1f%%) in %d same-rack groups; seed %d

`,
		len(w.nodes), w.racks(), w.capsules(), w.grouped(), percent(w.grouped(), w.capsules()), len(w.groups), o.seed)
	var runs []*start
	for _, way := range ways {
		s, err := begin(ctx, way, w, o)
		if err != nil {
			return err
		}
		runs = append(runs, s)
	}
	for range o.passes {
		for _, s := range runs {
			s.pass(ctx)
		}
	}
	if err := ctx.Err(); err != nil { // some may have done a pass more than others
		return err
	}
	printShares(out, runs)
	for _, s := range runs {
		if err := s.finish(ctx); err != nil {
			return err
		}
	}
	printStarts(out, runs)
	if err := race(ctx, o, out); err != nil {
		return err
	}
	for _, s := range runs {
		fmt.Fprintf(out, "bound %s %.1f%%\n", s.way.name, s.share())
	}
	return ctx.Err()
}

// percent returns part of all in percent; 100 if all is 0.
func percent(part, all int) float64 {
	if all == 0 {
		return 100
	}
	return 100 * float64(part) / float64(all)
}
