package main

import (
	"fmt"
	"io"

	"github.com/orbitsched/orbit"
)

// printShares prints the bound share of the capsules after each pass, up to the last pass that has bound anything.
func printShares(out io.Writer, runs []*start) {
	fmt.Fprint(out, "share of all capsules bound after each pass; in a pass each navigator, which is what plans for a scheduler, plans once\n\npass")
	for _, s := range runs {
		fmt.Fprintf(out, " %10s", s.way.name)
	}
	fmt.Fprintln(out)
	last := lastMove(runs)
	for pass := range runs[0].bound {
		if pass > last {
			fmt.Fprintf(out, "...  nothing moves any more, up to pass %d\n", len(runs[0].bound))
			break
		}
		fmt.Fprintf(out, "%4d", pass+1)
		for _, s := range runs {
			fmt.Fprintf(out, " %9.1f%%", percent(s.bound[pass], s.world.capsules()))
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
}

// lastMove returns the last pass that has bound anything.
func lastMove(runs []*start) (last int) {
	for _, s := range runs {
		for pass := 1; pass < len(s.bound); pass++ {
			if s.bound[pass] != s.bound[pass-1] {
				last = max(last, pass)
			}
		}
	}
	return last
}

// printStarts prints how many groups were started, and where.
func printStarts(out io.Writer, runs []*start) {
	fmt.Fprintf(out, "%-10s %13s %15s %9s %14s %10s\n", "way", "groups whole", "racks a group", "anchors", "assisted share", "conflicts")
	for _, s := range runs {
		fmt.Fprintf(out, "%-10s %6d of %3d %15d %9d %13.1f%% %10d\n", s.way.name, s.whole, len(s.world.groups), s.racks,
			s.watch.Anchors, 100*float64(s.watch.Assisted)/float64(max(s.watch.Placed, 1)), s.conflicts)
	}
	fmt.Fprint(out, `
groups whole    groups of which all members are placed
racks a group   racks that the members of one group are in, at most
assisted share  anchors and the members that followed them, of all capsules placed
conflicts       proposals that another navigator was faster than; none is expected here, where navigators take turns

`)
	for _, s := range runs {
		if s.why != "" {
			fmt.Fprintf(out, "left with %s: %d capsules, as %s\n\n", s.way.name, s.world.capsules()-s.bound[len(s.bound)-1], s.why)
		}
	}
}

// printRace prints how many conflicts the navigators had in the race.
func printRace(out io.Writer, w *world, racers []*racer, state *orbit.State) {
	fmt.Fprintf(out, "race: three navigators plan at the same time, pass after pass: %d nodes, %d capsules, %.0f%% of memory taken at the end\n\n",
		len(w.nodes), w.capsules(), memoryTaken(state))
	fmt.Fprintf(out, "%-10s %10s %10s %10s %10s %22s\n", "navigator", "proposals", "committed", "conflicts", "share", "last placed in pass")
	for _, r := range racers {
		fmt.Fprintf(out, "%-10s %10d %10d %10d %9.1f%% %22d\n",
			r.name, r.proposed, r.committed, r.conflicts, 100*float64(r.conflicts)/float64(max(r.proposed, 1)), r.last)
	}
	fmt.Fprint(out, `
proposals            placements sent to the ledger, for a gang one of all its members
conflicts, share     proposals that another navigator was faster than, and of how many of all; each is planned again
last placed in pass  the last pass in which this navigator placed anything
verify               everything was counted again from the ledger's records, and no node is over its capacity

`)
	fmt.Fprintf(out, "after %d passes: %d of %d capsules placed; %d that wait would fit on a node\nverify: ok\n\n",
		turns, w.capsules()-state.PendingCount(), w.capsules(), stillFits(state))
}

// memoryTaken returns which part of all memory is in use, in percent.
func memoryTaken(state *orbit.State) float64 {
	used, all := 0.0, 0.0
	for n := range state.Nodes() {
		used += float64(n.Used()[orbit.Memory])
		all += float64(n.Node.Capacity[orbit.Memory])
	}
	return 100 * used / all
}
