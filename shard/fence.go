package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// flights are the proposals of which the outcome is not known: those that are being sent, and those that may or may not
// have been committed. A node is answered for when none of them goes there.
type flights struct {
	// Calls of the ledger that have not returned.
	sending int
	// By id, as they were sent, for they will be sent again.
	unknown map[orbit.ProposalID]flight
	// How many snapshots have been taken.
	looks int
}

// flight is a proposal whose outcome is not known.
type flight struct {
	bets  []orbit.Precondition
	nodes []orbit.NodeID
	// When it was last sent, in looks.
	sent int
}

// Propose adds the fence and proposes. A placement on a node that is not in the group, or is leaving it, is refused
// without asking the ledger: a conflict if the node was taken away after the proposal's view, else infeasible.
func (l *PartitionLedger) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	if l.Mode != Strict {
		return l.Ledger.Propose(ctx, p)
	}
	if err := l.depart([]orbit.Proposal{p}, func(_ int, fenced orbit.Proposal) { p = fenced })[0]; err != nil {
		return 0, err
	}
	rev, err := l.Ledger.Propose(ctx, p)
	l.arrive([]orbit.Proposal{p}, []orbit.Outcome{{Revision: rev, Err: err}})
	return rev, err
}

// ProposeBatch does so with many proposals in one call. It implements [orbit.Batcher] also where the ledger does not.
func (l *PartitionLedger) ProposeBatch(ctx context.Context, batch []orbit.Proposal) []orbit.Outcome {
	out := make([]orbit.Outcome, len(batch))
	if err := l.check(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	if l.Mode != Strict {
		return proposeAll(ctx, l.Ledger, batch)
	}
	ready, at := make([]orbit.Proposal, 0, len(batch)), make([]int, 0, len(batch))
	refused := l.depart(batch, func(i int, fenced orbit.Proposal) {
		ready, at = append(ready, fenced), append(at, i)
	})
	outcomes := proposeAll(ctx, l.Ledger, ready)
	l.arrive(ready, outcomes)
	for i, err := range refused {
		out[i].Err = err
	}
	for i, o := range outcomes {
		out[at[i]] = o
	}
	return out
}

// proposeAll sends a batch in one call where the ledger takes it, and returns an outcome for each.
func proposeAll(ctx context.Context, ledger orbit.Ledger, batch []orbit.Proposal) []orbit.Outcome {
	if len(batch) == 0 {
		return nil
	}
	out := make([]orbit.Outcome, len(batch))
	if b, ok := ledger.(orbit.Batcher); ok {
		for i := range out {
			out[i].Err = orbit.ErrUnknown // what the ledger leaves out
		}
		copy(out, b.ProposeBatch(ctx, batch))
		return out
	}
	for i := range batch {
		out[i].Revision, out[i].Err = ledger.Propose(ctx, batch[i])
	}
	return out
}

// depart fences proposals and hands on those that may be sent, with their place in the batch; it returns why the
// others may not. Until they have arrived nothing is answered for.
func (l *PartitionLedger) depart(batch []orbit.Proposal, send func(int, orbit.Proposal)) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	refused, sent := make([]error, len(batch)), 0
	slab := make([]orbit.Precondition, 0, 2*len(batch))
	for i := range batch {
		p := batch[i]
		if again, ok := l.unknown[p.ID]; ok && !p.ID.IsZero() {
			p.If = again.bets
		} else if p.If, refused[i] = l.fence(&p, &slab); refused[i] != nil {
			continue
		} else {
			l.giveUp()
		}
		sent++
		send(i, p)
	}
	l.sending += min(sent, 1)
	return refused
}

// giveUp forgets what an engine does not send again: it proposes something else in a later pass only when it knows, or
// has given up asking. It requires the lock.
func (l *PartitionLedger) giveUp() {
	for id, f := range l.unknown {
		if f.sent < l.looks {
			delete(l.unknown, id)
		}
	}
}

// fence returns the bets of a proposal, and for each node that it puts something on the bet that this is a node of the
// group as it was seen. It requires the lock.
func (l *PartitionLedger) fence(p *orbit.Proposal, slab *[]orbit.Precondition) ([]orbit.Precondition, error) {
	from := len(*slab)
	out := append(*slab, p.If...)
	var seen map[orbit.NodeID]bool
	for i, c := range p.Do {
		node, ok := target(c)
		if !ok || seen[node] {
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
	*slab = out
	return out[from:len(out):len(out)], nil
}

// target returns the node on which a commitment puts something.
func target(c orbit.Commitment) (orbit.NodeID, bool) {
	switch c := c.(type) {
	case orbit.Place:
		return c.Node, true
	case orbit.Hold:
		return c.Node, true
	}
	return "", false
}

// refuse says that a node is not the scheduler's to use. It requires the lock.
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

// arrive takes note of outcomes.
func (l *PartitionLedger) arrive(sent []orbit.Proposal, outcomes []orbit.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending -= min(len(sent), 1)
	for i := range sent {
		p, err := &sent[i], outcomes[i].Err
		_, known := l.unknown[p.ID]
		switch {
		case errors.Is(err, orbit.ErrUnknown) || known && errors.Is(err, orbit.ErrUnavailable):
			l.note(p)
		case known:
			delete(l.unknown, p.ID)
		}
	}
}

// note keeps a proposal whose outcome is not known. It requires the lock.
func (l *PartitionLedger) note(p *orbit.Proposal) {
	f := flight{bets: slices.Clone(p.If), sent: l.looks}
	for _, c := range p.Do {
		if node, ok := target(c); ok {
			f.nodes = append(f.nodes, node)
		}
	}
	if l.unknown == nil {
		l.unknown = map[orbit.ProposalID]flight{}
	}
	id := p.ID
	if id.IsZero() { // it will not be recognised, but is on its way all the same
		id = orbit.NewProposalID()
	}
	l.unknown[id] = f
}

// goes reports whether a proposal whose outcome is not known goes to a node.
func (f *flights) goes(node orbit.NodeID) bool {
	for _, one := range f.unknown {
		if slices.Contains(one.nodes, node) {
			return true
		}
	}
	return false
}
