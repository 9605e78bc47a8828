package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// printPhases shows what came of the creates, phase by phase.
func printPhases(out io.Writer, all []*phase, tallies map[*phase]*tally) {
	fmt.Fprintln(out, "by phase: warm and cold as they booted, promised as the gateway chose, lies that were promised and booted cold;\n"+
		"p50 and p99 of the decision, in which waiting for the machine counts")
	fmt.Fprintf(out, "%-8s %8s %10s %7s %7s %7s %9s %7s %8s %8s %8s %10s %10s\n",
		"phase", "created", "creates/s", "warm", "cold", "share", "promised", "lies", "retried", "refused", "deleted", "p50", "p99")
	for _, ph := range all {
		t := tallies[ph]
		fmt.Fprintf(out, "%-8s %8d %10.0f %7d %7d %6.1f%% %8.1f%% %7d %8d %8d %8d %10v %10v\n",
			ph.name, t.created, float64(t.created)/max(ph.ended.Sub(ph.began).Seconds(), 1e-9),
			t.warm, t.created-t.warm, percent(t.warm, t.created), percent(t.promised, t.created), t.lies, t.retried, t.refused, t.deleted,
			quantile(t.decisions, 0.50), quantile(t.decisions, 0.99))
	}
	fmt.Fprintln(out)
}

// mostHosts is how many hosts are shown one by one, beside the two that have a part to play.
const mostHosts = 8

// printHosts shows what each host did: the one that died, the one that lied, and as many others as fit.
func printHosts(out io.Writer, f *fleet, state *orbit.State) {
	fmt.Fprintln(out, "by host: failed are those that it did not start; again, those that it booted because they had lost their host;\n"+
		"terms, how often it joined")
	fmt.Fprintf(out, "%-12s %-8s %8s %7s %7s %7s %7s %7s %6s %8s\n", "host", "", "creates", "warm", "cold", "lies", "failed", "again", "terms", "running")
	rest, shown, others, running := hostTally{}, 0, 0, 0
	for _, h := range f.hosts {
		part := f.part(h)
		if part == "" {
			shown++
		}
		if part == "" && shown > mostHosts {
			rest.add(h.counts())
			others, running = others+1, running+state.Node(h.id).Capsules
			continue
		}
		printHost(out, string(h.id), part, h.counts(), state.Node(h.id).Capsules)
	}
	if others > 0 {
		printHost(out, fmt.Sprintf("%d others", others), "", rest, running)
	}
	fmt.Fprintln(out)
}

// part is what a host has to do in the demonstration.
func (f *fleet) part(h *host) (part string) {
	if h == f.victim {
		part = "dies"
	}
	if h == f.liar {
		part += "lies"
	}
	return part
}

func printHost(out io.Writer, name, part string, t hostTally, running int) {
	fmt.Fprintf(out, "%-12s %-8s %8d %7d %7d %7d %7d %7d %6d %8d\n",
		name, part, t.warm+t.cold, t.warm, t.cold, t.lies, t.failed, t.again, t.joined, running)
}

// printCounts shows what the parts of the platform have counted.
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
		b.Unleased, b.OldTerm, b.Unheard, b.Invalid+b.Oversized+b.Outdated+b.Ahead+b.Flooded+b.Full)
	fmt.Fprintf(out, "members   %d leases ended, %d sandboxes returned to pending\n", len(p.ended), p.returned)
	fmt.Fprintf(out, "warm      %d of them placed again\n", p.replaced)
	fmt.Fprintf(out, "history   %d commits replayed; %d placed twice or beyond a host's slots\n\n", history.commits, history.doubled)
}

// quantile is the time that this share of times is not above, rounded to what can be told apart.
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
