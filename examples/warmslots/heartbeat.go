package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/telemetry"
)

// machine is the holder of the leases of all hosts, which are simulated on one machine. A node's own id would not do: a
// second host that has the same id by mistake would have the same holder, and the lease with it.
var machine = fmt.Sprint("process ", os.Getpid())

// warmLies is the number of warm slots of each template that a lying host reports.
const warmLies = 18

// live runs the agent of a host until ctx ends: it joins, reports, and reads the ledger. After a pause longer than its
// lease it joins again. The offset keeps the hosts from reporting at the same moment.
func (h *host) live(ctx context.Context, m *lease.Members, b *telemetry.Board, offset time.Duration) error {
	var term lease.Term
	for wait := offset; sleep(ctx, wait) == nil; wait = h.options.of(heartbeat) {
		if h.isDead() {
			term = lease.Term{} // a restarted node does not know its old term
			continue
		}
		err := h.beat(ctx, m, b, &term)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("host %s: %w", h.id, err)
		}
	}
	return nil
}

// beat does one heartbeat.
func (h *host) beat(ctx context.Context, m *lease.Members, b *telemetry.Board, term *lease.Term) (err error) {
	if term.Epoch == 0 {
		if *term, err = m.Join(ctx, h.node(), machine); err != nil {
			return err
		}
	}
	r, ok := h.report(ctx, *term)
	if !ok {
		return nil // it died meanwhile
	}
	switch err := b.Report(r); {
	case errors.Is(err, lease.ErrExpired):
		*term = lease.Term{} // join again at the next heartbeat
	case errors.Is(err, lease.ErrUnheard): // the next heartbeat will be heard
	case err != nil:
		return err
	}
	return nil
}

// node returns the node as which the host joins.
func (h *host) node() orbit.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return orbit.Node{ID: h.id, Capacity: orbit.Resources{orbit.Slots: int64(h.options.slots)}}
}

// report compares the host with the ledger and returns its report; ok is false if the host is dead.
func (h *host) report(ctx context.Context, term lease.Term) (r orbit.Report, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return orbit.Report{}, false
	}
	h.reconcile(ctx)
	running := h.running()
	r = orbit.Report{
		Node: h.id, At: time.Now(), Term: term.Epoch,
		Usage:     orbit.Resources{orbit.Slots: int64(running)},
		FreeSlots: max(0, h.options.slots-running),
		Warm:      maps.Clone(h.pool), Templates: h.templates, Volumes: h.volumes,
		// Rounded, so that small changes of the load do not count as a change of the report.
		CPUPercent: 5 * math.Round(20*float64(running+3*h.booting)/float64(h.options.slots)),
	}
	if h.lying {
		for _, t := range h.templates {
			r.Warm[t] = warmLies
		}
	}
	return r, true
}

func (h *host) isDead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dead
}

// sleep waits for d, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait waits for a signal, or returns the context's error.
func wait(ctx context.Context, signal <-chan struct{}) error {
	select {
	case <-signal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
