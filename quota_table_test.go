package orbit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tables of this file are worked out by hand from the formulas of [Queue], not with the code that they check. The resource is cpu
// where no other one is named, and a queue is written as its parent, its nominal amount, and what it has besides.

// queueOf makes a queue with an amount of cpu and further amounts.
func queueOf(id, parent QueueID, nominal int64, limits ...func(*Queue)) Queue {
	q := Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": nominal}}
	for _, limit := range limits {
		limit(&q)
	}
	return q
}

func lends(n int64) func(*Queue) {
	return func(q *Queue) { q.Lend = map[string]int64{"cpu": n} }
}

func borrows(n int64) func(*Queue) {
	return func(q *Queue) { q.Borrow = map[string]int64{"cpu": n} }
}

func weighs(n int64) func(*Queue) { return func(q *Queue) { q.Weight = n } }

// has gives a queue a nominal amount of another resource.
func has(resource string, n int64) func(*Queue) {
	return func(q *Queue) { q.Nominal[resource] = n }
}

// inQueue is a spec that is charged to a queue.
func inQueue(q QueueID, cpu int64, with ...func(*Spec)) *Spec {
	s := cpuSpec(cpu)
	s.Queue = q
	for _, w := range with {
		w(s)
	}
	return s
}

func ranked(priority int32) func(*Spec) { return func(s *Spec) { s.Priority = priority } }

func remembers(memory int64) func(*Spec) {
	return func(s *Spec) { s.Envelope.Reservation[Memory] = memory }
}

// foundOn adopts a capsule that is charged to a queue: nothing judges that.
func foundOn(id CapsuleID, on NodeID, s *Spec) Adopt { return Adopt{Capsule: id, Node: on, Spec: s} }

func bigNode(id NodeID) PutNode {
	return PutNode{Node{ID: id, Capacity: Resources{CPU: 1000, Memory: 1000}, Extras: []Extra{{"ip", 1000}}}}
}

func putAll(queues ...Queue) (out []Commitment) {
	for _, q := range queues {
		out = append(out, PutQueue{q})
	}
	return out
}

// threeLevels is a root with two of its own, a team that lends 5 of 6 and keeps 1, with two queues below, and a second
// team: subtree(x) = 4 of which 2 are lent; subtree(team) = 3 + 2 + 1 = 6; subtree(root) = 2 + 5 + 6 = 13.
var threeLevels = []Queue{
	queueOf("root", "", 2), queueOf("team", "root", 3, borrows(4), lends(5)), queueOf("other", "root", 6),
	queueOf("x", "team", 4, lends(2)), queueOf("y", "team", 1),
}

// TestQuotaAmounts: what queues have and use, in one, two and three levels.
func TestQuotaAmounts(t *testing.T) {
	t.Parallel()
	two := []Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4)}
	for _, c := range []struct {
		why    string
		queues []Queue
		uses   map[QueueID]int64
		// Of each queue: subtree, local, used, available, borrowed, most, share.
		want map[QueueID]string
	}{
		{
			"a root has its nominal amount, and none to borrow from",
			[]Queue{queueOf("root", "", 10)},
			map[QueueID]int64{"root": 4},
			map[QueueID]string{"root": "10 0 4 6 0 10 0"},
		},
		{
			"a root that uses more than it has is short, and its share is still 0",
			[]Queue{queueOf("root", "", 3)},
			map[QueueID]int64{"root": 4},
			map[QueueID]string{"root": "3 0 4 -1 1 3 0"},
		},
		{
			"a queue may use what its sibling leaves; the sibling then has less than its own quota",
			two,
			map[QueueID]int64{"a": 8},
			map[QueueID]string{"root": "10 0 8 2 0 10 0", "a": "6 0 8 2 2 10 1/5", "b": "4 0 0 2 0 10 0"},
		},
		{
			"what is not lent is not in the parent's subtree, and stays available to its queue: local(b) = 4 - 1",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4, lends(1))},
			map[QueueID]int64{"a": 6},
			map[QueueID]string{"root": "7 0 6 1 0 7 0", "a": "6 0 6 1 0 7 0", "b": "4 3 0 4 0 10 0"},
		},
		{
			"use below local does not count at the parent",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4, lends(1))},
			map[QueueID]int64{"a": 6, "b": 3},
			map[QueueID]string{"root": "7 0 6 1 0 7 0", "a": "6 0 6 1 0 7 0", "b": "4 3 3 1 0 10 0"},
		},
		{
			"use beyond local does: 1 of the 4",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4, lends(1))},
			map[QueueID]int64{"a": 6, "b": 4},
			map[QueueID]string{"root": "7 0 7 0 0 7 0", "a": "6 0 6 0 0 7 0", "b": "4 3 4 0 0 10 0"},
		},
		{
			"Lend 0 lends nothing: all of the subtree is local",
			[]Queue{queueOf("root", "", 1), queueOf("a", "root", 6), queueOf("b", "root", 4, lends(0))},
			map[QueueID]int64{"a": 7},
			map[QueueID]string{"root": "7 0 7 0 0 7 0", "a": "6 0 7 0 1 7 1/7", "b": "4 4 0 4 0 11 0"},
		},
		{
			"Lend above the subtree lends all",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6), queueOf("b", "root", 4, lends(9))},
			map[QueueID]int64{"a": 9},
			map[QueueID]string{"root": "10 0 9 1 0 10 0", "a": "6 0 9 1 3 10 3/10", "b": "4 0 0 1 0 10 0"},
		},
		{
			"a limit of what is borrowed: 6 - 6 + 1",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6, borrows(1)), queueOf("b", "root", 4)},
			map[QueueID]int64{"a": 6},
			map[QueueID]string{"root": "10 0 6 4 0 10 0", "a": "6 0 6 1 0 7 0", "b": "4 0 0 4 0 10 0"},
		},
		{
			"it is used up",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6, borrows(1)), queueOf("b", "root", 4)},
			map[QueueID]int64{"a": 7},
			map[QueueID]string{"root": "10 0 7 3 0 10 0", "a": "6 0 7 0 1 7 1/10", "b": "4 0 0 3 0 10 0"},
		},
		{
			"it is overdrawn by one, although the root has room",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6, borrows(1)), queueOf("b", "root", 4)},
			map[QueueID]int64{"a": 8},
			map[QueueID]string{"root": "10 0 8 2 0 10 0", "a": "6 0 8 -1 2 7 1/5", "b": "4 0 0 2 0 10 0"},
		},
		{
			"Borrow 0 borrows nothing, and Lend beside it lets others have 2",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6, borrows(0), lends(2)), queueOf("b", "root", 4)},
			map[QueueID]int64{"a": 5, "b": 5},
			map[QueueID]string{"root": "6 0 6 0 0 6 0", "a": "6 4 5 0 0 6 0", "b": "4 0 5 0 1 6 1/6"},
		},
		{
			"three levels: x borrows 1 of the team, the team uses 3 + 1 of 6, and 3 of them count at the root",
			threeLevels,
			map[QueueID]int64{"x": 5, "y": 1, "other": 2},
			map[QueueID]string{"root": "13 0 5 8 0 13 0", "team": "6 1 4 6 0 10 0", "other": "6 0 2 8 0 13 0", "x": "4 2 5 6 1 12 1/10", "y": "1 0 1 6 0 10 0"},
		},
		{
			"three levels: the team is at its limit 6 + 4, so both queues below are, although the root has 4",
			threeLevels,
			map[QueueID]int64{"x": 12},
			map[QueueID]string{"root": "13 0 9 4 0 13 0", "team": "6 1 10 0 4 10 4/13", "other": "6 0 0 4 0 13 0", "x": "4 2 12 0 8 12 4/5", "y": "1 0 0 0 0 10 0"},
		},
		{
			"three levels: the root is used up by the other team; what x and the team keep back is still there, 2 + 1",
			threeLevels,
			map[QueueID]int64{"other": 13},
			map[QueueID]string{"root": "13 0 13 0 0 13 0", "team": "6 1 0 1 0 10 0", "other": "6 0 13 0 7 13 7/13", "x": "4 2 0 3 0 12 0", "y": "1 0 0 1 0 10 0"},
		},
		{
			"three levels: capsules of the team itself count beside those of its queues",
			threeLevels,
			map[QueueID]int64{"team": 4, "x": 3, "y": 2},
			map[QueueID]string{"root": "13 0 6 7 0 13 0", "team": "6 1 7 3 1 10 1/13", "other": "6 0 0 7 0 13 0", "x": "4 2 3 3 0 12 0", "y": "1 0 2 3 1 10 1/10"},
		},
		{
			"three levels: what is overdrawn at the root lessens all below it",
			threeLevels,
			map[QueueID]int64{"other": 15},
			map[QueueID]string{"root": "13 0 15 -2 2 13 0", "team": "6 1 0 -1 0 10 0", "other": "6 0 15 -2 9 13 9/13", "x": "4 2 0 1 0 12 0", "y": "1 0 0 -1 0 10 0"},
		},
		{
			"a weight divides the share: 2 of 10, by 2",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 6, weighs(2)), queueOf("b", "root", 4)},
			map[QueueID]int64{"a": 8},
			map[QueueID]string{"root": "10 0 8 2 0 10 0", "a": "6 0 8 2 2 10 1/10", "b": "4 0 0 2 0 10 0"},
		},
		{
			"who borrows of nothing has an infinite share",
			[]Queue{queueOf("root", "", 0), queueOf("a", "root", 0), queueOf("b", "root", 4, lends(0))},
			map[QueueID]int64{"a": 1},
			map[QueueID]string{"root": "0 0 1 -1 1 0 0", "a": "0 0 1 -1 1 0 infinite", "b": "4 4 0 3 0 4 0"},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			l := newCourt(t, append(putAll(c.queues...), bigNode("n"))...)
			for q, cpu := range c.uses {
				l.commits(foundOn(CapsuleID(q), "n", inQueue(q, cpu)))
			}
			for id, want := range c.want {
				q, ok := l.now().Queue(id)
				require.True(t, ok, id)
				got := fmt.Sprint(q.Subtree()["cpu"], q.Local()["cpu"], q.Used()["cpu"], q.Available()["cpu"], q.Borrowed()["cpu"], q.Most()["cpu"], q.Share())
				require.Equal(t, want, got, "queue %s: subtree local used available borrowed most share", id)
				require.Equal(t, q.Share(), l.now().Share(id))
			}
		})
	}
}

// TestShares: the share is that of the resource of which most is borrowed, and is exact.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why    string
		queues []Queue
		spec   *Spec
		want   string
	}{
		{"memory decides: 3/5 is more than 2/10", []Queue{queueOf("root", "", 10, has("memory", 5)), queueOf("a", "root", 0)}, inQueue("a", 2, remembers(3)), "3/5"},
		{"cpu decides: 4/10 is more than 1/5", []Queue{queueOf("root", "", 10, has("memory", 5)), queueOf("a", "root", 0)}, inQueue("a", 4, remembers(1)), "2/5"},
		{"memory is in no nominal amount of the tree, so it is not divided", []Queue{queueOf("root", "", 10), queueOf("a", "root", 0)}, inQueue("a", 2, remembers(900)), "1/5"},
		{"memory is divided because a sibling names it: all 4 are borrowed", []Queue{queueOf("root", "", 10), queueOf("a", "root", 0), queueOf("b", "root", 0, has("memory", 8))}, inQueue("a", 2, remembers(4)), "1/2"},
		{"what is within the subtree is not borrowed: 3 of 5, and 1 of 10", []Queue{queueOf("root", "", 5), queueOf("a", "root", 5, has("memory", 3))}, inQueue("a", 6, remembers(3)), "1/10"},
		{"an odd fraction stays exact: 1/3 of a third", []Queue{queueOf("root", "", 3), queueOf("a", "root", 0, weighs(3))}, inQueue("a", 1), "1/9"},
		{"the largest weight", []Queue{queueOf("root", "", 3), queueOf("a", "root", 0, weighs(1<<20))}, inQueue("a", 3), "1/1048576"},
	} {
		t.Run(c.why, func(t *testing.T) {
			t.Parallel()
			l := newCourt(t, append(putAll(c.queues...), bigNode("n"), foundOn("c", "n", c.spec))...)
			require.Equal(t, c.want, l.now().Share("a").String())
		})
	}
}

// TestSharesTie: equal shares of different fractions are equal, and shares that differ by less than a float can tell do differ.
func TestSharesTie(t *testing.T) {
	t.Parallel()
	const third = 3_000_000_000_000_000_003 // times 3 it would not fit in 64 bits
	l := newCourt(t, append(putAll(queueOf("root", "", 2*third), queueOf("a", "root", 0, weighs(2)), queueOf("b", "root", 0), queueOf("c", "root", 0)),
		PutNode{Node{ID: "n", Capacity: Resources{CPU: 9e18}}}, foundOn("a", "n", inQueue("a", 2_000_000_000_000_000_000)), foundOn("b", "n", inQueue("b", 1_000_000_000_000_000_000)), foundOn("c", "n", inQueue("c", 1_000_000_000_000_000_001)))...)
	a, b, c := l.now().Share("a"), l.now().Share("b"), l.now().Share("c")
	require.Equal(t, a, b, "twice as much with twice the weight")
	require.Zero(t, a.Compare(b))
	require.Negative(t, b.Compare(c))
	require.Positive(t, c.Compare(a))
	require.InDelta(t, b.Float(), c.Float(), 0, "a float does not tell them apart")
}
