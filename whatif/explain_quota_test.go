package whatif_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/whatif"
)

// A node has room, and the queue has none: the explanation says what is missing, where in the tree, and who has borrowed it.
func TestExplainsQuota(t *testing.T) {
	l := &orbit.MemoryLedger{}
	cores := func(q orbit.QueueID, n int64) *orbit.Spec {
		return &orbit.Spec{Queue: q, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000 * n}}}
	}
	own := func(id, parent orbit.QueueID, n int64) orbit.PutQueue {
		return orbit.PutQueue{Queue: orbit.Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": 1000 * n}}}
	}
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 20_000}}}, own("root", "", 0), own("a", "root", 2), own("b", "root", 3),
		orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: cores("b", 4)}, orbit.Place{Capsule: "x", Node: "n"},
	}})
	require.NoError(t, err)
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	for _, c := range []struct {
		spec  *orbit.Spec
		lacks []string
	}{
		{cores("a", 1), nil},
		{cores("a", 2), []string{`queue "a" lacks 1 core at queue "root"; borrowed by "b"`}},
		{cores("b", 2), []string{`queue "b" lacks 1 core at queue "root"; borrowed by "b"`}},
		{cores("", 9), nil},
		{cores("unknown", 9), nil},
	} {
		e, err := whatif.Explain(context.Background(), s, c.spec)
		require.NoError(t, err)
		require.Equal(t, 1, e.Fits)
		require.Equal(t, c.lacks, e.Lacks, "%s", c.spec.Queue)
		for _, text := range c.lacks {
			require.Contains(t, e.String(), text)
		}
	}
}
