// Claims: pools hand out slots to bursts of callers. What is listed as free was free a moment ago: callers who all take the
// first slot listed lose all but one, ask again, and lose again. A pool that serves them in order and remembers what it has
// given out sends each caller to another slot. One that remembers nothing claims slots that are taken, believes that it is
// short, and boots new ones: callers wait about as long, and the store pays in round trips and in slots.
//
//	go run ./examples/claims
//
// How to read it: one row for each of three ways: from stores whose listings lag behind, with reservations and without, and
// from ledgers. Conflicts are claims of a slot that was already taken; each costs the store a round trip. With reservations
// there are none. No slot may be given to two callers at a time (doubled); the store's history is checked for that.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/orbitsched/orbit/internal/program"
)

//go:embed main.go
var source string // the program prints its first paragraph first

// options are what the flags set.
type options struct {
	pools, slots, bursts, requests int
	every, lag, latency, use       time.Duration
	seed                           uint64
}

func main() { program.Main("claims", parse, run) }

// check returns an error if a flag has an invalid value.
func (o *options) check() error {
	switch {
	case o.pools < 1 || o.pools > 1000 || o.slots < 1 || o.slots > 10_000:
		return errors.New("-pools must be 1 to 1000, and -slots 1 to 10000")
	case o.bursts < 1 || o.bursts > 1000 || o.requests < 1 || o.requests > 10_000:
		return errors.New("-bursts must be 1 to 1000, and -requests 1 to 10000")
	case min(o.every, o.lag, o.latency, o.use) < 0 || max(o.every, o.lag, o.latency, o.use) > time.Minute:
		return errors.New("-every, -lag, -latency and -use must be 0 to 1m")
	}
	return nil
}

func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("claims", "Claims lets pools hand out slots to bursts of requests, from stale stores and from ledgers, and counts conflicts.", w)
	f.IntVar(&o.pools, "pools", 3, "pools; a request goes to the one that can serve it soonest")
	f.IntVar(&o.slots, "slots", 40, "slots that each pool begins with")
	f.IntVar(&o.bursts, "bursts", 5, "bursts of requests")
	f.IntVar(&o.requests, "requests", 150, "requests in a burst")
	f.DurationVar(&o.every, "every", 250*time.Millisecond, "from one burst to the next")
	f.DurationVar(&o.lag, "lag", 200*time.Millisecond, "how far the listings of a store lag behind")
	f.DurationVar(&o.latency, "latency", 5*time.Millisecond, "how long a claim is on its way to a store and back")
	f.DurationVar(&o.use, "use", 100*time.Millisecond, "how long a slot is used, on the average, before it is idle again, as a new one")
	f.Uint64Var(&o.seed, "seed", 1, "decides how long each slot is used")
	err = program.Parse(f, args, o.check)
	return o, err
}

// run plays the three ways one after another and prints the table.
func run(ctx context.Context, o options, out io.Writer) error {
	fmt.Fprintln(out, program.Opening(source))
	fmt.Fprintf(out, "%d pools of %d slots; %d bursts of %d requests, one every %v; a slot is used for about %v, then it is idle again\n",
		o.pools, o.slots, o.bursts, o.requests, o.every, o.use)
	fmt.Fprintf(out, "a store answers a claim after %v, and its listings lag %v behind; a ledger's do not\n\n", o.latency, o.lag)
	var results []*result
	for i, way := range ways {
		fmt.Fprintf(out, "%d of %d: %s\n", i+1, len(ways), way.name) // each takes seconds
		r, err := way.play(ctx, o)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	fmt.Fprintln(out)
	printTable(out, results)
	return nil
}
