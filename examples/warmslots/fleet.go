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

// templates are what sandboxes boot from. Of three hosts each lacks another one.
var templates = []string{"python", "node", "browser"}

// fleet is all hosts.
type fleet struct {
	hosts []*host
	byID  map[orbit.NodeID]*host
	// The one that dies, and the one that lies; with one host, that is the same.
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

// volume names the i-th volume. It is on the i-th host and on the one before, so that one of them may die.
func volume(i int) string { return fmt.Sprintf("volume-%04d", i) }

// aVolume draws a volume, and a template that both of its hosts support.
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

// start is what the gateway calls: the create is forwarded to the agent of the host.
func (f *fleet) start(ctx context.Context, c sandbox.Created) (warm bool, err error) {
	return f.byID[c.Node].boot(ctx, &c)
}

// live lets all hosts live until ctx ends. Their heartbeats are spread over time.
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

// settle waits for what the hosts have begun to boot by themselves.
func (f *fleet) settle() {
	for _, h := range f.hosts {
		h.boots.Wait()
	}
}
