package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

// templates are the templates of sandboxes. Each host lacks one of them, in turn.
var templates = []string{"python", "node", "browser"}

// fleet has all hosts.
type fleet struct {
	hosts []*host
	byID  map[orbit.NodeID]*host
	// victim is the host that dies, liar the host that reports warm slots which it does not have. In a fleet of one
	// host both are the same.
	victim, liar *host
}

func newFleet(o options, ledger orbit.Ledger) *fleet {
	f := &fleet{byID: map[orbit.NodeID]*host{}}
	for i := range o.hosts {
		h := newHost(orbit.NodeID(fmt.Sprintf("host-%04d", i)), o, ledger)
		for k, t := range templates {
			if o.hosts < len(templates) || (i+k)%len(templates) != 0 {
				h.templates = append(h.templates, t)
			}
		}
		h.volumes = []string{volume(i), volume((i + 1) % o.hosts)}
		f.hosts, f.byID[h.id] = append(f.hosts, h), h
	}
	f.victim, f.liar = f.hosts[o.hosts/3], f.hosts[o.hosts-1]
	return f
}

// volume returns the name of the i-th volume. Host i and the host before it have the volume, so that it is still there
// when one of them dies.
func volume(i int) string { return fmt.Sprintf("volume-%04d", i) }

// aVolume returns a random volume, and a template that both of its hosts have.
func (f *fleet) aVolume(r *rand.Rand) (name, template string) {
	n := len(f.hosts)
	i := r.IntN(n)
	for _, t := range f.hosts[i].templates {
		if slices.Contains(f.hosts[(i+n-1)%n].templates, t) {
			template = t
		}
	}
	return volume(i), template
}

// start is called by the gateway. It passes the create on to the agent of the host.
func (f *fleet) start(ctx context.Context, c sandbox.Created) (warm bool, err error) {
	return f.byID[c.Node].boot(ctx, &c)
}

// live runs all hosts until ctx ends. Their heartbeats are spread over time.
func (f *fleet) live(ctx context.Context, m *lease.Members, b *telemetry.Board) error {
	group, ctx := errgroup.WithContext(ctx)
	for i, h := range f.hosts {
		h.fill()
		offset := h.options.of(heartbeat) * time.Duration(i) / time.Duration(len(f.hosts))
		group.Go(func() error { h.refill(ctx); return nil })
		group.Go(func() error { return h.live(ctx, m, b, offset) })
	}
	defer f.settle()
	return group.Wait()
}

// settle waits for the boots that the hosts have begun without the gateway.
func (f *fleet) settle() {
	for _, h := range f.hosts {
		h.boots.Wait()
	}
}
