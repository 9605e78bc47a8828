package main

import (
	"fmt"
	"io"

	"github.com/orbitsched/orbit/shard"
)

func printHead(out io.Writer) {
	fmt.Fprintf(out, "%-7s %10s %5s %8s %13s %10s %7s %9s %13s %11s\n",
		"mode", "schedulers", "fill", "placed", "placements/s", "conflicts", "fenced", "packing", "redispatched", "node moves")
}

// printRows shows the waves of one scene.
func printRows(out io.Writer, rows []row) {
	for _, r := range rows {
		note := ""
		if r.killed {
			note = "  one is killed half way"
		}
		fmt.Fprintf(out, "%-7v %10d %4.0f%% %7.1f%% %13.0f %9.2f%% %7d %8.1f%% %13d %11d%s\n",
			r.mode, r.schedulers, 100*r.fill, percent(r.placed, r.submitted), r.rate, percentOf(r.conflicts, r.proposed), r.fenced, r.packing,
			r.redispatched, r.moves, note)
	}
}

func printLegend(out io.Writer) {
	fmt.Fprint(out, `
fill          what all waves so far ask for, of the cpu
placed        of all capsules submitted so far
placements/s  in the wave, up to its last placement; where one is killed, its lease has to run out first
conflicts     placements that another scheduler was faster than, of those proposed in the wave
fenced        placements refused so far because the scheduler's lease had ended or the node had changed hands
packing       how full the cpu is of the nodes on which there is anything
redispatched  capsules and gangs that got another scheduler in the wave
node moves    nodes that changed groups in the wave, or were told to

the sums: placed as the last waves ended; conflicts in number, over all waves
`)
}

// percentOf is a share of all, 0 if there is nothing.
func percentOf(part, all int) float64 { return 100 * float64(part) / float64(max(all, 1)) }

// sum is all runs of one mode, as they ended.
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
