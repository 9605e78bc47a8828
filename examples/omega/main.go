// Omega: several schedulers share one cell, as in "Omega: flexible, scalable schedulers for large compute clusters"
// (Schwarzkopf et al., EuroSys 2013), on real engines in virtual time. It prints how often they lose to each other and
// how busy they are: against how long a service decision takes, against the number of batch schedulers, and with the
// bets and transactions that the paper compares.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// options are what the flags set.
type options struct {
	nodes int
	hours float64
	seed  uint64
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // it has been said
	}
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "omega:", err)
		os.Exit(1)
	}
}

func parse(args []string, w io.Writer) (o options, err error) {
	f := flag.NewFlagSet("omega", flag.ContinueOnError)
	f.SetOutput(w)
	f.IntVar(&o.nodes, "nodes", 100, "machines of 16 cores in the cell; the load grows with them")
	f.Float64Var(&o.hours, "hours", 1, "virtual time of each run")
	f.Uint64Var(&o.seed, "seed", 1, "decides what arrives when")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.nodes < 10 || o.nodes > 10_000 || o.hours < 0.1 || o.hours > 100 {
		err = errors.New("-nodes must be 10 to 10000 and -hours 0.1 to 100; there are no arguments")
		fmt.Fprintln(w, "omega:", err)
	}
	return o, err
}

// run prints the three tables.
func run(o options, w io.Writer) error {
	fmt.Fprintf(w, "A cell of %d machines of 16 cores, %v of virtual time a run. Conflicts are decisions that lost something, per job placed\n",
		o.nodes, time.Duration(o.hours*float64(time.Hour)))
	fmt.Fprintln(w, "(3: the average job is decided on four times); busy is the share of the time in which a scheduler decides.")
	for _, table := range []func(options, io.Writer) error{serviceTimes, batchSchedulers, transactions} {
		if err := table(o, w); err != nil {
			return err
		}
	}
	return nil
}
