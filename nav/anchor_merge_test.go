package nav_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// beside returns what an Anchor makes of a plan of the navigator that it wraps. Proposals get ids by their position,
// from 1 on; those of the Anchor's own have none.
func beside(t require.TestingT, l orbit.Ledger, theirs ...orbit.Proposal) orbit.Plan {
	for i := range theirs {
		theirs[i].ID = orbit.ProposalID{0: 1, 14: byte(i >> 8), 15: byte(i)}
		theirs[i].View = snapshot(t, l).Revision()
	}
	plan, err := planned(context.Background(), l, &nav.Anchor{
		Navigator: nav.Func(func(context.Context, *orbit.View, []*orbit.Capsule) (orbit.Plan, error) {
			return orbit.Plan{Proposals: theirs}, nil
		}),
	})
	require.NoError(t, err)
	return plan
}

// do is a proposal of these commitments.
func do(list ...orbit.Commitment) orbit.Proposal { return orbit.Proposal{Do: list} }

// anchorsOf says on which nodes a plan anchors what, in order.
func anchorsOf(plan orbit.Plan) (out []string) {
	for _, p := range plan.Proposals {
		for _, do := range p.Do {
			if place, ok := do.(orbit.Place); ok && place.Note == nav.AnchorNote {
				out = append(out, fmt.Sprintf("%s on %s", place.Capsule, place.Node))
			}
		}
	}
	return out
}

// keptOf says which proposals of the wrapped navigator are in a plan, in order.
func keptOf(plan orbit.Plan) (out []int) {
	for _, p := range plan.Proposals {
		if !p.ID.IsZero() {
			out = append(out, int(p.ID[14])<<8|int(p.ID[15]))
		}
	}
	return out
}

// commitAll proposes a plan in order; all of it is committed.
func commitAll(t require.TestingT, l orbit.Ledger, plan orbit.Plan) {
	for _, p := range plan.Proposals {
		_, err := l.Propose(context.Background(), p)
		require.NoError(t, err)
	}
}

// first is near, of a priority.
func first(group string, cpu int64, priority int32) *orbit.Spec {
	s := near(group, cpu)
	s.Priority = priority
	return s
}

// An anchor is proposed before what the wrapped navigator plans, so room that one of its proposals gives back is not
// there yet, though that one is of higher priority.
func TestAnchorGetsNothingThatIsYetToBeReleased(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10), node("m", 10))
	submit(t, l, "old", 1, spec(8, 0))
	commit(t, l, orbit.Place{Capsule: "old-0", Node: "n"})
	submit(t, l, "new", 1, spec(1, 1))
	submit(t, l, "g", 1, near("g", 6))
	plan := beside(t, l, do(orbit.Release{Capsule: "old-0", Final: true}, orbit.Place{Capsule: "new-0", Node: "m"}))
	assert.Empty(t, anchorsOf(plan))
	assert.Equal(t, []int{0}, keptOf(plan))
	commitAll(t, l, plan)
	assert.Equal(t, []string{"g-0 on n"}, anchorsOf(beside(t, l)))
}

// The room of an instance that has become unhealthy is no room when what has it is released.
func TestAnchorGetsNothingOfUnhealthyDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	n := rackNode("n", "r", 10)
	n.Node.Devices = orbit.Devices{Model: "a", Count: 2}
	commit(t, l, n, node("m", 10))
	one := spec(0, 0)
	one.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	submit(t, l, "old", 2, one)
	commit(t, l, orbit.Place{Capsule: "old-0", Node: "n", Devices: 1}, orbit.Place{Capsule: "old-1", Node: "n", Devices: 2})
	n.Node.Devices.Unhealthy = 1
	commit(t, l, n)
	submit(t, l, "new", 2, spec(1, 1))
	submit(t, l, "dev", 1, one)
	submit(t, l, "h", 1, near("h", 1))
	g := near("g", 0)
	g.Devices = one.Devices
	submit(t, l, "g", 1, g)
	plan := beside(t, l, do(orbit.Release{Capsule: "old-0", Final: true}, orbit.Place{Capsule: "new-0", Node: "m"}),
		do(orbit.Place{Capsule: "dev-0", Node: "n", Devices: 1}))
	assert.Equal(t, []string{"h-0 on n"}, anchorsOf(plan))
	assert.Equal(t, []int{0}, keptOf(plan))
	commitAll(t, l, plan)
}

// What does not fit beside an anchor is left out, and the next anchor finds all as it was: no room that never was,
// where the sum of what is asked for cannot be counted, ...
func TestWhatIsLeftOutAddsNoRoom(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10), rackNode("m", "s", 5))
	submit(t, l, "huge", 1, spec(1, 3))
	submit(t, l, "g", 1, first("g", 5, 5))
	submit(t, l, "h", 1, first("h", 20, 1))
	hold := func(id string, cpu int64) orbit.Hold {
		return orbit.Hold{ID: orbit.HoldID(id), Node: "n", Room: orbit.Resources{orbit.CPU: cpu}, Ends: time.Unix(1<<33, 0)}
	}
	plan := beside(t, l, do(orbit.Place{Capsule: "huge-0", Node: "n"}, hold("a", math.MaxInt64), hold("b", 1<<62)))
	assert.Equal(t, []string{"g-0 on m"}, anchorsOf(plan))
	assert.Empty(t, keptOf(plan))
	commitAll(t, l, plan)
}

// ... and no part of a group on a node that it does not come to.
func TestWhatIsLeftOutTakesNoNode(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 5), rackNode("m", "s", 10))
	other := spec(1, 3)
	other.Group = "other"
	submit(t, l, "other", 2, other)
	submit(t, l, "g", 1, first("g", 5, 5))
	submit(t, l, "h", 1, first("h", 6, 1))
	plan := beside(t, l, do(orbit.Place{Capsule: "other-0", Node: "m"}, orbit.Place{Capsule: "other-1", Node: "n"}))
	assert.Equal(t, []string{"g-0 on n", "h-0 on m"}, anchorsOf(plan))
	assert.Empty(t, keptOf(plan))
	commitAll(t, l, plan)
}

// What a proposal releases serves that proposal, and others only once it is committed: it may be lost alone.
func TestWhatIsReleasedServesItsProposalAlone(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10), rackNode("full", "s", 8))
	submit(t, l, "old", 1, spec(8, 0))
	commit(t, l, orbit.Place{Capsule: "old-0", Node: "full"})
	submit(t, l, "new", 3, spec(4, 1))
	submit(t, l, "g", 1, near("g", 9))
	behind := func() []orbit.Proposal {
		return []orbit.Proposal{
			do(orbit.Place{Capsule: "new-1", Node: "full"}),
			do(orbit.Place{Capsule: "new-2", Node: "full"}),
		}
	}
	plan := beside(t, l, append(behind(), do(orbit.Release{Capsule: "old-0", Final: true}, orbit.Place{Capsule: "new-0", Node: "full"}))...)
	assert.Equal(t, []string{"g-0 on n"}, anchorsOf(plan))
	assert.Equal(t, []int{2}, keptOf(plan))
	commitAll(t, l, plan)
	commit(t, l, rackNode("m", "t", 1))
	submit(t, l, "h", 1, near("h", 1))
	plan = beside(t, l, behind()...)
	assert.Equal(t, []string{"h-0 on m"}, anchorsOf(plan))
	assert.Equal(t, []int{0}, keptOf(plan))
	commitAll(t, l, plan)

	l = &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10))
	submit(t, l, "old", 1, spec(4, 0))
	commit(t, l, orbit.Place{Capsule: "old-0", Node: "n"})
	submit(t, l, "new", 2, spec(4, 1))
	submit(t, l, "g", 1, near("g", 5))
	plan = beside(t, l, do(orbit.Place{Capsule: "new-0", Node: "n"}), do(orbit.Release{Capsule: "old-0", Final: true}, orbit.Place{Capsule: "new-1", Node: "n"}))
	assert.Empty(t, anchorsOf(plan), "what is of higher priority and fits has all")
	assert.Equal(t, []int{0, 1}, keptOf(plan))
}

// What is released counts once, wherever it is said: what is left out has released nothing, what is held for a member
// that comes in this very plan is the member's, and what is less than nothing is nothing.
func TestWhatIsReleasedCountsOnce(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 9), node("full", 8))
	submit(t, l, "old", 2, spec(4, 0))
	commit(t, l, orbit.Place{Capsule: "old-0", Node: "full"}, orbit.Place{Capsule: "old-1", Node: "full"})
	submit(t, l, "half", 2, spec(4, 0))
	submit(t, l, "whole", 1, spec(8, 0))
	submit(t, l, "g", 1, near("g", 9))
	released := orbit.Release{Capsule: "old-0", Final: true}
	twice := beside(t, l, do(released), do(released), do(orbit.Place{Capsule: "whole-0", Node: "full"}))
	assert.Equal(t, []int{0, 1}, keptOf(twice))
	inVain := beside(t, l,
		do(released, orbit.Place{Capsule: "half-0", Node: "full"}, orbit.Place{Capsule: "half-1", Node: "n"}),
		do(released, orbit.Place{Capsule: "half-0", Node: "full"}))
	assert.Equal(t, []int{1}, keptOf(inVain))
	commitAll(t, l, inVain)

	l = &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 9), rackNode("full", "s", 8))
	member := near("running", 4)
	submit(t, l, "running", 2, member)
	commit(t, l, orbit.Place{Capsule: "running-0", Node: "full"}, orbit.Hold{ID: "plan/anchor/held", Node: "full",
		Room: member.Envelope.Reservation, For: "running", Ends: time.Unix(1<<33, 0)})
	submit(t, l, "half", 1, spec(4, 0))
	submit(t, l, "g", 1, near("g", 9))
	held := beside(t, l, do(orbit.Release{Hold: "plan/anchor/held"}), do(orbit.Place{Capsule: "half-0", Node: "full"}))
	assert.Contains(t, fmt.Sprint(held.Notes), "anchors=1 fromHolds=1")
	assert.Equal(t, []int{0}, keptOf(held))
}

// A proposal that makes no sense takes no room from anchors.
func TestWhatIsLessThanNothingTakesNothing(t *testing.T) {
	l := &orbit.MemoryLedger{}
	n := rackNode("n", "r", 10)
	n.Node.Devices = orbit.Devices{Model: "a", Count: 1}
	commit(t, l, n, node("m", 10))
	submit(t, l, "new", 1, spec(1, 3))
	g := near("g", 10)
	g.Devices = orbit.DeviceRequest{Count: 1, Milli: 1000}
	submit(t, l, "g", 1, g)
	plan := beside(t, l, do(orbit.Place{Capsule: "new-0", Node: "m"},
		orbit.Hold{ID: "a", Node: "n", Room: orbit.Resources{orbit.CPU: math.MinInt64}},
		orbit.Hold{ID: "b", Node: "n", Devices: 1, Milli: math.MinInt32}))
	assert.Equal(t, []string{"g-0 on n"}, anchorsOf(plan))
}

// Where a member of a group comes by a proposal of higher priority, there is no fresh node for an anchor.
func TestAnchorKeepsAwayFromGroupsThatCome(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10), rackNode("m", "s", 20))
	other := spec(1, 3)
	other.Group = "other"
	submit(t, l, "other", 1, other)
	submit(t, l, "g", 1, near("g", 6))
	assert.Equal(t, []string{"g-0 on n"}, anchorsOf(beside(t, l)))
	assert.Equal(t, []string{"g-0 on m"}, anchorsOf(beside(t, l, do(orbit.Place{Capsule: "other-0", Node: "n"}))))
}

// What rests on a proposal that is left out is left out with it: a bet on the company that it would have been, a hold
// that it would have made.
func TestWhatRestsOnWhatIsLeftOut(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, rackNode("n", "r", 10), node("m", 10))
	company := spec(6, 0)
	company.Group = "company"
	submit(t, l, "company", 1, company)
	submit(t, l, "new", 3, spec(1, 0))
	submit(t, l, "g", 1, near("g", 6))
	hold := orbit.Hold{ID: "hold", Node: "m", Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Unix(1<<33, 0)}
	near := do(orbit.Place{Capsule: "new-0", Node: "m"})
	near.If = []orbit.Precondition{orbit.GroupIn{Group: "company", Level: "rack", Domain: "r"}}
	plan := beside(t, l,
		do(orbit.Place{Capsule: "company-0", Node: "n"}, hold),
		near,
		do(orbit.Release{Hold: "hold"}, orbit.Place{Capsule: "new-1", Node: "m"}),
		do(orbit.Place{Capsule: "new-2", Node: "m"}))
	assert.Equal(t, []string{"g-0 on n"}, anchorsOf(plan))
	assert.Equal(t, []int{3}, keptOf(plan))
	said := map[orbit.CapsuleID]string{}
	for _, u := range plan.Unplaced {
		said[u.Capsule.ID] = u.Why.Error()
	}
	assert.Contains(t, said["company-0"], `its place on node "n" does not fit beside groups that start in this plan`)
	assert.Contains(t, said["new-0"], "rests on what is left out of this plan")
	assert.Contains(t, fmt.Sprint(plan.Notes), "leftOut=3")
	commitAll(t, l, plan)
}
