package orbit

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// placedIn is one capsule that runs before a case begins; its id is the letter of its queue and a number.
type placedIn struct {
	id   CapsuleID
	on   NodeID
	spec *Spec
}

// TestReclaims: who may be evicted for whom when both are in queues, line by line of the rule. In each case one newcomer is placed and
// all victims are named; left says which of them go, and empty that it is refused.
func TestReclaims(t *testing.T) {
	t.Parallel()
	flat := []Queue{queueOf("root", "", 10), queueOf("a", "root", 0), queueOf("b", "root", 0), queueOf("c", "root", 0)}
	many := func(id string, q QueueID, on NodeID, sizes ...int64) (out []placedIn) {
		for i, cpu := range sizes {
			out = append(out, placedIn{CapsuleID(fmt.Sprint(id, i)), on, inQueue(q, cpu)})
		}
		return out
	}
	for _, c := range []struct {
		why     string
		queues  []Queue
		room    int64 // of node n
		runs    []placedIn
		comes   *Spec
		victims []CapsuleID
		left    []CapsuleID
	}{
		{"in one queue the higher priority evicts", flat, 3, many("a", "a", "n", 3), inQueue("a", 3, ranked(1)), []CapsuleID{"a0"}, []CapsuleID{"a0"}},
		{"in one queue equal priorities do not", flat, 3, many("a", "a", "n", 3), inQueue("a", 3), []CapsuleID{"a0"}, nil},
		{"one of no queue evicts by priority", flat, 3, many("a", "a", "n", 3), cpuSpec(3), []CapsuleID{"a0"}, nil},
		{"and so it is evicted", flat, 3, []placedIn{{"x", "n", cpuSpec(3)}}, inQueue("a", 3, ranked(1)), []CapsuleID{"x"}, []CapsuleID{"x"}},
		{"within its quota a newcomer takes back what is borrowed, against a higher priority too", twoTeams, 10, []placedIn{{"a0", "n", inQueue("a", 10, ranked(9))}}, inQueue("b", 4), []CapsuleID{"a0"}, []CapsuleID{"a0"}},
		{"a queue that borrows nothing is never a victim, not of a higher priority either", twoTeams, 6, many("a", "a", "n", 6), inQueue("b", 4, ranked(9)), []CapsuleID{"a0"}, nil},
		{"it borrows memory only, and cpu is asked for", []Queue{queueOf("root", "", 0, has("memory", 4)), queueOf("a", "root", 6), queueOf("b", "root", 4)}, 6,
			[]placedIn{{"a0", "n", inQueue("a", 6, remembers(4))}}, inQueue("b", 4), []CapsuleID{"a0"}, nil},
		{"it borrows memory, and memory is asked for too", []Queue{queueOf("root", "", 0, has("memory", 4)), queueOf("a", "root", 6), queueOf("b", "root", 4, has("memory", 1))}, 6,
			[]placedIn{{"a0", "n", inQueue("a", 6, remembers(4))}}, inQueue("b", 4, remembers(1)), []CapsuleID{"a0"}, []CapsuleID{"a0"}},
		{"two trees never evict each other", []Queue{queueOf("a", "", 0), queueOf("b", "", 9)}, 6, many("a", "a", "n", 6), inQueue("b", 4, ranked(9)), []CapsuleID{"a0"}, nil},

		{"both borrow: 1 after is less than 2", flat, 3, many("b", "b", "n", 1, 1, 1), inQueue("a", 1), []CapsuleID{"b0"}, []CapsuleID{"b0"}},
		{"both borrow: 2 each, and that of b has fallen from 3", flat, 4, append(many("a", "a", "n", 1), many("b", "b", "n", 1, 1, 1)...), inQueue("a", 1), []CapsuleID{"b0"}, []CapsuleID{"b0"}},
		{"both borrow: 2 after is more than 1", flat, 3, append(many("a", "a", "n", 1), many("b", "b", "n", 1, 1)...), inQueue("a", 1), []CapsuleID{"b0"}, nil},
		{"a swap of two sizes: 2 is more than 0", flat, 3, many("b", "b", "n", 3), inQueue("a", 2), []CapsuleID{"b0"}, nil},
		{"the same for one within its quota: 0 is not more than 0, and that of b has fallen", []Queue{queueOf("root", "", 8), queueOf("a", "root", 2), queueOf("b", "root", 0)}, 3, many("b", "b", "n", 3), inQueue("a", 2), []CapsuleID{"b0"}, []CapsuleID{"b0"}},
		{"weights: 3 of a by 2 is more than 1 of b", []Queue{queueOf("root", "", 12), queueOf("a", "root", 0, weighs(2)), queueOf("b", "root", 0)}, 4, append(many("a", "a", "n", 1), many("b", "b", "n", 1, 1, 1)...), inQueue("a", 2), []CapsuleID{"b0", "b1"}, nil},
		{"weights: 3 of a by 3 is 1, as 1 of b, which has fallen from 3", []Queue{queueOf("root", "", 12), queueOf("a", "root", 0, weighs(3)), queueOf("b", "root", 0)}, 4, append(many("a", "a", "n", 1), many("b", "b", "n", 1, 1, 1)...), inQueue("a", 2), []CapsuleID{"b0", "b1"}, []CapsuleID{"b0", "b1"}},
		{"two victims of one queue: 2 is more than 1 after both", flat, 4, append(many("c", "c", "n", 1), many("b", "b", "n", 1, 1, 1)...), inQueue("a", 2), []CapsuleID{"b0", "b1"}, nil},
		{"the victims of each queue are judged by what that has after: c has 0", flat, 4, append(many("c", "c", "n", 1), many("b", "b", "n", 1, 1, 1)...), inQueue("a", 2), []CapsuleID{"b0", "c0"}, nil},

		{"who need not go stays: the second fits beside the newcomer", flat, 5, many("b", "b", "n", 2, 2, 1), inQueue("a", 1), []CapsuleID{"b2", "b0", "b1"}, []CapsuleID{"b1"}},
		{"there is room, but no quota: one goes on another node", flat, 100, many("b", "b", "m", 5, 5), inQueue("a", 5), []CapsuleID{"b0", "b1"}, []CapsuleID{"b1"}},
		{"there is quota and room: nobody goes", flat, 100, many("b", "b", "m", 4, 4), inQueue("a", 2), []CapsuleID{"b0", "b1"}, []CapsuleID{}},
		{"a limit of borrowing is no reason to evict another queue's capsules", []Queue{queueOf("root", "", 10), queueOf("a", "root", 0, borrows(2)), queueOf("b", "root", 0)}, 100, many("b", "b", "m", 4), inQueue("a", 3), []CapsuleID{"b0"}, nil},

		{"three levels: below one team the queues themselves are compared; y takes its 1 back from x", threeLevels, 100, many("x", "x", "m", 12), inQueue("y", 1), []CapsuleID{"x0"}, []CapsuleID{"x0"}},
		{"three levels: between teams the teams are compared, and the team does not borrow although x does", threeLevels, 6, many("x", "x", "n", 6), inQueue("other", 6), []CapsuleID{"x0"}, nil},
		{"three levels: the team borrows, and x does", threeLevels, 12, many("x", "x", "n", 6, 4, 2), inQueue("other", 6), []CapsuleID{"x0"}, []CapsuleID{"x0"}},
		{"three levels: the team borrows, but y does not, so nothing of y's goes", threeLevels, 12, append(many("x", "x", "n", 11), many("y", "y", "n", 1)...), inQueue("other", 1), []CapsuleID{"y0"}, nil},
		{"three levels: it takes back from x beside y", threeLevels, 12, append(many("x", "x", "n", 10, 1), many("y", "y", "n", 1)...), inQueue("other", 1), []CapsuleID{"x1"}, []CapsuleID{"x1"}},
		{"three levels: teams are compared, 1 with 1, and not the queues in them, 5 with 2",
			[]Queue{queueOf("root", "", 8), queueOf("s", "root", 4), queueOf("u", "root", 4), queueOf("x", "s", 0), queueOf("y", "u", 0), queueOf("z", "u", 0)}, 10,
			slices.Concat(many("x", "x", "n", 4), many("y", "y", "n", 1, 1, 1), many("z", "z", "n", 3)), inQueue("x", 1), []CapsuleID{"y0"}, []CapsuleID{"y0"}},
		{"three levels: the team's own work beyond its 3 makes way for x", threeLevels, 10, many("t", "team", "n", 4, 6), inQueue("x", 4), []CapsuleID{"t0"}, []CapsuleID{"t0"}},
		{"three levels: within its 3 it does not", threeLevels, 3, many("t", "team", "n", 3), inQueue("x", 3), []CapsuleID{"t0"}, nil},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			l := newCourt(t, append(putAll(c.queues...), PutNode{Node{ID: "n", Capacity: Resources{CPU: c.room, Memory: 1000}}}, bigNode("m"))...)
			for _, r := range c.runs {
				l.commits(foundOn(r.id, r.on, r.spec))
			}
			l.commits(submitOf(c.comes, "new"))
			var do []Commitment
			for _, id := range c.victims {
				e := evictionOf(l.now(), id)
				e.For = "new"
				do = append(do, e)
			}
			p := Proposal{View: l.now().Revision(), Do: append(do, placeOn("new", "n"))}
			if c.left == nil {
				l.refuses(ErrInfeasible, p)
				return
			}
			_, err := l.Propose(bg, p)
			require.NoError(t, err)
			require.NoError(t, l.now().Verify())
			require.True(t, l.now().Capsule("new").Placed())
			left := []CapsuleID{}
			for _, r := range c.runs {
				if l.now().Capsule(r.id).Pending() {
					left = append(left, r.id)
				}
			}
			require.Equal(t, c.left, left)
		})
	}
}

// TestReclaimsOfGangs: a gang counts whole, as the newcomer and as the victim.
func TestReclaimsOfGangs(t *testing.T) {
	t.Parallel()
	world := func(t *testing.T) (court, *Gang) {
		l := newCourt(t, append(putAll(queueOf("root", "", 0), queueOf("a", "root", 4), queueOf("b", "root", 0)),
			cpuNode("n", 2), cpuNode("m", 2))...)
		return l, &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: inQueue("b", 2), Members: []CapsuleID{"g0", "g1"}, Min: 2}}}
	}
	t.Run("a gang goes whole, though one member is in the way", func(t *testing.T) {
		t.Parallel()
		l, g := world(t)
		l.commits(Submit{Gang: g}, placeOn("g0", "n"), placeOn("g1", "m"))
		l.commits(submitOf(inQueue("a", 2), "new"))
		first, second := evictionOf(l.now(), "g0"), evictionOf(l.now(), "g1")
		first.For, second.For = "new", "new"
		l.mistakes(first, placeOn("new", "n"))
		l.commits(first, second, placeOn("new", "n"))
		require.True(t, l.now().Capsule("g1").Pending())
	})
	t.Run("a gang that borrows 1 of its 4 goes whole, and less than that does not go", func(t *testing.T) {
		t.Parallel()
		l, g := world(t)
		l.commits(PutQueue{queueOf("b", "root", 3)}, Submit{Gang: g}, placeOn("g0", "n"), placeOn("g1", "m"))
		l.commits(submitOf(inQueue("a", 2), "new"))
		first, second := evictionOf(l.now(), "g0"), evictionOf(l.now(), "g1")
		first.For, second.For = "new", "new"
		l.commits(first, second, placeOn("new", "n"))
	})
	t.Run("a gang takes back at once, all or nothing", func(t *testing.T) {
		t.Parallel()
		l, g := world(t)
		g.Roles[0].Spec = inQueue("a", 2)
		l.commits(arrives("b0", "n", inQueue("b", 2))...)
		l.commits(arrives("b1", "m", inQueue("b", 2))...)
		l.commits(Submit{Gang: g})
		first, second := evictionOf(l.now(), "b0"), evictionOf(l.now(), "b1")
		first.ForGang, second.ForGang = "g", "g"
		l.mistakes(first, placeOn("g0", "n"))
		l.commits(first, second, placeOn("g0", "n"), placeOn("g1", "m"))
		require.Equal(t, "0", l.now().Share("b").String())
	})
	t.Run("a gang that borrows is judged by what all of it takes", func(t *testing.T) {
		t.Parallel()
		l := newCourt(t, append(putAll(queueOf("root", "", 6), queueOf("a", "root", 0), queueOf("b", "root", 0)), cpuNode("n", 2), cpuNode("m", 4))...)
		l.commits(arrives("b0", "n", inQueue("b", 2))...)
		l.commits(arrives("b1", "m", inQueue("b", 1))...)
		l.commits(arrives("b2", "m", inQueue("b", 1))...)
		g := &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: inQueue("a", 1), Members: []CapsuleID{"g0", "g1", "g2"}, Min: 3}}}
		l.commits(Submit{Gang: g})
		e := evictionOf(l.now(), "b0")
		e.ForGang = "g"
		l.mistakes(e, placeOn("g0", "n"), placeOn("g1", "m"), placeOn("g2", "m"))
		l.commits(ends("g2"))
		l.commits(e, placeOn("g0", "n"), placeOn("g1", "m"))
	})
}

// TestReclaimsBesideAGrowth: what grows in the same proposal keeps what it has when a victim is looked at: 5 + 3 + 3 is too much.
func TestReclaimsBesideAGrowth(t *testing.T) {
	t.Parallel()
	l := newCourt(t, append(putAll(queueOf("root", "", 7), queueOf("a", "root", 3), queueOf("b", "root", 0), queueOf("c", "root", 0)), bigNode("n"))...)
	l.commits(arrives("c0", "n", inQueue("c", 5))...)
	l.commits(arrives("b0", "n", inQueue("b", 3))...)
	l.commits(submitOf(inQueue("a", 3), "new"))
	e := evictionOf(l.now(), "b0")
	e.For = "new"
	l.commits(e, placeOn("new", "n"), respecs(l, "c0", inQueue("c", 6)))
	require.True(t, l.now().Capsule("b0").Pending())
}

// TestReclaimsDoNotSwap: in one proposal two queues may not each evict the other's capsule, or it would be legal to do so again for ever.
func TestReclaimsDoNotSwap(t *testing.T) {
	t.Parallel()
	l := newCourt(t, append(putAll(queueOf("root", "", 2), queueOf("a", "root", 0), queueOf("b", "root", 0)), cpuNode("n", 1), cpuNode("m", 1))...)
	l.commits(arrives("a0", "n", inQueue("a", 1))...)
	l.commits(arrives("b0", "m", inQueue("b", 1))...)
	l.commits(submitOf(inQueue("a", 1), "a1"), submitOf(inQueue("b", 1), "b1"))
	first, second := evictionOf(l.now(), "a0"), evictionOf(l.now(), "b0")
	first.For, second.For = "b1", "a1"
	l.mistakes(first, second, placeOn("b1", "n"), placeOn("a1", "m"))
}

// TestPriorityInAQueueMayRunRound documents a limit of the rule: evictions between queues end, but together with evictions by
// priority within the queues they may run round. Here a1 and b1 are within the quota of their queues. The large and
// more important a3 evicts a1, with which its queue borrows; then b1 takes that back, b3 evicts b1, and a1 takes that back.
func TestPriorityInAQueueMayRunRound(t *testing.T) {
	t.Parallel()
	l := newCourt(t, append(putAll(queueOf("root", "", 1), queueOf("a", "root", 1), queueOf("b", "root", 1)), cpuNode("n", 3))...)
	l.commits(submitOf(inQueue("a", 1), "a1"), submitOf(inQueue("b", 1), "b1"), submitOf(inQueue("a", 3, ranked(1)), "a3"), submitOf(inQueue("b", 3, ranked(1)), "b3"), placeOn("a1", "n"))
	for range 3 {
		for _, step := range [][2]CapsuleID{{"a1", "a3"}, {"a3", "b1"}, {"b1", "b3"}, {"b3", "a1"}} {
			e := evictionOf(l.now(), step[0])
			e.For = step[1]
			l.commits(e, placeOn(step[1], "n"))
			require.Equal(t, 1, l.now().Node("n").Capsules)
			require.True(t, l.now().Capsule(step[0]).Pending())
		}
	}
	require.True(t, l.now().Capsule("a1").Placed(), "as in the beginning")
}

// TestReclaimsThatRace: two reclaims are planned on one view and the first takes all that is borrowed. The second has lost a race, so it is told to
// plan again, and not that it was wrong.
func TestReclaimsThatRace(t *testing.T) {
	t.Parallel()
	l := newCourt(t, PutQueue{queueOf("root", "", 0)}, PutQueue{queueOf("a", "root", 2)}, PutQueue{queueOf("b", "root", 1)}, PutQueue{queueOf("c", "root", 1)},
		PutNode{Node{ID: "n", Capacity: Resources{CPU: 3}}})
	for _, id := range []CapsuleID{"x", "y", "z"} {
		l.commits(arrives(id, "n", inQueue("b", 1))...)
	}
	l.commits(submitOf(inQueue("a", 2), "a1"), submitOf(inQueue("c", 1), "c1"), submitOf(inQueue("b", 1), "b1"))
	view := l.now()
	takes := func(newcomer CapsuleID, victims ...CapsuleID) (p Proposal) {
		for _, v := range victims {
			p.Do = append(p.Do, Evict{Capsule: v, From: "n", Since: view.Capsule(v).PlacedAt, For: newcomer})
		}
		p.Do, p.View = append(p.Do, placeOn(newcomer, "n")), view.Revision()
		return p
	}
	second := takes("c1", "z")
	require.NoError(t, view.Check(second), "it holds in its view")
	l.commits(takes("a1", "x", "y").Do...)
	require.ErrorIs(t, l.now().Check(second), ErrConflict)
	second.View = l.now().Revision()
	require.ErrorIs(t, l.now().Check(second), ErrInfeasible, "planned on what there is now, it is wrong")
}
