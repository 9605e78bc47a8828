package nav_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// inDefault runs a default population in a bubble while f acts, and returns the last state.
func inDefault(t *testing.T, f func(l *orbit.MemoryLedger), wrap ...func(orbit.Navigator) orbit.Navigator) (last *orbit.State) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		population := nav.Default(l, wrap...)
		population.OnError = func(err error) { t.Error(err) }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- population.Run(ctx) }()
		f(l)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		var err error
		last, err = l.Snapshot(t.Context())
		require.NoError(t, err)
		require.NoError(t, last.Verify())
	})
	return last
}

func takes(n int64) orbit.Envelope {
	return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: n * 1000}}
}

func putOnRack(id orbit.NodeID, n int64) orbit.PutNode {
	return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: n * 1000}, Labels: map[string]string{"rack": string(id[:1])}}}
}

// Every class of work is placed, groups whose members wait for each other and gangs included.
func TestDefaultPlacesEveryClass(t *testing.T) {
	s := inDefault(t, func(l *orbit.MemoryLedger) {
		commit(t, l, putOnRack("a1", 4), putOnRack("a2", 4), putOnRack("b1", 4), putOnRack("b2", 4))
		commit(t, l,
			orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Envelope: takes(1)}},
			orbit.Submit{IDs: []orbit.CapsuleID{"spare"}, Spec: &orbit.Spec{Class: orbit.BestEffort, Envelope: takes(1)}},
			orbit.Submit{IDs: []orbit.CapsuleID{"cache-0", "cache-1"}, Spec: &orbit.Spec{Envelope: takes(2), Group: "cache", Near: orbit.Near{Group: "cache", Level: "rack"}}},
			orbit.Submit{IDs: []orbit.CapsuleID{"sum"}, Spec: &orbit.Spec{Class: orbit.Batch, Envelope: takes(1)}},
			orbit.Submit{Gang: &orbit.Gang{ID: "train", Roles: []orbit.Role{{Name: "worker", Members: []orbit.CapsuleID{"w-0", "w-1"},
				Spec: &orbit.Spec{Class: orbit.GangClass, Envelope: takes(3)}}}}})
		time.Sleep(time.Minute)
	})
	require.Empty(t, s.Pending())
	rack := func(id orbit.CapsuleID) string { return s.Node(s.Capsule(id).Node).Node.Labels["rack"] }
	require.Equal(t, rack("cache-0"), rack("cache-1"))
}

// A large service is placed although small batch work takes each bit of room as soon as it is free.
func TestDefaultIsPatient(t *testing.T) {
	s := inDefault(t, func(l *orbit.MemoryLedger) {
		commit(t, l, putOnRack("a1", 4))
		serial := 0
		ids := func() []orbit.CapsuleID {
			serial++
			return []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("small-", serial))}
		}
		small := &orbit.Spec{Class: orbit.Batch, Envelope: takes(1)}
		for range 8 {
			commit(t, l, orbit.Submit{IDs: ids(), Spec: small})
		}
		time.Sleep(time.Second)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"large"}, Spec: &orbit.Spec{Priority: 1000, Envelope: takes(3)}})
		for range 100 { // one ends and another comes, each second
			time.Sleep(time.Second)
			state, err := l.Snapshot(t.Context())
			require.NoError(t, err)
			for c := range state.On("a1") {
				if c.ID != "large" {
					commit(t, l, orbit.Release{Capsule: c.ID, Final: true}, orbit.Submit{IDs: ids(), Spec: small})
					break
				}
			}
		}
	})
	require.True(t, s.Capsule("large").Placed())
}

// Work of all classes that comes at once is planned by priority: nothing begins and is evicted at once.
func TestDefaultPlansUrgentWorkFirst(t *testing.T) {
	for range 20 {
		s := inDefault(t, func(l *orbit.MemoryLedger) {
			commit(t, l, putOnRack("a1", 4), orbit.Submit{IDs: []orbit.CapsuleID{"sum-1", "sum-2"}, Spec: &orbit.Spec{Class: orbit.Batch, Envelope: takes(2)}},
				orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Priority: 9, Envelope: takes(4)}})
			time.Sleep(time.Minute)
		}, nav.Evicting)
		require.True(t, s.Capsule("web").Placed())
		require.Zero(t, s.Capsule("sum-1").PlacedAt, "it has never been placed")
	}
}

// A round counts who was evicted for its work, and who moved.
func TestRoundsCountEvictions(t *testing.T) {
	l := &orbit.MemoryLedger{}
	submits := func(id orbit.CapsuleID, priority int32, cores int64) orbit.Submit {
		return orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{Priority: priority, Movable: id == "moves", Envelope: takes(cores)}}
	}
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: nav.Moving(&nav.Services{})}
	expect := func(evicted, moved int, text string) {
		t.Helper()
		round := e.Pass(t.Context())
		require.Equal(t, []int{evicted, moved}, []int{round.Evicted, round.Moved}, round.String())
		require.Contains(t, round.String(), text)
	}
	commit(t, l, putOnRack("a1", 4), submits("sum", 0, 4), orbit.Place{Capsule: "sum", Node: "a1"}, submits("web", 9, 4))
	expect(1, 0, "1 committed, 1 evicted, 0 conflicts")
	commit(t, l, orbit.Release{Capsule: "sum", Final: true}, putOnRack("a2", 4), putOnRack("a3", 1), submits("moves", 10, 1), orbit.Place{Capsule: "moves", Node: "a2"}, submits("large", 9, 4))
	expect(0, 1, "1 committed, 1 moved, 0 conflicts")
	commit(t, l, putOnRack("a4", 4), submits("next", 9, 4))
	expect(0, 0, "1 committed, 0 conflicts")
}

// With Evicting, urgent work takes the place of other work; without, nothing is evicted.
func TestDefaultEvictsIfAsked(t *testing.T) {
	world := func(l *orbit.MemoryLedger) {
		commit(t, l, putOnRack("a1", 4), orbit.Submit{IDs: []orbit.CapsuleID{"sum"}, Spec: &orbit.Spec{Class: orbit.Batch, Envelope: takes(4)}})
		time.Sleep(time.Second)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Priority: 9, Envelope: takes(1)}})
		time.Sleep(5 * time.Minute)
	}
	s := inDefault(t, world, nav.Evicting)
	require.True(t, s.Capsule("web").Placed())
	require.True(t, s.Capsule("sum").Pending())
	s = inDefault(t, world)
	require.True(t, s.Capsule("web").Pending())
	require.True(t, s.Capsule("sum").Placed())
}

// A service with a budget stays where it is when other work needs its node, unless moves are asked for.
func TestDefaultMovesIfAsked(t *testing.T) {
	world := func(l *orbit.MemoryLedger) {
		commit(t, l, putOnRack("a1", 4), orbit.PutBudget{Budget: orbit.Budget{ID: "web", Group: "web", Expected: 1, Missing: 1}},
			orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Priority: 50, Group: "web", Envelope: takes(1)}})
		time.Sleep(time.Second)
		commit(t, l, putOnRack("a2", 1), orbit.Submit{IDs: []orbit.CapsuleID{"sum"}, Spec: &orbit.Spec{Class: orbit.Batch, Envelope: takes(4)}})
		time.Sleep(5 * time.Minute)
	}
	s := inDefault(t, world, nav.Evicting)
	require.Equal(t, orbit.NodeID("a1"), s.Capsule("web").Node)
	require.True(t, s.Capsule("sum").Pending())
	s = inDefault(t, world, nav.Moving)
	require.Equal(t, orbit.NodeID("a2"), s.Capsule("web").Node)
	require.Equal(t, orbit.NodeID("a1"), s.Capsule("sum").Node)
}

// A navigator that lacks the one it wraps says so as soon as work waits.
func TestWrapsOfNothingSaySo(t *testing.T) {
	for _, n := range []orbit.Navigator{&nav.Preempting{}, &nav.Patient{}, &nav.Fair{}, &nav.Anchor{}} {
		l := &orbit.MemoryLedger{}
		commit(t, l, putOnRack("a1", 4), orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: &orbit.Spec{Envelope: takes(1)}})
		round := (&orbit.Engine{Name: "e", Ledger: l, Navigator: n}).Pass(t.Context())
		require.Len(t, round.Errors, 1, "%T", n)
		require.ErrorContains(t, round.Errors[0], "Navigator is nil; set it to")
	}
}

// The reason of a gang that no navigator of gangs claims says what to change, and nothing of evictions.
func TestGangsOfAnotherClassSayWhatToChange(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Members: []orbit.CapsuleID{"w0"}, Spec: &orbit.Spec{Envelope: takes(1)}}}}})
	round := (&orbit.Engine{Name: "e", Ledger: l, Navigator: nav.Evicting(&nav.Services{})}).Pass(t.Context())
	require.Len(t, round.Unplaced, 1)
	require.EqualError(t, round.Unplaced[0].Why, `capsule "w0" is a member of gang "g", and its spec has the class LatencySensitive: `+
		`only specs of the class Gang are placed as gangs; submit the gang with Spec.Class orbit.GangClass`)
}
