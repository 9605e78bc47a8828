package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/guard"
)

// start has the node start the committed capsule, and if that fails the next best node, once.
func (c *create) start(ctx context.Context) error {
	if c.g.Start == nil {
		return nil
	}
	first := c.startOnce(ctx)
	if first == nil {
		return nil
	}
	failed := &StartError{Node: c.made.Node, Err: first}
	if c.panicked {
		return failed
	}
	if failed.RetryErr = ctx.Err(); failed.RetryErr == nil {
		failed.RetryErr = c.retry(ctx, failed)
	}
	if failed.RetryErr != nil {
		return failed
	}
	return nil
}

var errOnlyAttempt = errors.New("the spec of the capsule permits one attempt")

// retry moves the capsule to the next best node and has it started there. It is planned on a view that shows the capsule
// where this create has placed it (see plan), so that the move is refused if another create has the id by then.
func (c *create) retry(ctx context.Context, failed *StartError) error {
	if c.made.Spec.Attempts == 1 {
		return errOnlyAttempt
	}
	c.exclude(failed.Node)
	if err := c.commit(ctx); err != nil {
		return err
	}
	failed.Retry, c.made.Retried = c.made.Node, true
	c.g.tally(func(s *GatewayStats) { s.Retried++ })
	return c.startOnce(ctx)
}

// startTimeout returns the bound of one Start; negative: there is none.
func (g *Gateway) startTimeout() time.Duration { return cmp.Or(g.StartTimeout, defaultStart) }

// startOnce calls Start, and records if the node has failed or has booted cold although a warm slot was promised. If
// the caller's context has ended, or Start has panicked, the node is not blamed.
func (c *create) startOnce(ctx context.Context) error {
	warm, err := c.callStart(ctx)
	switch {
	case err != nil && (ctx.Err() != nil || c.panicked):
	case err != nil:
		c.failedAt = time.Now()
		c.g.blame(c.made.Node, c.made.Spec.Start.Template, c.failedAt)
	default:
		c.g.praise(c.made.Node, c.made.Spec.Start.Template)
		if c.made.Warm = warm; c.made.Promised && !warm {
			c.g.exhausted(c.made.Node, c.made.Spec.Start.Template)
		}
	}
	return err
}

// callStart calls Start and recovers from its panics. If Start ends the goroutine, callStart cleans up as after a
// failure.
func (c *create) callStart(ctx context.Context) (warm bool, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			c.panicked, err = true, &PanicError{Value: value}
			return
		}
		_ = c.cleanUp(ctx, nil) // runtime.Goexit: no caller is left to tell
	}()
	bounded, cancel := c.startContext(ctx)
	defer cancel()
	warm, err = c.g.Start(bounded, c.made)
	returned = true
	return warm, guard.Said(err)
}

// startContext returns the context of one Start. The first Start gets at most half of the caller's remaining time, so
// that the other node has as much.
func (c *create) startContext(ctx context.Context) (context.Context, context.CancelFunc) {
	most := c.g.startTimeout()
	if most < 0 {
		return ctx, func() {}
	}
	if end, ok := ctx.Deadline(); ok && !c.made.Retried {
		most = min(most, time.Until(end)/2)
	}
	return context.WithTimeout(ctx, most)
}

// cleanUp undoes what a create has committed, even if its context has ended. It returns the error, joined with
// [ErrLeftBehind] if the undo has failed.
func (c *create) cleanUp(ctx context.Context, why error) error {
	if !c.committed && c.unknown == nil {
		return why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(max(c.g.CleanUp, 0), defaultCleanUp))
	defer cancel()
	if err := c.undo(ctx); err != nil {
		return errors.Join(why, fmt.Errorf("%w, delete it later: %w", ErrLeftBehind, err))
	}
	return why
}

// undo releases the capsule for good. It first sends a proposal of unknown outcome again and waits for the answer,
// because that proposal must not arrive after the release.
func (c *create) undo(ctx context.Context) error {
	if p := c.unknown; p != nil {
		rev, err := c.g.send(ctx, p, orbit.ErrUnknown)
		c.g.conclude(p.ID)
		switch {
		case err == nil:
			c.committed, c.made.Revision = true, rev
		case rejection(err) == nil:
			return err
		case !c.committed:
			return nil
		}
	}
	if err := c.g.release(ctx, c.made.Capsule, c.made.Revision); !errors.Is(err, ErrNoCapsule) {
		return err
	}
	return nil
}

// conclude takes the bet of a proposal back after undo has sent it again: its outcome is known and its capsule will be
// released, or no caller asks any more. If it was committed, the next view shows that.
func (g *Gateway) conclude(id orbit.ProposalID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.bets {
		if b.id == id && b.outcome == betOpen {
			g.undo(b)
		}
	}
}

// release releases a capsule for good, wherever it is. With a revision at which the capsule was known, it leaves alone
// one that was submitted later under the same id; 0: it releases the one that has the id now. After a refusal the
// capsule's record decides, because the refusal does not tell: a capsule that still runs after a conflict is released
// again, until ctx ends.
func (g *Gateway) release(ctx context.Context, id orbit.CapsuleID, known orbit.Revision) error {
	p := orbit.Proposal{ID: orbit.NewProposalID(), View: known, Do: []orbit.Commitment{orbit.Release{Capsule: id, Final: true}}}
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		_, err := g.send(ctx, &p, nil)
		r := rejection(err)
		if r == nil || errors.Is(err, orbit.ErrInvalid) {
			return err
		}
		state, failed := g.stateAt(ctx, r.At)
		if failed != nil {
			return failed
		}
		switch c := state.Capsule(id); {
		case c == nil:
			return ErrNoCapsule
		case c.Released() || known > 0 && c.SubmittedAt() > known:
			return nil
		case !isConflict(r):
			return err
		}
		if ended := sleep(ctx, pause); ended != nil {
			return fmt.Errorf("%w; %w", err, ended)
		}
	}
}

// stateAt returns the ledger's state once it has reached a revision.
func (g *Gateway) stateAt(ctx context.Context, at orbit.Revision) (*orbit.State, error) {
	for {
		state, err := g.Ledger.Snapshot(ctx)
		if err != nil || state.Revision() >= at {
			return state, err
		}
		if err := g.catchUp(ctx, state.Revision()); err != nil {
			return nil, err
		}
	}
}

// catchUp waits until the ledger is past a revision, because snapshots may lag behind a receipt.
func (g *Gateway) catchUp(ctx context.Context, seen orbit.Revision) error {
	if _, err := g.Ledger.Wait(ctx, seen); err != nil {
		return err
	}
	return sleep(ctx, time.Millisecond)
}
