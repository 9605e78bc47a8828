package orbit

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// packed is one node with victims of many sizes, some of them gangs, and what comes.
type packed struct {
	court
	do      []Commitment
	victims []CapsuleID
}

// drawPacked fills a node, and draws a proposal that evicts all that is there for what comes.
func drawPacked(t *rapid.T, capacity int64) packed {
	c := packed{court: court{nil, &MemoryLedger{}}}
	n := cpuNode("n", capacity)
	n.Node.Confirms = rapid.Bool().Draw(t, "agent")
	commit(t, c, n, cpuNode("m", 64))
	size := rapid.Int64Range(1, 4)
	for i := range rapid.IntRange(1, 6).Draw(t, "victims") {
		id := CapsuleID(fmt.Sprint("v", i))
		spec := cpuSpec(size.Draw(t, "size"))
		spec.Priority = rapid.Int32Range(0, 5).Draw(t, "priority")
		commit(t, c, submitOf(spec, id))
		if _, err := c.Propose(bg, Proposal{Do: []Commitment{placeOn(id, "n")}}); err == nil {
			c.victims = append(c.victims, id)
		}
	}
	if members := []CapsuleID{"g0", "g1", "g2"}; rapid.Bool().Draw(t, "gang") {
		g := gangOf("g", rapid.IntRange(1, 3).Draw(t, "min"), members...)
		commit(t, c, g)
		do := []Commitment{placeOn("g0", "n"), placeOn("g1", "n"), placeOn("g2", "m")}
		if _, err := c.Propose(bg, Proposal{Do: do}); err == nil {
			c.victims = append(c.victims, members...)
		}
	}
	if n.Node.Confirms {
		c.goesQuiet(t, n)
	}
	s := snapshotOf(t, c)
	urgent := cpuSpec(rapid.Int64Range(1, 8).Draw(t, "asks"))
	urgent.Priority = 9
	commit(t, c, submitOf(urgent, "urgent"))
	for _, id := range rapid.Permutation(c.victims).Draw(t, "order") {
		e := evictionOf(s, id)
		e.For = "urgent"
		c.do = append(c.do, e)
	}
	c.do = append(c.do, placeOn("urgent", "n"))
	return c
}

// goesQuiet lets some of the victims begin, some of these end, and their agent go: what has ended stops, and nobody says when it has.
func (c *packed) goesQuiet(t *rapid.T, n PutNode) {
	stay := c.victims[:0]
	for _, id := range c.victims {
		begins := Confirm{Capsule: id, Since: snapshotOf(t, c).Capsule(id).PlacedAt, Begun: true}
		began := rapid.Bool().Draw(t, "begins")
		if began {
			if _, err := c.Propose(bg, Proposal{Do: []Commitment{begins}}); err != nil { // a member on the node that has no agent
				began = false
			}
		}
		if began && snapshotOf(t, c).Capsule(id).Gang() == "" && rapid.Bool().Draw(t, "ends") {
			commit(t, c, Release{Capsule: id, Final: true})
			continue
		}
		stay = append(stay, id)
	}
	c.victims = stay
	if rapid.IntRange(0, 3).Draw(t, "quiet") > 0 {
		n.Node.Confirms = false
		commit(t, c, n)
	}
}

// yields returns how much is free on the node once all have left it that may: where nobody confirms, less what still stops then.
func (c *packed) yields(s *State) int64 {
	n := s.Node("n")
	free := n.Node.Capacity[CPU]
	if n.Node.Confirms {
		return free
	}
	for r := range s.Remains("n") {
		free -= r.Spec.Envelope.Reservation[CPU]
	}
	for v := range s.On("n") {
		free -= int64(btoi(v.Begun)) * v.Spec.Envelope.Reservation[CPU]
	}
	return free
}

// TestSparing: whoever makes way has to. With any one victim put back the proposal is refused; and with more room nobody is
// evicted before whom somebody that comes earlier in the proposal is spared, nor is the proposal refused.
func TestSparing(t *testing.T) {
	for reached := range scale.Reach(t, "spared") {
		rapid.Check(t, func(t *rapid.T) {
			c := drawPacked(t, rapid.Int64Range(4, 12).Draw(t, "capacity"))
			s := snapshotOf(t, c)
			p := Proposal{View: s.Revision(), Do: c.do}
			reduced, err := s.Judge(p)
			if err != nil {
				require.Regexp(t, `node "n" is short|has to wait until`, err.Error())
				require.Greater(t, s.Capsule("urgent").Spec.Envelope.Reservation[CPU], c.yields(s), "urgent work has room with all victims gone")
				return
			}
			reached["spared"] += len(p.Do) - len(reduced.Do)
			again, err := s.Judge(reduced)
			require.NoError(t, err)
			require.Equal(t, reduced.Do, again.Do, "nobody else is spared")
			for i, do := range reduced.Do {
				e, ok := do.(Evict)
				if !ok || s.Capsule(e.Capsule).Gang() != "" {
					continue
				}
				without := append(append([]Commitment{}, reduced.Do[:i]...), reduced.Do[i+1:]...)
				require.Error(t, s.Check(Proposal{View: s.Revision(), Do: without}), "capsule %s could have stayed", e.Capsule)
			}
			more := *s.Node("n").Node.clone()
			more.Capacity[CPU] += rapid.Int64Range(1, 4).Draw(t, "more")
			commit(t, c, PutNode{more})
			fewer, err := snapshotOf(t, c).Judge(p)
			require.NoError(t, err, "more room")
			require.GreaterOrEqual(t, orderOf(p.Do, fewer.Do), orderOf(p.Do, reduced.Do))
			_, err = c.Propose(bg, p)
			require.NoError(t, err)
			require.NoError(t, snapshotOf(t, c).Verify())
		})
	}
}

// orderOf writes down who is spared, the first of the proposal first.
func orderOf(all, left []Commitment) (out string) {
	for _, c := range all {
		spared := "1"
		for _, l := range left {
			if l == c {
				spared = "0"
			}
		}
		out += spared
	}
	return out
}

// TestTruce: within a band of priorities nobody is evicted for another, at its borders and across them somebody is.
func TestTruce(t *testing.T) {
	for _, band := range [][2]int32{{10, 20}, {0, 0}} {
		c := court{t, &MemoryLedger{Bounds: Limits{NeverEvictFrom: band[0], NeverEvictTo: band[1]}}}
		c.commits(cpuNode("n", 1))
		for i, pair := range [][2]int32{{9, 10}, {10, 11}, {10, 20}, {15, 20}, {20, 21}, {10, 21}, {9, 20}, {30, 31}} {
			low, high := cpuSpec(1), cpuSpec(1)
			low.Priority, high.Priority = pair[0], pair[1]
			v, a := CapsuleID(fmt.Sprint("v", i)), CapsuleID(fmt.Sprint("a", i))
			c.commits(submitOf(low, v), submitOf(high, a), placeOn(v, "n"))
			e := evictionOf(c.now(), v)
			e.For = a
			if within := band[1] > 0 && pair[0] >= 10 && pair[1] <= 20; within {
				require.ErrorContains(t, c.mistakes(e, placeOn(a, "n")), "from priority 10 to 20 no capsule is evicted")
				c.commits(Release{Capsule: v, Final: true})
				continue
			}
			c.commits(e, placeOn(a, "n"))
			c.commits(Release{Capsule: a, Final: true})
		}
	}
}

// TestAGrowthEvicts: work that grows on a full node beside work of lower priority evicts it, in either order of the
// commitments; more than it needs is spared, and nothing makes way for a growth that another party has applied.
func TestAGrowthEvicts(t *testing.T) {
	low := cpuSpec(2)
	high := *cpuSpec(4)
	high.Priority = 1
	c := newCourt(t, cpuNode("n", 8), submitOf(low, "low", "low2"), submitOf(&high, "high"), placeOn("low", "n"), placeOn("low2", "n"), placeOn("high", "n"))
	larger := high
	larger.Envelope.Reservation[CPU] = 6
	since := func(id CapsuleID) Revision { return c.now().Capsule(id).PlacedAt }
	grow := Respec{Capsule: "high", Since: since("high"), Spec: &larger}
	out := func(id CapsuleID) Evict { return Evict{Capsule: id, From: "n", Since: since(id), For: "high"} }
	require.ErrorContains(t, c.now().Check(Proposal{Do: []Commitment{grow}}), "wants 0.002 cores, 0 free")
	require.NoError(t, c.now().Check(Proposal{Do: []Commitment{grow, out("low")}}))
	factual := grow
	factual.Applied = true
	require.ErrorContains(t, c.now().Check(Proposal{Do: []Commitment{out("low"), factual}}), "which the proposal neither places nor lets grow")
	peer := larger
	peer.Priority = 0
	require.ErrorContains(t, c.now().Check(Proposal{Do: []Commitment{out("low"), Respec{Capsule: "high", Since: since("high"), Spec: &peer}}}), "does not make way")
	reduced, err := c.now().Judge(Proposal{Do: []Commitment{out("low"), out("low2"), grow}})
	require.NoError(t, err)
	require.Len(t, reduced.Do, 2)
	require.Equal(t, out("low2"), reduced.Do[0])
	placed := since("high")
	c.commits(out("low"), out("low2"), grow)
	require.Equal(t, NodeID("n"), c.now().Capsule("low").Node)
	require.True(t, c.now().Capsule("low2").Pending())
	require.Equal(t, placed, since("high"), "it stays where it is")
}

// TestAGrowthIsNotBeside: what a victim that has begun still takes is not there for a growth, which would use it at once.
func TestAGrowthIsNotBeside(t *testing.T) {
	low := cpuSpec(2)
	high := *cpuSpec(2)
	high.Priority = 1
	c := newCourt(t, PutNode{Node{ID: "n", Capacity: Resources{CPU: 4}, Confirms: true}}, submitOf(low, "low"), submitOf(&high, "high"), placeOn("low", "n"), placeOn("high", "n"))
	since := func(id CapsuleID) Revision { return c.now().Capsule(id).PlacedAt }
	larger := high
	larger.Envelope.Reservation[CPU] = 3
	do := []Commitment{Evict{Capsule: "low", From: "n", Since: since("low"), For: "high"}, Respec{Capsule: "high", Since: since("high"), Spec: &larger}}
	require.NoError(t, c.now().Check(Proposal{Do: do}))
	c.commits(Confirm{Capsule: "low", Since: since("low"), Begun: true})
	require.ErrorContains(t, c.now().Check(Proposal{Do: do}), `cannot grow on node "n" while capsule "low", which has left it, has not stopped`)
}
