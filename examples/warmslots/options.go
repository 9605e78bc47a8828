package main

import (
	"fmt"
	"io"
	"time"

	"github.com/orbitsched/orbit/internal/program"
)

// options are what the flags set.
type options struct {
	hosts, creators, creates int
	slots, warm              int
	cache                    time.Duration
	speed                    int
	seed                     uint64
	verbose                  bool
}

// parse reads the flags, and writes what is wrong with them to w.
func parse(args []string, w io.Writer) (o options, err error) {
	f := program.Flags("warmslots", "Warmslots boots sandboxes on a simulated fleet, and shows how many found a warm slot.", w)
	f.IntVar(&o.hosts, "hosts", 20, "machines; one of them dies and comes back, one lies")
	f.IntVar(&o.creators, "creators", 64, "clients that create at the same time")
	f.IntVar(&o.creates, "creates", 3000, "sandboxes to create, over all phases")
	f.IntVar(&o.slots, "slots", 128, "sandboxes that a host has room for")
	f.IntVar(&o.warm, "warm", 12, "warm slots that a host keeps of each template it supports")
	f.DurationVar(&o.cache, "cache", 30*time.Second, "how long the gateway's view of the fleet serves, before it is divided by -speed")
	f.IntVar(&o.speed, "speed", 50, "how many times faster than a real fleet everything goes but the decisions")
	f.Uint64Var(&o.seed, "seed", 1, "decides what creators ask for; who comes first is up to the machine")
	f.BoolVar(&o.verbose, "v", false, "also every kind of refusal in full, the hosts, and what each part of the platform has counted")
	err = program.Parse(f, args, o.check)
	return o, err
}

// check returns an error if a flag has an invalid value.
func (o *options) check() error {
	for _, c := range []struct {
		flag               string
		value, least, most int
	}{
		{"-hosts", o.hosts, 1, 10_000}, {"-creators", o.creators, 1, 10_000}, {"-creates", o.creates, 1, 1_000_000},
		{"-slots", o.slots, 1, 16_384}, {"-warm", o.warm, 0, 1_000}, {"-speed", o.speed, 1, 200},
	} {
		if c.value < c.least || c.value > c.most {
			return fmt.Errorf("%s is %d; it must be at least %d and at most %d", c.flag, c.value, c.least, c.most)
		}
	}
	if o.cache < time.Second || o.cache > time.Hour {
		return fmt.Errorf("-cache is %v; it must be at least 1s and at most 1h", o.cache)
	}
	return nil
}

// of converts a duration of a real fleet to the duration in this run.
func (o options) of(d time.Duration) time.Duration { return d / time.Duration(o.speed) }

// The times of a real fleet.
const (
	heartbeat = 10 * time.Second
	stale     = 30 * time.Second
	leaseTTL  = time.Minute
	gone      = 30 * time.Second // a host is given up this long after its lease has ended; 5 min by default
	warmBoot  = 10 * time.Millisecond
	coldBoot  = 90 * time.Millisecond
	refill    = 100 * time.Millisecond // of one warm slot
)
