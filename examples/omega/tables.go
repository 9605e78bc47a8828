package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit/sim/race"
)

var (
	serviceTimes    = []float64{0.1, 1, 10, 30, 60, 100} // seconds
	batchSchedulers = []int{1, 2, 4, 8, 16, 32}
	betTimes        = []float64{1, 10, 30, 60, 100} // seconds
	betForms        = []form{{"fine, task by task", false, false}, {"fine, all or nothing", false, true}, {"coarse, task by task", true, false}, {"coarse, all or nothing", true, true}}
)

// form is a way in which a scheduler bets and places a job. Coarse: each bet is that the node has not changed at all.
// Whole: all tasks of a job are committed, or none.
type form struct {
	name          string
	coarse, whole bool
}

func seconds(t float64) time.Duration { return time.Duration(t * float64(time.Second)) }

// The runs of the three tables.
func serviceTime(t float64) setup { return setup{serviceTime: seconds(t), batches: 1, rate: 1} }

func batchSchedulersOf(n int) setup {
	return setup{serviceTime: 10 * time.Second, batchTime: time.Second, batches: n, rate: 4}
}

func transaction(t float64, f form) setup {
	s := serviceTime(t)
	s.coarse, s.whole = f.coarse, f.whole
	return s
}

// setups returns the runs in the order in which the tables need them.
func setups() (all []setup) {
	for _, t := range serviceTimes {
		all = append(all, serviceTime(t))
	}
	for _, n := range batchSchedulers {
		all = append(all, batchSchedulersOf(n))
	}
	for _, t := range betTimes {
		for _, f := range betForms {
			all = append(all, transaction(t, f))
		}
	}
	return all
}

// serviceTimes prints conflicts and utilization of the schedulers against the time that the service scheduler takes for
// a decision.
func (e *experiment) serviceTimes() error {
	fmt.Fprint(e.out, "\n1. One service and one batch scheduler: the service scheduler thinks longer and longer.\n\n")
	fmt.Fprintln(e.out, "t_job(service)   service: conflicts    busy   wait p50     p99   batch: conflicts    busy   wait p50     p99")
	var last figures
	var conflicts []float64
	var waits []time.Duration // of half of the batch jobs
	for _, t := range serviceTimes {
		f, err := e.measure(serviceTime(t))
		if err != nil {
			return err
		}
		s, b := &f.service, f.batch
		slices.Sort(b.Waits)
		fmt.Fprintf(e.out, "%12.1f s   %18.3f %6.1f%% %10s %7s   %16.3f %6.1f%% %10s %7s\n", t,
			s.ConflictFraction(), 100*s.Busyness(), short(s.Wait(0.5)), short(s.Wait(0.99)),
			b.ConflictFraction(), 100*b.Busyness(), short(b.Wait(0.5)), short(b.Wait(0.99)))
		last, conflicts, waits = f, append(conflicts, s.ConflictFraction()), append(waits, b.Wait(0.5))
	}
	fmt.Fprintf(e.out, "\nThinking takes the service scheduler up to %.0f%% of its time, and its jobs wait for it. Half of the batch jobs wait\n"+
		"%s to %s, however long it thinks. A thousand times the thinking costs at most %.2f lost decisions a job: a bet that\n"+
		"there is room is lost only where the room itself is gone.\n",
		100*last.service.Busyness(), short(slices.Min(waits)), short(slices.Max(waits)), slices.Max(conflicts))
	return nil
}

// batchSchedulers prints conflicts and utilization against the number of batch schedulers that share the batch jobs.
// There are several times as many jobs as one scheduler can decide on.
func (e *experiment) batchSchedulers() error {
	fmt.Fprint(e.out, "\n2. Four times as many batch jobs, on which one batch scheduler, at 1 s a job, cannot keep up: n of them share the work.\n\n")
	fmt.Fprintln(e.out, "batch schedulers   conflicts   mean busy   busiest   wait p50     p99   jobs placed")
	var rows []race.Tally
	for _, n := range batchSchedulers {
		f, err := e.measure(batchSchedulersOf(n))
		if err != nil {
			return err
		}
		b := f.batch
		slices.Sort(b.Waits)
		fmt.Fprintf(e.out, "%16d   %9.3f   %8.1f%%   %6.1f%%   %8s %7s   %11d\n", n, b.ConflictFraction(), 100*b.Busyness(), 100*f.busiest,
			short(b.Wait(0.5)), short(b.Wait(0.99)), b.Jobs)
		rows = append(rows, b)
	}
	first, last := &rows[0], &rows[len(rows)-1]
	fmt.Fprintf(e.out, "\n%d schedulers instead of one: conflicts go from %.3f to %.3f a job, and the wait of half of the jobs from %s to %s.\n",
		batchSchedulers[len(rows)-1], first.ConflictFraction(), last.ConflictFraction(), short(first.Wait(0.5)), short(last.Wait(0.5)))
	return nil
}

// transactions prints the cost of coarse bets (that a node has not changed at all), and of committing only all tasks of
// a job or none.
func (e *experiment) transactions() error {
	fmt.Fprint(e.out, "\n3. Bets that there is room (fine) or that the machine has not changed at all (coarse), task by task or all tasks of a job\n"+
		"or none: the service scheduler's conflicts and busyness.\n\n")
	fmt.Fprint(e.out, "t_job(service)")
	for _, form := range betForms {
		fmt.Fprintf(e.out, "   %22s", form.name)
	}
	fmt.Fprintln(e.out)
	var conflicts []float64 // in the last row
	for _, t := range betTimes {
		conflicts = conflicts[:0]
		var row strings.Builder // printed as a whole, for measure reports progress between rows
		fmt.Fprintf(&row, "%12.1f s", t)
		for _, form := range betForms {
			f, err := e.measure(transaction(t, form))
			if err != nil {
				return err
			}
			conflicts = append(conflicts, f.service.ConflictFraction())
			fmt.Fprintf(&row, "   %14.3f %6.1f%%", conflicts[len(conflicts)-1], 100*f.service.Busyness())
		}
		fmt.Fprintln(e.out, row.String())
	}
	fmt.Fprintln(e.out)
	if e.serviceLost == 0 {
		fmt.Fprintf(e.out, "No service job lost anything: this cell is too small to show it; try -nodes 100 -hours 1. (Service jobs placed, in all runs\n"+
			"together: %d.)\n", e.serviceJobs)
	}
	fmt.Fprintf(e.out, "conflicts per service job at 100 s a decision: fine %.3f, coarse %.3f\n", conflicts[0], conflicts[2])
	return nil
}

// short rounds a time so that it fits into a column.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
