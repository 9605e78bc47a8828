package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/orbitsched/orbit/internal/program"
)

// schedule places the whole constellation several times and prints the report. One round is not enough, because the
// measured time of work that takes a tenth of a second varies by half. An interrupt ends the rounds; the report then
// covers the finished ones.
func schedule(ctx context.Context, o options, out, status io.Writer) error {
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, `%d capsules of %d kinds on %d machines (seed %d). All of it is placed anew in %d or more rounds,
until they have taken %v of processor time together.

`, o.capsules, o.classes, o.nodes, o.seed, o.rounds, o.enough)
	r, last := report{options: o}, time.Now()
	for spent := time.Duration(0); len(r.rounds) < o.rounds || spent < o.enough; {
		run, err := newRun(ctx, o, o.engine != "exhaustive" && len(r.rounds) == 0, status)
		if err == nil {
			err = run.start(ctx)
		}
		if ctx.Err() != nil && len(r.rounds) > 0 {
			break // the finished rounds count
		}
		if err != nil {
			return err
		}
		r.add(run)
		spent += run.tally.spent
		if time.Since(last) >= o.progressEvery { // not after every short round
			last = time.Now()
			fmt.Fprintf(status, "round %d: %d of %d placed in %v\n", len(r.rounds), run.tally.committed, o.capsules, run.tally.wall.Round(time.Millisecond))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if ctx.Err() != nil {
		fmt.Fprint(out, "interrupted\n\n")
	}
	r.print(out)
	return nil
}
