// Etcdspeed: what does a ledger that survives its processes cost? It asks a disk for every commit. Placements one after another
// wait for it each; many in flight, or in one batch, share the wait. And two processes that want the same nodes lose to each
// other. Here both are measured with fsync, beside plain transactions of the same etcd, which the program starts.
//
//	cd etcdledger/itest && go run ./examples/etcdspeed
//
// It measures how many placements a second the ledger commits one by one, many at a time and in a batch; how many conflicts
// two processes have on the same nodes; and how long it takes until one process sees what another one has committed.
//
// How to read it: the rows of etcd alone are what the disk and the protocol allow; a placement should cost little more.
// The last line is by how much a batch is faster than calls one after another, the median over all runs.
package main

import (
	_ "embed"
	"errors"
	"io"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// options are what the flags set.
type options struct {
	dir                   string
	members, nodes, batch int
	runs                  int
}

func main() {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve, watcherRole: watch})
	program.Main("etcdspeed", parse, run)
}

// check returns an error if a flag has an invalid value.
func (o *options) check() error {
	switch {
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

// parse reads the flags.
func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("etcdspeed", "Etcdspeed measures the ledger on an etcd that it starts, with fsync. It prints medians.", w)
	f.StringVar(&o.dir, "dir", "", "where the etcd keeps its data: the disk that is measured (default: a temporary directory)")
	f.IntVar(&o.members, "members", 1, "members of the etcd")
	f.IntVar(&o.nodes, "nodes", 100, "machines that are placed on")
	f.IntVar(&o.batch, "batch", 1000, "placements of each measurement")
	f.IntVar(&o.runs, "runs", 3, "runs; medians are printed")
	return o, program.Parse(f, args, o.check)
}
