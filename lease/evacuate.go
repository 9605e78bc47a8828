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

// This file takes off lost nodes what is on them.

const (
	maxRelease   = 1000 // capsules and holds that one proposal takes off one node, if the ledger takes as many
	maxEvacuated = 4000 // after so many a step ends; the next goes on
)

// memberNote is what Members knows of a lease that is over, in this process and while its row stays as it is.
type memberNote struct {
	checked bool            // its node is cordoned, or not ours to cordon
	empty   orbit.Revision  // when the use of its node last changed, at which nothing was left to take off it; 0: not known
	sent    *orbit.Proposal // the outcome is not known
}

// casualty is a lease that is over, whose node has to be looked at.
type casualty struct {
	lease lease
	view  orbit.Revision // at which that was read
	lost  bool
}

// evacuate cordons nodes that somebody else left schedulable, and releases what is on nodes that are lost, the
// oldest first.
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
	holds := holdsOn(state, todo)
	for i := range todo {
		if len(round.Released)+len(round.Holds) >= maxEvacuated {
			return
		}
		m.relieve(ctx, state, &todo[i], holds, round)
	}
}

// todo returns the leases that are over and have not been dealt with, the oldest first.
func (m *Members) todo(round *MemberRound) (todo []casualty) {
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
			todo = append(todo, casualty{*le, k.seen, lost})
		}
	}
	return todo
}

// lostAt returns when a node whose lease is over is lost.
func (m *Members) lostAt(le *lease) time.Time {
	return later(le.ended.Add(m.gone()), le.learned.Add(min(m.gone(), m.Leases.ttl())))
}

// holdsOn returns the holds on nodes that are lost.
func holdsOn(state *orbit.State, todo []casualty) map[orbit.NodeID][]orbit.HoldID {
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

// relieve does what is to be done for one node. What may have been committed before is sent again as it was.
func (m *Members) relieve(ctx context.Context, state *orbit.State, c *casualty, holds map[orbit.NodeID][]orbit.HoldID, round *MemberRound) {
	n, p := state.Node(orbit.NodeID(c.lease.name)), c.lease.member.sent
	if n == nil {
		m.Leases.note(&c.lease, memberNote{checked: true, empty: 1})
		return
	}
	if p == nil {
		p = m.relief(state, c, n, holds[n.Node.ID])
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

// relief proposes what is to be done for one node, if anything is.
func (m *Members) relief(state *orbit.State, c *casualty, n *orbit.NodeState, holds []orbit.HoldID) *orbit.Proposal {
	key := m.Leases.Key(c.lease.name)
	p := &orbit.Proposal{
		ID: orbit.NewProposalID(), View: c.view,
		If: []orbit.Precondition{orbit.MarkAt{Key: key, Revision: c.lease.bet}},
	}
	switch {
	case !n.Node.Unschedulable && n.Specification < c.lease.at: // whoever ended the lease did not cordon it
		do, bets, _ := cordon(state, &c.lease)
		again := row{holder: c.lease.holder, ended: c.lease.ended} // so that the row has the revision of the cordon
		p.Do = append(p.Do, orbit.Mark{Key: key, Value: again.String()})
		p.Do, p.If = append(p.Do, do...), append(p.If, bets...)
	case n.Node.Unschedulable && c.lost:
		p.Do = m.releases(state, n, holds)
	}
	return p
}

// releases takes off a node what is on it, in order of submission, as much as goes into one proposal.
func (m *Members) releases(state *orbit.State, n *orbit.NodeState, holds []orbit.HoldID) (do []orbit.Commitment) {
	capsules := slices.SortedFunc(state.On(n.Node.ID), func(a, b *orbit.Capsule) int {
		return cmp.Compare(a.Submitted, b.Submitted)
	})
	for _, c := range capsules {
		do = append(do, orbit.Release{Capsule: c.ID, From: n.Node.ID})
	}
	for _, h := range holds {
		do = append(do, orbit.Release{Hold: h})
	}
	return do[:min(len(do), maxRelease, m.Leases.Ledger.Limits().Commitments)]
}

// send proposes something for a node, and notes what came of it.
func (m *Members) send(ctx context.Context, c *casualty, p *orbit.Proposal, round *MemberRound) {
	rev, err := m.Leases.Ledger.Propose(ctx, *p)
	note := memberNote{checked: c.lease.member.checked}
	switch {
	case err == nil:
		round.tell(p)
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

// tell takes into the round what a proposal has done.
func (r *MemberRound) tell(p *orbit.Proposal) {
	for _, c := range p.Do {
		switch c := c.(type) {
		case orbit.PutNode:
			r.Cordoned = append(r.Cordoned, c.Node.ID)
		case orbit.Release:
			if c.Hold != "" {
				r.Holds = append(r.Holds, c.Hold)
			} else {
				r.Released = append(r.Released, c.Capsule)
			}
		}
	}
}

// note remembers what Members has found out of a lease, if it is still as it was.
func (k *Keeper) note(le *lease, note memberNote) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.leases[le.name]; now != nil && now.at == le.at {
		now.member = note
	}
}
