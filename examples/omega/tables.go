package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
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

// serviceTimes prints conflicts and utilization of the schedulers against the time that the service scheduler takes for
// a decision.
func (e *experiment) serviceTimes() error {
	fmt.Fprint(e.out, "\n1. One service and one batch scheduler: the longer the service scheduler thinks, the more has changed when it has.\n\n")
	fmt.Fprintln(e.out, "t_job(service)   service: conflicts    busy   wait p50     p99   batch: conflicts    busy   wait p50     p99")
	for _, t := range serviceTimes {
		f, err := e.measure(setup{serviceTime: seconds(t), batches: 1, rate: 1})
		if err != nil {
			return err
		}
		s, b := &f.service, f.batch
		slices.Sort(b.Waits)
		fmt.Fprintf(e.out, "%12.1f s   %18.3f %6.1f%% %10s %7s   %16.3f %6.1f%% %10s %7s\n", t,
			s.ConflictFraction(), 100*s.Busyness(), short(s.Wait(0.5)), short(s.Wait(0.99)),
			b.ConflictFraction(), 100*b.Busyness(), short(b.Wait(0.5)), short(b.Wait(0.99)))
	}
	return nil
}

// batchSchedulers prints conflicts and utilization against the number of batch schedulers that share the batch jobs.
// There are several times as many jobs as one scheduler can decide on.
func (e *experiment) batchSchedulers() error {
	fmt.Fprint(e.out, "\n2. Four times as many batch jobs, on which one batch scheduler, at 1 s a job, cannot keep up: n of them share the work.\n\n")
	fmt.Fprintln(e.out, "batch schedulers   conflicts   mean busy   busiest   wait p50     p99   jobs placed")
	for _, n := range batchSchedulers {
		f, err := e.measure(setup{serviceTime: 10 * time.Second, batchTime: time.Second, batches: n, rate: 4})
		if err != nil {
			return err
		}
		b := f.batch
		slices.Sort(b.Waits)
		fmt.Fprintf(e.out, "%16d   %9.3f   %8.1f%%   %6.1f%%   %8s %7s   %11d\n", n, b.ConflictFraction(), 100*b.Busyness(), 100*f.busiest,
			short(b.Wait(0.5)), short(b.Wait(0.99)), b.Jobs)
	}
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
			f, err := e.measure(setup{serviceTime: seconds(t), batches: 1, rate: 1, coarse: form.coarse, whole: form.whole})
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
