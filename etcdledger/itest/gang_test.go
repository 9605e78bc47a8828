package itest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// A gang as large as Limits allow, on as many nodes and with a bet on each, is one commit, on a server with default
// settings. No reader ever sees a part of it. A larger gang is refused and not split.
func TestLargestGang(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	o := etcdledger.Options{Bounds: orbit.Limits{GangMembers: 500, Preconditions: 501}}
	l, reader := open(t, connect(t, c), o), open(t, connect(t, c), o)
	n := l.Limits().GangMembers
	require.Equal(t, 500, n)
	gang := func(id string, n int) orbit.Submit {
		role := orbit.Role{Name: "worker", Spec: &orbit.Spec{Class: orbit.GangClass, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}}}
		for i := range n {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprintf("%s-%d", id, i)))
		}
		return orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{role}}}
	}
	for i := range n {
		put(t, l, fmt.Sprintf("node-%d", i))
	}
	_, err := l.Propose(t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{gang("larger", n+1)}})
	require.ErrorIs(t, err, orbit.ErrInvalid)
	_, err = l.Propose(t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{gang("gang", n)}})
	require.NoError(t, err)

	p := orbit.Proposal{ID: orbit.NewProposalID(), If: []orbit.Precondition{orbit.GangUnplaced{Gang: "gang"}}}
	for i := range n {
		node := orbit.NodeID(fmt.Sprintf("node-%d", i))
		p.Do = append(p.Do, orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprintf("gang-%d", i)), Node: node})
		p.If = append(p.If, orbit.NodeFreeOf{Node: node, AtLeast: orbit.Resources{orbit.Slots: 1}})
	}
	committed := make(chan error, 1)
	go func() {
		_, err := l.Propose(t.Context(), p)
		committed <- err
	}()
	for end := time.Now().Add(time.Minute); ; {
		require.Less(t, time.Now(), end)
		placed := snapshot(t, reader).Gang("gang").Total()
		require.Contains(t, []int{0, n}, placed)
		if placed == n {
			break
		}
	}
	require.NoError(t, <-committed)
	require.NoError(t, snapshot(t, reader).Verify())
}
