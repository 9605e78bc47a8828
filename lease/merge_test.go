package lease_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// What an operator has said of a node is there when its agent joins again: at once, after an outage, and after the node
// was lost with everything on it. What the agent says changes with the agent.
func TestWhatAnOperatorSaysOutlivesTheAgent(t *testing.T) {
	agent := orbit.Node{
		ID: "n", Capacity: orbit.Resources{orbit.CPU: 4, orbit.Slots: 9}, Labels: map[string]string{"zone": "a", "arch": "arm"},
		Devices: orbit.Devices{Model: "H100", Count: 4, Unhealthy: 0b0001}, Confirms: true,
		Taints: []orbit.Taint{{Key: "gpu", Value: "only", Effect: "NoSchedule"}}, Extras: []orbit.Extra{{Name: "ip", Amount: 8}},
	}
	operator := func(n *orbit.Node) {
		n.Labels = map[string]string{"zone": "wrong", "arch": "arm", "rack": "r7"}
		n.Devices.Unhealthy |= 0b0100
		n.Taints = append(append([]orbit.Taint{}, n.Taints...), orbit.Taint{Key: "disk", Effect: "NoSchedule"}, orbit.Taint{Key: "gpu", Effect: "NoExecute"})
		n.Taints[0].Value = "other"
		n.Extras = append(append([]orbit.Extra{}, n.Extras...), orbit.Extra{Name: "key", Amount: 2})
		n.Capacity[orbit.CPU] = 1
		n.State = orbit.Cordoned
	}
	want := agent
	want.Capacity = orbit.Resources{orbit.CPU: 5, orbit.Slots: 9}
	want.Labels = map[string]string{"zone": "b", "arch": "arm", "rack": "r7"}
	want.Devices = orbit.Devices{Model: "H100", Count: 3, Unhealthy: 0b0101}
	want.Taints = []orbit.Taint{{Key: "gpu", Value: "only", Effect: "NoSchedule"}, {Key: "disk", Effect: "NoSchedule"}, {Key: "gpu", Effect: "NoExecute"}}
	want.Extras = []orbit.Extra{{Name: "ip", Amount: 8}, {Name: "key", Amount: 2}}
	want.State = orbit.Cordoned
	require.Equal(t, 8, reflect.TypeFor[orbit.Node]().NumField(), "decide who says what is new, and say so in Members.Join")

	for name, away := range map[string]time.Duration{"restarts": time.Second, "is away": 3 * time.Minute, "is lost": 20 * time.Minute} {
		for _, busy := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &site{T: t, ledger: &orbit.MemoryLedger{}}
					s.m = s.another()
					s.m.MaxLoss = 1
					_, err := s.m.Join(t.Context(), agent, "host")
					require.NoError(t, err)
					if busy {
						s.commit(orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: &orbit.Spec{Tolerate: []orbit.Toleration{{Op: "Exists"}}}}, orbit.Place{Capsule: "c", Node: "n"})
					}
					s.put(operator)
					for range int(away / time.Second) {
						time.Sleep(time.Second)
						s.step()
					}
					if name == "is lost" && busy {
						require.Equal(t, orbit.Lost, s.node().Node.State)
						require.Zero(t, s.node().Capsules)
						s.m = s.another() // what it knows is in the ledger
					}
					again := agent
					again.Capacity[orbit.CPU] = 5
					again.Labels = map[string]string{"zone": "b"}
					again.Devices = orbit.Devices{Model: "H100", Count: 3}
					_, err = s.m.Join(t.Context(), again, "host")
					require.NoError(t, err)
					require.Equal(t, want, *s.node().Node)
					at := s.node().Specification
					_, err = s.m.Join(t.Context(), again, "host")
					require.NoError(t, err)
					require.Equal(t, at, s.node().Specification, "nothing is put that is known")

					s.put(func(n *orbit.Node) { n.State, n.Devices.Unhealthy = orbit.Ready, 0 })
					_, err = s.m.Join(t.Context(), again, "host")
					require.NoError(t, err)
					require.True(t, s.node().Node.Schedulable(), "who has cordoned it may open it again")
					require.Zero(t, s.node().Node.Devices.Unhealthy)
				})
			})
		}
	}
}

// A lost node that an operator has cordoned is emptied at once, however many commits that takes.
func TestALostNodeThatIsCordonedIsEmptiedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 9000)
		s.m.MaxLoss = 1
		s.put(func(n *orbit.Node) { n.State = orbit.Cordoned })
		released := 0
		for until := time.Now().Add(6*time.Minute + 10*time.Second); time.Now().Before(until); time.Sleep(time.Second) {
			released += len(s.step().Released)
		}
		require.Equal(t, 9000, released)
	})
}

// A node that Members has cordoned and lost takes work again when it comes back.
func TestALostNodeThatNobodyHasCordonedIsReadyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2)
		s.m.MaxLoss = 1
		for range 20 * 60 {
			time.Sleep(time.Second)
			s.step()
		}
		require.Equal(t, orbit.Lost, s.node().Node.State)
		s.join()
		require.Equal(t, orbit.Ready, s.node().Node.State)
	})
}

// Devices of another model are other devices: nothing is known of their health.
func TestUnhealthyDevicesThatWereReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 0)
		join := func(d orbit.Devices) error {
			_, err := s.m.Join(t.Context(), orbit.Node{ID: "n", Devices: d}, "host")
			return err
		}
		require.NoError(t, join(orbit.Devices{Model: "A100", Count: 2, Unhealthy: 0b10}))
		require.NoError(t, join(orbit.Devices{Model: "H100", Count: 2}))
		require.Zero(t, s.node().Node.Devices.Unhealthy)
		require.ErrorIs(t, join(orbit.Devices{Model: "H100", Count: -1}), orbit.ErrInvalid)
		require.ErrorIs(t, join(orbit.Devices{Model: "H100", Count: 99}), orbit.ErrInvalid)
	})
}

// The clock of a process that commits the end of a lease may be wrong: every other one counts Gone and Sweep from when it
// has read of the end.
func TestAnEndIsAsOldAsItIsKnown(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 2)
			off := s.another()
			off.Leases.Now = func() time.Time { return time.Now().Add(ahead) }
			step := func(m *lease.Members) lease.MemberRound {
				round, err := m.Step(t.Context())
				require.NoError(t, err)
				return round
			}
			step(off)
			s.m.MaxLoss, off.MaxLoss = 1, 1
			time.Sleep(time.Minute)
			require.Len(t, step(off).Ended, 1)
			ended := time.Now()
			for {
				round := step(s.m)
				if len(round.Released) > 0 {
					break
				}
				time.Sleep(time.Second)
			}
			require.Equal(t, 5*time.Minute, time.Since(ended))
			for len(step(s.m).Swept) == 0 {
				time.Sleep(time.Second)
			}
			require.Equal(t, time.Hour, time.Since(ended))
		})
	}
}

// A node that is nominated for work whose engine no longer runs comes back after a loss, or leaves, all the same: nothing
// else would end the nomination before its time.
func TestALostNodeThatIsNominated(t *testing.T) {
	lost := func(t *testing.T) *site {
		s := newSite(t, 2)
		gang := &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}}, Members: []orbit.CapsuleID{"m"}}}}
		s.commit(orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: gang.Roles[0].Spec}, orbit.Submit{Gang: gang})
		room := []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.Slots: 1}}}
		s.commit(orbit.Nominate{Capsule: "waits", Parts: room, Ends: time.Now().Add(100 * time.Hour)},
			orbit.Nominate{Gang: "g", Parts: room, Ends: time.Now().Add(100 * time.Hour)})
		for range 20 * 60 {
			time.Sleep(time.Second)
			s.step()
		}
		require.Equal(t, orbit.Lost, s.node().Node.State)
		return s
	}
	ended := func(t *testing.T, s *site) {
		state := snapshot(t, s.ledger)
		require.False(t, state.Capsule("waits").Nomination().Lives())
		require.False(t, state.Gang("g").Nomination.Lives())
		require.NoError(t, state.Verify())
	}
	t.Run("and comes back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := lost(t)
			s.join()
			require.Equal(t, orbit.Ready, s.node().Node.State)
			ended(t, s)
		})
	})
	t.Run("and leaves", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := lost(t)
			time.Sleep(time.Hour)
			require.Equal(t, []string{"n"}, s.step().Swept)
			require.Nil(t, s.node())
			ended(t, s)
		})
	})
}
