package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// flights are the proposals whose outcome is not known: those that are being sent, and those for which the ledger
// returned ErrUnknown. The answer for a leaving node is sent when none of them places anything on it.
type flights struct {
	// sending is the number of calls of the ledger that have not returned.
	sending int
	// unknown has the proposals that may have been committed, by id and as they were sent, because the engine sends them
	// again.
	unknown map[orbit.ProposalID]flight
	// looks is the number of snapshots that the engine has taken.
	looks int
}

// flight is one proposal whose outcome is not known.
type flight struct {
	bets  []orbit.Precondition
	nodes []orbit.NodeID
	// sent is the value of looks when it was last sent.
	sent int
}

// Propose adds the ownership bets (the fence) to the proposal and sends it to the ledger: in [Strict] mode, for each node on which
// it places a capsule or a hold, a bet on the mark that names the node's owner. So the ledger refuses what was planned before a
// node changed its owner. [orbit.Limits].Preconditions must leave room for one more bet for each node of a proposal. That costs a
// map look-up and a copy of the bets for each placement. Propose refuses a placement or a
// nomination on a node that is not in the group, or is leaving it, without a call of the ledger: with a conflict if the
// partition ledger has read a newer state than the proposal's view, otherwise as infeasible.
func (l *PartitionLedger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	out := l.ProposeBatch(ctx, []orbit.Proposal{p})[0]
	return out.Revision, out.Err
}

// ProposeBatch does what Propose does, for many proposals in one call. The ledger need not be an [orbit.Batcher].
func (l *PartitionLedger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	if err := l.check(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	if l.Mode != Strict {
		return send.All(ctx, l.Ledger, batch)
	}
	ready, at := make([]orbit.Proposal, 0, len(batch)), make([]int, 0, len(batch))
	refused := l.depart(batch, func(i int, fenced orbit.Proposal) {
		ready, at = append(ready, fenced), append(at, i)
	})
	outcomes := send.All(ctx, l.Ledger, ready)
	l.arrive(ready, outcomes)
	for i, err := range refused {
		out[i].Err = err
	}
	for i, o := range outcomes {
		out[at[i]] = o
	}
	return out
}

// depart adds the fence to proposals, and calls send with each one that may be sent and its index in the batch. It
// returns the errors of the others. No leaving node is answered for until arrive has been called with the outcomes.
func (l *PartitionLedger) depart(batch []orbit.Proposal, send func(int, orbit.Proposal)) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	refused, sent := make([]error, len(batch)), 0
	slab := make([]orbit.Precondition, 0, 2*len(batch))
	for i := range batch {
		p := batch[i]
		if again, ok := l.flights.unknown[p.ID]; ok && !p.ID.IsZero() {
			p.If = again.bets
		} else if p.If, refused[i] = l.fence(&p, &slab); refused[i] != nil {
			continue
		} else {
			l.giveUp()
		}
		sent++
		send(i, p)
	}
	l.flights.sending += min(sent, 1)
	return refused
}

// giveUp forgets the proposals that the engine will not send again. An engine proposes something else in a later pass
// only after it has learned the outcome of the last proposals or has given up on them. The caller must hold the lock.
func (l *PartitionLedger) giveUp() {
	for id, f := range l.flights.unknown {
		if f.sent < l.flights.looks {
			delete(l.flights.unknown, id)
		}
	}
}

// fence returns the bets of a proposal, and one more for each node that its placements, holds or nominations use: that
// the node's group mark is still the one that was read. The bets are stored in slab, which saves one allocation for
// each proposal. The caller must hold the lock.
func (l *PartitionLedger) fence(p *orbit.Proposal, slab *[]orbit.Precondition) ([]orbit.Precondition, error) {
	from := len(*slab)
	out := append(*slab, p.If...)
	var seen map[orbit.NodeID]bool
	for i, c := range p.Do {
		for node := range nodesOf(c) {
			if seen[node] {
				continue
			}
			h, mine := l.view.own[node]
			if !mine || h.leaving != 0 {
				return nil, l.refuse(p, i, node, h)
			}
			if out = append(out, h.bet); len(p.Do) > 1 {
				if seen == nil {
					seen = make(map[orbit.NodeID]bool, len(p.Do))
				}
				seen[node] = true
			}
		}
	}
	*slab = out
	return out[from:len(out):len(out)], nil
}

// nodesOf yields the nodes on which a commitment places a capsule or a hold, or nominates room.
func nodesOf(c orbit.Commitment) iter.Seq[orbit.NodeID] {
	return func(yield func(orbit.NodeID) bool) {
		switch c := c.(type) {
		case orbit.Place:
			yield(c.Node)
		case orbit.Hold:
			yield(c.Node)
		case orbit.Nominate:
			for i := range c.Parts {
				if !yield(c.Parts[i].Node) {
					return
				}
			}
		}
	}
}

// refuse returns the error for a proposal that uses a node which the scheduler must not use. The caller must hold the
// lock.
func (l *PartitionLedger) refuse(p *orbit.Proposal, at int, node orbit.NodeID, h holding) error {
	r := &orbit.Rejection{Kind: orbit.ErrInfeasible, Do: at, Node: node, TakenAt: h.leaving}
	if l.view.state != nil {
		r.At = l.view.state.Revision()
	}
	why := "is not in"
	if h.leaving != 0 {
		why = "is leaving"
	} else if l.view.state != nil {
		_, r.TakenAt = l.view.state.Mark(groupMark.key(string(node)))
	}
	if r.At > p.View {
		r.Kind, r.TakenAt = orbit.ErrConflict, max(r.TakenAt, p.View+1)
	}
	r.Reason = fmt.Sprintf("node %q %s the group of scheduler %q", node, why, l.Scheduler)
	return r
}

// arrive takes note of the outcomes of proposals that were sent.
func (l *PartitionLedger) arrive(sent []orbit.Proposal, outcomes []orbit.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights.sending -= min(len(sent), 1)
	for i := range sent {
		p, err := &sent[i], outcomes[i].Err
		_, known := l.flights.unknown[p.ID]
		switch {
		case errors.Is(err, orbit.ErrUnknown) || known && errors.Is(err, orbit.ErrUnavailable):
			l.note(p)
		case known:
			delete(l.flights.unknown, p.ID)
		}
	}
}

// note remembers a proposal whose outcome is not known. The caller must hold the lock.
func (l *PartitionLedger) note(p *orbit.Proposal) {
	f := flight{bets: slices.Clone(p.If), sent: l.flights.looks}
	for _, c := range p.Do {
		f.nodes = slices.AppendSeq(f.nodes, nodesOf(c))
	}
	if l.flights.unknown == nil {
		l.flights.unknown = map[orbit.ProposalID]flight{}
	}
	id := p.ID
	if id.IsZero() { // the engine cannot send it again, but it may still be committed
		id = orbit.NewProposalID()
	}
	l.flights.unknown[id] = f
}

// goes reports whether a proposal whose outcome is not known places something on a node.
func (f *flights) goes(node orbit.NodeID) bool {
	for _, one := range f.unknown {
		if slices.Contains(one.nodes, node) {
			return true
		}
	}
	return false
}
