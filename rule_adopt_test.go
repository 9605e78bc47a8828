package orbit

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The counterexamples that have shaped Adopt and Respec, each by its name.

// An orchestrator restarts with nothing but what its agents report: what is recorded is what runs, and an engine places only where room is left.
func TestRestartAdoptsWhatAgentsReport(t *testing.T) {
	l := &MemoryLedger{}
	two := wants(2)
	two.Module = "web"
	confirming := func(id NodeID) PutNode { return PutNode{Node{ID: id, Capacity: Resources{CPU: 4}, Confirms: true}} }
	commit(t, l, confirming("a"), confirming("b"))
	commit(t, l, Adopt{Capsule: "web-0", Spec: two, Node: "a"}, Adopt{Capsule: "web-1", Spec: two, Node: "a"},
		Submit{Gang: &Gang{ID: "train", Roles: []Role{{Name: "w", Spec: two, Members: []CapsuleID{"w-0", "w-1"}}}}}, Adopt{Capsule: "w-0", Node: "b"})
	commit(t, l, Submit{IDs: []CapsuleID{"web-2", "web-3"}, Spec: two})
	e := &Engine{Ledger: l, Navigator: &greedy{}}
	e.Pass(t.Context())
	s := snapshotOf(t, l)
	require.Equal(t, 2, s.PendingCount(), "beside what was adopted there is room for one of web-2, web-3 and w-1")
	require.NoError(t, s.Verify())
	for n := range s.Overcommitted() {
		t.Errorf("node %s is overcommitted", n.Node.ID)
	}
	require.True(t, s.Capsule("web-0").Begun)
	var dump bytes.Buffer
	require.NoError(t, s.Dump(&dump))
	restored := new(State)
	require.NoError(t, restored.Restore(&dump))
	require.True(t, restored.Capsule("web-0").Adopted)
	require.True(t, restored.Capsule("w-0").Begun)
}

// What was adopted and is evicted stops as anything does: without the note that it was adopted, Verify would blame the one that was there.
func TestRemainsOfWhatWasAdopted(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{Node{ID: "n", Capacity: Resources{CPU: 4}, Confirms: true}}, Submit{IDs: []CapsuleID{"first"}, Spec: wants(4)}, Place{Capsule: "first", Node: "n"})
	commit(t, l, Confirm{Capsule: "first", Since: snapshotOf(t, l).Capsule("first").PlacedAt, Begun: true})
	commit(t, l, Adopt{Capsule: "found", Spec: wants(4), Node: "n"})
	commit(t, l, Release{Capsule: "found", Final: true})
	s := snapshotOf(t, l)
	require.True(t, s.Capsule("found").Remains().Adopted)
	require.NoError(t, s.Verify(), "8 of 4 run, and all that was placed was placed within 4")
}

// db-0 was drained and still stops; its agent reports it. Adopting it would run it beside the one that is placed anew.
func TestAdoptDoesNotUndoADrain(t *testing.T) {
	l := &MemoryLedger{}
	n := Node{ID: "n", Capacity: Resources{CPU: 4}, Confirms: true}
	commit(t, l, PutNode{n}, Submit{IDs: []CapsuleID{"db-0"}, Spec: wants(1)}, Place{Capsule: "db-0", Node: "n"})
	since := snapshotOf(t, l).Capsule("db-0").PlacedAt
	commit(t, l, Confirm{Capsule: "db-0", Since: since, Begun: true})
	n.State = Cordoned
	commit(t, l, PutNode{n})
	commit(t, l, Release{Capsule: "db-0"})
	err := snapshotOf(t, l).Check(Proposal{Do: []Commitment{Adopt{Capsule: "db-0", Node: "n"}}})
	require.ErrorContains(t, err, `capsule "db-0" has left node "n"`)
	require.ErrorContains(t, err, "stop it there, and confirm that it has stopped")
	commit(t, l, Confirm{Capsule: "db-0", Since: since, Stopped: true})
	commit(t, l, Adopt{Capsule: "db-0", Node: "n"})
}

// Counting only what is placed, a capsule would grow into the room of one that has left and still runs: 6 of 4.
func TestGrowthBesideWhatStops(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{Node{ID: "n", Capacity: Resources{CPU: 4}, Confirms: true}}, Submit{IDs: []CapsuleID{"r", "g"}, Spec: wants(2)}, Place{Capsule: "r", Node: "n"}, Place{Capsule: "g", Node: "n"})
	s := snapshotOf(t, l)
	commit(t, l, Confirm{Capsule: "r", Since: s.Capsule("r").PlacedAt, Begun: true}, Confirm{Capsule: "g", Since: s.Capsule("g").PlacedAt, Begun: true})
	commit(t, l, Release{Capsule: "r", Final: true})
	grow := Respec{Capsule: "g", Since: s.Capsule("g").PlacedAt, Spec: wants(4)}
	err := snapshotOf(t, l).Check(Proposal{Do: []Commitment{grow}})
	require.ErrorContains(t, err, `capsule "g" cannot grow on node "n" while capsule "r", which has left it, has not stopped: wants 0.002 cores, 0 free`)
	commit(t, l, Confirm{Capsule: "r", Since: s.Capsule("r").PlacedAt, Stopped: true})
	commit(t, l, grow)
	err = snapshotOf(t, l).Check(Proposal{Do: []Commitment{Respec{Capsule: "g", Since: s.Capsule("g").PlacedAt, Spec: wants(1)}}})
	require.ErrorContains(t, err, "let its agent lower what it takes first, and say Applied then")
	require.NoError(t, snapshotOf(t, l).Check(Proposal{Do: []Commitment{Respec{Capsule: "g", Since: s.Capsule("g").PlacedAt, Spec: wants(1), Applied: true}}}))
}

// A growing capsule asks as any placement does: not for what is nominated for work that outranks it.
func TestGrowthLeavesNominatedRoom(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
	urgent := wants(4)
	urgent.Priority = 5
	commit(t, l, cpuNode("n", 4), Submit{IDs: []CapsuleID{"a"}, Spec: wants(2)}, Submit{IDs: []CapsuleID{"urgent"}, Spec: urgent}, Place{Capsule: "a", Node: "n"},
		Nominate{Capsule: "urgent", Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 2}}}, Ends: time.Unix(9000, 0)})
	grow := Respec{Capsule: "a", Since: snapshotOf(t, l).Capsule("a").PlacedAt, Spec: wants(3)}
	require.ErrorContains(t, snapshotOf(t, l).Check(Proposal{Do: []Commitment{grow}}), `node "n" is nominated for capsule urgent`)
	view, _ := viewOf(t, l, nil)
	var d Draft
	d.Sync(view)
	require.ErrorContains(t, d.Respec(grow), `node "n" is nominated for capsule urgent`)
	commit(t, l, Nominate{Capsule: "urgent"})
	commit(t, l, grow)
}

// What waits behind others is raised, and is planned first, in the place in line that it had; what is too large for every node is made smaller
// and placed at once, although its class was parked.
func TestWhatWaitsIsRespecified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, cpuNode("n", 1), Submit{IDs: []CapsuleID{"huge"}, Spec: wants(9)})
		for i := range 3 {
			commit(t, l, Submit{IDs: []CapsuleID{CapsuleID(fmt.Sprint("small", i))}, Spec: wants(1)})
		}
		raised := *wants(1)
		raised.Priority = 1
		commit(t, l, Respec{Capsule: "small2", Spec: &raised})
		e := &Engine{Ledger: l, Navigator: &greedy{}}
		e.Pass(t.Context())
		require.Equal(t, NodeID("n"), where(t, l, "small2"))
		commit(t, l, cpuNode("m", 3))
		e.Pass(t.Context())
		commit(t, l, Respec{Capsule: "huge", Spec: wants(1)})
		e.Pass(t.Context())
		require.Equal(t, NodeID("m"), where(t, l, "huge"))
		require.Zero(t, snapshotOf(t, l).PendingCount())
	})
}
