// Defrag: a cluster of GPUs after days of work that came and went. Many GPUs are free, but in crumbs: a node has two free,
// the next one three, and a gang that needs 8 on one node waits. Schedulers usually evict something then, and hope that it
// finds a better place; here nav.Defrag moves running capsules to places that are found before, in one commit with the
// budgets of all services judged, and only as long as a move is worth it.
//
//	go run ./examples/defrag
//	go run ./examples/defrag -nodes openb_node_list_gpu_node.csv -pods openb_pod_list_default.csv
//
// How to read it: in each picture a character is a node with 8 GPUs, and says how many of them are free as a whole; a dot
// is a node with none, and # one with all 8. The table has a line for each pass of at most -moves moves. Without files the
// program generates a cluster of the shape of the openb trace.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/program"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/sim"
)

//go:embed main.go
var source string // the program prints its first paragraph first

type options struct {
	nodes, pods string
	seed        uint64
	moves       int
	free        float64
	seeds       int
}

func main() { program.Main("defrag", parse, run) }

// parse reads the flags, and writes what is wrong with them to w.
func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("defrag", "Defrag fills a cluster, lets work come and go until only crumbs are free, and makes room for gangs by moves.", w)
	f.StringVar(&o.nodes, "nodes", "", "openb node list (CSV); without files: a made-up cluster of the same shape")
	f.StringVar(&o.pods, "pods", "", "openb pod list (CSV)")
	f.Uint64Var(&o.seed, "seed", 42, "seed of what comes and goes")
	f.IntVar(&o.moves, "moves", 100, "moves of one pass at most")
	f.Float64Var(&o.free, "free", 0.15, "part of the capsules that end last, so that crumbs are free")
	f.IntVar(&o.seeds, "seeds", 0, "compare with a greedy of one move at a time, and with random moves, on so many seeds, and print a table")
	err = program.Parse(f, args, func() error {
		if (o.nodes == "") != (o.pods == "") {
			return errors.New("-nodes and -pods go together")
		}
		if o.moves < 1 || o.seeds < 0 || !(o.free >= 0 && o.free < 1) {
			return errors.New("-moves must be at least 1, -seeds not negative, and -free from 0 to below 1")
		}
		return nil
	})
	return o, err
}

// gang is the work that needs room: 8 GPUs on one node, with some processors and memory.
var gang = &orbit.Spec{
	Module:   "training",
	Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 8000, orbit.Memory: 16 << 30}},
	Devices:  orbit.DeviceRequest{Count: 8, Milli: 1000},
}

// run fills the cluster, lets work come and go, and defragments until no move is worth it.
func run(ctx context.Context, o options, out io.Writer) error {
	nodes, pods, err := load(o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n%d nodes with %d GPUs\n\n", program.Opening(source), len(nodes), sim.DeviceCapacity(nodes)/1000)
	if o.seeds > 0 {
		return compare(ctx, o, out)
	}
	w := &world{ledger: &orbit.MemoryLedger{}, seed: o.seed}
	if err := w.fill(ctx, nodes, pods, o.free); err != nil {
		return err
	}
	before, err := w.tell(ctx, out, "before")
	if err != nil {
		return err
	}
	moved, broken, err := w.defrag(ctx, out, o.moves)
	if err != nil {
		return err
	}
	after, err := w.tell(ctx, out, "after")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "moves %d, gangs of 8 that fit: before %d, after %d\nbudgets broken %d\n", moved, before, after, broken)
	return nil
}

// defrag moves until a pass moves nothing, and judges every commit by the budgets.
func (w *world) defrag(ctx context.Context, out io.Writer, moves int) (moved, broken int, err error) {
	d := &nav.Defrag{Ledger: w.ledger, Goal: nav.RoomFor{Spec: gang}, Moves: moves, MinStay: time.Nanosecond}
	fmt.Fprintf(out, "%4s %7s %8s %15s\n", "pass", "moves", "rooms", "not worth it")
	for pass := 1; ; pass++ {
		start, err := w.ledger.Snapshot(ctx)
		if err != nil {
			return moved, broken, err
		}
		round := d.Pass(ctx)
		if err := errors.Join(append(round.Errors, ctx.Err())...); err != nil {
			return moved, broken, err
		}
		fmt.Fprintf(out, "%4d %7d %8d %15d\n", pass, len(round.Moved), round.Steps, round.TooDear)
		more, err := brokenSince(ctx, w.ledger, start)
		if broken += more; err != nil || len(round.Moved) == 0 {
			fmt.Fprintln(out)
			return moved, broken, err
		}
		moved += len(round.Moved)
	}
}

func load(o options) ([]orbit.Node, []sim.Capsule, error) {
	if o.nodes == "" {
		nodes, pods := sim.OpenbLike(o.seed, 1)
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

// picture draws the nodes with 8 GPUs.
func picture(s *orbit.State) string {
	var b strings.Builder
	column := 0
	for n := range s.Nodes() {
		if n.Node.Devices.Count != 8 {
			continue
		}
		free := 0
		for i := range 8 {
			if n.DeviceFree(i) == 1000 {
				free++
			}
		}
		b.WriteByte(".1234567#"[free])
		if column++; column%100 == 0 {
			b.WriteByte('\n')
		}
	}
	return strings.TrimSuffix(b.String(), "\n") + "\n"
}
