package orbit

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An entry of before Respec is read as one.
func TestAResizeIsReadAsRespec(t *testing.T) {
	var c Change
	require.NoError(t, c.UnmarshalJSON([]byte(`{"revision":7,"do":{"resize":{"capsule":"x","since":3,"spec":{"envelope":{"reservation":[2,0,0,0,0,0,0,0],"limit":[0,0,0,0,0,0,0,0]},"devices":{},"spread":{},"near":{}},"applied":true}},"node":"n"}`)))
	do, is := c.Do.(Respec)
	require.True(t, is)
	require.Equal(t, Respec{Capsule: "x", Since: 3, Spec: do.Spec, Applied: true}, do)
	require.Equal(t, int64(2), do.Spec.Envelope.Reservation[CPU])
	text, err := c.MarshalJSON()
	require.NoError(t, err)
	require.Contains(t, string(text), `"respec"`)
}

// A dump keeps what a Respec has left: a node that gives more than it has by a fact, and a nomination for a member's own
// size, which the roles of its gang do not ask for.
func TestRespecIsRestored(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	commit(t, l, cpuNode("n", 4), cpuNode("m", 8), Submit{IDs: []CapsuleID{"a"}, Spec: wants(2)}, Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "w", Spec: wants(1), Members: []CapsuleID{"x", "y"}}}}}, Place{Capsule: "a", Node: "n"})
	larger := wants(5)
	larger.Priority = -3
	commit(t, l, Respec{Capsule: "x", Spec: larger}, Respec{Capsule: "a", Since: snapshotOf(t, l).Capsule("a").PlacedAt, Spec: wants(9), Applied: true})
	commit(t, l, Nominate{Gang: "g", Parts: []NominatedRoom{{Node: "m", Room: Resources{CPU: 6}}}, Ends: time.Unix(1<<33, 0)})
	s := snapshotOf(t, l)
	require.NoError(t, s.Verify())
	require.Zero(t, s.Gang("g").Nomination.Rank)
	var dump bytes.Buffer
	require.NoError(t, s.Dump(&dump))
	again, err := restoreFrom(&dump)
	require.NoError(t, err)
	require.NoError(t, again.Verify())
	for range again.Overcommitted() {
		require.Equal(t, int64(9), again.Node("n").Used()[CPU])
	}
	require.ErrorContains(t, again.Check(Proposal{Do: []Commitment{Nominate{Gang: "g", Parts: []NominatedRoom{{Node: "m", Room: Resources{CPU: 7}}}, Ends: time.Unix(1<<33, 0)}}}), "asks for")
}

// TestGrowthOnANodeThatGoes: a capsule may grow, and its node go, in one proposal: it waits with its new size.
func TestGrowthOnANodeThatGoes(t *testing.T) {
	l, spec := &MemoryLedger{}, &Spec{Envelope: Envelope{Reservation: Resources{CPU: 1}}}
	larger := *spec
	larger.Envelope.Reservation[CPU] = 2
	_, err := l.Propose(bg, Proposal{Do: []Commitment{PutNode{Node{ID: "n", Capacity: Resources{CPU: 2}}},
		Submit{IDs: []CapsuleID{"c"}, Spec: spec}, Place{Capsule: "c", Node: "n"}}})
	require.NoError(t, err)
	s, err := l.Snapshot(bg)
	require.NoError(t, err)
	_, err = l.Propose(bg, Proposal{Do: []Commitment{Respec{Capsule: "c", Since: s.Capsule("c").PlacedAt, Spec: &larger}, RemoveNode{Node: "n", Gone: true}}})
	require.NoError(t, err)
	s, err = l.Snapshot(bg)
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	require.True(t, s.Capsule("c").Pending() && s.Capsule("c").Spec.Envelope == larger.Envelope)
}
