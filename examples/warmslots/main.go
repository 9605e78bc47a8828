// Warmslots: a fleet of simulated hosts boots sandboxes for many creators at once. Hosts join under leases, send
// heartbeats and refill pools of warm slots; one of them dies with sandboxes on it, one lies about its pools.
//
//	go run ./examples/warmslots
//
// How to read it: the output first shows the events, second by second; then how many creates found a warm slot, in each
// phase and on the hosts that died, lied or did neither. The last line sums up: all sandboxes were created, none twice,
// and how long a choice took.
//
// The times are those of a real fleet (a heartbeat every 10 s, a lease of 60 s, a cold boot of 90 ms), divided by
// -speed. Goroutines, clocks and races are real; so are the times of the decisions, which are not divided.
package main

import "github.com/orbitsched/orbit/internal/program"

func main() { program.Main("warmslots", parse, run) }
