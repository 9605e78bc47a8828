package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// printPhases prints the results of the creates by phase.
func printPhases(out io.Writer, all []*phase, tallies map[*phase]*tally) {
	fmt.Fprintf(out, "%-8s %8s %10s %6s\n", "phase", "created", "creates/s", "warm")
	for _, ph := range all {
		t := tallies[ph]
		fmt.Fprintf(out, "%-8s %8d %10.0f %5.0f%%\n", ph.name, t.created,
			float64(t.created)/max(ph.ended.Sub(ph.began).Seconds(), 1e-9), percent(t.warm, t.created))
	}
	fmt.Fprintln(out)
}

// printDecisions prints more of the results by phase.
func printDecisions(out io.Writer, all []*phase, tallies map[*phase]*tally) {
	fmt.Fprintln(out, "p50 and p99 are of the decision, in which waiting for the machine counts")
	fmt.Fprintf(out, "%-8s %7s %7s %8s %8s %10s %10s\n", "phase", "warm", "cold", "retried", "refused", "p50", "p99")
	for _, ph := range all {
		t := tallies[ph]
		fmt.Fprintf(out, "%-8s %7d %7d %8d %8d %10v %10v\n", ph.name, t.warm, t.created-t.warm, t.retried, t.refused,
			quantile(t.decisions, 0.50), quantile(t.decisions, 0.99))
	}
	fmt.Fprintln(out)
}

// printHosts prints the counts of the host that died, of the one that lied, and of all others together.
func printHosts(out io.Writer, f *fleet, state *orbit.State) {
	fmt.Fprintln(out, "by host; lies were promised warm and booted cold; again are those that it booted because they had lost their host")
	fmt.Fprintf(out, "%-14s %8s %7s %7s %7s %7s %8s\n", "host", "creates", "warm", "cold", "lies", "again", "running")
	rest, others, running := hostTally{}, 0, 0
	for _, h := range f.hosts {
		on := state.Node(h.id).Capsules
		if part := f.part(h); part != "" {
			printHost(out, string(h.id)+" "+part, h.counts(), on)
			continue
		}
		rest.add(h.counts())
		others, running = others+1, running+on
	}
	printHost(out, fmt.Sprintf("%d others", others), rest, running)
	fmt.Fprintln(out)
}

// part returns the role of a host in the demonstration.
func (f *fleet) part(h *host) (part string) {
	if h == f.victim {
		part = "died"
	}
	if h == f.liar {
		part += "lied"
	}
	return part
}

func printHost(out io.Writer, name string, t hostTally, running int) {
	fmt.Fprintf(out, "%-14s %8d %7d %7d %7d %7d %8d\n", name, t.warm+t.cold, t.warm, t.cold, t.lies, t.again, running)
}

// printCounts prints the counts of the parts of the platform.
func (p *platform) printCounts(out io.Writer, total *tally, history *audit) {
	g, b := p.gateway.Stats(), p.board.Stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(out, "creates   %d, of which %d with a volume, %d forks; %d deleted\n",
		total.created, total.volumes, total.forks, total.deleted)
	fmt.Fprintf(out, "gateway   %d created, %d warm, %d cold, %d lies, %d retried, %d conflicts, %d views\n",
		g.Created, g.Warm, g.Cold, g.Lies, g.Retried, g.Conflicts, g.Refreshes)
	fmt.Fprintf(out, "refused   %s; clients asked again\n", p.refused())
	fmt.Fprintf(out, "board     %d reports, %d of them news; %d claims, %d taken back, %d pools found empty\n",
		b.Reports, b.Changed, b.Claims, b.Unclaimed, b.Exhausted)
	fmt.Fprintf(out, "          %d refused without a lease, %d of an old term, %d unheard, %d for other reasons\n",
		b.Unleased, b.OldTerm, b.Unheard, b.Invalid+b.Oversized+b.Outdated+b.Flooded+b.Full)
	fmt.Fprintf(out, "members   %d leases ended, %d sandboxes returned to pending\n", len(p.ended), p.returned)
	fmt.Fprintf(out, "warm      %d of them placed again\n", p.replaced)
	fmt.Fprintf(out, "history   %d commits replayed; %d placed twice or beyond a host's slots\n\n", history.commits, history.doubled)
}

// quantile returns the time that this share of the times does not exceed, rounded for printing.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	t := times[min(int(share*float64(len(times))), len(times)-1)]
	switch {
	case t > 10*time.Millisecond:
		return t.Round(100 * time.Microsecond)
	case t > 100*time.Microsecond:
		return t.Round(time.Microsecond)
	}
	return t.Round(10 * time.Nanosecond)
}
