package main

import (
	"fmt"
	"io"
	"time"
)

// printTable prints a line for each way, what the columns mean, and the sum.
func printTable(out io.Writer, results []*result) {
	fmt.Fprintf(out, "%-28s %12s %9s %9s %9s %10s %10s %8s\n", "slots from", "claimed", "claims/s", "p50", "p99", "conflicts", "new slots", "doubled")
	var claimed, requests, doubled, with, without int
	for _, r := range results {
		fmt.Fprintf(out, "%-28s %5d of %3d %9.0f %9s %9s %10d %10d %8d\n", r.name, r.claimed, r.requests,
			float64(r.claimed)/max(r.took, 1).Seconds(), r.percentile(50), r.percentile(99), r.conflicts, r.booted, r.doubled)
		claimed, requests, doubled = claimed+r.claimed, requests+r.requests, doubled+r.doubled
		if r.reserved {
			with += r.conflicts
		} else {
			without += r.conflicts
		}
	}
	fmt.Fprint(out, `
claims/s   from the first request to the last answer; bursts have pauses between them
p50, p99   how long a caller waited for a slot, shortages included
conflicts  claims that lost: a stale listing showed a slot that was taken, and each cost a round trip
new slots  slots that the pools have booted because they were short; each costs money, and makes the wait shorter
doubled    slots given to one caller while another had them, counted in the history of the store

`)
	fmt.Fprintf(out, "claimed %d of %d, doubled %d, conflicts %d with reservations, %d without\n", claimed, requests, doubled, with, without)
}

// percentile returns the time that p percent of the callers did not wait longer than.
func (r *result) percentile(p int) string {
	if len(r.waited) == 0 {
		return "-"
	}
	d := r.waited[(len(r.waited)-1)*p/100]
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Millisecond).String()
}
