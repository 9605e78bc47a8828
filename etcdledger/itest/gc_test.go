package itest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger"
	"github.com/orbitsched/orbit/etcdledger/itest/cluster"
)

// A process that is behind cannot bring back what has ended or left meanwhile and whose records have been deleted.
func TestSweepUnderASlowWriter(t *testing.T) {
	t.Parallel()
	c := start(t, cluster.Options{})
	link := &cluster.Link{}
	over, err := c.ClientOver(link)
	require.NoError(t, err)
	t.Cleanup(func() { _ = over.Close() })
	o := etcdledger.Options{Bounds: orbit.Limits{Terminal: 1, ProposalIDs: 1}, GCInterval: -1}
	patient := o
	patient.Timeout, patient.Patience = time.Minute, time.Minute
	late, other := open(t, over, patient), open(t, connect(t, c), o)
	propose := func(do ...orbit.Commitment) {
		t.Helper()
		_, err := other.Propose(within(t, 10*time.Second), orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
		require.NoError(t, err)
	}
	put(t, other, "stays")
	put(t, other, "leaves")
	spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}}
	propose(orbit.Submit{IDs: []orbit.CapsuleID{"ends", "waits", "1", "2", "3"}, Spec: spec})
	snapshot(t, late)

	heard := link.HoldAnswers() // it receives nothing any more, and etcd still receives its requests
	for _, id := range []orbit.CapsuleID{"ends", "1", "2", "3"} {
		propose(orbit.Release{Capsule: id, Final: true})
	}
	propose(orbit.RemoveNode{Node: "leaves"})
	for i := range 3 {
		propose(orbit.Mark{Key: fmt.Sprint(i), Value: "v"}) // more ids than the window of ids keeps
	}
	n, err := other.GC(within(t, 10*time.Second))
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 4, "the records are still there")
	answered := make(chan error, 2)
	for _, p := range []orbit.Place{{Capsule: "ends", Node: "stays"}, {Capsule: "waits", Node: "leaves"}} {
		go func() {
			_, err := late.Propose(t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{p}})
			answered <- err
		}()
		for receive(t, heard) != "Txn" { // by then the watch has the commits of the others
		}
	}
	link.Release()
	for range 2 {
		assert.ErrorIs(t, <-answered, orbit.ErrConflict)
	}
	require.NoError(t, snapshot(t, late).Verify())
	same(t, snapshot(t, other), snapshot(t, late))
	same(t, snapshot(t, other), snapshot(t, open(t, connect(t, c), o)))
}
