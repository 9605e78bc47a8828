package nav_test

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// loseNode lets a node leave, with what runs there.
func loseNode(t require.TestingT, l orbit.Ledger, id orbit.NodeID) {
	s := snapshot(t, l)
	n := *s.Node(id).Node
	n.State = orbit.Lost
	do := []orbit.Commitment{orbit.PutNode{Node: n}}
	for c := range s.On(id) {
		do = append(do, orbit.Release{Capsule: c.ID, From: id})
	}
	commit(t, l, append(do, orbit.RemoveNode{Node: id})...)
}

// inBubble runs a test in a bubble, with an engine that has its time.
func inBubble(t *testing.T, g *nav.Gang, test func(t *testing.T, l orbit.Ledger, pass func() orbit.Round)) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		e := orbit.Engine{Ledger: l, Navigator: g}
		test(t, l, func() orbit.Round { return mustPass(t, &e) })
	})
}

// A gang that has lost a member and cannot be topped up where it runs starts anew on another rack, once it has been so
// for a while, and not on one that takes only what it lacks.
func TestBrokenGangIsRebuilt(t *testing.T) {
	for name, c := range map[string]struct {
		repair time.Duration
		nodes  int // of the other rack
		do     func(t *testing.T, l orbit.Ledger)
		moves  bool
	}{
		"to a rack that takes all of it": {nodes: 2, moves: true},
		"sooner":                         {repair: 10 * time.Second, nodes: 2, moves: true},
		"never":                          {repair: -1, nodes: 2},
		"no rack takes all of it":        {nodes: 1},
		"a budget keeps it": {nodes: 2, do: func(t *testing.T, l orbit.Ledger) {
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "crew", Expected: 2, Missing: 1}})
		}},
		"a budget lets it go": {nodes: 2, moves: true, do: func(t *testing.T, l orbit.Ledger) {
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "crew", Expected: 2, Missing: 2}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, &nav.Gang{Repair: c.repair}, func(t *testing.T, l orbit.Ledger, pass func() orbit.Round) {
				rackOf(t, l, "r", 2, 4)
				s := gangSpec(4)
				s.Group = "crew"
				commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{"g-0", "g-1"}}}}})
				pass()
				require.Equal(t, 2, placedOf(t, l, "g"))
				rackOf(t, l, "s", c.nodes, 4)
				if c.do != nil {
					c.do(t, l)
				}
				loseNode(t, l, "r-1")
				after := c.repair
				if after <= 0 {
					after = time.Minute
				}
				for range 2 {
					round := pass()
					require.Zero(t, round.Proposed)
					require.Len(t, round.Unplaced, 1)
					require.ErrorContains(t, round.Unplaced[0].Why, `gang "g": runs below its minimum, lacks 1 of role "w": 1 run, 1 wait: `)
					time.Sleep(after / 2)
				}
				commit(t, l, orbit.Mark{Key: "something", Value: "changes"})
				round := pass()
				if c.moves {
					require.Equal(t, 2, placedOf(t, l, "g"))
					for c := range snapshot(t, l).Members("g") {
						require.Contains(t, c.Node, "s-")
					}
					require.EqualValues(t, 1, noteOf(round.Notes, "gangs.rebuilt"))
					return
				}
				require.Equal(t, 1, placedOf(t, l, "g"))
				require.Len(t, round.Unplaced, 1)
			})
		})
	}
}

// The time begins again whenever the gang changes: what has just lost another member, or got one back, is left alone.
func TestBrokenGangThatChangesIsLeftAlone(t *testing.T) {
	inBubble(t, &nav.Gang{}, func(t *testing.T, l orbit.Ledger, pass func() orbit.Round) {
		rackOf(t, l, "r", 4, 4)
		gangOf(t, l, "g", "", 4, 4)
		pass()
		rackOf(t, l, "s", 4, 4)
		for i := range 3 {
			loseNode(t, l, orbit.NodeID(fmt.Sprint("r-", i)))
			pass()
			time.Sleep(50 * time.Second)
			require.Zero(t, pass().Proposed)
		}
		time.Sleep(10 * time.Second)
		commit(t, l, orbit.Mark{Key: "something", Value: "changes"})
		pass()
		require.Equal(t, 4, placedOf(t, l, "g"))
	})
}

// Two gangs have each lost a member, and hold what the other lacks: the one that comes first gets it, the other one waits
// as a whole. Where there is room for both nothing is evicted.
func TestBrokenGangIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		a, b  int32
		first orbit.GangID
	}{"the older": {0, 0, "a"}, "of higher priority": {0, 1, "b"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, &nav.Gang{}, func(t *testing.T, l orbit.Ledger, pass func() orbit.Round) {
				rackOf(t, l, "r", 4, 4)
				for _, g := range []struct {
					id       string
					priority int32
				}{{"a", c.a}, {"b", c.b}} {
					s := gangSpec(4)
					s.Priority = g.priority
					commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(g.id), Roles: []orbit.Role{{Name: "w", Spec: s, Members: []orbit.CapsuleID{orbit.CapsuleID(g.id + "0"), orbit.CapsuleID(g.id + "1")}}}}})
				}
				pass()
				s := snapshot(t, l)
				for _, id := range []orbit.CapsuleID{"a1", "b1"} {
					loseNode(t, l, s.Capsule(id).Node)
				}
				for range 2 {
					require.Zero(t, pass().Proposed)
					time.Sleep(time.Minute / 2)
				}
				commit(t, l, orbit.Mark{Key: "something", Value: "changes"})
				pass()
				second := map[orbit.GangID]orbit.GangID{"a": "b", "b": "a"}[c.first]
				require.Equal(t, 2, placedOf(t, l, string(c.first)))
				require.Zero(t, placedOf(t, l, string(second)))
			})
		})
	}
}

// A broken gang finds the one that holds what it lacks also behind many other broken gangs that come later and hold
// nothing of use.
func TestBrokenGangIsReplacedAmongMany(t *testing.T) {
	for _, others := range []int{0, 7, 8, 9, 30} {
		inBubble(t, &nav.Gang{}, func(t *testing.T, l orbit.Ledger, pass func() orbit.Round) {
			rackOf(t, l, "r", 4, 4)
			gangOf(t, l, "first", "", 2, 4)
			gangOf(t, l, "second", "", 2, 4)
			pass()
			gangs := []string{"first", "second"}
			for i := range others {
				id := fmt.Sprint("x", i)
				rackOf(t, l, id, 2, 4)
				gangOf(t, l, id, "", 2, 4)
				gangs = append(gangs, id)
			}
			pass()
			for _, id := range gangs {
				require.Equal(t, 2, placedOf(t, l, id))
				loseNode(t, l, snapshot(t, l).Capsule(orbit.CapsuleID(id+"-1")).Node)
			}
			pass()
			time.Sleep(time.Minute)
			for range 1 + (others+1)/8 {
				pass()
			}
			require.Equal(t, 2, placedOf(t, l, "first"), "%d others", others)
			require.Zero(t, placedOf(t, l, "second"))
			for _, id := range gangs[2:] {
				require.Equal(t, 1, placedOf(t, l, id), "nothing is gained by its eviction")
			}
		})
	}
}

// Whatever has become of a gang: once it has been left alone for a while, either it is not below its minimum, or no
// domain would take all of it, as far as the ledger judges.
func TestBrokenGangsAreRepaired(t *testing.T) {
	for total := range scale.Reach(t, "rebuilt", "topped up", "left", "never placed") {
		rapid.Check(t, func(t *rapid.T) { total[repairOne(t)]++ })
	}
}

// planAt lets a navigator plan all pending members of gangs at a time, and proposes what it plans. It returns the notes.
func planAt(t *rapid.T, l orbit.Ledger, view *orbit.View, g *nav.Gang, now time.Time) []slog.Attr {
	require.NoError(t, view.Refresh(t.Context(), l, nil, now))
	var pending []*orbit.Capsule
	for _, c := range view.State().Pending() {
		if c.Gang() != "" {
			pending = append(pending, c)
		}
	}
	plan, err := g.Plan(t.Context(), view, pending)
	require.NoError(t, err)
	for _, p := range plan.Proposals {
		_, err := l.Propose(t.Context(), p)
		require.NoError(t, err)
	}
	return plan.Notes
}

func repairOne(t *rapid.T) string {
	w, l := drawGangRules(t)
	view, g, now := &orbit.View{}, &nav.Gang{}, time.Unix(1e9, 0)
	planAt(t, l, view, g, now)
	if placedOf(t, l, "gang") < 2 {
		return "never placed"
	}
	for c := range snapshot(t, l).Members("gang") {
		if !c.Placed() || rapid.IntRange(0, 1).Draw(t, "lost") == 0 {
			continue
		}
		commit(t, l, orbit.Release{Capsule: c.ID, Stopped: true})
		if free := snapshot(t, l).Node(c.Node).Free()[orbit.CPU]; free > 0 && rapid.IntRange(0, 3).Draw(t, "is taken") > 0 {
			id := "instead of " + c.ID
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec(free, 0)})
			_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: c.Node}}})
		}
	}
	if rapid.Bool().Draw(t, "another node joins") {
		n := orbit.Node{ID: "joins", Labels: map[string]string{"zone": "joins", "rack": "joins"}, Extras: []orbit.Extra{{Name: "ip", Amount: 9}}}
		n.Capacity[orbit.CPU], n.Devices = rapid.Int64Range(1, 9).Draw(t, "cpu"), orbit.Devices{Count: 2, Model: "m"}
		commit(t, l, orbit.PutNode{Node: n})
	}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		stirRules(t, l)
	}
	outcome := "topped up"
	for range 3 {
		now = now.Add(time.Minute)
		if noteOf(planAt(t, l, view, g, now), "gangs.rebuilt") > 0 {
			outcome = "rebuilt"
		}
	}
	w.state = snapshot(t, l)
	if !w.state.Gang("gang").Broken() {
		return outcome
	}
	var leave []orbit.Commitment
	for c := range w.state.Members("gang") {
		if c.Placed() {
			leave = append(leave, orbit.Release{Capsule: c.ID})
		}
	}
	free, err := w.state.With(orbit.Proposal{Do: leave})
	require.NoError(t, err)
	w.state = free
	whole := 0
	for i := range w.gang.Roles {
		whole += free.Gang("gang").Left(i)
	}
	if w.exact() {
		require.Less(t, w.wants(), whole)
	}
	return "left"
}
