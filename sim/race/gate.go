package race

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/orbitsched/orbit"
)

// gate is the ledger as an engine sees it. Every call stops the actor first, and may have a fault. The audit is told
// each answer of the ledger before the engine gets it.
type gate struct{ *actor }

// batchGate is the gate of a ledger that takes batches.
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

// wakesWithin is how long a ledger may take to wake waiting calls after a newer commit, by the clock of the process. A
// correct ledger takes longer only if the machine stands still.
const wakesWithin = 20 * time.Second

// Wait implements [orbit.Ledger]. It calls the ledger's own Wait with a doze as the context. When the ledger calls Done
// of that context, which is where it begins to sleep, the race goes on without this actor until there is a newer
// revision.
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

// doze is the context of a call of the ledger's Wait. It tells the race when the call begins to sleep.
type doze struct {
	context.Context
	actor *actor
	after orbit.Revision
	once  sync.Once
	woken bool

	mu    sync.Mutex // guards the fields below
	timer *time.Timer
	done  chan struct{}
	err   error
}

// Done is called by the ledger's Wait before it sleeps. It blocks until there is a newer revision or the deadline has
// come. At a newer revision it returns a channel that is closed after wakesWithin, so that a ledger that misses the
// revision returns. At the deadline it returns a closed channel.
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

// end stops the timer when the ledger has answered.
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
	kind := stepPropose
	if slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool { _, ok := do.(orbit.Hold); return ok }) {
		kind = stepHold
	}
	f := g.stop(kind, "propose: %s", describe(&p))
	g.sends(p)
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
	g.answered("hear the answer")
	return rev, err
}

// answered is the step at whose end the engine hears the answer of the ledger, which may come late.
func (g gate) answered(what string) {
	if g.Faults == (Faults{}) {
		return
	}
	if f := g.stop(stepAnswer, "%s", what); f.what == faultSlow {
		g.note(g.actor, "the answer is late by %v", f.long)
		g.stopFor(f.long, stepPass, "wait for the answer")
	}
}

// sends notes the time at which the engine sends proposals. Batches with a nomination do not count, because waiting
// work is nominated after a certain time, even if nothing else happens.
func (g gate) sends(batch ...orbit.Proposal) {
	if g.play != nil && !slices.ContainsFunc(batch, nominates) {
		g.play.sent = g.now
	}
}

// nominates reports whether a proposal makes a nomination.
func nominates(p orbit.Proposal) bool {
	return slices.ContainsFunc(p.Do, func(do orbit.Commitment) bool {
		n, is := do.(orbit.Nominate)
		return is && len(n.Parts) > 0
	})
}

// lost returns the error of a proposal whose answer never comes.
func (g gate) lost(how string, p *orbit.Proposal) error {
	g.note(g.actor, "proposes: %s: %s", describe(p), how)
	return fmt.Errorf("race: %s: %w", how, orbit.ErrUnknown)
}

// heard tells the audit the answer to a proposal, and counts it.
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

// ProposeBatch implements [orbit.Batcher]. In about half of the cases the batch is one step, which calls the ledger's
// ProposeBatch; otherwise the proposals are sent one by one.
func (g batchGate) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	if len(batch) < 2 || g.steps%2 == 0 {
		for i := range batch {
			out[i].Revision, out[i].Err = g.Propose(ctx, batch[i])
		}
		return out
	}
	g.stop(stepPass, "propose a batch of %d", len(batch))
	g.sends(batch...)
	batch = slices.Clone(batch) // the engine's own batch must keep the engine's ids
	for i := range batch {
		batch[i].ID = g.rename(batch[i].ID)
		g.tally.Proposed++
		g.audit.ask(&batch[i], g.actor)
	}
	for i, o := range g.batcher.ProposeBatch(ctx, batch) {
		g.heard(&batch[i], o.Revision, o.Err)
		out[i] = o
	}
	g.answered("hear the answers")
	return out
}
