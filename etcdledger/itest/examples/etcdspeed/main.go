// Etcdspeed measures the ledger on etcd, with fsync: placements a second one by one, many at a time and in a batch, beside
// transactions of etcd itself; what two processes cost each other on hot nodes; and how long it takes until one
// process sees what another has committed. It starts an etcd of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
)

// options are what the flags set.
type options struct {
	dir                   string
	members, nodes, batch int
	runs                  int
}

func main() {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve, watcherRole: watch})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // it has been said
	}
	if err := run(ctx, o, os.Stdout); err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		fmt.Fprintln(os.Stderr, "etcdspeed:", err)
		os.Exit(1)
	}
}

// check says what is wrong with the flags.
func (o options) check(f *flag.FlagSet) error {
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; everything is set by flags", f.Arg(0))
	case o.members != 1 && o.members != 3 && o.members != 5:
		return errors.New("-members must be 1, 3 or 5")
	case o.nodes < 1 || o.nodes > 1000:
		return errors.New("-nodes must be 1 to 1000")
	case o.batch < 10 || o.batch > 100_000:
		return errors.New("-batch must be 10 to 100000")
	case o.runs < 1 || o.runs > 100:
		return errors.New("-runs must be 1 to 100")
	}
	return nil
}

func parse(args []string, w io.Writer) (o options, err error) {
	f := flag.NewFlagSet("etcdspeed", flag.ContinueOnError)
	f.SetOutput(w)
	f.Usage = func() {
		fmt.Fprintln(w, "Etcdspeed measures the ledger on an etcd that it starts, with fsync. It prints medians.\n\nFlags:")
		f.PrintDefaults()
	}
	f.StringVar(&o.dir, "dir", "", "where the etcd keeps its data: the disk that is measured (default: a temporary directory)")
	f.IntVar(&o.members, "members", 1, "members of the etcd")
	f.IntVar(&o.nodes, "nodes", 100, "machines that are placed on")
	f.IntVar(&o.batch, "batch", 1000, "placements of each measurement")
	f.IntVar(&o.runs, "runs", 3, "runs; medians are printed")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if err := o.check(f); err != nil {
		fmt.Fprintln(w, "etcdspeed:", err)
		return o, err
	}
	return o, nil
}
