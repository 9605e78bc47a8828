package orbit

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/wide"
)

// cpuQueue is a queue with a nominal amount of cpu.
func cpuQueue(id, parent QueueID, nominal int64) PutQueue {
	return PutQueue{Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": nominal}}}
}

// queued is cpuSpec in a queue.
func queued(q QueueID, n int64) *Spec {
	s := cpuSpec(n)
	s.Queue = q
	return s
}

// makesWay evicts a capsule for another, which takes its place.
func makesWay(s *State, victim, newcomer CapsuleID) []Commitment {
	e := evictionOf(s, victim)
	e.For = newcomer
	return []Commitment{e, placeOn(newcomer, e.From)}
}

// standing returns a queue that exists.
func (c court) queue(id QueueID) *QueueState {
	c.Helper()
	q, ok := c.now().Queue(id)
	require.True(c, ok)
	return &q
}

// TestQuotaArithmetic: three levels with limits on lending and borrowing, worked out by hand.
//
//	all      Nominal 2
//	├─ eng   Nominal 3, Lend 4      subtree 3 + 6 + (5-3) = 11, local 7
//	│  ├─ web  Nominal 6, Borrow 2  subtree 6
//	│  └─ ml   Nominal 5, Lend 2    subtree 5, local 3
//	└─ ops   Nominal 4              subtree 4
//	subtree of all: 2 + (11-7) + 4 = 10
func TestQuotaArithmetic(t *testing.T) {
	eng, web, ml := cpuQueue("eng", "all", 3), cpuQueue("web", "eng", 6), cpuQueue("ml", "eng", 5)
	eng.Queue.Lend, web.Queue.Borrow, ml.Queue.Lend = map[string]int64{"cpu": 4}, map[string]int64{"cpu": 2}, map[string]int64{"cpu": 2}
	c := newCourt(t, cpuNode("n", 100), cpuQueue("all", "", 2), eng, web, ml, cpuQueue("ops", "all", 4))
	type row struct{ subtree, local, used, available, borrowed, most int64 }
	check := func(id QueueID, share string, want row) {
		t.Helper()
		q := c.queue(id)
		require.Equal(t, want, row{q.Subtree()["cpu"], q.Local()["cpu"], q.Used()["cpu"], q.Available()["cpu"], q.Borrowed()["cpu"], q.Most()["cpu"]}, id)
		require.Equal(t, share, q.Share().String(), id)
		require.Equal(t, q.Share(), c.now().Share(id))
	}
	check("all", "0", row{10, 0, 0, 10, 0, 10})
	check("eng", "0", row{11, 7, 0, 17, 0, 17})
	check("web", "0", row{6, 0, 0, 8, 0, 8}) // 6 and 2 more, though 17 are there
	check("ml", "0", row{5, 3, 0, 20, 0, 20})
	check("ops", "0", row{4, 0, 0, 10, 0, 10})
	c.commits(submitOf(queued("web", 8), "w"), placeOn("w", "n"), submitOf(queued("ml", 4), "m"), placeOn("m", "n"))
	// ml passes 4-3 = 1 on, so eng uses 8+1 = 9, and passes 9-7 = 2 on.
	check("web", "2/17", row{6, 0, 8, 0, 2, 8})
	check("ml", "0", row{5, 3, 4, 8, 0, 20})
	check("eng", "0", row{11, 7, 9, 8, 0, 17})
	check("all", "0", row{10, 0, 2, 8, 0, 10})
	check("ops", "0", row{4, 0, 0, 8, 0, 10})
	c.commits(submitOf(queued("ops", 8), "o"), placeOn("o", "n"))
	check("ops", "2/5", row{4, 0, 8, 0, 4, 10}) // (8-4) of 10
	check("ml", "0", row{5, 3, 4, 0, 0, 20})
	r := c.mistakes(submitOf(queued("ml", 1), "x"), placeOn("x", "n"))
	require.Equal(t, []any{QueueID("ml"), QueueID("all"), []QueueID{"ops", "web"}, int64(1), int64(0)}, []any{r.Queue, r.Level, r.Borrowers, r.Want, r.Free})
	require.Equal(t, `queue "ml" lacks 0.001 cores at queue "all"; borrowed by "ops", "web"`, r.Reason)
	r = c.mistakes(submitOf(queued("web", 1), "x"), placeOn("x", "n"))
	require.Equal(t, QueueID("web"), r.Level, "its own limit")
}

// TestQuotaJudgesTheSum: what a proposal frees counts, and so does what all of it takes.
func TestQuotaJudgesTheSum(t *testing.T) {
	c := newCourt(t, cpuNode("n", 100), cpuQueue("q", "", 4), submitOf(queued("q", 3), "a", "b"))
	c.mistakes(placeOn("a", "n"), placeOn("b", "n"))
	c.commits(placeOn("a", "n"))
	c.mistakes(placeOn("b", "n"))
	c.commits(placeOn("b", "n"), Release{Capsule: "a", Final: true})
	at := c.now().Capsule("b").PlacedAt
	require.Equal(t, "cpu", c.mistakes(Respec{Capsule: "b", Since: at, Spec: queued("q", 5)}).Dimension)
	c.commits(Respec{Capsule: "b", Since: at, Spec: queued("q", 4)})
	c.commits(cpuQueue("r", "", 3))
	require.Equal(t, QueueID("r"), c.mistakes(Respec{Capsule: "b", Since: at, Spec: queued("r", 4)}).Queue)
	c.commits(cpuQueue("r", "", 4))
	c.commits(Respec{Capsule: "b", Since: at, Spec: queued("r", 4)})
	require.Zero(t, c.queue("q").Used()["cpu"])
	require.Equal(t, int64(4), c.queue("r").Used()["cpu"])
}

// TestQuotaThatShrinks admits and evicts nobody; what does not raise the use of a queue is accepted; an adoption is a fact.
func TestQuotaThatShrinks(t *testing.T) {
	spec := queued("q", 3)
	spec.Movable = true
	c := newCourt(t, cpuNode("n", 100), cpuNode("m", 100), cpuQueue("q", "", 6), submitOf(spec, "a", "b", "c"))
	c.commits(placeOn("a", "n"), placeOn("b", "n"))
	c.commits(cpuQueue("q", "", 2))
	require.Equal(t, int64(-4), c.queue("q").Available()["cpu"])
	c.mistakes(placeOn("c", "n"))
	c.commits(evictionOf(c.now(), "a"), placeOn("a", "m"))
	c.commits(placeOn("c", "n"), Release{Capsule: "a", Final: true}) // no more than before
	c.commits(Adopt{Capsule: "d", Node: "m", Spec: spec})
	require.Equal(t, int64(9), c.queue("q").Used()["cpu"])
	small := queued("q", 1)
	small.Movable = true
	c.commits(Respec{Capsule: "d", Since: c.now().Capsule("d").PlacedAt, Spec: small})
	grown := queued("q", 7)
	c.mistakes(Respec{Capsule: "d", Since: c.now().Capsule("d").PlacedAt, Spec: grown})
	c.commits(Respec{Capsule: "d", Since: c.now().Capsule("d").PlacedAt, Spec: grown, Applied: true})
	require.Equal(t, int64(13), c.queue("q").Used()["cpu"])
}

// TestQueuesThatAreUnknown: nobody may submit to one, what was adopted counts as soon as it exists, and it stays while it is named.
func TestQueuesThatAreUnknown(t *testing.T) {
	c := newCourt(t, cpuNode("n", 100), submitOf(cpuSpec(1), "x"))
	require.Equal(t, QueueID("q"), c.mistakes(submitOf(queued("q", 1), "a")).Queue)
	require.Equal(t, QueueID("q"), c.mistakes(Respec{Capsule: "x", Spec: queued("q", 1)}).Queue)
	c.commits(Adopt{Capsule: "a", Node: "n", Spec: queued("q", 2)})
	_, known := c.now().Queue("q")
	require.False(t, known)
	c.commits(cpuQueue("q", "", 1))
	require.Equal(t, int64(2), c.queue("q").Used()["cpu"])
	require.Equal(t, 1, c.queue("q").Living)
	require.Equal(t, QueueID("q"), c.mistakes(RemoveQueue{"q"}).Queue)
	c.commits(cpuQueue("p", "", 1))
	c.commits(cpuQueue("q", "p", 1))
	require.Equal(t, int64(2), c.queue("p").Used()["cpu"])
	require.Contains(t, c.mistakes(RemoveQueue{"p"}).Reason, "parent of 1")
	c.commits(RemoveQueue{"q"}, Release{Capsule: "a", Final: true})
	require.Zero(t, c.queue("p").Used()["cpu"])
	c.commits(RemoveQueue{"p"})
	require.Zero(t, c.now().queues.Len())
	c.mistakes(RemoveQueue{"p"})
}

// TestQueueForms: what no tree can be.
func TestQueueForms(t *testing.T) {
	c := newCourt(t, cpuNode("n", 1))
	invalid := func(do ...Commitment) { c.refuses(ErrInvalid, Proposal{View: c.now().Revision(), Do: do}) }
	for _, q := range []Queue{
		{}, {ID: "q", Parent: "q"}, {ID: "q", Weight: -1}, {ID: "q", Weight: maxQueueWeight + 1}, {ID: "q", Nominal: map[string]int64{"cpu": -1}},
		{ID: "q", Borrow: map[string]int64{"cpus": 1}}, {ID: "q", Lend: map[string]int64{"device/": 1}}, {ID: "q", Nominal: map[string]int64{"": 1}},
	} {
		invalid(PutQueue{q})
	}
	require.Equal(t, QueueID("no"), c.mistakes(cpuQueue("q", "no", 1)).Queue)
	c.commits(cpuQueue("1", "", math.MaxInt64))
	invalid(cpuQueue("2", "1", 1))
	c.commits(cpuQueue("1", "", 1))
	for level := 2; level <= maxQueueLevels; level++ {
		c.commits(cpuQueue(QueueID(fmt.Sprint(level)), QueueID(fmt.Sprint(level-1)), 1))
	}
	invalid(cpuQueue("9", "8", 1))
	c.commits(cpuQueue("0", "", 1))
	invalid(cpuQueue("1", "0", 1)) // nine levels
	invalid(cpuQueue("1", "8", 1)) // a cycle
	c.commits(cpuQueue("2", "0", 1))
	require.Equal(t, int64(8), c.queue("0").Subtree()["cpu"])
	require.Equal(t, int64(1), c.queue("1").Subtree()["cpu"])
}

// TestQuotaOfDevicesAndExtras: a capsule counts for the model that it got, and for its extras; what no queue of the tree names is free.
func TestQuotaOfDevicesAndExtras(t *testing.T) {
	node := func(id NodeID, model string) PutNode {
		n := cpuNode(id, 100)
		n.Node.Devices, n.Node.Extras = Devices{Model: model, Count: 8}, []Extra{{"seats", 10}}
		return n
	}
	spec := queued("q", 1)
	spec.Devices, spec.Extras = DeviceRequest{Count: 2, Milli: 500, Models: []string{"a100", "t4"}}, []Extra{{"seats", 2}}
	c := newCourt(t, node("n", "a100"), node("m", "t4"), PutQueue{Queue{ID: "q", Nominal: map[string]int64{"device/a100": 1500, "extra/seats": 5}}},
		submitOf(spec, "a", "b", "c"))
	place := func(id CapsuleID, node NodeID, devices DeviceSet) Place {
		return Place{Capsule: id, Node: node, Devices: devices}
	}
	c.commits(place("a", "n", 0b11))
	require.Equal(t, map[string]int64{"device/a100": 1000, "extra/seats": 2}, c.queue("q").Used())
	r := c.mistakes(place("b", "n", 0b1100))
	require.Equal(t, []any{"device/a100", int64(1000), int64(500)}, []any{r.Dimension, r.Want, r.Free})
	require.Equal(t, `queue "q" lacks 0.5 of device a100`, r.Reason)
	c.commits(place("b", "m", 0b11)) // no queue names t4
	require.Equal(t, "extra/seats", c.mistakes(place("c", "m", 0b1100)).Dimension)
	c.commits(node("m", "a100")) // another model was described: a fact
	require.Equal(t, map[string]int64{"device/a100": 2000, "extra/seats": 4}, c.queue("q").Used())
}

// TestReclaim: across queues priorities say nothing, and only what is borrowed is taken back, as far as the shares allow.
func TestReclaim(t *testing.T) {
	low := func(q QueueID, n int64, priority int32) *Spec {
		s := queued(q, n)
		s.Priority = priority
		return s
	}
	c := newCourt(t, cpuNode("n", 10), cpuQueue("all", "", 0), cpuQueue("a", "all", 4), cpuQueue("b", "all", 6),
		submitOf(low("b", 3, 9), "b1", "b2", "b3"), submitOf(low("a", 4, 0), "a1", "a2"), submitOf(low("a", 1, 0), "a3"), submitOf(cpuSpec(3), "free"), cpuQueue("other", "", 10), submitOf(low("other", 4, 9), "o"))
	c.commits(placeOn("b1", "n"), placeOn("b2", "n"), placeOn("b3", "n"))
	require.Equal(t, "3/10", c.now().Share("b").String())
	require.Contains(t, c.mistakes(makesWay(c.now(), "b1", "o")...).Reason, "different trees")
	require.Contains(t, c.mistakes(makesWay(c.now(), "b1", "free")...).Reason, "does not make way", "its queue does not protect it, but its priority does")
	c.commits(makesWay(c.now(), "b1", "a1")...) // a is within its quota: 4, b has 6
	require.Equal(t, "0", c.now().Share("b").String())
	require.Contains(t, c.mistakes(makesWay(c.now(), "b2", "a3")...).Reason, "borrowed nothing")
	require.Contains(t, c.mistakes(makesWay(c.now(), "a1", "b1")...).Reason, "borrowed nothing")
	c.commits(Release{Capsule: "b2", Final: true}, placeOn("a3", "n"))
	require.Equal(t, "1/10", c.now().Share("a").String())
	c.commits(makesWay(c.now(), "a3", "b1")...) // 6 of 6 again
	require.Equal(t, "0", c.now().Share("a").String())
}

// TestReclaimByWeight: a queue of more weight may borrow more before others take it back, and a tie takes nothing back.
func TestReclaimByWeight(t *testing.T) {
	heavy := cpuQueue("heavy", "all", 0)
	heavy.Queue.Weight = 2
	c := newCourt(t, cpuNode("n", 12), cpuQueue("all", "", 12), heavy, cpuQueue("light", "all", 0),
		submitOf(queued("heavy", 2), "h1", "h2", "h3", "h4", "h5"), submitOf(queued("light", 2), "l1", "l2", "l3"))
	c.commits(placeOn("h1", "n"), placeOn("h2", "n"), placeOn("h3", "n"), placeOn("h4", "n"), placeOn("h5", "n"), placeOn("l1", "n"))
	require.Equal(t, []string{"5/12", "1/6"}, []string{c.now().Share("heavy").String(), c.now().Share("light").String()})
	c.commits(makesWay(c.now(), "h5", "l2")...) // 8/12/2 = 1/3 and 4/12 = 1/3
	require.Equal(t, c.now().Share("heavy"), c.now().Share("light"))
	c.mistakes(makesWay(c.now(), "h4", "l3")...)
	c.mistakes(makesWay(c.now(), "l2", "h5")...)
}

// TestReclaimIsNotALoop: were it enough that the share of the newcomer ends below what that of the victim was, a, b and free room
// would lead round in a circle: the big one evicts two small ones, one of these evicts the big one, and the other takes the room that is left.
func TestReclaimIsNotALoop(t *testing.T) {
	c := newCourt(t, cpuNode("n", 20), cpuQueue("all", "", 20), cpuQueue("a", "all", 0), cpuQueue("b", "all", 0),
		submitOf(queued("a", 16), "big"), submitOf(queued("b", 10), "small", "other"))
	c.commits(placeOn("small", "n"), placeOn("other", "n"))
	s := c.now()
	do := []Commitment{makesWay(s, "small", "big")[0], makesWay(s, "other", "big")[0], placeOn("big", "n")}
	require.Contains(t, c.mistakes(do...).Reason, `the share of queue "a" would be 4/5, that of queue "b" 0 after 1`)
	c.commits(Release{Capsule: "small", Final: true}, Release{Capsule: "other", Final: true}, placeOn("big", "n"), submitOf(queued("b", 10), "again"))
	c.mistakes(makesWay(c.now(), "big", "again")...)
}

// TestReclaimMultiTie: two queues with the same share of one resource take nothing of another from each other.
func TestReclaimMultiTie(t *testing.T) {
	both := func(q QueueID, cpu, slots int64) *Spec {
		s := queued(q, cpu)
		s.Envelope.Reservation[Slots] = slots
		return s
	}
	node := cpuNode("n", 4)
	node.Node.Capacity[Slots] = 100
	c := newCourt(t, node, PutQueue{Queue{ID: "all", Nominal: map[string]int64{"cpu": 8, "slots": 8}}}, cpuQueue("a", "all", 0), cpuQueue("b", "all", 0),
		submitOf(both("a", 0, 4), "big-a"), submitOf(both("b", 0, 4), "big-b"), submitOf(both("a", 1, 0), "a1", "a2"), submitOf(both("b", 1, 0), "b1", "b2", "b3"))
	c.commits(placeOn("big-a", "n"), placeOn("big-b", "n"), placeOn("a1", "n"), placeOn("b1", "n"), placeOn("b2", "n"), placeOn("b3", "n"))
	require.Equal(t, c.now().Share("a"), c.now().Share("b"))
	require.Contains(t, c.mistakes(makesWay(c.now(), "b1", "a2")...).Reason, "1/2 after 1/2")
}

// TestReclaimOfTheAncestorsOwnWork: what a queue uses itself counts as a queue below it with its Nominal.
func TestReclaimOfTheAncestorsOwnWork(t *testing.T) {
	c := newCourt(t, cpuNode("n", 6), cpuQueue("all", "", 2), cpuQueue("a", "all", 4), submitOf(queued("all", 2), "x", "y", "z"), submitOf(queued("a", 2), "a1", "a2", "a3"))
	c.commits(placeOn("x", "n"), placeOn("y", "n"), placeOn("a1", "n"))
	c.commits(makesWay(c.now(), "y", "a2")...) // all has 4 of its own work and 2 of Nominal
	c.mistakes(makesWay(c.now(), "x", "a3")...)
	c.commits(Release{Capsule: "x", Final: true}, placeOn("a3", "n"))
	c.commits(makesWay(c.now(), "a3", "y")...)
}

// TestVictimsAreSparedByQuota: a victim that fits on the node beside the newcomer must leave if the quota is too small for both, and
// only then.
func TestVictimsAreSparedByQuota(t *testing.T) {
	c := newCourt(t, cpuNode("n", 100), cpuQueue("all", "", 0), cpuQueue("a", "all", 4), cpuQueue("b", "all", 6),
		submitOf(queued("b", 5), "b1", "b2"), submitOf(queued("a", 3), "a1"), submitOf(queued("a", 1), "a2"))
	c.commits(placeOn("b1", "n"), placeOn("b2", "n"))
	s := c.now()
	both := []Commitment{makesWay(s, "b1", "a1")[0], makesWay(s, "b2", "a1")[0], placeOn("a1", "n")}
	c.commits(both...)
	require.True(t, c.now().Capsule("b1").Placed(), "the first of the two is spared")
	require.False(t, c.now().Capsule("b2").Placed())
	c.commits(makesWay(c.now(), "b1", "a2")...)
	require.True(t, c.now().Capsule("b1").Placed(), "quota and room are enough for both")
	high := queued("b", 3)
	high.Priority = 5
	c.commits(submitOf(high, "high"), Release{Capsule: "a2", Final: true}, Release{Capsule: "a1", Final: true})
	c.commits(makesWay(c.now(), "b1", "high")...)
	require.True(t, c.now().Capsule("b1").Placed(), "8 of 10")
	require.True(t, c.now().Capsule("high").Placed())
	higher := queued("b", 3)
	higher.Priority = 9
	c.commits(submitOf(higher, "higher"))
	c.mistakes(placeOn("higher", "n"))
	c.commits(makesWay(c.now(), "b1", "higher")...) // in one queue, by priority, though the node has room
	require.False(t, c.now().Capsule("b1").Placed())
}

// TestShareCompare compares shares with fractions of arbitrary size.
func TestShareCompare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (Share, [2]wide.Int) {
			over := wide.Int{}.Plus(rapid.Int64Min(0).Draw(t, name))
			below := wide.Int{}.Plus(rapid.Int64Min(0).Draw(t, name+" of")).Times(rapid.IntRange(1, maxQueueWeight).Draw(t, name+" weight"))
			return shareOf(over, below), [2]wide.Int{over, below}
		}
		a, fa := draw("a")
		b, fb := draw("b")
		if rapid.Bool().Draw(t, "equal") {
			fb = [2]wide.Int{fa[0], fa[1]}
			b = shareOf(fb[0], fb[1])
		}
		require.Equal(t, compareFractions(fa, fb), a.Compare(b))
		require.Equal(t, a == b, a.Compare(b) == 0)
		require.Equal(t, -a.Compare(b), b.Compare(a))
	})
	require.Zero(t, Share{}.Compare(shareOf(wide.Int{}, wide.Int{})))
	require.Equal(t, "infinite", shareOf(wide.Int{}.Plus(3), wide.Int{}).String())
	require.True(t, math.IsInf(shareOf(wide.Int{}.Plus(3), wide.Int{}).Float(), 1))
	require.Equal(t, 0.25, shareOf(wide.Int{}.Plus(3), wide.Int{}.Plus(12)).Float())
}

// TestQueuesDump: a dump has the queues, what is used is counted again, and a queue that is named and missing is still known as missing.
func TestQueuesDump(t *testing.T) {
	c := newCourt(t, cpuNode("n", 10), cpuQueue("z", "", 4), cpuQueue("a", "z", 4), submitOf(queued("a", 3), "a", "b"), placeOn("a", "n"))
	c.commits(Adopt{Capsule: "x", Node: "n", Spec: queued("none", 2)})
	var dump bytes.Buffer
	require.NoError(t, c.now().Dump(&dump))
	require.Contains(t, dump.String(), `{"queue":{"id":"z","nominal":{"cpu":4},"changed":1,"tight":1}}`)
	s := new(State)
	require.NoError(t, s.Restore(bytes.NewReader(dump.Bytes())))
	require.NoError(t, s.Verify())
	var again bytes.Buffer
	require.NoError(t, s.Dump(&again))
	require.Equal(t, dump.String(), again.String())
	q, _ := s.Queue("z")
	require.Equal(t, int64(3), q.Used()["cpu"])
	require.Equal(t, 1, s.queueNamed("none").living)
	lines := bytes.Split(bytes.TrimSpace(dump.Bytes()), []byte("\n"))
	i := slices.IndexFunc(lines, func(l []byte) bool { return bytes.HasPrefix(l, []byte(`{"queue"`)) })
	lines[i], lines[i+1] = lines[i+1], lines[i]
	err := new(State).Restore(bytes.NewReader(bytes.Join(lines, []byte("\n"))))
	require.ErrorIs(t, err, ErrInvalid)
	var r *Rejection
	require.ErrorAs(t, err, &r)
	require.Contains(t, r.Reason, "to be its parent")
}

// compareFractions compares two fractions exactly.
func compareFractions(a, b [2]wide.Int) int {
	number := func(w wide.Int) *big.Int { n, _ := new(big.Int).SetString(w.String(), 10); return n }
	infinite := func(f [2]wide.Int) int { return btoi(number(f[0]).Sign() > 0 && number(f[1]).Sign() == 0) }
	if infinite(a)+infinite(b) > 0 {
		return infinite(a) - infinite(b)
	}
	one := func(f [2]wide.Int) [2]*big.Int { // 0 of 0 is 0
		if number(f[0]).Sign() == 0 {
			return [2]*big.Int{big.NewInt(0), big.NewInt(1)}
		}
		return [2]*big.Int{number(f[0]), number(f[1])}
	}
	x, y := one(a), one(b)
	return new(big.Int).Mul(x[0], y[1]).Cmp(new(big.Int).Mul(y[0], x[1]))
}

// TestQueuesOfASnapshotStay: the ledger counts in place what no snapshot has, and what a snapshot, a draft on it or a copy that is
// written to says of queues never changes.
func TestQueuesOfASnapshotStay(t *testing.T) {
	t.Parallel()
	c := newCourt(t, cpuNode("n", 100), cpuQueue("all", "", 9), cpuQueue("q", "all", 1), submitOf(queued("q", 2), "a", "b", "d"))
	type seen struct {
		used, available, borrowed int64
		living, waiting           int
		share                     string
	}
	says := func(s *State) (out [2]seen) {
		for i, id := range []QueueID{"all", "q"} {
			q, ok := s.Queue(id)
			require.True(t, ok)
			out[i] = seen{q.Used()["cpu"], q.Available()["cpu"], q.Borrowed()["cpu"], q.Living, q.Waiting, s.Share(id).String()}
		}
		return out
	}
	first := c.now()
	none := [2]seen{{available: 10, share: "0"}, {available: 10, living: 3, waiting: 3, share: "0"}}
	require.Equal(t, none, says(first))
	c.commits(placeOn("a", "n"))
	kept, _ := first.Queue("q")  // read only after more has been committed
	c.commits(placeOn("b", "n")) // no snapshot lies between the two
	second := c.now()
	both := [2]seen{{4, 6, 0, 0, 0, "0"}, {4, 6, 3, 3, 1, "3/10"}}
	require.Equal(t, both, says(second))
	changes, err := c.Changes(bg, first.Revision())
	require.NoError(t, err)
	copied, err := first.Apply(changes)
	require.NoError(t, err)
	require.Equal(t, both, says(copied))
	c.commits(Release{Capsule: "a", Final: true}, placeOn("d", "n"))
	require.Equal(t, none, says(first))
	require.Equal(t, both, says(second))
	require.Equal(t, both, says(copied))
	require.Zero(t, kept.Used()["cpu"])
	require.NoError(t, first.Verify())
	require.NoError(t, second.Verify())
}
