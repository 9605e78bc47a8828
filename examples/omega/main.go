// Omega: several schedulers share one cell, as in "Omega: flexible, scalable schedulers for large compute clusters"
// (Schwarzkopf et al., EuroSys 2013), on real engines in virtual time.
//
//	go run ./examples/omega                        # the paper's trends: some 30 runs, most of a minute
//	go run ./examples/omega -nodes 20 -hours 0.1   # seconds, but too few jobs for conflicts: it says so
//
// How to read it: three tables show how often schedulers lose to each other and how busy they are. The first varies the
// time of a service decision, the second the number of batch schedulers, and the third the kinds of bets and
// transactions that the paper compares. The last line sums up the last row of the third table: it shows why orbit uses
// fine bets.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/orbitsched/orbit/internal/program"
)

// options are what the flags set.
type options struct {
	nodes int
	hours float64
	seed  uint64
}

func main() {
	program.Main("omega", parse, func(ctx context.Context, o options, out io.Writer) error {
		return run(ctx, o, out, os.Stderr)
	})
}

func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("omega", "Omega shows what schedulers that share one cell cost each other, in virtual time.", w)
	f.IntVar(&o.nodes, "nodes", 100, "machines of 16 cores in the cell; the load grows with them")
	f.Float64Var(&o.hours, "hours", 1, "virtual time of each run")
	f.Uint64Var(&o.seed, "seed", 1, "decides what arrives when")
	err = program.Parse(f, args, func() error {
		if o.nodes < 10 || o.nodes > 10_000 || !(o.hours >= 0.1 && o.hours <= 100) {
			return errors.New("-nodes must be 10 to 10000 and -hours 0.1 to 100")
		}
		return nil
	})
	return o, err
}

// experiment is the state of the program over all its runs.
type experiment struct {
	options
	ctx    context.Context
	out    io.Writer
	status io.Writer
	runs   int // so far
	// serviceLost counts the decisions of the service scheduler that had a conflict, serviceJobs the placed service jobs, in
	// all runs so far.
	serviceLost, serviceJobs int
}

// totalRuns is the number of runs in all tables.
var totalRuns = len(serviceTimes) + len(batchSchedulers) + len(betTimes)*len(betForms)

// run prints the three tables.
func run(ctx context.Context, o options, out, status io.Writer) error {
	fmt.Fprintf(out, `Several schedulers place jobs on one cell of %d machines of 16 cores, each on its own view of it, for %v of virtual time a
run. The longer one thinks, the older its view, and the more of what it wants is taken. Without a referee both would start;
with a lock the quick would wait for the slow. With bets that the ledger checks, who loses decides once more.

A cell is one cluster. All schedulers share it. A job has several tasks, and each task runs on one machine. Conflicts are
decisions that lost something, per job placed (3: the average job is decided on four times); busy is the share of the time
in which a scheduler decides; wait is from a job's arrival until its last task is placed: half of the jobs waited no longer
than p50, 99%% no longer than p99.
`, o.nodes, time.Duration(o.hours*float64(time.Hour)))
	e := &experiment{options: o, ctx: ctx, out: out, status: status}
	for _, table := range []func() error{e.serviceTimes, e.batchSchedulers, e.transactions} {
		if err := table(); err != nil {
			return err
		}
	}
	return nil
}

// measure does one run, and prints the progress from time to time. Call it only between two rows of a table, not while
// a row is half printed.
func (e *experiment) measure(s setup) (figures, error) {
	if err := e.ctx.Err(); err != nil {
		return figures{}, err
	}
	s.options = e.options
	f, err := s.run()
	e.serviceLost += f.service.Lost
	e.serviceJobs += f.service.Jobs
	if e.runs++; e.runs%4 == 0 {
		fmt.Fprintf(e.status, "run %d of %d\n", e.runs, totalRuns)
	}
	return f, err
}
