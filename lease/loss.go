package lease

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// This file guards against the loss of many nodes at once. If more than MaxLoss of all leases end within Gone of each other, the reason is
// more likely a network than the nodes, and what runs on them goes on.

const (
	defaultMaxLoss = 0.5
	fewLost        = 3 // the loss of fewer nodes is never held
)

// AcceptLoss says that what is on nodes whose lease is over by now is to be placed elsewhere, however many they are; see
// [Members.MaxLoss]. It commits that to the ledger, so it holds for all processes. Nodes whose lease ends later are guarded again.
// The errors are the ledger's.
func (m *Members) AcceptLoss(ctx context.Context) error {
	switch {
	case m.Leases == nil:
		return errNoMembersLeases
	case m.Leases.Ledger == nil:
		return errKeeper
	}
	_, err := send.Settle(ctx, m.Leases.Ledger, orbit.Proposal{
		ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: m.lossKey(), Value: "accepted"}},
	})
	return err
}

// lossKey returns the key of the mark that AcceptLoss sets. It is the prefix of the rows alone, which is no lease's, because no lease has an
// empty name.
func (m *Members) lossKey() string { return m.Leases.prefix() }

// hold removes from todo the lost nodes that are too many to be emptied, and adds them to the round. All processes decide alike,
// because they decide by the rows.
func (m *Members) hold(state *orbit.State, todo []overLease, round *MemberRound) []overLease {
	share := cmp.Or(m.MaxLoss, defaultMaxLoss)
	if share >= 1 {
		return todo
	}
	_, accepted := state.Mark(m.lossKey())
	ends, others := m.endsAfter(accepted)
	return slices.DeleteFunc(todo, func(c overLease) bool {
		n := state.Node(orbit.NodeID(c.lease.name))
		switch {
		case !c.lost || c.lease.at <= accepted || c.lease.member.sent != nil: // a proposal that may be committed already is sent again, and not held
			return false
		case n == nil || n.Node.State == orbit.Lost || n.Capsules == 0 && n.Holds() == 0:
			return false
		}
		from, _ := slices.BinarySearchFunc(ends, c.lease.ended.Add(-m.gone()), time.Time.Compare)
		to, _ := slices.BinarySearchFunc(ends, c.lease.ended.Add(m.gone()), time.Time.Compare)
		lost := to - from
		if lost < fewLost || float64(lost) <= share*float64(lost+others) {
			return false
		}
		round.Held = append(round.Held, n.Node.ID)
		return true
	})
}

// endsAfter returns in order when the leases ended whose end was committed after a revision, and how many leases have no committed end.
func (m *Members) endsAfter(accepted orbit.Revision) (ends []time.Time, others int) {
	k := m.Leases
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, le := range k.over {
		if le.at > accepted {
			ends = append(ends, le.ended)
		}
	}
	return ends, k.live + len(k.dead)
}
