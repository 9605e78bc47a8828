package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file takes off lost nodes what is on them.

// maxRelease is how many capsules and holds one step takes off one node, where the ledger takes that many commitments.
const maxRelease = 1000

// work is what Members has to look at: a lease that is over.
type work struct {
	lease lease
	lost  bool
}

// evacuate cordons nodes that somebody else left schedulable, and releases what is on nodes that are lost.
func (m *Members) evacuate(ctx context.Context, round *MemberRound) error {
	todo := m.todo(round)
	if len(todo) == 0 {
		return nil
	}
	state, err := m.Leases.Ledger.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("telemetry: members: %w", err)
	}
	holds := holdsOn(state, todo)
	for i := range todo {
		if err := m.relieve(ctx, state, &todo[i], holds, round); err != nil {
			round.fail(err)
		}
	}
	return nil
}

// todo returns the leases that are over and have not been dealt with, the oldest first.
func (m *Members) todo(round *MemberRound) (todo []work) {
	l := m.Leases
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	for _, le := range l.over {
		at := le.ended.Add(m.gone())
		lost := !now.Before(at)
		if !lost {
			round.Next = sooner(round.Next, at)
		}
		if !le.member.checked || lost && le.member.empty == 0 {
			todo = append(todo, work{*le, lost})
		}
	}
	return todo
}

// holdsOn returns the holds on nodes that are lost.
func holdsOn(state *orbit.State, todo []work) map[orbit.NodeID][]orbit.HoldID {
	lost := map[orbit.NodeID]bool{}
	for i := range todo {
		lost[orbit.NodeID(todo[i].lease.name)] = todo[i].lost
	}
	out := map[orbit.NodeID][]orbit.HoldID{}
	for h := range state.Holds() {
		if lost[h.Node] {
			out[h.Node] = append(out[h.Node], h.ID)
		}
	}
	return out
}

// relieve does what is to be done for one node.
func (m *Members) relieve(ctx context.Context, state *orbit.State, w *work, holds map[orbit.NodeID][]orbit.HoldID, round *MemberRound) error {
	id := orbit.NodeID(w.lease.name)
	n := state.Node(id)
	if n == nil {
		m.note(&w.lease, memberNote{checked: true, empty: 1})
		return nil
	}
	p := &orbit.Proposal{
		ID: orbit.NewProposalID(), View: state.Revision(),
		If: []orbit.Precondition{orbit.MarkAt{Key: m.Leases.Key(w.lease.name), Revision: w.lease.bet}},
	}
	if !w.lease.member.checked && !n.Node.Unschedulable {
		do, bets, _ := cordon(state, &w.lease)
		p.Do, p.If = append(p.Do, m.again(&w.lease)), append(p.If, bets...)
		p.Do = append(p.Do, do...)
		round.Cordoned = append(round.Cordoned, id)
	} else if w.lost {
		m.fill(p, state, n, holds[id], round)
	}
	if len(p.Do) == 0 {
		note := memberNote{checked: true}
		if w.lost {
			note.empty = n.Usage
		}
		m.note(&w.lease, note)
		return nil
	}
	return m.send(ctx, w, p, round)
}

// again is the row as it is: set in the proposal that cordons late, it has the revision of the cordon.
func (m *Members) again(le *lease) orbit.Commitment {
	return orbit.Mark{Key: m.Leases.Key(le.name), Value: row{holder: le.holder, ended: le.ended}.String()}
}

// fill puts into the proposal what is on a node, in order of submission, as much as goes.
func (m *Members) fill(p *orbit.Proposal, state *orbit.State, n *orbit.NodeState, holds []orbit.HoldID, round *MemberRound) {
	id, most := n.Node.ID, min(maxRelease, m.Leases.Ledger.Limits().Commitments)
	capsules := slices.SortedFunc(state.On(id), func(a, b *orbit.Capsule) int {
		if a.Submitted < b.Submitted {
			return -1
		}
		return 1
	})
	for _, c := range capsules {
		if len(p.Do) == most {
			return
		}
		p.Do = append(p.Do, orbit.Release{Capsule: c.ID, From: id})
	}
	for _, h := range holds {
		if len(p.Do) == most {
			return
		}
		p.Do = append(p.Do, orbit.Release{Hold: h})
	}
}

// send proposes it, and notes what came of it.
func (m *Members) send(ctx context.Context, w *work, p *orbit.Proposal, round *MemberRound) error {
	_, err := m.Leases.Ledger.Propose(ctx, *p)
	switch {
	case err == nil:
		for _, c := range p.Do {
			if r, ok := c.(orbit.Release); ok && r.Hold != "" {
				round.Holds = append(round.Holds, r.Hold)
			} else if ok {
				round.Released = append(round.Released, r.Capsule)
			}
		}
	case errors.Is(err, orbit.ErrConflict):
		round.Conflicts++
		return nil
	default:
		return fmt.Errorf("telemetry: node %q: %w", w.lease.name, err)
	}
	round.Next = sooner(round.Next, m.Leases.clock())
	return nil
}

// note remembers what has been found out, if the lease is still as it was.
func (m *Members) note(le *lease, note memberNote) {
	l := m.Leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.leases[le.name]; now != nil && now.at == le.at {
		now.member = note
	}
}
