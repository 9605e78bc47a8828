package lease_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// Where more than half of the nodes are lost at once, nothing is taken off them until they return or the loss is accepted.
func TestMassLossEmptiesNothing(t *testing.T) {
	for name, accept := range map[string]bool{"returned": false, "accepted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger := &orbit.MemoryLedger{}
				m := &lease.Members{Leases: &lease.Keeper{Ledger: ledger}}
				ids := []orbit.NodeID{"a", "b", "c", "d", "e"}
				var terms []lease.Term
				for _, id := range ids {
					term, err := m.Join(t.Context(), orbit.Node{ID: id}, "host")
					require.NoError(t, err)
					terms = append(terms, term)
					_, err = ledger.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{
						orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID("on-" + id)}, Spec: &orbit.Spec{}},
						orbit.Place{Capsule: orbit.CapsuleID("on-" + id), Node: id},
					}})
					require.NoError(t, err)
				}
				var round lease.MemberRound
				var err error
				wait := func(d time.Duration, living ...lease.Term) {
					for range d / (10 * time.Second) {
						for _, term := range living {
							require.NoError(t, m.Leases.Refresh(term))
						}
						time.Sleep(10 * time.Second)
						round, err = m.Step(t.Context())
						require.NoError(t, err)
						if len(round.Released) > 0 {
							return
						}
					}
				}
				wait(10*time.Minute, terms[3:]...)
				require.Equal(t, ids[:3], round.Held)
				again := &lease.Members{Leases: &lease.Keeper{Ledger: ledger}} // another process decides the same
				_, err = again.Step(t.Context())
				require.NoError(t, err)
				require.Equal(t, 0, snapshot(t, ledger).PendingCount())
				if accept {
					require.NoError(t, m.AcceptLoss(t.Context()))
					wait(time.Minute, terms[3:]...)
					require.Len(t, round.Released, 3)
					require.Empty(t, round.Held)
					require.Equal(t, 3, snapshot(t, ledger).PendingCount())
					return
				}
				back, err := m.Join(t.Context(), orbit.Node{ID: "a"}, "host")
				require.NoError(t, err)
				wait(time.Minute, append(terms[3:], back)...)
				wait(time.Minute, append(terms[3:], back)...)
				require.Equal(t, 2, snapshot(t, ledger).PendingCount())
				require.False(t, snapshot(t, ledger).Capsule("on-a").Pending())
			})
		})
	}
}
