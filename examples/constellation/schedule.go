package main

import (
	"context"
	"fmt"
	"io"

	"github.com/orbitsched/orbit"
)

// schedule does everything once: it fills a ledger, lets the engines work, measures the floor beside what
// they did, and prints the table. An interrupt ends the work; what is placed by then is reported.
func schedule(ctx context.Context, o options, out, status io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d nodes, %d capsules of %d classes, %s, seed %d; %s engine, %d navigator%s, passes of %d\n\n",
		o.nodes, o.capsules, o.classes, o.order, o.seed, o.engine, o.navigators, plural(o.navigators), o.plan)
	ledger := &orbit.MemoryLedger{}
	work, err := fill(ctx, ledger, o)
	if err != nil {
		return err
	}
	r := report{options: o, submitted: work.submitted, submitting: work.took, heap: heap()}

	shared := &run{ledger: ledger, sampler: newSampler(o, work), progress: newProgress(status, work.submitted)}
	r.tally, r.wall = shared.start(ctx, o)
	r.peak = peakMemory() // before what follows adds to it
	r.interrupted = ctx.Err() != nil

	state, err := ledger.Snapshot(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if err := state.Verify(); err != nil {
		return fmt.Errorf("the ledger's books are wrong: %w", err)
	}
	placements := placementsOf(state)
	r.placed, r.left = len(placements), leftOver(state, r.tally.why)
	if r.placed != r.tally.committed {
		return fmt.Errorf("the ledger has %d capsules placed, the engines have placed %d", r.placed, r.tally.committed)
	}
	if r.floor, err = floor(state, placements); err != nil {
		return err
	}
	r.print(out)
	if r.tally.failure != nil && !r.interrupted {
		return fmt.Errorf("%d passes met errors, the first: %w", r.tally.failed, r.tally.failure)
	}
	return nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
