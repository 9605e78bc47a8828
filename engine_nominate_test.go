package orbit

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// firstFit places what fits, with PlaceBest, on the first node that fits.
type firstFit struct{ draft Draft }

func (f *firstFit) Best(d *Draft, spec *Spec) (Choice, error) {
	counts := map[Misfit]int{}
	for n := range d.Nodes() {
		if n.Fits(spec) {
			set, _ := n.PickDevices(spec)
			return Choice{Node: n, Devices: set}, nil
		}
		counts[d.Misfit(n, spec)]++
	}
	return Choice{}, d.NoFit(spec, counts)
}

func (f *firstFit) Plan(_ context.Context, view *View, pending []*Capsule) (plan Plan, err error) {
	f.draft.Sync(view)
	for _, c := range pending {
		if err := f.draft.PlaceBest(f, c); err != nil {
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, err})
			continue
		}
		plan.Proposals = append(plan.Proposals, f.draft.Propose())
	}
	return plan, nil
}

func (f *firstFit) Claims(string, AppClass) bool { return true }

// TestNominatedCapsuleIsWokenAndPlaced: an engine whose class is parked learns at once of room that is nominated for it, and
// gives that room to nothing that ranks lower, in its own plan or in a proposal.
func TestNominatedCapsuleIsWokenAndPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := widely(t, cpuNode("n", 4), submitOf(rankedSpec(5, 4), "big"), submitOf(rankedSpec(5, 1), "s1"))
		c.commits(placeOn("s1", "n"))
		c.commits(nominationEnding("big", time.Now().Add(time.Hour), partOn("n", 4)))
		c.commits(submitOf(rankedSpec(5, 1), "s2", "s3"))
		e := &Engine{Name: "e", Ledger: c, Navigator: &firstFit{}, Backoff: Backoff{Initial: time.Minute, Max: time.Minute, Jitter: -1}}
		go func() { _ = e.Run(t.Context()) }() // ends with the test
		time.Sleep(time.Second)
		require.Empty(t, c.now().Capsule("s2").Node, "small work does not overtake")
		c.commits(Release{Capsule: "s1", Final: true})
		time.Sleep(time.Second)
		require.Equal(t, NodeID("n"), c.now().Capsule("big").Node, "placed long before the back-off is over")
	})
}

// nominationEnding nominates until then.
func nominationEnding(id CapsuleID, ends time.Time, parts ...NominatedRoom) Nominate {
	n := nominationOf(id, parts...)
	n.Ends = ends
	return n
}

// TestEngineEndsNominations: those whose end has passed, and those with a node that can no longer serve; what was kept from
// others is theirs at once.
func TestEngineEndsNominations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := widely(t, cpuNode("n", 4), cpuNode("m", 4), submitOf(rankedSpec(5, 9), "a", "b"))
		start := time.Now()
		c.commits(nominationEnding("a", start.Add(time.Minute), partOn("n", 4)), nominationEnding("b", start.Add(time.Hour), partOn("m", 4)))
		c.commits(submitOf(rankedSpec(0, 3), "s1", "s2"))
		e := &Engine{Name: "e", Ledger: c, Navigator: &firstFit{}, Backoff: Backoff{Initial: 10 * time.Minute, Max: 10 * time.Minute, Jitter: -1}}
		go func() { _ = e.Run(t.Context()) }() // ends with the test
		time.Sleep(59 * time.Second)
		require.True(t, c.now().Capsule("a").Nomination().Lives())
		time.Sleep(2 * time.Second)
		require.False(t, c.now().Capsule("a").Nomination().Lives())
		require.Equal(t, NodeID("n"), c.now().Capsule("s1").Node)
		require.Equal(t, NodeID(""), c.now().Capsule("s2").Node)
		c.commits(cpuNode("m", 3)) // it cannot serve b any more
		time.Sleep(time.Second)
		require.False(t, c.now().Capsule("b").Nomination().Lives())
		require.Equal(t, NodeID("m"), c.now().Capsule("s2").Node)
	})
}

// TestEngineEndsNominationsOfAnyEnd: engines count from when they first see a nomination, and end it when the ledger's
// limit has passed, however late its Ends is. A new one is counted anew, and so is one that another engine sees first.
func TestEngineEndsNominationsOfAnyEnd(t *testing.T) {
	for name, limit := range map[string]time.Duration{"default": 0, "a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := court{t, &MemoryLedger{Bounds: Limits{NominatedShare: 100, Nominate: limit, History: 8}}}
				gang := &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: rankedSpec(5, 9), Members: []CapsuleID{"g1"}}}}
				c.commits(cpuNode("n", 4), cpuNode("m", 4), submitOf(rankedSpec(5, 9), "a"), Submit{Gang: gang})
				never, most := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), c.Limits().LongestNomination()
				require.Equal(t, most, max(limit, time.Hour*time.Duration(btoi(limit == 0))))
				c.commits(nominationEnding("a", never, partOn("n", 4)))
				e := &Engine{Name: "e", Ledger: c, Navigator: &firstFit{}, Backoff: Backoff{Initial: 24 * time.Hour, Max: 24 * time.Hour, Jitter: -1}}
				go func() { _ = e.Run(t.Context()) }() // ends with the test
				lives := func() [2]bool {
					return [2]bool{c.now().Capsule("a").Nomination().Lives(), c.now().Gang("g").Nomination.Lives()}
				}
				time.Sleep(most / 2)
				c.commits(Nominate{Gang: "g", Ends: never, Parts: []NominatedRoom{partOn("m", 4)}})
				for i := range 50 { // more than the history holds: what has been counted still counts
					c.commits(Mark{Key: fmt.Sprint(i), Value: "v"})
				}
				time.Sleep(most/2 - time.Second)
				require.Equal(t, [2]bool{true, true}, lives())
				time.Sleep(2 * time.Second)
				require.Equal(t, [2]bool{false, true}, lives())
				c.commits(nominationEnding("a", never, partOn("n", 4)))
				time.Sleep(most / 2)
				require.Equal(t, [2]bool{true, false}, lives())
				time.Sleep(most) // the engine may have slept until it had the gang's to end
				require.Equal(t, [2]bool{false, false}, lives())
			})
		})
	}
}

// TestNomineeIsWokenForOtherNodes: a parked nominee learns at once of room on another node than its own that is nominated for one
// which it outranks.
func TestNomineeIsWokenForOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := widely(t, cpuNode("n1", 4), cpuNode("n2", 4), submitOf(rankedSpec(5, 4), "big"), submitOf(rankedSpec(5, 3), "low"), submitOf(rankedSpec(5, 2), "s1", "s2"))
		c.commits(placeOn("s1", "n1"))
		c.commits(placeOn("s2", "n2"))
		c.commits(nominationEnding("big", time.Now().Add(time.Hour), partOn("n1", 4)))
		c.commits(nominationEnding("low", time.Now().Add(time.Hour), partOn("n2", 3)))
		e := &Engine{Name: "e", Ledger: c, Navigator: &firstFit{}, ParkFor: time.Hour, Backoff: Backoff{Initial: time.Minute, Max: time.Minute, Jitter: -1}}
		go func() { _ = e.Run(t.Context()) }() // ends with the test
		time.Sleep(time.Second)
		c.commits(Release{Capsule: "s2", Final: true})
		time.Sleep(2 * time.Second)
		require.Equal(t, NodeID("n2"), c.now().Capsule("big").Node, "it outranks what is nominated there")
	})
}

// TestNomineeComesFirstInItsClass: a nominee is planned before more of its class than a pass plans, which do not fit where it does.
func TestNomineeComesFirstInItsClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := widely(t, cpuNode("n", 4), submitOf(rankedSpec(0, 4), "c1", "c2", "c3"))
		e := &Engine{Name: "e", Ledger: c, Navigator: &firstFit{}, MaxPlan: 1, ParkFor: time.Hour, Backoff: Backoff{Initial: time.Minute, Max: time.Minute, Jitter: -1}}
		c.commits(nominationEnding("c3", time.Now().Add(time.Hour), partOn("n", 4)))
		go func() { _ = e.Run(t.Context()) }() // ends with the test
		time.Sleep(time.Second)
		require.Equal(t, NodeID("n"), c.now().Capsule("c3").Node)
	})
}

// TestNomineesComeInOrderOfRank: of two nominees of a class the one of higher rank is planned first, although a pass plans one
// only, the other was submitted first, and its class is parked once it does not fit.
func TestNomineesComeInOrderOfRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := widely(t, cpuNode("n1", 4), cpuNode("n2", 4), submitOf(rankedSpec(5, 2), "s"), submitOf(rankedSpec(0, 4), "c1", "c2"))
		c.commits(placeOn("s", "n1"))
		first := nominationEnding("c1", time.Now().Add(time.Hour), partOn("n1", 4))
		second := nominationEnding("c2", time.Now().Add(time.Hour), partOn("n2", 4))
		second.Aged = 1
		c.commits(first)
		c.commits(second)
		e := &Engine{Name: "e", Ledger: c, Navigator: &firstFit{}, MaxPlan: 1, ParkFor: time.Hour, Backoff: Backoff{Initial: time.Minute, Max: time.Minute, Jitter: -1}}
		go func() { _ = e.Run(t.Context()) }() // ends with the test
		time.Sleep(time.Second)
		require.Equal(t, NodeID("n2"), c.now().Capsule("c2").Node)
		require.True(t, c.now().Capsule("c1").Pending())
	})
}

// What a view finds to be over, of what is nominated, is what a look at all nominations finds, whatever has changed since it looked
// last; and so is when the next one ends.
func TestLapsedAgainstAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Terminal: 2, NominatedShare: 100, History: rapid.SampledFrom([]int{3, 1000}).Draw(t, "history")}
		c := &chaos{ledger: &MemoryLedger{Bounds: limits}, now: time.Unix(1000, 0)}
		var v View
		nominate := func(t *rapid.T) {
			if k := c.capsule(t, (*Capsule).Pending); k != nil {
				n := nominationEnding(k.ID, c.now.Add(time.Duration(rapid.Int64Range(-1, 3).Draw(t, "for"))*time.Second), partOn(c.nodeID(t), 1))
				if more := partOn(c.nodeID(t), 1); more.Node != n.Parts[0].Node {
					n.Parts = append(n.Parts, more)
				}
				c.try(n)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": c.submit, "place": c.place, "release": c.release, "assign": c.assign, "put": c.put, "put more": c.put,
			"empty": c.empty, "shuffle": c.shuffle, "tick": c.tick, "nominate": nominate, "nominate more": nominate,
			"end": func(t *rapid.T) {
				if k := c.capsule(t, (*Capsule).Pending); k != nil {
					c.try(Nominate{Capsule: k.ID})
				}
			},
			"look": func(t *rapid.T) {
				_, err := v.refresh(t.Context(), &source{ledger: c.ledger, owns: chaosOwns, holds: true}, c.now)
				require.NoError(t, err)
				var got []CapsuleID
				for _, p := range v.lapsed(c.now, chaosMine) {
					n, _ := p.Do[0].(Nominate)
					require.Equal(t, v.state.Capsule(n.Capsule).Nomination().Made, n.Since)
					got = append(got, n.Capsule)
				}
				want, next := lapsedByScan(v.state, c.now)
				require.ElementsMatch(t, want, got)
				require.Equal(t, next, v.lapse())
			},
		})
	})
}

// lapsedByScan looks at all nominations, and returns those that an engine of chaos ends and when the next one ends by itself.
func lapsedByScan(s *State, now time.Time) (over []CapsuleID, next time.Time) {
	for n := range s.Nominations() {
		if now.Before(n.Ends) && (next.IsZero() || n.Ends.Before(next)) {
			next = n.Ends
		}
		broken := false
		for i := range n.Parts {
			node := s.Node(n.Parts[i].Node)
			changed := node.Specification > n.Made && n.Parts[i].misfit(node.Node, []*Spec{s.Capsule(n.Capsule).Spec}, &s.names) != ""
			broken = broken || !node.Node.Schedulable() || changed
		}
		if !now.Before(n.Ends) || broken && chaosMine(s.Capsule(n.Capsule)) {
			over = append(over, n.Capsule)
		}
	}
	return over, next
}

// unbusy claims nothing and plans nothing.
type unbusy struct{}

func (unbusy) Claims(string, AppClass) bool { return false }

func (unbusy) Plan(context.Context, *View, []*Capsule) (plan Plan, err error) { return plan, nil }

// BenchmarkNominations is what a nomination costs beside others: to make one and end it by two proposals, with the ledger's lock held,
// and a pass of an engine for which there is nothing to do.
func BenchmarkNominations(b *testing.B) {
	for _, others := range []int{0, 100, 10_000} {
		l := &MemoryLedger{Bounds: Limits{NominatedShare: 100}}
		propose := func(do ...Commitment) {
			if _, err := l.Propose(b.Context(), Proposal{Do: do}); err != nil {
				b.Fatal(err)
			}
		}
		ends := time.Now().Add(24 * time.Hour)
		propose(cpuNode("n", 4), submitOf(rankedSpec(0, 4), "c"))
		for i := range others {
			id := fmt.Sprint("c", i)
			propose(cpuNode(NodeID(id), 4), submitOf(rankedSpec(5, 4), CapsuleID(id)), nominationEnding(CapsuleID(id), ends, partOn(NodeID(id), 4)))
		}
		b.Run(fmt.Sprint("others=", others, "/make and end"), func(b *testing.B) {
			for b.Loop() {
				propose(nominationEnding("c", ends, partOn("n", 4)))
				propose(Nominate{Capsule: "c"})
			}
		})
		b.Run(fmt.Sprint("others=", others, "/pass"), func(b *testing.B) {
			e := &Engine{Name: "e", Ledger: l, Navigator: unbusy{}}
			e.Pass(b.Context())
			for b.Loop() {
				e.Pass(b.Context())
			}
		})
	}
}
