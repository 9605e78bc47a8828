package race

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// gate is the ledger as an engine sees it: every call stops first, and may go wrong. What the ledger answers is
// told to the audit before the engine hears of it.
type gate struct{ *actor }

// batchGate is one for a ledger that takes batches.
type batchGate struct {
	gate
	batcher orbit.Batcher
}

// gate returns the ledger for an actor's engine.
func (a *actor) gate() orbit.Ledger {
	if b, ok := a.ledger.(orbit.Batcher); ok {
		return batchGate{gate{a}, b}
	}
	return gate{a}
}

// Limits implements [orbit.Ledger].
func (g gate) Limits() orbit.Limits { return g.ledger.Limits() }

// Snapshot implements [orbit.Ledger].
func (g gate) Snapshot(ctx context.Context) (*orbit.State, error) {
	switch f := g.stop(stepSnapshot, "ask for a snapshot"); {
	case f.what == faultUnavailable:
		return nil, g.unavailable("snapshot")
	case f.what == faultStale && g.seen != nil:
		g.note(g.actor, "is given a stale snapshot: %d", g.seen.Revision())
		return g.seen, nil
	}
	floor := g.audit.newest
	state, err := g.ledger.Snapshot(ctx)
	if err != nil {
		g.note(g.actor, "snapshot: %v", err)
		return nil, err
	}
	g.audit.read(g.name, "snapshot", state.Revision(), floor)
	if g.seen == nil || g.seen.Revision() != state.Revision() {
		g.note(g.actor, "sees revision %d", state.Revision())
	}
	g.seen = state
	return state, nil
}

// unavailable is the answer of a ledger that cannot be reached.
func (g gate) unavailable(what string) error {
	g.note(g.actor, "%s: unavailable", what)
	return fmt.Errorf("race: %s: %w", what, orbit.ErrUnavailable)
}

// Changes implements [orbit.Ledger].
func (g gate) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if f := g.stop(stepRead, "ask for changes after %d", after); f.what == faultUnavailable {
		return nil, g.unavailable("changes")
	}
	floor := g.audit.newest
	changes, err := g.ledger.Changes(ctx, after)
	if err == nil && floor > after {
		newest := after
		if n := len(changes); n > 0 {
			newest = changes[n-1].Revision
		}
		g.audit.read(g.name, "changes", newest, floor)
	}
	if err == nil && len(changes) == 0 && g.resting {
		g.fail("slept through", "%s was told of a revision after %d, and there are no changes after it", g.name, after)
	}
	return changes, err
}

// wakesWithin is how long a ledger may take to wake those that wait once there is something newer, by the clock of the
// process. A ledger that works takes longer only if the machine stands still.
const wakesWithin = 20 * time.Second

// Wait implements [orbit.Ledger]. The ledger's own Wait is called; where it asks for the end of its context, which is
// where it begins to sleep, the race goes on without this actor until there is a newer revision.
func (g gate) Wait(ctx context.Context, after orbit.Revision) (orbit.Revision, error) {
	if f := g.stop(stepRead, "wait for a revision after %d", after); f.what == faultUnavailable {
		return 0, g.unavailable("wait")
	}
	d := &doze{Context: ctx, actor: g.actor, after: after, done: make(chan struct{})}
	defer d.end()
	rev, err := g.ledger.Wait(d, after)
	switch {
	case err != nil && d.woken:
		g.fail("slept through", "%s waited for a revision after %d and was not woken, though there is %d: %v", g.name, after, g.audit.newest, err)
	case err == nil && rev <= after:
		g.fail("slept through", "%s waited for a revision after %d and was told of %d", g.name, after, rev)
	case err == nil:
		g.note(g.actor, "wakes for revision %d", rev)
	}
	return rev, err
}

// doze is the context of a wait.
type doze struct {
	context.Context
	actor *actor
	after orbit.Revision
	once  sync.Once
	woken bool

	// Guards what follows.
	mu    sync.Mutex
	timer *time.Timer
	done  chan struct{}
	err   error
}

// Done is called by a ledger's WaitNewer before it sleeps. It returns at a newer revision, with a channel that closes
// if the ledger misses that revision, or at the deadline, with a closed channel.
func (d *doze) Done() <-chan struct{} {
	d.once.Do(func() {
		deadline := time.Duration(0)
		if at, ok := d.Deadline(); ok && at.Sub(d.actor.start) < ages/2 {
			deadline = max(at.Sub(d.actor.start), 1)
		}
		if d.woken = d.actor.doze(d.after, deadline); !d.woken {
			d.close()
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.timer = time.AfterFunc(wakesWithin, d.close)
	})
	return d.done
}

// Err returns why the wait is over.
func (d *doze) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// close ends the wait.
func (d *doze) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = context.DeadlineExceeded
		close(d.done)
	}
}

// end stops the clock when the ledger has answered.
func (d *doze) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
}

// Propose implements [orbit.Ledger].
func (g gate) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	p.ID = g.rename(p.ID)
	f := g.stop(stepPropose, "propose: %s", describe(&p))
	g.tally.Proposed++
	g.audit.ask(&p, g.actor)
	switch f.what {
	case faultConflict:
		g.note(g.actor, "proposes: %s: refused for no reason", describe(&p))
		return 0, &orbit.Rejection{Kind: orbit.ErrConflict, Do: -1, Reason: "made up by the race"}
	case faultUnavailable:
		return 0, g.unavailable("propose")
	case faultDropped:
		return 0, g.lost("the message is lost", &p)
	case faultLate:
		g.world.deliver(g.actor, g.audit.asked[p.ID].Proposal, f.long)
		return 0, g.lost(fmt.Sprintf("the message is late by %v", f.long), &p)
	}
	rev, err := g.ledger.Propose(ctx, p)
	before := g.atLeast
	g.heard(&p, rev, err)
	if f.what == faultUnknown {
		g.atLeast = before
		return 0, g.lost("the answer is lost", &p)
	}
	if g.Faults != (Faults{}) {
		g.stop(stepPass, "hear the answer")
	}
	return rev, err
}

// lost is the answer that never comes.
func (g gate) lost(how string, p *orbit.Proposal) error {
	g.note(g.actor, "proposes: %s: %s", describe(p), how)
	return fmt.Errorf("race: %s: %w", how, orbit.ErrUnknown)
}

// heard tells the audit what the ledger says, and counts it.
func (g gate) heard(p *orbit.Proposal, rev orbit.Revision, err error) {
	g.audit.answer(g.actor, p, rev, err)
	r := (*orbit.Rejection)(nil)
	switch {
	case err == nil:
		g.note(g.actor, "proposes: %s: committed at %d", describe(p), rev)
		g.tally.Committed++
		g.atLeast = max(g.atLeast, rev)
	case errors.As(err, &r):
		g.note(g.actor, "proposes: %s: %v", describe(p), err)
		if errors.Is(err, orbit.ErrConflict) {
			g.tally.Conflicts++
			g.losing = true
		}
		g.atLeast = max(g.atLeast, r.At)
	default:
		g.note(g.actor, "proposes: %s: %v", describe(p), err)
	}
}

// ProposeBatch implements [orbit.Batcher]: at times as one step, which tries the ledger's own, else one by one.
func (g batchGate) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	if len(batch) < 2 || g.steps%2 == 0 {
		for i := range batch {
			out[i].Revision, out[i].Err = g.Propose(ctx, batch[i])
		}
		return out
	}
	g.stop(stepPass, "propose a batch of %d", len(batch))
	batch = slices.Clone(batch) // the engine knows them by its own ids
	for i := range batch {
		batch[i].ID = g.rename(batch[i].ID)
		g.tally.Proposed++
		g.audit.ask(&batch[i], g.actor)
	}
	for i, o := range g.batcher.ProposeBatch(ctx, batch) {
		g.heard(&batch[i], o.Revision, o.Err)
		out[i] = o
	}
	if g.Faults != (Faults{}) {
		g.stop(stepPass, "hear the answers")
	}
	return out
}

// describe says what a proposal asks for, once it is printed.
func describe(p *orbit.Proposal) fmt.Stringer { return described{p} }

type described struct{ *orbit.Proposal }

// String lists the first few commitments.
func (p described) String() string {
	var b strings.Builder
	for i, do := range p.Do {
		if i == 4 {
			fmt.Fprintf(&b, " and %d more", len(p.Do)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		switch do := do.(type) {
		case orbit.Place:
			fmt.Fprintf(&b, "%s on %s", do.Capsule, do.Node)
		case orbit.Release:
			fmt.Fprintf(&b, "release %s%s", do.Capsule, do.Hold)
		case orbit.Evict:
			fmt.Fprintf(&b, "evict %s from %s", do.Capsule, do.From)
		case orbit.Hold:
			fmt.Fprintf(&b, "hold %s on %s", do.ID, do.Node)
		case orbit.Nominate:
			fmt.Fprintf(&b, "nominate %s%s", do.Gang, do.Capsule)
			for _, part := range do.Parts {
				fmt.Fprintf(&b, " on %s (%s)", part.Node, amounts(part.Room))
			}
			if len(do.Parts) == 0 {
				b.WriteString(" no more")
			}
		default:
			fmt.Fprintf(&b, "%s", strings.TrimPrefix(fmt.Sprintf("%T", do), "orbit."))
		}
	}
	return b.String()
}
