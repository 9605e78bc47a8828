// Warmslots: a fleet of simulated hosts boots sandboxes for many creators at once. Hosts join under leases, send
// heartbeats and refill pools of warm slots; one of them dies with sandboxes on it, one lies about its pools. It shows
// how many creates found a warm slot, what became of the others, and how long choosing a host took.
//
//	go run ./examples/warmslots -hosts 20 -creators 64 -creates 3000
//
// The times are those of a real fleet (a heartbeat every 10 s, a lease of 60 s, a cold boot of 90 ms), divided by
// -speed. Goroutines, clocks and races are real; so are the times of the decisions, which nothing divides.
package main

import "github.com/orbitsched/orbit/internal/program"

func main() { program.Main("warmslots", parse, run) }
