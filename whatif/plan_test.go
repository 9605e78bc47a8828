package whatif_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/whatif"
)

func dump(t require.TestingT, s *orbit.State) string {
	var out bytes.Buffer
	require.NoError(t, s.Dump(&out))
	return out.String()
}

func snapshot(t require.TestingT, l orbit.Ledger) *orbit.State {
	s, err := l.Snapshot(context.Background())
	require.NoError(t, err)
	return s
}

func commit(t require.TestingT, l orbit.Ledger, do ...orbit.Commitment) {
	_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
	require.NoError(t, err)
}

// racks returns a ledger with so many racks of nodes of 4 cores.
func racks(t require.TestingT, count, nodes int) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	for r := range count {
		for n := range nodes {
			commit(t, l, orbit.PutNode{Node: orbit.Node{
				ID: orbit.NodeID(fmt.Sprintf("r%d-n%d", r, n)), Capacity: orbit.Resources{orbit.CPU: 4}, Labels: map[string]string{"rack": fmt.Sprint("r", r)},
			}})
		}
	}
	return l
}

func wants(cpu int64, priority int32) *orbit.Spec {
	return &orbit.Spec{Priority: priority, Movable: true, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
}

func schedulers() []orbit.Navigator {
	return []orbit.Navigator{&nav.Preempting{Navigator: &nav.Services{}}, &nav.Gang{}}
}

// question draws commitments that a state takes.
func question(t *rapid.T, state *orbit.State) (do []orbit.Commitment) {
	for i := range rapid.IntRange(1, 3).Draw(t, "asked") {
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0, 1:
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("asked", i))}, Spec: drawSpec(t)})
		case 2:
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("new", i)), Capacity: orbit.Resources{orbit.CPU: 4, orbit.Memory: 4}}})
		default:
			if n := state.Node(nodeID(rapid.IntRange(0, state.NodeCount()-1).Draw(t, "node"))); n != nil && n.Node.State == orbit.Ready {
				lost := *n.Node
				lost.State = orbit.Lost
				do = append(do, orbit.PutNode{Node: lost})
				for c := range state.On(n.Node.ID) {
					do = append(do, orbit.Release{Capsule: c.ID})
				}
				return do
			}
		}
	}
	return do
}

// TestWhatIsShownHappens: a trial leaves the state that it is asked of as it is, and on a ledger that nothing else has written to
// every proposal of the report commits and leads to just the state that the report shows.
func TestWhatIsShownHappens(t *testing.T) {
	scale.Sequential(t)
	for seen := range scale.Reach(t, "placed", "evicted") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				happens(t, seen)
			}
		})
	}
}

func happens(t *rapid.T, seen map[string]int) {
	state := world(t)
	ledger, before := &orbit.MemoryLedger{Start: state}, dump(t, state)
	var r *whatif.Report
	for range 2 {
		var err error
		r, err = whatif.Plan(context.Background(), state, schedulers(), question(t, state)...)
		require.NoError(t, err)
		require.True(t, r.Resting)
		require.Equal(t, before, dump(t, state))
		require.NoError(t, r.After.Verify())
		require.NotEmpty(t, r.String())
	}
	n, err := r.Commit(context.Background(), ledger)
	require.NoError(t, err)
	require.Len(t, r.Proposals(), n)
	require.Equal(t, dump(t, r.After), dump(t, snapshot(t, ledger)))
	seen["placed"] += len(r.Placed)
	for _, p := range r.Displaced {
		if p.For != "" || p.ForGang != "" {
			seen["evicted"]++
		}
	}
	again, err := r.Commit(context.Background(), ledger) // as after a lost answer
	require.NoError(t, err)
	require.Equal(t, n, again)
	require.Equal(t, dump(t, r.After), dump(t, snapshot(t, ledger)))
}

// TestTenThousandTrials leave a ledger's dump as it was.
func TestTenThousandTrials(t *testing.T) {
	scale.Sequential(t)
	l := racks(t, 2, 2)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: wants(3, 0)}, orbit.Place{Capsule: "a", Node: "r0-n0"}, orbit.Place{Capsule: "b", Node: "r1-n0"})
	state := snapshot(t, l)
	before, trials := dump(t, state), 10_000
	if testing.Short() {
		trials = 500
	}
	for i := range trials {
		r, err := whatif.Plan(t.Context(), state, []orbit.Navigator{&nav.Services{}}, orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: wants(int64(1+i%4), 0)})
		require.NoError(t, err)
		require.Len(t, r.Placed, 1)
	}
	require.Equal(t, before, dump(t, snapshot(t, l)))
}

// A commit stops at the first proposal that what has happened meanwhile refuses, and says what that is.
func TestCommitStopsAtWhatChanged(t *testing.T) {
	l := racks(t, 1, 2)
	state := snapshot(t, l)
	r, err := whatif.Plan(t.Context(), state, []orbit.Navigator{&nav.Services{}}, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: wants(3, 0)})
	require.NoError(t, err)
	require.Len(t, r.Placed, 2)
	taken := r.Placed[1].To
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"thief"}, Spec: wants(4, 0)}, orbit.Place{Capsule: "thief", Node: taken})
	done, err := r.Commit(t.Context(), l)
	require.ErrorIs(t, err, orbit.ErrConflict)
	require.Equal(t, 2, done, "the submission and the placement that is not touched")
	var receipt *orbit.Rejection
	require.ErrorAs(t, err, &receipt)
	require.Equal(t, taken, receipt.Node)
}

// Answers rest on the engines as they run: a report tells who makes way for whom, and what a drain moves.
func TestTrialTellsWhoMakesWay(t *testing.T) {
	l := racks(t, 1, 2)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low", "low2"}, Spec: wants(3, 0)}, orbit.Place{Capsule: "low", Node: "r0-n0"}, orbit.Place{Capsule: "low2", Node: "r0-n1"})
	r, err := whatif.Plan(t.Context(), snapshot(t, l), schedulers(), orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: wants(4, 9)})
	require.NoError(t, err)
	require.Len(t, r.Placed, 1)
	require.Len(t, r.Displaced, 1)
	require.Equal(t, orbit.CapsuleID("urgent"), r.Displaced[0].For)
	require.Equal(t, r.Placed[0].To, r.Displaced[0].From)
	require.Len(t, r.Unplaced, 1)
	require.Equal(t, r.Displaced[0].Capsule, r.Unplaced[0].Capsule.ID)
	require.ErrorContains(t, r.Unplaced[0].Why, "0 of 2 nodes fit")
	require.Contains(t, r.String(), "makes way for urgent")

	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"one"}, Spec: wants(1, 0)}, orbit.Place{Capsule: "one", Node: "r0-n0"})
	node := *snapshot(t, l).Node("r0-n0").Node
	node.State = orbit.Cordoned
	drain := whatif.Trial{Step: func(ctx context.Context, fork orbit.Ledger) error {
		(&nav.Drain{Ledger: fork}).Pass(ctx)
		return nil
	}}
	r, err = drain.Plan(t.Context(), snapshot(t, l), orbit.PutNode{Node: node})
	require.NoError(t, err)
	require.Equal(t, []whatif.Placement{{Capsule: "one", From: "r0-n0", To: "r0-n1"}}, r.Moved, "the other one fits nowhere else")
}

// What another priority, or a node of another kind, would do to what waits.
func TestTrialOfAPriorityAndOfANode(t *testing.T) {
	l := racks(t, 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: wants(3, 0)}, orbit.Place{Capsule: "low", Node: "r0-n0"}, orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: wants(4, 0)})
	state := snapshot(t, l)
	r, err := whatif.Plan(t.Context(), state, schedulers())
	require.NoError(t, err)
	require.Empty(t, r.Placed)
	r, err = whatif.Plan(t.Context(), state, schedulers(), orbit.Respec{Capsule: "waits", Spec: wants(4, 9)})
	require.NoError(t, err)
	require.Equal(t, []whatif.Placement{{Capsule: "waits", To: "r0-n0"}}, r.Placed)
	require.Equal(t, orbit.CapsuleID("low"), r.Displaced[0].Capsule)
	r, err = whatif.Plan(t.Context(), state, schedulers(), orbit.PutNode{Node: orbit.Node{ID: "large", Capacity: orbit.Resources{orbit.CPU: 64}}})
	require.NoError(t, err)
	require.Equal(t, []whatif.Placement{{Capsule: "waits", To: "large"}}, r.Placed)
	require.Empty(t, r.Displaced)
}

// The errors say what to do, and nothing is tried.
func TestTrialErrors(t *testing.T) {
	_, err := whatif.Plan(t.Context(), nil, nil)
	require.ErrorContains(t, err, "snapshot")
	state := snapshot(t, racks(t, 1, 1))
	_, err = whatif.Plan(t.Context(), state, nil, orbit.Place{Capsule: "nobody", Node: "r0-n0"})
	var receipt *orbit.Rejection
	require.ErrorAs(t, err, &receipt)
	_, err = (&whatif.Trial{Step: func(context.Context, orbit.Ledger) error { return errors.ErrUnsupported }}).Plan(t.Context(), state)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = whatif.Plan(done, state, schedulers())
	require.ErrorIs(t, err, context.Canceled)
	_, err = (&whatif.Trial{}).Without(t.Context(), state, "zone")
	require.ErrorContains(t, err, `"zone"`)
	_, err = whatif.Explain(t.Context(), state, nil)
	require.Error(t, err)
	_, err = whatif.Explain(t.Context(), state, &orbit.Spec{Class: 99})
	require.ErrorIs(t, err, orbit.ErrInvalid)
	_, err = whatif.ExplainGang(t.Context(), state, "none")
	require.ErrorContains(t, err, `"none"`)
}

// Rounds bounds a trial whose navigators never rest.
func TestTrialIsBounded(t *testing.T) {
	l := racks(t, 1, 1)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: wants(1, 0)})
	i := 0
	restless := whatif.Trial{Rounds: 7, Step: func(ctx context.Context, fork orbit.Ledger) error {
		i++
		_, err := fork.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: "k", Value: fmt.Sprint(i)}}})
		return err
	}}
	r, err := restless.Plan(t.Context(), snapshot(t, l))
	require.NoError(t, err)
	require.False(t, r.Resting)
	require.Equal(t, 7, r.Rounds)
}

// Work survives the loss of a rack if the others have room for it.
func TestWithoutEachRack(t *testing.T) {
	l := racks(t, 3, 2)
	for i := range 6 {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: wants(2, 0)}, orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprint("c", i)), Node: orbit.NodeID(fmt.Sprintf("r%d-n%d", i/2, i%2))})
	}
	trial := whatif.Trial{Navigators: []orbit.Navigator{&nav.Services{}}}
	losses, err := trial.Without(t.Context(), snapshot(t, l), "rack")
	require.NoError(t, err)
	require.Len(t, losses, 3)
	for i, loss := range losses {
		require.Equal(t, fmt.Sprint("r", i), loss.Domain)
		require.Equal(t, 2, loss.Nodes)
		require.Empty(t, loss.Homeless)
		require.Len(t, loss.Report.Moved, 2)
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"big"}, Spec: wants(2, 0)}, orbit.Place{Capsule: "big", Node: "r0-n0"})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"big2"}, Spec: wants(2, 0)}, orbit.Place{Capsule: "big2", Node: "r1-n0"})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"big3"}, Spec: wants(2, 0)}, orbit.Place{Capsule: "big3", Node: "r2-n0"})
	losses, err = trial.Without(t.Context(), snapshot(t, l), "rack")
	require.NoError(t, err)
	for _, loss := range losses {
		require.Len(t, loss.Homeless, 1, "three have to move, and there is room for two")
	}
}

// HowMany counts what fits, as placing them one by one does.
func TestHowMany(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, spec := world(t), drawSpec(t)
		spec.Apart, spec.Even = nil, nil // by which nodes would depend on each other
		if spec.Envelope.Reservation == (orbit.Resources{}) && spec.Devices.Count == 0 {
			spec.Envelope.Reservation[orbit.CPU] = 1
		}
		n, why, err := whatif.HowMany(context.Background(), state, spec, 100)
		require.NoError(t, err)
		require.Error(t, why)
		want := 0
		for node := range state.Nodes() {
			for s := state; ; want++ {
				e, err := whatif.Explain(context.Background(), only(t, s, node.Node.ID), spec)
				require.NoError(t, err)
				if e.Fits == 0 {
					break
				}
				devices, _ := s.Node(node.Node.ID).PickDevices(e.Spec)
				id := orbit.CapsuleID(fmt.Sprint("more", want))
				s, err = s.With(orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: node.Node.ID, Devices: devices}}})
				require.NoError(t, err)
			}
		}
		require.Equal(t, want, n)
	})
}

// only closes all nodes but one.
func only(t require.TestingT, s *orbit.State, id orbit.NodeID) *orbit.State {
	return s.Restricted(nil, nil, func(n *orbit.NodeState) bool { return n.Node.ID != id })
}

// The domains of a gang are told with how much of it fits in each.
func TestExplainGang(t *testing.T) {
	l := racks(t, 2, 2)
	worker := wants(3, 0)
	worker.Class = orbit.GangClass
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "worker", Spec: worker, Members: []orbit.CapsuleID{"w0", "w1", "w2"}}}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: wants(2, 0)}, orbit.Place{Capsule: "x", Node: "r0-n0"})
	e, err := whatif.ExplainGang(t.Context(), snapshot(t, l), "g")
	require.NoError(t, err)
	require.Equal(t, 3, e.Wants)
	require.Len(t, e.Domains, 2)
	require.Equal(t, "r1", e.Domains[0].Domain)
	require.Equal(t, 2, e.Domains[0].Fits)
	require.Equal(t, 1, e.Domains[1].Fits)
	require.Equal(t, "worker", e.Domains[1].Lacks)
	require.Contains(t, e.String(), `rack r1: 2 fit, then none of role "worker"`)
}

// A hold that ends is named with its end.
func TestExplainNamesWhatToWaitFor(t *testing.T) {
	l := racks(t, 1, 1)
	ends := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	commit(t, l, orbit.Hold{ID: "h", Node: "r0-n0", Room: orbit.Resources{orbit.CPU: 2}, Ends: ends})
	e, err := whatif.Explain(t.Context(), snapshot(t, l), wants(3, 0))
	require.NoError(t, err)
	require.Equal(t, "0 of 1 nodes fit\n       1: lacks cpu, as r0-n0\nit would fit if you\n  * wait for hold \"h\" until 2030-01-02T03:04:05Z: then node r0-n0 takes it\n  * ask for 0.001 cores less: then node r0-n0 takes it\n  * add a node like r0-n0", e.String())
}
