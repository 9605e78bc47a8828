package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// addUp compares the counts of creators, hosts, gateway, members, engine and ledger, and returns the differences as an
// error. Nothing may be under way any more.
func (p *platform) addUp(ctx context.Context, state *orbit.State, total *tally, history *audit) error {
	stats, hosts := p.gateway.Stats(), p.fleet.tally()
	p.mu.Lock()
	defer p.mu.Unlock()
	placed := 0
	for n := range state.Nodes() {
		placed += n.Capsules
	}
	faults := p.faults
	for _, c := range []struct {
		what string
		a, b int
	}{
		{"creates asked for, and created", p.options.creates, total.created},
		{"created, by the creators and the gateway", total.created, int(stats.Created)},
		{"warm, by the creators and the gateway", total.warm, int(stats.Warm)},
		{"cold, by the creators and the gateway", total.created - total.warm, int(stats.Cold)},
		{"lies, by the creators and the gateway", total.lies, int(stats.Lies)},
		{"refused, by the creators and the gateway", total.refused, int(stats.Failed)},
		{"not started, by the creators and the gateway", p.refusals[sandbox.ErrStart], int(stats.Unstarted)},
		{"warm, by the gateway and the hosts", int(stats.Warm), hosts.warm},
		{"cold, by the gateway and the hosts", int(stats.Cold), hosts.cold},
		{"lies, by the gateway and the hosts", int(stats.Lies), hosts.lies},
		{"created and not deleted, and placed in the ledger", total.created - total.deleted, placed},
		{"pending, and none", state.PendingCount(), 0},
		{"returned to pending, by the members and the history", p.returned, history.returned},
		{"placed again, by the engine and the history", p.replaced, history.replaced},
		{"placed twice or beyond capacity, and none", history.doubled, 0},
	} {
		if c.a != c.b {
			faults = append(faults, fmt.Errorf("%s: %d and %d", c.what, c.a, c.b))
		}
	}
	for _, h := range p.fleet.hosts {
		faults = append(faults, h.sameAs(ctx, state))
	}
	return errors.Join(faults...)
}

// tally returns the sums of all hosts.
func (f *fleet) tally() (t hostTally) {
	for _, h := range f.hosts {
		t.add(h.counts())
	}
	return t
}

// counts returns the counts of a host.
func (h *host) counts() hostTally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tally
}

// sameAs returns an error if a host does not run exactly the capsules that the state has placed on it. The host first
// reads the ledger once more.
func (h *host) sameAs(ctx context.Context, state *orbit.State) error {
	h.mu.Lock()
	h.reconcile(ctx)
	h.mu.Unlock()
	h.boots.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range state.On(h.id) {
		if s := h.sandboxes[c.ID]; s == nil || s.stopped || s.failed {
			return fmt.Errorf("%s does not run %s", h.id, c.ID)
		}
	}
	if n := state.Node(h.id).Capsules; n != len(h.sandboxes) {
		return fmt.Errorf("%s runs %d sandboxes, but should run %d", h.id, len(h.sandboxes), n)
	}
	return nil
}
