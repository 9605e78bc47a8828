package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
)

// This file releases the capsules and holds on lost nodes.

const (
	maxRelease   = 1000 // the most capsules and holds that one proposal releases, if the ledger's limits allow it
	maxEvacuated = 4000 // after this many releases a step ends, and the next one goes on
)

// memberNote is what Members has done for a lease that is over. It is valid while the row does not change.
type memberNote struct {
	checked bool            // the node is cordoned, or Members must not cordon it
	empty   orbit.Revision  // the revision of the node's usage at which nothing was left on it; 0: not known
	sent    *orbit.Proposal // a proposal whose outcome is not known, to be sent again; nil: none
}

// overLease is a lease that is over, whose node may have to be cordoned or emptied.
type overLease struct {
	lease lease
	view  orbit.Revision // at which the lease was read
	lost  bool
}

// evacuate cordons nodes whose lease was ended without a cordon (by a Keeper without Members), and releases the
// capsules and holds on lost nodes. It takes the nodes whose lease ended first, first.
func (m *Members) evacuate(ctx context.Context, round *MemberRound) {
	todo := m.todo(round)
	if len(todo) == 0 {
		return
	}
	state, err := m.Leases.Ledger.Snapshot(ctx)
	if err != nil {
		round.fail(fmt.Errorf("lease: members: %w", err))
		return
	}
	todo = m.hold(state, todo, round)
	holds := holdsOn(state, todo)
	for i := range todo {
		if len(round.Released)+len(round.Holds) >= maxEvacuated {
			return
		}
		m.evacuateNode(ctx, state, &todo[i], holds, round)
	}
}

// todo returns the leases that are over and whose node is not cordoned or, if it is lost, not empty; the oldest first.
func (m *Members) todo(round *MemberRound) (todo []overLease) {
	k := m.Leases
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock()
	for _, le := range k.over {
		at := m.lostAt(le)
		lost := !now.Before(at)
		if !lost {
			round.Next = sooner(round.Next, at)
		}
		if !le.member.checked || lost && le.member.empty == 0 {
			todo = append(todo, overLease{*le, k.seen, lost})
		}
	}
	return todo
}

// lostAt returns the time from which a node whose lease is over counts as lost: Gone after the end, but not before the
// lesser of Gone and TTL has passed since this process has read of the end.
func (m *Members) lostAt(le *lease) time.Time {
	return later(le.since.Add(m.gone()), le.learned.Add(min(m.gone(), m.Leases.ttl())))
}

// holdsOn returns the holds on nodes that are lost.
func holdsOn(state *orbit.State, todo []overLease) map[orbit.NodeID][]orbit.HoldID {
	out := map[orbit.NodeID][]orbit.HoldID{}
	for i := range todo {
		if todo[i].lost {
			out[orbit.NodeID(todo[i].lease.name)] = nil
		}
	}
	if len(out) == 0 {
		return out
	}
	for h := range state.Holds() {
		if ids, lost := out[h.Node]; lost {
			out[h.Node] = append(ids, h.ID)
		}
	}
	return out
}

// evacuateNode cordons or empties one node. A proposal whose outcome is unknown is sent again unchanged.
func (m *Members) evacuateNode(ctx context.Context, state *orbit.State, c *overLease, holds map[orbit.NodeID][]orbit.HoldID, round *MemberRound) {
	n, p := state.Node(orbit.NodeID(c.lease.name)), c.lease.member.sent
	if n == nil {
		m.Leases.note(&c.lease, memberNote{checked: true, empty: 1})
		return
	}
	if p == nil {
		p = m.evacuation(state, c, n, holds[n.Node.ID])
	}
	if len(p.Do) > 0 {
		m.send(ctx, c, p, round)
		return
	}
	note := memberNote{checked: true}
	if c.lost {
		note.empty = n.Usage
	}
	m.Leases.note(&c.lease, note)
}

// evacuation returns the proposal that cordons or empties one node, nil if nothing is to be done.
func (m *Members) evacuation(state *orbit.State, c *overLease, n *orbit.NodeState, holds []orbit.HoldID) *orbit.Proposal {
	key := m.Leases.Key(c.lease.name)
	p := &orbit.Proposal{
		ID: orbit.NewProposalID(), View: c.view,
		If: []orbit.Precondition{orbit.MarkAt{Key: key, Revision: c.lease.bet}},
	}
	switch {
	case n.Node.Schedulable() && n.Specification < c.lease.at: // the commit that ended the lease did not cordon the node
		do, bets, _ := cordon(state, &c.lease)
		again := c.lease.over() // so that the row has the revision of the cordon
		p.Do = append(p.Do, orbit.Mark{Key: key, Value: again.String()})
		p.Do, p.If = append(p.Do, do...), append(p.If, bets...)
	case !n.Node.Schedulable() && c.lost:
		p.Do = m.releases(state, n, holds)
		if n.Node.State != orbit.Lost && len(p.Do) > 0 {
			node, kept := n.Node.Clone(), c.lease.over()
			node.State, kept.kept = orbit.Lost, !cordonedBy(n, &c.lease)
			p.Do, p.If = append([]orbit.Commitment{orbit.PutNode{Node: node}}, p.Do...), append(p.If, asIs(n))
			if kept.kept {
				p.Do = append([]orbit.Commitment{orbit.Mark{Key: key, Value: kept.String()}}, p.Do...)
			}
		}
	}
	return p
}

// releases returns the releases of the capsules on a node, in the order of submission, and then of its holds: as many
// as fit into one proposal.
func (m *Members) releases(state *orbit.State, n *orbit.NodeState, holds []orbit.HoldID) (do []orbit.Commitment) {
	capsules := slices.SortedFunc(state.On(n.Node.ID), func(a, b *orbit.Capsule) int {
		return cmp.Compare(a.Submitted, b.Submitted)
	})
	most := min(maxRelease, m.Leases.Ledger.Limits().Commitments-2) // less what declares the node lost
	for _, c := range capsules {
		do = append(do, orbit.Release{Capsule: c.ID, From: n.Node.ID})
	}
	for _, h := range holds {
		do = append(do, orbit.Release{Hold: h})
	}
	return do[:min(len(do), most)]
}

// send proposes a change of a node, and takes note of the outcome.
func (m *Members) send(ctx context.Context, c *overLease, p *orbit.Proposal, round *MemberRound) {
	rev, err := m.Leases.Ledger.Propose(ctx, *p)
	note := memberNote{checked: c.lease.member.checked}
	switch {
	case err == nil:
		round.record(p)
		m.Leases.committed(c.lease.name, p, rev)
	case errors.Is(err, orbit.ErrConflict):
		round.Conflicts++
	default:
		if errors.Is(err, orbit.ErrUnknown) || c.lease.member.sent != nil && errors.Is(err, orbit.ErrUnavailable) {
			round.Unknown++
			note.sent = p
		}
		round.fail(fmt.Errorf("lease: node %q: %w", c.lease.name, err))
	}
	m.Leases.note(&c.lease, note)
	round.Next = sooner(round.Next, m.Leases.clock())
}

// record adds the effects of a committed proposal to the round.
func (r *MemberRound) record(p *orbit.Proposal) {
	for _, c := range p.Do {
		switch c := c.(type) {
		case orbit.PutNode:
			if c.Node.State == orbit.Cordoned {
				r.Cordoned = append(r.Cordoned, c.Node.ID)
			}
		case orbit.Release:
			if c.Hold != "" {
				r.Holds = append(r.Holds, c.Hold)
			} else {
				r.Released = append(r.Released, c.Capsule)
			}
		}
	}
}

// note stores the note of a lease, unless the row has changed since the lease was read.
func (k *Keeper) note(le *lease, note memberNote) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.leases[le.name]; now != nil && now.at == le.at {
		now.member = note
	}
}
