package nav_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// gangIn submits a gang of so many members of one core in a queue, which may start with one.
func gangIn(t *testing.T, l orbit.Ledger, id string, queue orbit.QueueID, members int) {
	spec := gangSpec(1000)
	spec.Queue = queue
	g := &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "w", Spec: spec, Min: 1}}}
	for i := range members {
		g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprintf("%s-%d", id, i)))
	}
	commit(t, l, orbit.Submit{Gang: g})
}

// A gang that found no quota, waiting or running, is searched for again when there is some: after a quota was raised, after others have
// left or name another queue.
func TestGangComesBackForQuota(t *testing.T) {
	l, n := &orbit.MemoryLedger{}, &nav.Gang{}
	commit(t, l, node("n", 10_000), queueOf("all", "", 0, 0), queueOf("q", "all", 0, 0), queueOf("p", "all", 0, 0))
	gangIn(t, l, "g", "q", 4)
	engine := &orbit.Engine{Ledger: l, Navigator: n}
	runs := func() int { return snapshot(t, l).Gang("g").Total() }
	settle(t, engine)
	assert.Zero(t, runs())
	commit(t, l, queueOf("q", "all", 1, 0))
	settle(t, engine)
	assert.Equal(t, 1, runs(), "a quota was raised")
	commit(t, l, queueOf("p", "all", 1, 0))
	settle(t, engine)
	assert.Equal(t, 2, runs(), "there is more to borrow")

	moved := snapshot(t, l).Capsule("g-0")
	spec := moved.Spec.Clone()
	spec.Queue = ""
	commit(t, l, orbit.Respec{Capsule: moved.ID, Since: moved.PlacedAt, Spec: spec})
	settle(t, engine)
	assert.Equal(t, 3, runs(), "a member is charged to no queue any more")
	commit(t, l, orbit.Release{Capsule: "g-1", Final: true})
	settle(t, engine)
	assert.Equal(t, 3, runs(), "a member has ended, and the last one has come")
}

// A gang that finds no quota says nothing of gangs that are like it but name another queue.
func TestGangsOfOtherQueuesAreNotAnsweredAlike(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 10_000), queueOf("q", "", 0, 0), queueOf("p", "", 2, 0))
	gangIn(t, l, "a", "q", 2)
	gangIn(t, l, "b", "p", 2)
	settle(t, &orbit.Engine{Ledger: l, Navigator: &nav.Gang{}})
	assert.Zero(t, snapshot(t, l).Gang("a").Total())
	assert.Equal(t, 2, snapshot(t, l).Gang("b").Total())
}
