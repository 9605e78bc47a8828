package lease_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// site is a ledger with one node under a lease, and capsules on it.
type site struct {
	*testing.T
	ledger *orbit.MemoryLedger
	m      *lease.Members
	term   lease.Term
}

func newSite(t *testing.T, capsules int) *site {
	s := &site{T: t, ledger: &orbit.MemoryLedger{}}
	s.m = s.another()
	s.term = s.join()
	do := []orbit.Commitment{}
	for i := range capsules {
		id := orbit.CapsuleID(fmt.Sprintf("c%04d", i))
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: &orbit.Spec{}}, orbit.Place{Capsule: id, Node: "n"})
	}
	if capsules > 0 {
		s.commit(do...)
	}
	return s
}

// another is a second process.
func (s *site) another() *lease.Members {
	return &lease.Members{Leases: &lease.Keeper{Ledger: s.ledger}}
}

func (s *site) commit(do ...orbit.Commitment) orbit.Revision {
	s.Helper()
	rev, err := s.ledger.Propose(s.Context(), orbit.Proposal{Do: do})
	require.NoError(s, err)
	return rev
}

func (s *site) join() lease.Term {
	s.Helper()
	term, err := s.m.Join(s.Context(), orbit.Node{ID: "n"}, "host")
	require.NoError(s, err)
	return term
}

func (s *site) step() lease.MemberRound {
	s.Helper()
	round, err := s.m.Step(s.Context())
	require.NoError(s, err)
	return round
}

func (s *site) node() *orbit.NodeState { return snapshot(s, s.ledger).Node("n") }

// put puts the node as it is, with one edit.
func (s *site) put(edit func(*orbit.Node)) {
	n := *s.node().Node
	edit(&n)
	s.commit(orbit.PutNode{Node: n})
}

func TestAnEndCordonsInOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		before := snapshot(t, s.ledger).Revision()
		time.Sleep(60*time.Second - 1)
		require.Empty(t, s.step().Ended)
		require.True(t, s.node().Node.Schedulable())
		time.Sleep(1)
		round := s.step()
		require.Equal(t, []lease.Term{s.term}, round.Ended)
		require.Empty(t, round.Cordoned)
		n := s.node()
		_, at := snapshot(t, s.ledger).Mark("lease/n")
		require.False(t, n.Node.Schedulable())
		require.Equal(t, at, n.Specification)
		require.Equal(t, before+1, snapshot(t, s.ledger).Revision())
		require.Equal(t, 1, n.Capsules)

		// It comes back, and takes work again, in one commit.
		term := s.join()
		require.True(t, s.node().Node.Schedulable())
		require.Equal(t, term.Epoch, s.node().Specification)
		require.Equal(t, before+2, snapshot(t, s.ledger).Revision())
		require.Equal(t, 1, s.node().Capsules, "it keeps what is on it")
		s.join()
		require.Equal(t, term.Epoch, s.node().Specification, "and its description is put only when it differs")
	})
}

func TestJoinKeepsWhatOthersWant(t *testing.T) {
	for _, test := range []struct {
		name          string
		edit          func(s *site) // before the lease is over
		late          func(s *site) // after
		unschedulable bool          // after the next Join
	}{
		{name: "cordoned by Members"},
		{name: "drained before", edit: func(s *site) { s.put(func(n *orbit.Node) { n.State = orbit.Cordoned }) }, unschedulable: true},
		{name: "drained after", late: func(s *site) {
			s.put(func(n *orbit.Node) { n.Taints = append(n.Taints, orbit.Taint{Key: "drain", Effect: "NoExecute"}) })
		}, unschedulable: true},
		{name: "cordoned a second time", late: func(s *site) { s.put(func(n *orbit.Node) { n.State = orbit.Cordoned }) }}, // it is already, so that nothing was said
		{name: "opened after", late: func(s *site) { s.put(func(n *orbit.Node) { n.State = orbit.Ready }) }},
		{name: "removed after", late: func(s *site) { s.commit(orbit.RemoveNode{Node: "n"}) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, 0)
				if test.edit != nil {
					test.edit(s)
				}
				time.Sleep(time.Minute)
				require.Len(t, s.step().Ended, 1)
				if test.late != nil {
					test.late(s)
				}
				for range 3 {
					require.Empty(t, s.step().Cordoned, "a cordon of another client is not undone")
					_, err := s.another().Step(t.Context())
					require.NoError(t, err)
				}
				s.join()
				require.Equal(t, test.unschedulable, !s.node().Node.Schedulable())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 0)
		_, err := s.m.Join(t.Context(), orbit.Node{ID: "n", Labels: map[string]string{"rack": "r"}, State: orbit.Cordoned}, "host")
		require.NoError(t, err)
		require.Equal(t, "r", s.node().Node.Labels["rack"])
		require.False(t, s.node().Node.Schedulable())
		_, err = s.m.Join(t.Context(), orbit.Node{ID: "m", Capacity: orbit.Resources{orbit.Slots: 5}}, "host")
		require.NoError(t, err)
		require.Equal(t, int64(5), snapshot(t, s.ledger).Node("m").Node.Capacity[orbit.Slots])
		_, err = s.m.Join(t.Context(), orbit.Node{ID: "n"}, "other")
		require.ErrorIs(t, err, lease.ErrHeld)
		_, err = (&lease.Members{}).Join(t.Context(), orbit.Node{ID: "n"}, "x")
		require.Error(t, err)
		_, err = (&lease.Members{}).Step(t.Context())
		require.Error(t, err)
		require.Error(t, (&lease.Members{}).Run(t.Context()))
	})
}

// A lease that was ended without a cordon is made good: its node is cordoned late, once, and open again at the next term.
func TestALateCordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 0)
		require.NoError(t, s.m.Leases.Resign(t.Context(), s.term))
		require.True(t, s.node().Node.Schedulable())
		require.Equal(t, []orbit.NodeID{"n"}, s.step().Cordoned)
		require.False(t, s.node().Node.Schedulable())
		require.Empty(t, s.step().Cordoned)
		s.join()
		require.True(t, s.node().Node.Schedulable())
	})
}

// A node that stays away for Gone loses its capsules and its holds, which return once; then it leaves with its
// row.
func TestALostNodeIsEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2500)
		s.commit(orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{orbit.Slots: 1}, Ends: time.Now().Add(time.Hour)})
		s.commit(orbit.PutNode{Node: orbit.Node{ID: "m", Capacity: orbit.Resources{orbit.Slots: 9}}},
			orbit.Hold{ID: "g", Node: "m", Room: orbit.Resources{orbit.Slots: 1}, Ends: time.Now().Add(time.Hour)})
		time.Sleep(time.Minute)
		require.Equal(t, 5*time.Minute, time.Until(s.step().Next))
		time.Sleep(5*time.Minute - 1)
		require.Empty(t, s.step().Released)
		time.Sleep(1)
		var released []orbit.CapsuleID
		var holds []orbit.HoldID
		steps := 0
		for round := s.step(); len(round.Released)+len(round.Holds) > 0; round = s.step() {
			require.LessOrEqual(t, len(round.Released)+len(round.Holds), 1000)
			require.LessOrEqual(t, time.Until(round.Next), time.Duration(0))
			released, holds = append(released, round.Released...), append(holds, round.Holds...)
			steps++
		}
		require.Equal(t, 3, steps)
		require.Len(t, released, 2500)
		require.True(t, slices.IsSorted(released), "in order of submission")
		require.Equal(t, []orbit.HoldID{"h"}, holds)
		state := snapshot(t, s.ledger)
		require.Equal(t, 2500, state.PendingCount())
		require.NoError(t, state.Verify())
		round := s.step()
		require.Equal(t, 55*time.Minute, time.Until(round.Next))
		time.Sleep(55*time.Minute - 1)
		require.Empty(t, s.step().Swept)
		require.NotNil(t, s.node())
		time.Sleep(1)
		require.Equal(t, []string{"n"}, s.step().Swept)
		require.Nil(t, s.node())
		_, at := snapshot(t, s.ledger).Mark("lease/n")
		require.Zero(t, at)
	})
}

// A node that comes back in time, to the nanosecond, keeps its capsules, whichever process was about to release them.
func TestANodeThatComesBackInTimeKeepsItsCapsules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3)
		f := &faulty{Ledger: s.ledger}
		s.m.Leases.Ledger = f
		time.Sleep(time.Minute)
		s.step()
		time.Sleep(5 * time.Minute)
		back := s.another()
		f.before = func(p orbit.Proposal) error {
			if slices.ContainsFunc(p.Do, func(c orbit.Commitment) bool { _, ok := c.(orbit.Release); return ok }) { // the very moment before they are released
				_, err := back.Join(t.Context(), orbit.Node{ID: "n"}, "host")
				require.NoError(t, err)
			}
			return nil
		}
		round := s.step()
		require.Empty(t, round.Released)
		require.Equal(t, 1, round.Conflicts)
		require.Equal(t, 3, s.node().Capsules)
		require.True(t, s.node().Node.Schedulable())
		require.Empty(t, s.step().Released)
	})
}

// Several processes that find a node lost release each capsule once between them.
func TestSeveralProcessesReleaseOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2000)
		all := []*lease.Members{s.m, s.another(), s.another(), s.another()}
		for _, m := range all {
			_, err := m.Step(t.Context())
			require.NoError(t, err)
		}
		var mu sync.Mutex
		var released []orbit.CapsuleID
		var ended, swept int
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		var loops sync.WaitGroup
		for _, m := range all {
			m.Hook = func(r lease.MemberRound) {
				mu.Lock()
				defer mu.Unlock()
				released = append(released, r.Released...)
				ended, swept = ended+len(r.Ended), swept+len(r.Swept)
				require.Empty(t, r.Errors)
			}
			loops.Go(func() { assert.NoError(t, m.Run(ctx), "a context that has ended is no error") })
		}
		loops.Wait()
		require.Len(t, released, 2000)
		slices.Sort(released)
		require.Len(t, slices.Compact(released), 2000)
		require.Equal(t, [2]int{1, 1}, [2]int{ended, swept})
		require.Nil(t, s.node())
		require.Equal(t, 2000, snapshot(t, s.ledger).PendingCount())
	})
}

// A host that flaps for an hour, away just long enough to lose its lease each time, costs a bounded number of
// commits and none of its capsules.
func TestAFlappingHostDoesNotChurn(t *testing.T) {
	for _, away := range []time.Duration{20 * time.Second, 57 * time.Second, 61 * time.Second, 90 * time.Second, 150 * time.Second, 4 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, 10)
				var released int
				s.m.Hook = func(r lease.MemberRound) { released += len(r.Released) }
				ctx, cancel := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { s.m.Run(ctx) })
				before := snapshot(t, s.ledger).Revision()
				term := s.term
				for begin := time.Now(); time.Since(begin) < time.Hour; {
					time.Sleep(away)
					for range 3 { // here it is
						if s.m.Leases.Refresh(term) != nil {
							if again, err := s.m.Join(t.Context(), orbit.Node{ID: "n"}, "host"); err == nil {
								term = again
							} else {
								require.ErrorIs(t, err, lease.ErrTooMany)
							}
						}
						time.Sleep(time.Second)
					}
				}
				cancel()
				run.Wait()
				commits := snapshot(t, s.ledger).Revision() - before
				t.Logf("away for %v again and again: %d commits in an hour", away, commits)
				if away < time.Minute {
					require.Zero(t, commits)
				}
				require.LessOrEqual(t, commits, orbit.Revision(2*41))
				require.Zero(t, released)
				require.Equal(t, 10, s.node().Capsules)
			})
		})
	}
}

// What may have been released is sent again as it was, and told once it is known.
func TestAnUnknownRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3)
		f := &faulty{Ledger: s.ledger}
		s.m.Leases.Ledger = f
		time.Sleep(time.Minute)
		s.step()
		time.Sleep(5 * time.Minute)
		f.after = times(1, orbit.ErrUnknown)
		round, err := s.m.Step(t.Context())
		require.ErrorIs(t, err, orbit.ErrUnknown)
		require.Empty(t, round.Released)
		require.Equal(t, 1, round.Unknown)
		round = s.step()
		require.Len(t, round.Released, 3)
		require.Equal(t, f.ids[len(f.ids)-2], f.ids[len(f.ids)-1])
		require.Empty(t, s.step().Released)
		require.Equal(t, 3, snapshot(t, s.ledger).PendingCount())
	})
}

// When everything was down, nodes can come back before what was on them is released: Gone has passed, but no TTL
// has since this process learned of the end.
func TestNothingIsLostRightAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		time.Sleep(time.Minute)
		s.step()
		time.Sleep(time.Hour)
		s.m = s.another()
		round := s.step()
		require.Empty(t, round.Released)
		require.Empty(t, round.Swept)
		require.Equal(t, time.Minute, time.Until(round.Next))
		time.Sleep(time.Minute - 1)
		require.Empty(t, s.step().Released)
		time.Sleep(1)
		require.Len(t, s.step().Released, 1)
		s.step()
		require.Equal(t, []string{"n"}, s.step().Swept)
	})
}

// A node that a client has made schedulable without a lease is left to that client.
func TestAnOpenedNodeIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1)
		time.Sleep(time.Minute)
		s.step()
		s.put(func(n *orbit.Node) { n.State = orbit.Ready })
		time.Sleep(2 * time.Hour)
		swept := 0
		for range 5 {
			round := s.step()
			require.Empty(t, round.Released)
			require.Empty(t, round.Cordoned)
			swept += len(round.Swept)
		}
		require.Equal(t, 1, swept)
		require.Equal(t, 1, s.node().Capsules)
	})
}

// What others commit between the moment at which the row is read and that at which the node is, is a conflict like
// any other: it is expected, and looked at again.
func TestOthersCommitBetweenRowAndNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3)
		f, other := &faulty{Ledger: s.ledger}, s.another()
		s.m.Leases.Ledger = f
		step := func(m *lease.Members) func() {
			return func() {
				_, err := m.Step(t.Context())
				require.NoError(t, err)
			}
		}
		step(other)()
		f.between = func() {
			_, err := other.Join(t.Context(), orbit.Node{ID: "n"}, "host")
			require.NoError(t, err)
		}
		s.join()

		step(other)()
		time.Sleep(time.Minute)
		f.between = step(other)
		require.Equal(t, 1, s.step().Conflicts)
		require.False(t, s.node().Node.Schedulable())
		s.step()

		time.Sleep(5 * time.Minute)
		f.between = func() {
			_, err := other.Join(t.Context(), orbit.Node{ID: "n", Labels: map[string]string{"back": "yes"}}, "host")
			require.NoError(t, err)
			step(other)()
			time.Sleep(time.Minute)
			step(other)()
		}
		require.Equal(t, 1, s.step().Conflicts)
		require.Equal(t, 3, s.node().Capsules)
	})
}

// A client drains a node at the very moment at which it joins again: it stays drained.
func TestADrainDuringAJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 0)
		f, drained := &faulty{Ledger: s.ledger}, false
		s.m.Leases.Ledger = f
		f.before = func(orbit.Proposal) error {
			if !drained {
				drained = true
				s.put(func(n *orbit.Node) { n.State = orbit.Cordoned })
			}
			return nil
		}
		_, err := s.m.Join(t.Context(), orbit.Node{ID: "n", Labels: map[string]string{"rack": "r"}}, "host")
		require.NoError(t, err)
		require.False(t, s.node().Node.Schedulable())
		require.Equal(t, "r", s.node().Node.Labels["rack"])
	})
}

// Nothing is released within Fence of the last refresh, whatever TTL and Gone are, and whichever process does it.
func TestFence(t *testing.T) {
	for _, gone := range []time.Duration{time.Second, time.Minute, 0} {
		for _, restarted := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, 1)
				s.m.Gone = gone
				s.step()
				time.Sleep(30 * time.Second)
				require.NoError(t, s.m.Leases.Refresh(s.term))
				fenced := time.Now().Add(s.m.Fence())
				if restarted { // it has the term by now to have been refreshed at this moment
					s.m = s.another()
					s.m.Gone = gone
				}
				for time.Now().Before(fenced) {
					require.Empty(t, s.step().Released)
					time.Sleep(500 * time.Millisecond)
				}
				if gone > 0 {
					require.NotEmpty(t, s.step().Released)
				}
			})
		}
	}
	require.Zero(t, (&lease.Members{}).Fence())
}

// A node that joins again is put again if any field of its description differs.
func TestJoinWithOneFieldChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 0)
		node := orbit.Node{ID: "n"}
		for _, change := range []func(){
			func() { node.Capacity[orbit.Memory] = 1 << 30 },
			func() { node.Labels = map[string]string{"rack": "r"} },
			func() { node.Devices = orbit.Devices{Model: "m", Count: 1} },
			func() { node.Confirms = true },
			func() { node.Taints = []orbit.Taint{{Key: "k", Effect: "NoSchedule"}} },
			func() { node.Extras = []orbit.Extra{{Name: "ip", Amount: 1}, {Name: "key", Amount: 2}} },
			func() { node.Extras = []orbit.Extra{{Name: "ip", Amount: 1}, {Name: "key", Amount: 3}} },
		} {
			change()
			_, err := s.m.Join(t.Context(), node, "host")
			require.NoError(t, err)
			got := *s.node().Node
			got.Capacity[orbit.Slots] = 0
			require.Equal(t, node, got)
		}
		at := s.node().Specification
		node.Extras = []orbit.Extra{{Name: "key", Amount: 3}, {Name: "ip", Amount: 1}}
		_, err := s.m.Join(t.Context(), node, "host")
		require.NoError(t, err)
		require.Equal(t, at, s.node().Specification, "the order of extras says nothing")
		require.Equal(t, 8, reflect.TypeFor[orbit.Node]().NumField(), "id, state, and what is changed above")
	})
}

// Members and keepers without what they need say so at once; they do not panic and do not try for ever.
func TestMembersWithoutALedger(t *testing.T) {
	for name, m := range map[string]*lease.Members{
		"leases": {}, "ledger": {Leases: &lease.Keeper{}}, "slash": {Leases: &lease.Keeper{Ledger: &orbit.MemoryLedger{}, Prefix: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.Join(t.Context(), orbit.Node{ID: "n"}, "h")
			require.ErrorIs(t, err, orbit.ErrInvalid)
			_, err = m.Step(t.Context())
			require.ErrorIs(t, err, orbit.ErrInvalid)
			require.ErrorIs(t, m.AcceptLoss(t.Context()), orbit.ErrInvalid)
			require.ErrorIs(t, m.Run(t.Context()), orbit.ErrInvalid)
			if m.Leases != nil {
				require.ErrorIs(t, m.Leases.Run(t.Context()), orbit.ErrInvalid)
			}
		})
	}
}
