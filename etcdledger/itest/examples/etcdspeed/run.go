package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orbitsched/orbit/internal/program"
)

// row is a line of the table, measured once for each run.
type row struct {
	name    string
	measure func(ctx context.Context, w *world) (contest, error)
	// onlyTimes says that the row has no rate, contested that it has conflicts and retries.
	onlyTimes, contested bool
	got                  []contest // one for each run
}

// plain turns a measurement without conflicts into one that a row can have.
func plain(measure func(ctx context.Context, w *world) (sample, error)) func(context.Context, *world) (contest, error) {
	return func(ctx context.Context, w *world) (contest, error) {
		s, err := measure(ctx, w)
		return contest{sample: s}, err
	}
}

// The positions of the rows whose ratio is printed last.
const oneByOne, inBatch = 3, 6

// rows returns everything that is measured.
func rows() (out []*row) {
	for _, n := range []int{1, 16, 128} {
		out = append(out, &row{name: fmt.Sprintf("etcd alone, %d in flight", n), measure: plain(func(ctx context.Context, w *world) (sample, error) { return w.raw(ctx, n) })})
	}
	out = append(out, &row{name: "one after another", measure: plain(func(ctx context.Context, w *world) (sample, error) { return w.single(ctx, 1) })})
	for _, n := range []int{16, 128} {
		out = append(out, &row{name: fmt.Sprintf("%d in flight", n), measure: plain(func(ctx context.Context, w *world) (sample, error) { return w.single(ctx, n) })})
	}
	out = append(out, &row{name: "one batch", measure: plain(func(ctx context.Context, w *world) (sample, error) { return w.batched(ctx) })})
	for _, coarse := range []bool{false, true} {
		for _, nodes := range []int{1, 10, 100} {
			name := fmt.Sprintf("2 processes, %d nodes, %s", nodes, map[bool]string{false: "room", true: "unchanged"}[coarse])
			out = append(out, &row{name: name, contested: true, measure: func(ctx context.Context, w *world) (contest, error) { return w.hot(ctx, nodes, coarse) }})
		}
	}
	return append(out,
		&row{name: "seen by another process, from the answer", onlyTimes: true, measure: plain(func(ctx context.Context, w *world) (sample, error) {
			answered, _, err := w.lag(ctx)
			return answered, err
		})},
		&row{name: "seen by another process, from the call", onlyTimes: true, measure: plain(func(ctx context.Context, w *world) (sample, error) {
			_, called, err := w.lag(ctx)
			return called, err
		})},
	)
}

// run measures everything in each run, and prints medians.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	w, err := begin(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, "etcd with %d members on loopback, with fsync; %d placements on %d nodes in each measurement, by two processes a quarter of that; medians of %d runs\n\n",
		o.members, o.batch, o.nodes, o.runs)
	table := rows()
	for i := range o.runs {
		fmt.Fprintf(out, "run %d of %d\n", i+1, o.runs) // each takes seconds
		for _, r := range table {
			one, err := r.measure(ctx, w)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			r.got = append(r.got, one)
		}
	}
	fmt.Fprintln(out)
	printTable(out, table)
	return nil
}

// of returns the median over the runs of a number of a row.
func of[T float64 | time.Duration](r *row, what func(contest) T) T {
	var values []T
	for _, one := range r.got {
		values = append(values, what(one))
	}
	return median(values)
}

// printTable prints the rows, what they mean, and the ratio that counts.
func printTable(out io.Writer, table []*row) {
	fmt.Fprintf(out, "%-42s %9s %9s %9s %10s %8s\n", "", "each/s", "p50", "p99", "conflicts", "retries")
	for _, r := range table {
		rate, met := "", ""
		if !r.onlyTimes {
			rate = fmt.Sprintf("%.0f", of(r, func(c contest) float64 { return c.rate() }))
		}
		if r.contested {
			met = fmt.Sprintf("%10.3f %8.3f", of(r, func(c contest) float64 { return c.conflicts }), of(r, func(c contest) float64 { return c.retries }))
		}
		p50, p99 := of(r, func(c contest) time.Duration { return c.percentile(50) }), of(r, func(c contest) time.Duration { return c.percentile(99) })
		fmt.Fprintf(out, "%-42s %9s %9s %9s %s\n", r.name, rate, p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), met)
	}
	fmt.Fprint(out, `
each/s     transactions of etcd alone, which compare one key and write two as a placement does; below them placements
p50, p99   how long a call took: of one placement, or of the whole batch
2 processes  with 16 calls each on the same nodes; they bet on room, or that the node has not changed at all
conflicts  for each placement: bets that were lost, and made anew on a new snapshot
retries    for each placement: entries that met another process's, and were judged and sent again by the ledger itself
seen       by the Wait of another operating-system process

`)
	ratios := make([]float64, len(table[inBatch].got))
	for i := range ratios {
		ratios[i] = table[inBatch].got[i].rate() / table[oneByOne].got[i].rate()
	}
	fmt.Fprintf(out, "etcdspeed: a batch commits %.1f x as many placements/s as the same one after another\n", median(ratios))
}
