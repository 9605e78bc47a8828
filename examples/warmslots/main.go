// Warmslots: many creators boot sandboxes on a fleet at once. From a warm slot a sandbox starts in 10 ms, without one in 90, so
// the host should be chosen by what it has warm now. But all that is known is what hosts said at their last heartbeat, and
// all creators read the same: they would all go to the same host, and to the one that lies or has died. Here heartbeats
// advise, and the ledger alone decides who has which slot.
//
//	go run ./examples/warmslots
//
// How to read it: first what happens, second by second; then how many creates found a warm slot, in each phase. The last
// line sums up: all sandboxes were created, none twice, and how long a choice took. -v shows every kind of refusal in full,
// the hosts that died, lied or did neither, and the counts of each part. The hosts are simulated.
//
// The times are those of a real fleet (a heartbeat every 10 s, a lease of 60 s, a cold boot of 90 ms), divided by
// -speed. Goroutines, clocks and races are real; so are the times of the decisions, which are not divided.
package main

import (
	_ "embed"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

func main() { program.Main("warmslots", parse, run) }
