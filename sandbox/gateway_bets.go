package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/telemetry"
)

// bet is a chosen node, for which a placement has been proposed. The loads are debited from the choice on, so that no
// other create chooses the same slot. The debit ends when the proposal was refused, or when the view shows the
// placement: the part for the ledger's room ends when the view has reached the revision of the commit, the part for the
// node's report when telemetry has been read again, because the board shows the claim by then.
type bet struct {
	id       orbit.ProposalID
	debit    debit
	claim    telemetry.Claim
	outcome  betOutcome
	revision orbit.Revision // of the commit
}

// betOutcome is what became of the proposal of a bet.
type betOutcome uint8

const (
	betOpen betOutcome = iota
	betCommitted
	betVoid
	betVacated // committed, and released since
	betMoved   // committed, and a later bet moves it: its node failed to start it
)

// choose finds a node and debits it. It waits for a newer view where one is needed: only a view from after the
// beginning of the create may be the reason of a refusal.
func (c *create) choose(ctx context.Context) (*bet, error) {
	start := time.Now()
	defer func() { c.made.Decision += time.Since(start) }()
	for {
		b, wait, err := c.tryChoose()
		if wait == nil {
			return b, err
		}
		if err := wait(ctx); err != nil {
			return nil, err
		}
	}
}

// tryChoose chooses a node, or returns the function with which to wait first.
func (c *create) tryChoose() (_ *bet, wait func(context.Context) error, _ error) {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.asked {
		c.asked, c.since = true, g.refreshesBegun
	}
	if r := g.refreshing; r != nil {
		return nil, r.wait, nil
	}
	if g.due(c) {
		return nil, g.beginRefresh(), nil
	}
	b, err := c.bet()
	switch {
	case err == nil:
		return b, nil, nil
	case g.viewNumber > c.since:
		return nil, nil, err
	}
	if pause := refusalPace - time.Since(g.refreshBegan); pause > 0 {
		return nil, func(ctx context.Context) error { return sleep(ctx, pause) }, nil
	}
	return nil, g.beginRefresh(), nil
}

// bet chooses a node and debits it. The caller holds the lock.
//
// The board knows of claims that the view does not show yet. If the view shows a warm slot that the board knows to be
// taken, another node may be better: bet corrects the loads and chooses again, at most maxCorrections times. The caller
// is promised what the board says.
func (c *create) bet() (*bet, error) {
	g := c.g
	c.ask.now = time.Now()
	for tries := 0; ; tries++ {
		on, err := g.loads.best(&c.ask)
		if err != nil {
			return nil, err
		}
		b := &bet{id: orbit.NewProposalID()}
		if g.Board != nil {
			b.claim = g.Board.Claim(on.Node.Node.ID, c.ask.spec.Start.Template)
		}
		if knows := g.Board != nil && g.Telemetry == nil; knows && on.warm != b.claim.Warm() {
			if on.warm && tries < maxCorrections {
				g.Board.Unclaim(b.claim)
				g.loads.exhaust(on.Node.Node.ID, c.ask.spec.Start.Template)
				continue
			}
			on.warm = b.claim.Warm()
		}
		if err := c.plan(b, &on); err != nil {
			if g.Board != nil {
				g.Board.Unclaim(b.claim)
			}
			return nil, err
		}
		g.bets = append(g.bets, b)
		g.loads.failing.tried(b.debit.node, c.ask.spec.Start.Template, c.ask.now, g.startTimeout())
		return b, nil
	}
}

// plan drafts the proposal of a bet: it submits and places the capsule, or places it anew after a node has failed to
// start it. One proposal does both, so the capsule is never pending in between, when its owner's engine would place it.
// The caller holds the lock.
func (c *create) plan(b *bet, on *choice) (err error) {
	loads := &c.g.loads
	if c.placed != nil {
		if mine := loads.state.Capsule(c.made.Capsule); mine == nil || mine.PlacedAt != c.made.Revision {
			return fmt.Errorf("%w: capsule %q is no longer where this create has placed it", ErrTaken, c.made.Capsule)
		}
	}
	if c.placed != nil && c.placed.outcome == betCommitted {
		loads.giveRoom(&c.placed.debit)
		c.placed.outcome = betMoved
	}
	start := loads.draft.Checkpoint()
	if c.placed == nil {
		err = loads.draft.Add(orbit.Submit{IDs: []orbit.CapsuleID{c.made.Capsule}, Spec: c.made.Spec, Owner: c.g.Owner})
	}
	if err == nil {
		b.debit, err = loads.take(&orbit.Capsule{ID: c.made.Capsule, Spec: c.made.Spec}, on)
	}
	if err != nil {
		loads.draft.Rollback(start)
		if errors.Is(err, orbit.ErrInfeasible) { // another create of the id is under way
			err = fmt.Errorf("%w: %w", ErrTaken, err)
		}
		return err
	}
	c.g.planned++
	c.proposal = loads.propose(c.ask.leases, b.debit.node)
	c.proposal.ID = b.id
	if c.placed != nil {
		stopped := orbit.Release{Capsule: c.made.Capsule, From: c.placed.debit.node, Stopped: true, At: orbit.Instant(c.failedAt.UnixNano())}
		c.proposal.Do = append([]orbit.Commitment{stopped}, c.proposal.Do...)
	}
	return nil
}

// maxCorrections is how often a create chooses again because the board has fewer warm slots than the view.
const maxCorrections = 8

// void takes back a bet whose proposal was refused. After a conflict the view has to reach the revision of the commit
// that it was lost to; one refresh serves all creates that lost to the same commit.
func (g *Gateway) void(b *bet, r *orbit.Rejection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.undo(b)
	if r != nil && isConflict(r) {
		g.stats.Conflicts++
		g.wanted = max(g.wanted, cmp.Or(r.TakenAt, r.At))
	}
}

// undo takes a bet back. The caller holds the lock.
func (g *Gateway) undo(b *bet) {
	g.loads.undo(&b.debit)
	b.outcome = betVoid
	if g.Board != nil {
		g.Board.Unclaim(b.claim)
	}
}

// recharge debits the bets again that a new view does not show yet, and forgets the others. reported says that
// telemetry was read with that view. The caller holds the lock.
func (g *Gateway) recharge(state *orbit.State, reported bool) {
	kept := g.bets[:0]
	for _, b := range g.bets {
		room, report := b.unseen(state, reported, g.Board != nil)
		report = report && b.debit.hasReport
		b.debit.hasRoom, b.debit.hasReport = false, false
		if room || report {
			g.loads.renew(&b.debit, room, report)
			kept = append(kept, b)
		}
	}
	clear(g.bets[len(kept):])
	g.bets = kept
}

// unseen reports which parts of a bet the view does not show: the part for the ledger's room, and the part for the
// node's report. Without a board, on which the bet would be claimed, a report is assumed to show what the ledger shows.
func (b *bet) unseen(state *orbit.State, reported, claimed bool) (room, report bool) {
	switch b.outcome {
	case betVoid:
		return false, false
	case betVacated, betMoved:
		return false, !reported
	case betCommitted:
		room = b.revision > state.Revision()
	case betOpen:
		c := state.Capsule(b.debit.capsule)
		room = c == nil || c.PlacedBy != b.id
	}
	if claimed {
		return room, !reported
	}
	return room, room || !reported
}

// exhausted makes a node count as one without a warm slot of a template until its next report, because its last report
// was wrong.
func (g *Gateway) exhausted(node orbit.NodeID, template string) {
	if g.Board != nil {
		g.Board.Exhausted(node, template)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loads.exhaust(node, template)
}

// blame records that a node has failed to start a template.
func (g *Gateway) blame(node orbit.NodeID, template string, at time.Time) {
	g.exhausted(node, template)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loads.failing.failed(node, template, at)
}

// praise records that a node has started a template.
func (g *Gateway) praise(node orbit.NodeID, template string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loads.failing.started(node, template)
}

// send sends a proposal until its outcome is known; however often it is sent, it has one effect. unknown is the error
// that left the outcome of an earlier sending unknown; nil: it was not sent before. The error is a rejection, or
// [orbit.ErrUnavailable] if nothing was ever sent; after any other error the outcome is unknown.
func (g *Gateway) send(ctx context.Context, p *orbit.Proposal, unknown error) (orbit.Revision, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		rev, err := g.Ledger.Propose(ctx, *p)
		switch r := rejection(err); {
		case err == nil || unknown == nil && (r != nil || isUnavailable(err)):
			return rev, err
		case r != nil:
			if rev, known := g.recorded(ctx, p, r.At); known && rev > 0 {
				return rev, nil
			} else if known {
				return 0, err
			}
		case unknown == nil:
			unknown = err
		}
		if sleep(ctx, pause) != nil {
			return 0, unsettled(ctx, unknown)
		}
	}
}

// recorded looks up whether a proposal was committed although the ledger refused it when it was sent again. The ledger
// may have forgotten the proposal's id, and then refuses it because of the proposal's own changes; but the record of a
// capsule keeps the id of the proposal that placed it. The revision is 0 if the proposal was not committed.
func (g *Gateway) recorded(ctx context.Context, p *orbit.Proposal, at orbit.Revision) (rev orbit.Revision, known bool) {
	state, err := g.stateAt(ctx, at)
	if err != nil {
		return 0, false
	}
	for _, do := range p.Do {
		if place, ok := do.(orbit.Place); ok {
			if c := state.Capsule(place.Capsule); c != nil && c.PlacedBy == p.ID {
				return c.PlacedAt, true
			}
		}
	}
	return 0, true
}

// rejection returns the receipt of a refusal; nil if the error is no refusal.
func rejection(err error) *orbit.Rejection {
	var r *orbit.Rejection
	errors.As(err, &r)
	return r
}

func isConflict(r *orbit.Rejection) bool { return errors.Is(r.Kind, orbit.ErrConflict) }

func isUnavailable(err error) bool { return errors.Is(err, orbit.ErrUnavailable) }

// sleep waits, or returns the context's error.
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
