package main

import (
	"fmt"
	"io"

	"github.com/orbitsched/orbit/shard"
)

func printHead(out io.Writer, waves bool) {
	if waves {
		fmt.Fprintf(out, "%-7s %10s %5s %8s %13s %12s %7s %9s %13s %11s\n",
			"mode", "schedulers", "fill", "placed", "placements/s", "conflicts, %", "fenced", "packing", "redispatched", "node moves")
		return
	}
	fmt.Fprintf(out, "%-7s %10s %8s %12s %9s   %s\n", "mode", "schedulers", "placed", "conflicts, %", "packing", "when one was killed half way")
}

// printRun prints how one run ended, in one row.
func printRun(out io.Writer, rows []row) {
	last, proposed, conflicts, redispatched, moves := rows[len(rows)-1], 0, 0, 0, 0
	for _, r := range rows {
		proposed, conflicts = proposed+r.proposed, conflicts+r.conflicts
		redispatched, moves = redispatched+r.redispatched, moves+r.moves
	}
	note := "(there is only one)"
	if last.schedulers > 1 {
		note = fmt.Sprintf("%d capsules got another scheduler, %d nodes moved", redispatched, moves)
	}
	fmt.Fprintf(out, "%-7v %10d %7.1f%% %11.2f%% %8.1f%%   %s\n",
		last.mode, last.schedulers, percent(last.placed, last.submitted), percentOf(conflicts, proposed), last.packing, note)
}

// printRows prints the waves of one run.
func printRows(out io.Writer, rows []row) {
	for _, r := range rows {
		note := ""
		if r.killed {
			note = "  one is killed half way"
		}
		fmt.Fprintf(out, "%-7v %10d %4.0f%% %7.1f%% %13.0f %11.2f%% %7d %8.1f%% %13d %11d%s\n",
			r.mode, r.schedulers, 100*r.fill, percent(r.placed, r.submitted), r.rate, percentOf(r.conflicts, r.proposed), r.fenced, r.packing,
			r.redispatched, r.moves, note)
	}
}

func printLegend(out io.Writer, waves bool) {
	if waves {
		fmt.Fprint(out, `
fill          what all waves so far ask for, of the cpu
placed        of all capsules submitted so far
placements/s  in the wave, up to its last placement; where one is killed, its lease has to run out first
fenced        placements refused so far because the scheduler's lease had ended or the node had changed hands
redispatched  capsules and gangs that got another scheduler in the wave
node moves    nodes that changed groups in the wave, or were told to`)
	}
	fmt.Fprint(out, `
conflicts, %  placements that another scheduler was faster than, as a share of those proposed; each is planned again
packing       how full the cpu is of the nodes on which there is anything

`)
}

// percentOf returns part of all in percent; 0 if all is 0.
func percentOf(part, all int) float64 { return 100 * float64(part) / float64(max(all, 1)) }

// sum has the results of all runs of one mode.
type sum struct {
	mode                        shard.Mode
	placed, capsules, conflicts int
}

func (s *sum) add(rows []row) {
	last := rows[len(rows)-1]
	s.placed += last.placed
	s.capsules += last.submitted
	for _, r := range rows {
		s.conflicts += r.conflicts
	}
}
