// Replay: a published experiment on fragmentation of GPUs ("Beware of Fragmentation", USENIX ATC 2023), through the loop and
// the ledger. Capsules ask for whole devices and for parts of them, and a device of which a part is taken is of no use to
// work that needs it whole. A scheduler that takes the first fit leaves pieces everywhere: in the end devices are free and no
// capsule fits. How many are allocated is decided by the score, which is all that differs here.
//
//	go run ./examples/replay
//	go run ./examples/replay -nodes openb_node_list_gpu_node.csv -pods openb_pod_list_default.csv \
//	    -policy fgd,bestfit,dotprod,random -seeds 10 -inflate 1.3
//
// Capsules arrive in a random order until they ask for 130% of the devices there are. No capsule departs, and a capsule
// that does not fit is dropped. Without files the program generates a cluster of the same shape.
//
// How to read it: each column is a policy, and each row shows how many devices the policy has allocated when the given
// share of the devices has been requested. The last lines show the final counts. A policy with a higher count has left
// fewer fragments of devices that fit no capsule.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/score"
	"github.com/orbitsched/orbit/sim"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// firstSeed is the seed of the published experiment.
const firstSeed = 42

// policies are the scores by name. Each score is made for one run, from the list of capsules before inflation and the
// seed.
var policies = map[string]func(list []sim.Capsule, seed uint64) orbit.Score{
	"bestfit": func([]sim.Capsule, uint64) orbit.Score { return score.BestFit{} },
	"dotprod": func([]sim.Capsule, uint64) orbit.Score { return score.DotProduct{} },
	"fgd":     func(list []sim.Capsule, _ uint64) orbit.Score { return score.FGD{Typical: score.Typical(specs(list))} },
	"random":  func(_ []sim.Capsule, seed uint64) orbit.Score { return score.Random{Seed: seed} },
	"spread":  func([]sim.Capsule, uint64) orbit.Score { return score.Spread{} },
}

// meanings say which node each policy prefers, for the table.
var meanings = map[string]string{
	"bestfit": "the node that is fullest afterwards",
	"dotprod": "the node that has least free of what the capsule asks for, so that plenty is kept for others",
	"fgd":     "fragmentation gradient descent: the node where it breaks up least of what typical capsules could use",
	"random":  "any node where it fits, the baseline",
	"spread":  "the node with most room left and few capsules; orbit's default",
}

// engines are the placement engines by name. Each run has an engine of its own.
var engines = map[string]func(policy orbit.Score) orbit.PlacementEngine{
	"exhaustive": func(policy orbit.Score) orbit.PlacementEngine { return &place.Exhaustive{Score: policy} },
	"indexed":    func(policy orbit.Score) orbit.PlacementEngine { return &place.Indexed{Score: policy} },
	"sampled":    func(policy orbit.Score) orbit.PlacementEngine { return &place.Sampled{Score: policy} },
}

type options struct {
	nodes, pods string
	policies    []string
	engine      string
	seeds       int
	inflate     float64
	verbose     bool
}

func main() { program.Main("replay", parse, replay) }

// parse reads the flags, and writes what is wrong with them to w.
func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("replay", "Replay lets capsules arrive until they ask for more devices than there are, and shows how many each policy allocates.", w)
	f.StringVar(&o.nodes, "nodes", "", "openb node list (CSV); without files: a made-up cluster of the same shape")
	f.StringVar(&o.pods, "pods", "", "openb pod list (CSV)")
	list := f.String("policy", "fgd,bestfit,dotprod,random", "policies, separated by commas: "+names(policies))
	f.StringVar(&o.engine, "engine", "indexed", "placement engine; indexed and exhaustive choose alike: "+names(engines))
	f.IntVar(&o.seeds, "seeds", 3, "runs of each policy, with seeds from 42 on")
	f.Float64Var(&o.inflate, "inflate", 1.3, "arriving device demand, as a part of the capacity")
	f.BoolVar(&o.verbose, "v", false, "also the rows in which all policies are alike")
	err = program.Parse(f, args, func() error {
		for name := range strings.SplitSeq(*list, ",") {
			o.policies = append(o.policies, strings.TrimSpace(name))
		}
		return o.check()
	})
	return o, err
}

// replay does all runs, as many at a time as there are processors, and prints the table.
func replay(ctx context.Context, o options, out io.Writer) error {
	nodes, pods, err := load(o)
	if err != nil {
		return err
	}
	capacity := sim.DeviceCapacity(nodes)
	kind := "Cluster of the files"
	if o.nodes == "" {
		kind = "No trace was given, so the cluster and its work are made up, of the shape of the openb trace (-nodes and -pods read its files).\nMade-up cluster"
	}
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, `%s: %d nodes, %.0f devices; %d capsules, inflated to %.0f%% of the devices; seeds %d to %d; %s engine

`,
		kind, len(nodes), float64(capacity)/1000, len(pods), 100*o.inflate, firstSeed, firstSeed+o.seeds-1, o.engine)
	fmt.Fprintln(out, "Each policy is a score, and prefers for a capsule")
	for _, name := range o.policies {
		fmt.Fprintf(out, "  %-8s %s\n", name, meanings[name])
	}
	fmt.Fprintln(out)

	results := make([][]curve, len(o.policies))
	todo, progress := errgroup.Group{}, &progress{total: len(o.policies) * o.seeds}
	todo.SetLimit(runtime.GOMAXPROCS(0))
	for p, name := range o.policies {
		results[p] = make([]curve, o.seeds)
		for i := range o.seeds {
			todo.Go(func() error {
				seed := uint64(firstSeed + i)
				arrivals, err := sim.Inflate(pods, capacity, o.inflate, seed)
				if err != nil {
					return err
				}
				results[p][i], err = run(ctx, nodes, arrivals, engines[o.engine](policies[name](pods, seed)))
				progress.done(name, seed, err)
				return err
			})
		}
	}
	if err := todo.Wait(); err != nil {
		return err
	}
	printTable(out, o.policies, results, o.verbose)
	return nil
}

// check returns an error if a flag has an invalid value.
func (o options) check() error {
	if !(o.inflate > 0 && o.inflate <= 100) {
		return fmt.Errorf("-inflate is %v; it must be more than 0 and at most 100", o.inflate)
	}
	if o.seeds < 1 {
		return errors.New("-seeds must be at least 1")
	}
	if (o.nodes == "") != (o.pods == "") {
		return errors.New("-nodes and -pods go together")
	}
	for i, name := range o.policies {
		if slices.Contains(o.policies[:i], name) {
			return fmt.Errorf("policy %q is named twice", name)
		}
		if policies[name] == nil {
			return fmt.Errorf("unknown policy %q; there are %s", name, names(policies))
		}
	}
	if engines[o.engine] == nil {
		return fmt.Errorf("unknown engine %q; there are %s", o.engine, names(engines))
	}
	return nil
}

// names returns the names of the choices, sorted.
func names[T any](choices map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(choices)), ", ")
}

// specs returns the spec of each capsule.
func specs(list []sim.Capsule) []*orbit.Spec {
	out := make([]*orbit.Spec, len(list))
	for i, c := range list {
		out[i] = c.Spec
	}
	return out
}

func load(o options) ([]orbit.Node, []sim.Capsule, error) {
	if o.nodes == "" {
		nodes, pods := sim.OpenbLike(firstSeed, 1)
		return nodes, pods, nil
	}
	nodes, err := readFile(o.nodes, sim.ReadNodes)
	if err != nil {
		return nil, nil, err
	}
	pods, err := readFile(o.pods, sim.ReadPods)
	return nodes, pods, err
}

func readFile[T any](path string, read func(io.Reader, string) ([]T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	return read(f, path)
}
