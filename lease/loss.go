package lease

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// This file guards against the loss of many nodes at once. If more than MaxLoss of all leases end within Gone of each
// other, the cause is more likely the network than the nodes. The capsules on these nodes probably still run, so they
// are not placed elsewhere.

const (
	defaultMaxLoss = 0.5
	fewLost        = 3 // the loss of fewer nodes is never held
)

// AcceptLoss lets the capsules be taken off all nodes whose lease is over by now, however many nodes these are; see
// [Members.MaxLoss]. It commits a mark to the ledger, so it holds for all processes. MaxLoss applies again to nodes
// whose lease ends later. The errors are the ledger's.
func (m *Members) AcceptLoss(ctx context.Context) error {
	if err := m.check(); err != nil {
		return err
	}
	_, err := send.Settle(ctx, m.Leases.Ledger, orbit.Proposal{
		ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: m.lossKey(), Value: "accepted"}},
	})
	return err
}

// lossKey returns the key of the mark that AcceptLoss sets: the prefix of the rows' keys, without a name. It is the key
// of no lease, because no lease has an empty name.
func (m *Members) lossKey() string { return m.Leases.prefix() }

// hold removes from todo the lost nodes that must not be emptied because too many are lost at once, and adds them to
// round.Held. All processes decide alike, because the decision depends only on the rows in the ledger.
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
		case !c.lost || c.lease.at <= accepted || c.lease.member.sent != nil: // sent may be committed already, so it is sent again in any case
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

// endsAfter returns the sorted times at which leases ended, of those whose end was committed after the revision
// accepted. Others is the number of leases whose end has not been committed.
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
