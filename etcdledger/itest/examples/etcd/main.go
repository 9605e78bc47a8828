// Etcd: two processes of navigators place capsules on one ledger in etcd, and one of them is killed in the middle of it. What it
// had sent may be committed or not, and it can no longer be asked; the process that follows it must lose nothing and place
// nothing twice. Each proposal carries an id and a bet, so etcd's own history can tell in the end whether that was so.
//
//	cd etcdledger/itest && go run ./examples/etcd
//
// Without -endpoint the program starts an etcd of its own.
//
// How to read it: first what happens, second by second; then a row for each process. The lines below the table prove that
// nothing was placed twice or lost: they are counted from every version in etcd's own history.
package main

import (
	_ "embed"
	"errors"
	"io"
	"strings"

	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
	"github.com/orbitsched/orbit/etcdledger/itest/crew"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// options are what the flags set.
type options struct {
	endpoint, dir                   string
	members, nodes, capsules, kills int
}

func main() {
	process.Main(map[string]process.Role{cluster.Role: cluster.Serve, crew.Role: crew.Serve})
	program.Main("etcd", parse, run)
}

// endpoints returns the addresses in -endpoint; nil: the program starts an etcd of its own.
func (o options) endpoints() []string {
	if o.endpoint == "" {
		return nil
	}
	return strings.Split(o.endpoint, ",")
}

// check returns an error if a flag has an invalid value.
func (o *options) check() error {
	switch {
	case o.members != 1 && o.members != 3 && o.members != 5:
		return errors.New("-members must be 1, 3 or 5")
	case o.endpoint != "" && (o.members != 1 || o.dir != ""):
		return errors.New("-members and -dir are for an etcd of the program's own; with -endpoint they have no effect")
	case o.nodes < 1 || o.nodes > 10_000:
		return errors.New("-nodes must be 1 to 10000")
	case o.capsules < 10 || o.capsules > 1_000_000:
		return errors.New("-capsules must be 10 to 1000000")
	case o.kills < 0 || o.kills > 100:
		return errors.New("-kills must be 0 to 100")
	}
	return nil
}

// parse reads the flags.
func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("etcd", "Etcd lets two processes of navigators place capsules over one etcd, kills some, and counts everything again.", w)
	f.StringVar(&o.endpoint, "endpoint", "", "addresses of an etcd's members, without TLS, separated by commas; it is left as it was found (default: an etcd of its own)")
	f.StringVar(&o.dir, "dir", "", "where an etcd of its own keeps its data (default: a temporary directory)")
	f.IntVar(&o.members, "members", 1, "members of an etcd of its own")
	f.IntVar(&o.nodes, "nodes", 100, "machines")
	f.IntVar(&o.capsules, "capsules", 2000, "capsules to place")
	f.IntVar(&o.kills, "kills", 1, "kills: a process of navigators first, and where the etcd is its own, then a member of it, and so on by turns")
	return o, program.Parse(f, args, o.check)
}
