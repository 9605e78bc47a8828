// Etcdspeed measures the ledger on an etcd that it starts, with fsync: how many placements a second it commits one by one,
// many at a time and in a batch, compared with plain transactions of etcd; how many conflicts two processes have on the same
// nodes; and how long it takes until one process sees what another one has committed.
//
//	cd etcdledger/itest && go run ./examples/etcdspeed
//
// How to read it: the rows of etcd alone are what the disk and the protocol allow; a placement should cost little more.
// The last line is by how much a batch is faster than calls one after another, the median over all runs.
package main

import (
	"errors"
	"io"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/internal/program"
)

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
