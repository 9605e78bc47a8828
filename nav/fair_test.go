package nav_test

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// queueOf returns a queue with a number of cores of its own.
func queueOf(id, parent orbit.QueueID, nominal, weight int64) orbit.PutQueue {
	return orbit.PutQueue{Queue: orbit.Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": 1000 * nominal}, Weight: weight}}
}

// inQueue returns a spec of a number of cores in a queue.
func inQueue(queue orbit.QueueID, n int64, priority int32) *orbit.Spec {
	s := cores(1000*n, priority)
	s.Queue = queue
	return s
}

// fairOrder returns the ids of all pending capsules in the order in which the wrapped navigator gets them, and checks that
// they have turns in that order.
func fairOrder(t require.TestingT, l orbit.Ledger, f *nav.Fair) (ids []string) {
	f.Navigator = nav.Func(func(_ context.Context, view *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, _ error) {
		for i, c := range pending {
			ids = append(ids, string(c.ID))
			require.True(t, i == 0 || view.Turn(pending[i-1]) >= view.Turn(c))
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c, Why: fmt.Errorf("it is only looked at")})
		}
		return plan, nil
	})
	round := (&orbit.Engine{Name: "fair", Ledger: l, Navigator: f}).Pass(context.Background())
	require.Empty(t, round.Errors)
	return ids
}

// fairCase is a world of queues, running work, and waiting work, in lines such as "a 2" (queue, cores), "a 2 first" (queue, cores, id),
// or "a 2 first 5" (with a priority); the queue "-" is none.
type fairCase struct {
	name             string
	queues           []orbit.Commitment
	running, waiting []string
	want             string
}

func (c *fairCase) ledger(t require.TestingT) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	commit(t, l, append([]orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 1000_000}}}}, c.queues...)...)
	for i, line := range c.running {
		s, _ := fairSpec(line)
		id := orbit.CapsuleID(fmt.Sprintf("running-%d", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: "n"})
	}
	for _, line := range c.waiting {
		s, id := fairSpec(line)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
	}
	return l
}

func fairSpec(line string) (*orbit.Spec, orbit.CapsuleID) {
	var queue, id string
	var n int64
	var priority int32
	_, _ = fmt.Sscan(line, &queue, &n, &id, &priority)
	if queue == "-" {
		queue = ""
	}
	return inQueue(orbit.QueueID(queue), n, priority), orbit.CapsuleID(id)
}

// TestFairTournament has tournaments whose order was worked out by hand.
func TestFairTournament(t *testing.T) {
	flat := []orbit.Commitment{queueOf("root", "", 0, 0), queueOf("a", "root", 4, 0), queueOf("b", "root", 4, 0), queueOf("c", "root", 4, 2)}
	deep := []orbit.Commitment{
		queueOf("root", "", 4, 0), queueOf("east", "root", 0, 0), queueOf("west", "root", 0, 0),
		queueOf("e1", "east", 2, 0), queueOf("e2", "east", 2, 0), queueOf("w1", "west", 4, 0),
	}
	for _, c := range []fairCase{
		{"what does not borrow goes first, in order of submission; then the lower share, which a weight halves", flat, nil,
			[]string{"a 2 a1", "a 2 a2", "a 2 a3", "b 2 b1", "c 2 c1", "c 2 c2", "c 2 c3"}, "a1 a2 b1 c1 c2 c3 a3"},
		{"of equal shares, the higher priority goes first", flat, nil,
			[]string{"a 2 a1", "b 2 b1", "c 2 c1 7"}, "c1 a1 b1"},
		{"priority is no way to borrow before others have their own", flat, []string{"a 4"},
			[]string{"a 2 a1 100", "b 2 b1"}, "b1 a1"},
		{"priority is no way to a higher share", flat, []string{"a 6", "b 4"},
			[]string{"a 1 a1 100", "b 1 b1"}, "b1 a1"},
		{"in a queue, priority decides, then submission", flat, nil,
			[]string{"a 1 a1", "a 1 a2", "a 1 a3 5"}, "a3 a1 a2"},
		{"what the quotas do not admit comes last", flat, []string{"a 4", "b 4", "c 2"},
			[]string{"c 4 c1", "a 1 a1", "b 1 b1"}, "a1 b1 c1"},
		{"work without a queue keeps its place", flat, []string{"a 4"},
			[]string{"- 1 none", "b 2 b1", "a 2 a1 100", "- 1 some 50"}, "b1 some none a1"},
		{"at each level it counts what the queues just below borrow", deep, []string{"e1 4", "w1 2"},
			[]string{"e1 1 e1x", "w1 1 w1x", "w1 1 w1y", "w1 1 w1z"}, "w1x w1y e1x w1z"},
		{"a queue that has some left goes before its neighbour that borrows of it, though both borrow above", deep, []string{"e1 4", "w1 4"},
			[]string{"e1 1 e1x 9", "e2 1 e2x", "w1 1 w1x"}, "e2x w1x e1x"},
		{"work of an inner queue competes with the queues below it", append(slices.Clone(deep), queueOf("east", "root", 2, 0)), []string{"east 2"},
			[]string{"east 1 own", "e1 1 e1x", "e1 1 e1y", "e1 1 e1z"}, "e1x e1y own e1z"},
		{"two trees do not compete", append(slices.Clone(flat), queueOf("other", "", 4, 0)), []string{"a 4"},
			[]string{"a 1 a1", "other 1 o1", "b 1 b1", "other 1 o2 3"}, "o2 b1 o1 a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, strings.Join(fairOrder(t, c.ledger(t), &nav.Fair{}), " "))
		})
	}
}

// TestFairCountsGangsWhole checks that a gang competes with all its waiting members, or with its minimum where the quotas admit no more.
func TestFairCountsGangsWhole(t *testing.T) {
	c := fairCase{queues: []orbit.Commitment{queueOf("root", "", 0, 0), queueOf("a", "root", 4, 0), queueOf("b", "root", 4, 0)}}
	gang := func(id string, n, least int) orbit.Submit {
		ids := []orbit.CapsuleID{}
		for i := range n {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("%s%d", id, i)))
		}
		return orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "r", Members: ids, Min: least, Spec: inQueue("a", 2, 0)}}}}
	}
	l := c.ledger(t)
	commit(t, l, gang("g", 3, 3))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"b1"}, Spec: inQueue("b", 2, 0)})
	require.Equal(t, "b1 g0 g1 g2", strings.Join(fairOrder(t, l, &nav.Fair{}), " "))
	l = c.ledger(t)
	commit(t, l, gang("g", 5, 4))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a1"}, Spec: inQueue("a", 1, 0)})
	require.Equal(t, "g0 g1 g2 g3 g4 a1", strings.Join(fairOrder(t, l, &nav.Fair{}), " "))
}

// dumbQueue is a queue of a tournament by brute force, with fractions of any size.
type dumbQueue struct {
	id, parent       string
	nominal, weight  int64
	lend, borrow     int64 // -1: no limit
	used, own        int64
	waiting          []dumbWork
	children         []*dumbQueue
	up               *dumbQueue
	subtree, localUp int64
}

type dumbWork struct {
	id       string
	n        int64
	priority int32
	at       int
}

// like reports whether both ask for the same with the same priority, so that their specs are equal.
func (w dumbWork) like(o dumbWork) bool { return w.n == o.n && w.priority == o.priority }

func (q *dumbQueue) measure() int64 { // returns what the queue lends
	q.subtree = q.nominal
	for _, c := range q.children {
		q.subtree += c.measure()
	}
	q.localUp = 0
	if q.lend >= 0 {
		q.localUp = max(0, q.subtree-q.lend)
	}
	return q.subtree - q.localUp
}

func (q *dumbQueue) count() int64 { // returns what counts as used above
	q.used = q.own
	for _, c := range q.children {
		q.used += c.count()
	}
	return max(0, q.used-q.localUp)
}

func (q *dumbQueue) available() int64 {
	if q.up == nil {
		return q.subtree - q.used
	}
	above := q.up.available()
	if q.borrow >= 0 {
		above = min(above, q.subtree-q.localUp-max(0, q.used-q.localUp)+q.borrow)
	}
	return max(0, q.localUp-q.used) + above
}

func (q *dumbQueue) most() int64 {
	if q.up == nil {
		return q.subtree
	}
	most := q.localUp + q.up.most()
	if q.borrow >= 0 {
		most = min(most, q.subtree+q.borrow)
	}
	return most
}

// share returns the share of a queue at its parent, or of what the capsules of a queue itself use there.
func (q *dumbQueue) share(own bool) (*big.Rat, bool, bool) { // share, infinite, borrows
	parent, used, has, weight := q.up, q.used, q.subtree, max(1, q.weight)
	if own {
		parent, used, has, weight = q, q.own, q.nominal, 1
	}
	over := max(0, used-has)
	if parent.most() == 0 {
		return new(big.Rat), over > 0, over > 0
	}
	return big.NewRat(over, parent.most()*weight), false, over > 0
}

// dumbTree is a tree for which each step of the tournament is computed anew from the definitions.
type dumbTree struct {
	all  []*dumbQueue
	late bool
}

func (t *dumbTree) root() *dumbQueue { return t.all[0] }

// winner returns the queue whose first work wins at q.
func (t *dumbTree) winner(q *dumbQueue) *dumbQueue {
	var contenders []*dumbQueue
	if len(q.waiting) > 0 {
		contenders = append(contenders, q)
	}
	for _, c := range q.children {
		if w := t.winner(c); w != nil {
			contenders = append(contenders, w)
		}
	}
	if len(contenders) == 0 {
		return nil
	}
	key := func(w *dumbQueue) (*big.Rat, bool, bool) {
		w.own += w.waiting[0].n
		t.root().count()
		defer func() { w.own -= w.waiting[0].n; t.root().count() }()
		if w == q {
			return q.share(true)
		}
		below := w
		for below.up != q {
			below = below.up
		}
		return below.share(false)
	}
	return slices.MinFunc(contenders, func(a, b *dumbQueue) int {
		x, xInfinite, xBorrows := key(a)
		y, yInfinite, yBorrows := key(b)
		first := func(a, b bool) int { return map[bool]int{true: 1}[a] - map[bool]int{true: 1}[b] }
		for _, c := range []int{first(xBorrows, yBorrows), first(xInfinite, yInfinite), x.Cmp(y), int(b.waiting[0].priority - a.waiting[0].priority), a.waiting[0].at - b.waiting[0].at} {
			if c != 0 {
				return c
			}
		}
		return 0
	})
}

func (t *dumbTree) order() (ids []string) {
	later := map[*dumbQueue][]dumbWork{}
	for w := t.winner(t.root()); w != nil; w = t.winner(t.root()) {
		first := w.waiting[0]
		w.waiting = w.waiting[1:]
		if !t.late && w.available() < first.n {
			later[w] = append(later[w], first)
		} else {
			w.own += first.n
			t.root().count()
			ids = append(ids, strings.Fields(first.id)...)
		}
		for len(w.waiting) > 0 && slices.ContainsFunc(later[w], w.waiting[0].like) { // competes no more
			later[w], w.waiting = append(later[w], w.waiting[0]), w.waiting[1:]
		}
	}
	if t.late {
		return ids
	}
	t.late = true
	for q, work := range later {
		for _, w := range work {
			if last := len(q.waiting) - 1; last >= 0 && q.waiting[last].like(w) {
				q.waiting[last].id += " " + w.id
			} else {
				q.waiting = append(q.waiting, w)
			}
		}
	}
	return append(ids, t.order()...)
}

// TestFairIsTheTournament compares the order with that of a tournament by brute force, for trees of up to three levels
// with limits, weights and priorities.
func TestFairIsTheTournament(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := dumbTree{all: []*dumbQueue{{id: "q0", lend: -1, borrow: -1, nominal: rapid.Int64Range(0, 6).Draw(t, "root")}}}
		limit := rapid.SampledFrom([]int64{-1, -1, 0, 1, 2, 4})
		for i := range rapid.IntRange(0, 6).Draw(t, "queues") {
			up := rapid.SampledFrom(tree.all).Draw(t, "up")
			if up.up != nil && up.up.up != nil {
				up = up.up
			}
			q := &dumbQueue{id: fmt.Sprintf("q%d", i+1), parent: up.id, up: up, nominal: rapid.Int64Range(0, 4).Draw(t, "nominal"),
				weight: rapid.Int64Range(0, 3).Draw(t, "weight"), lend: limit.Draw(t, "lend"), borrow: limit.Draw(t, "borrow")}
			up.children, tree.all = append(up.children, q), append(tree.all, q)
		}
		world := fairCase{}
		for _, q := range tree.all {
			put := queueOf(orbit.QueueID(q.id), orbit.QueueID(q.parent), q.nominal, q.weight)
			if q.lend >= 0 {
				put.Queue.Lend = map[string]int64{"cpu": 1000 * q.lend}
			}
			if q.borrow >= 0 {
				put.Queue.Borrow = map[string]int64{"cpu": 1000 * q.borrow}
			}
			world.queues = append(world.queues, put)
		}
		tree.root().measure()
		for range rapid.IntRange(0, 4).Draw(t, "running") {
			q, n := rapid.SampledFrom(tree.all).Draw(t, "queue"), rapid.Int64Range(1, 3).Draw(t, "cores")
			if q.available() >= n {
				q.own += n
				tree.root().count()
				world.running = append(world.running, fmt.Sprintf("%s %d", q.id, n))
			}
		}
		var work []dumbWork
		of := map[string]*dumbQueue{}
		for i := range rapid.IntRange(1, 10).Draw(t, "waiting") {
			w := dumbWork{id: fmt.Sprintf("w%d", i), n: rapid.Int64Range(1, 3).Draw(t, "cores"), priority: rapid.Int32Range(0, 2).Draw(t, "priority"), at: i}
			of[w.id] = rapid.SampledFrom(tree.all).Draw(t, "queue")
			work = append(work, w)
			world.waiting = append(world.waiting, fmt.Sprintf("%s %d %s %d", of[w.id].id, w.n, w.id, w.priority))
		}
		slices.SortStableFunc(work, func(a, b dumbWork) int { return int(b.priority - a.priority) })
		for _, w := range work {
			of[w.id].waiting = append(of[w.id].waiting, w)
		}
		require.Equal(t, tree.order(), fairOrder(t, world.ledger(t), &nav.Fair{}), "%+v", world)
	})
}
