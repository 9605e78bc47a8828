package nav_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// Whatever the wrapped navigator plans, nonsense included: what an Anchor adds is committed, all of it, for it is
// planned on the view alone; and what it keeps of the wrapped plan fares no worse for it. A proposal that would have
// been committed if the wrapped plan had been proposed alone is not refused as the proposer's mistake, and never
// for room, unless another one that would have made it breaks its own bets on the way.
func TestAnchorMergesAnything(t *testing.T) {
	anchors, kept, leftOut := 0, 0, 0
	check := func(t *rapid.T) {
		m := drawMerge(t)
		alone, merged := m.ledger(t), m.ledger(t)
		plan := beside(t, merged, m.theirs...)
		outcome := map[orbit.ProposalID]error{}
		for _, p := range m.theirs {
			_, outcome[p.ID] = alone.Propose(context.Background(), p)
		}
		anchors += len(anchorsOf(plan))
		kept += len(keptOf(plan))
		leftOut += len(m.theirs) - len(keptOf(plan))
		last := -1
		for _, at := range keptOf(plan) {
			require.Greater(t, at, last, "the order is the wrapped navigator's")
			last = at
		}
		if len(anchorsOf(plan)) == 0 {
			require.Len(t, keptOf(plan), len(m.theirs), "nothing is in the way")
		}
		view, broken := snapshot(t, merged), false
		for _, p := range plan.Proposals {
			_, err := merged.Propose(context.Background(), p)
			if p.ID.IsZero() {
				require.NoError(t, err, "%+v", p)
			} else if outcome[p.ID] == nil && err != nil {
				var r *orbit.Rejection
				require.ErrorAs(t, err, &r)
				require.NotErrorIs(t, err, orbit.ErrInfeasible, "%+v", p)
				require.True(t, broken || r.Dimension == "", "%+v: %v", p, err)
			}
			// One that was fine by itself, and is not after those before it, has not released what it would have.
			broken = broken || err != nil && view.Check(p) == nil
		}
		require.NoError(t, snapshot(t, merged).Verify())
	}
	for range 10 {
		rapid.Check(t, check)
	}
	if !testing.Short() { // rapid draws a fifth as often then
		require.Greater(t, min(anchors, kept, leftOut), 50)
	}
}

// mergeCase is a world, and what the wrapped navigator plans on it.
type mergeCase struct {
	// Committed one after another; some cannot be.
	world  [][]orbit.Commitment
	theirs []orbit.Proposal
}

// ledger makes the world. It is the same each time, revision by revision.
func (m *mergeCase) ledger(t require.TestingT) orbit.Ledger {
	l := &orbit.MemoryLedger{}
	for _, do := range m.world {
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
		require.NotErrorIs(t, err, orbit.ErrInvalid)
	}
	return l
}

// mergeNodes is how many nodes there are at most; a node beyond is not there.
const mergeNodes = 4

// drawMerge draws few nodes of two racks, with something on them, and groups of several priorities that wait.
func drawMerge(t *rapid.T) *mergeCase {
	m := &mergeCase{}
	add := func(do ...orbit.Commitment) { m.world = append(m.world, do) }
	nodes := make([]orbit.PutNode, mergeNodes)
	for i := range nodes {
		n := rackNode(fmt.Sprint("n", i), fmt.Sprint("r", i%2), rapid.Int64Range(2, 12).Draw(t, "capacity"))
		n.Node.Devices = orbit.Devices{Model: "a", Count: 3}
		nodes[i] = n
		add(n)
	}
	for _, group := range []string{"", "x", "g0", "g1", "g2"} {
		count := rapid.IntRange(1, 4).Draw(t, "capsules")
		s := drawMergeSpec(t, group)
		ids := make([]orbit.CapsuleID, count)
		for i := range ids {
			ids[i] = orbit.CapsuleID(fmt.Sprintf("%s-%d", group, i))
		}
		add(orbit.Submit{IDs: ids, Spec: s})
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "old") {
		id := orbit.CapsuleID(fmt.Sprint("old-", i))
		s := drawMergeSpec(t, "")
		add(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: drawMergeNode(t), Devices: drawMergeSet(t, s.Devices.Count)})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "holds") {
		add(drawMergeHold(t, i, rapid.SampledFrom([]string{"", "h"}).Draw(t, "for"), 4))
	}
	for i := range nodes { // some lose what they had
		if rapid.IntRange(0, 2).Draw(t, "shrinks") == 0 {
			n := nodes[i]
			n.Node.Capacity[orbit.CPU] -= rapid.Int64Range(0, 2).Draw(t, "by")
			n.Node.Devices.Unhealthy = drawMergeSet(t, rapid.IntRange(0, 2).Draw(t, "unhealthy"))
			add(n)
		}
	}
	m.theirs = rapid.SliceOfN(rapid.Custom(drawMergeProposal), 0, 8).Draw(t, "theirs")
	return m
}

// drawMergeSpec draws what capsules of a group ask for. Those of g0 to g2 wait for their own.
func drawMergeSpec(t *rapid.T, group string) *orbit.Spec {
	s := spec(rapid.Int64Range(0, 6).Draw(t, "cpu"), rapid.Int32Range(0, 4).Draw(t, "priority"))
	if group != "" && group != "x" {
		s = first(group, s.Envelope.Reservation[orbit.CPU], s.Priority)
	}
	s.Group = group
	if n := rapid.IntRange(-2, 2).Draw(t, "devices"); n > 0 {
		s.Devices = orbit.DeviceRequest{Count: n, Milli: rapid.SampledFrom([]int{400, 1000}).Draw(t, "milli")}
	}
	return s
}

func drawMergeNode(t *rapid.T) orbit.NodeID {
	return orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, mergeNodes).Draw(t, "node")))
}

// drawMergeSet draws so many of three instances.
func drawMergeSet(t *rapid.T, n int) (set orbit.DeviceSet) {
	for _, i := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "instances")[:n] {
		set |= 1 << i
	}
	return set
}

func drawMergeHold(t *rapid.T, i int, whose string, most int64) orbit.Hold {
	h := orbit.Hold{ID: orbit.HoldID(fmt.Sprint("hold-", i)), Node: drawMergeNode(t), For: whose, Ends: time.Unix(1<<33, 0),
		Room: orbit.Resources{orbit.CPU: rapid.Int64Range(1, most).Draw(t, "room")}}
	if n := rapid.IntRange(0, 2).Draw(t, "instances"); n > 0 {
		h.Devices, h.Milli = drawMergeSet(t, n), 500
	}
	return h
}

// drawMergeProposal draws what a navigator may plan, and what none should.
func drawMergeProposal(t *rapid.T) (p orbit.Proposal) {
	for range rapid.IntRange(1, 3).Draw(t, "commitments") {
		p.Do = append(p.Do, drawMergeCommitment(t))
	}
	switch rapid.IntRange(0, 8).Draw(t, "bet") {
	case 0:
		p.If = []orbit.Precondition{orbit.GroupIn{Group: "x", Level: "rack", Domain: rapid.SampledFrom([]string{"r0", "r1"}).Draw(t, "rack")}}
	case 1:
		p.If = []orbit.Precondition{orbit.MarkAt{Key: "k"}}
	}
	return p
}

func drawMergeCommitment(t *rapid.T) orbit.Commitment {
	capsule := orbit.CapsuleID(fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"", "", "x", "x", "g0", "old", "none"}).Draw(t, "of"),
		rapid.IntRange(0, 3).Draw(t, "capsule")))
	old := orbit.CapsuleID(fmt.Sprint("old-", rapid.IntRange(0, 3).Draw(t, "capsule")))
	switch rapid.IntRange(0, 11).Draw(t, "do") {
	case 0, 1, 2:
		return orbit.Release{Capsule: old, Final: rapid.Bool().Draw(t, "final")}
	case 3:
		return orbit.Release{Capsule: old, From: drawMergeNode(t), Stopped: true}
	case 4:
		return orbit.Release{Hold: orbit.HoldID(fmt.Sprint("hold-", rapid.IntRange(0, 3).Draw(t, "hold")))}
	case 5:
		return drawMergeHold(t, rapid.IntRange(0, 3).Draw(t, "hold"), "", 4)
	case 6:
		h := drawMergeHold(t, 4, "", 4)
		h.Room[orbit.CPU] = rapid.SampledFrom([]int64{math.MaxInt64, 1 << 62, -1, math.MinInt64}).Draw(t, "odd")
		h.Milli = rapid.SampledFrom([]int{0, -1000, 1 << 40, math.MinInt}).Draw(t, "odd")
		return h
	case 7:
		return orbit.Mark{Key: "k", Value: "v"}
	}
	return orbit.Place{Capsule: capsule, Node: drawMergeNode(t), Devices: drawMergeSet(t, rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "devices"))}
}
