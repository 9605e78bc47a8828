package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// serviceTimes prints conflicts and busyness against how long the service scheduler thinks about a job.
func serviceTimes(o options, w io.Writer) error {
	fmt.Fprint(w, "\nOne service and one batch scheduler: the longer the service scheduler thinks, the more has changed when it has.\n\n")
	fmt.Fprintln(w, "t_job(service)   service: conflicts    busy   wait p50     p90     p99   batch: conflicts    busy   wait p50     p90     p99")
	for _, t := range []float64{0.1, 1, 10, 30, 60, 100} {
		f, err := setup{options: o, serviceTime: time.Duration(t * float64(time.Second)), batches: 1, rate: 1}.run()
		if err != nil {
			return err
		}
		s, b := &f.service, f.batch
		slices.Sort(b.Waits)
		fmt.Fprintf(w, "%12.1f s   %18.3f %6.1f%% %10s %7s %7s   %16.3f %6.1f%% %10s %7s %7s\n", t,
			s.ConflictFraction(), 100*s.Busyness(), short(s.Wait(0.5)), short(s.Wait(0.9)), short(s.Wait(0.99)),
			b.ConflictFraction(), 100*b.Busyness(), short(b.Wait(0.5)), short(b.Wait(0.9)), short(b.Wait(0.99)))
	}
	return nil
}

// batchSchedulers prints conflicts and busyness against the number of batch schedulers that share the batch jobs, of
// which there are several times as many as one can decide on.
func batchSchedulers(o options, w io.Writer) error {
	fmt.Fprint(w, "\nFour times as many batch jobs, on which one batch scheduler, at 1 s a job, cannot keep up: n of them share the work.\n\n")
	fmt.Fprintln(w, "batch schedulers   conflicts   mean busy   busiest   wait p50     p90     p99   jobs placed")
	for _, n := range []int{1, 2, 4, 8, 16, 32} {
		f, err := setup{options: o, serviceTime: 10 * time.Second, batchTime: time.Second, batches: n, rate: 4}.run()
		if err != nil {
			return err
		}
		b := f.batch
		slices.Sort(b.Waits)
		fmt.Fprintf(w, "%16d   %9.3f   %8.1f%%   %6.1f%%   %8s %7s %7s   %11d\n", n, b.ConflictFraction(), 100*b.Busyness(), 100*f.busiest,
			short(b.Wait(0.5)), short(b.Wait(0.9)), short(b.Wait(0.99)), b.Jobs)
	}
	return nil
}

// transactions prints what it costs to bet that a machine has not changed at all, and to want all of a job or nothing.
func transactions(o options, w io.Writer) error {
	fmt.Fprint(w, "\nBets that there is room (fine) or that the machine has not changed at all (coarse), task by task or all tasks of a job or\n"+
		"none: the service scheduler's conflicts and busyness.\n\n")
	forms := []struct {
		name          string
		coarse, whole bool
	}{{"fine, task by task", false, false}, {"fine, all or nothing", false, true}, {"coarse, task by task", true, false}, {"coarse, all or nothing", true, true}}
	fmt.Fprint(w, "t_job(service)")
	for _, f := range forms {
		fmt.Fprintf(w, "   %22s", f.name)
	}
	fmt.Fprintln(w)
	for _, t := range []float64{1, 10, 30, 60, 100} {
		fmt.Fprintf(w, "%12.1f s", t)
		for _, form := range forms {
			f, err := setup{options: o, serviceTime: time.Duration(t * float64(time.Second)), batches: 1, rate: 1, coarse: form.coarse, whole: form.whole}.run()
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "   %14.3f %6.1f%%", f.service.ConflictFraction(), 100*f.service.Busyness())
		}
		fmt.Fprintln(w)
	}
	return nil
}

// short rounds a time to what a table has room for.
func short(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
