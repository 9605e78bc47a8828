// Omega: several schedulers share one cell, as in the paper of that name (Schwarzkopf et al., EuroSys 2013). The longer a
// scheduler thinks, the older is its view: without a referee two of them would start work on the same cores, and with a lock
// the quick would wait for the slow. Here they bet. The slow one loses some decisions and decides again, and the quick do not
// notice. How often does it lose, and how much more with coarser bets? Real engines, in virtual time.
//
//	go run ./examples/omega                        # 27 runs, some ten seconds on two cores
//	go run ./examples/omega -hours 2               # longer runs, so that chance counts less
//	go run ./examples/omega -nodes 20 -hours 0.1   # seconds, but too few jobs for conflicts: it says so
//
// How to read it: three tables show how often schedulers lose to each other and how busy they are. The first varies the
// time of a service decision, the second the number of batch schedulers, and the third the kinds of bets and
// transactions that the paper compares. Below each table a line says what its numbers show. The last line sums up the last
// row of the third table: it shows why orbit uses fine bets.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

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
	f.Float64Var(&o.hours, "hours", 0.5, "virtual time of each run")
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
	// all are the runs of all tables in the order of the tables, each once. done gets their outcomes in the order in which
	// they end, results has those that were taken from it.
	all     []setup
	done    chan outcome
	results map[setup]outcome
	// serviceLost counts the decisions of the service scheduler that had a conflict, serviceJobs the placed service jobs, in
	// all results.
	serviceLost, serviceJobs int
}

// outcome is a run that has ended.
type outcome struct {
	setup
	figures
	err error
}

// run prints the three tables.
func run(ctx context.Context, o options, out, status io.Writer) error {
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, `A cell of %d machines of 16 cores, for %v of virtual time a run. A job has several tasks, and each task runs on one machine.
Conflicts are decisions that lost something, per job placed (3: the average job is decided on four times); busy is the
share of the time in which a scheduler decides; wait is from a job's arrival until its last task is placed: half of the
jobs waited no longer than p50, 99%% no longer than p99.
`, o.nodes, time.Duration(o.hours*float64(time.Hour)))
	e := &experiment{options: o, ctx: ctx, out: out, status: status, results: map[setup]outcome{}}
	e.start()
	for _, table := range []func() error{e.serviceTimes, e.batchSchedulers, e.transactions} {
		if err := table(); err != nil {
			return err
		}
	}
	return nil
}

// start begins all runs, as many at a time as there are processors. A run that two tables show is done once.
func (e *experiment) start() {
	for _, s := range setups() {
		if s.options = e.options; !slices.Contains(e.all, s) {
			e.all = append(e.all, s)
		}
	}
	e.done = make(chan outcome, len(e.all))
	go func() {
		var running errgroup.Group
		running.SetLimit(runtime.GOMAXPROCS(0))
		for _, s := range e.all {
			running.Go(func() error {
				f, err := figures{}, e.ctx.Err()
				if err == nil {
					f, err = s.run()
				}
				e.done <- outcome{s, f, err}
				return nil
			})
		}
	}()
}

// measure waits until a run has ended, and prints the progress from time to time. Call it only between two rows of a table,
// not while a row is half printed.
func (e *experiment) measure(s setup) (figures, error) {
	s.options = e.options
	for {
		if r, ended := e.results[s]; ended {
			return r.figures, r.err
		}
		select {
		case r := <-e.done:
			e.results[r.setup] = r
			e.serviceLost += r.service.Lost
			e.serviceJobs += r.service.Jobs
			if n := len(e.results); n%3 == 0 {
				fmt.Fprintf(e.status, "run %d of %d\n", n, len(e.all))
			}
		case <-e.ctx.Done():
			return figures{}, e.ctx.Err()
		}
	}
}
