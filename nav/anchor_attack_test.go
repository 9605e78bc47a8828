package nav_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Names as long as they may be, racks without a name, with an empty one or one too long to be bet on, and one capsule a
// pass: groups start all the same, once.
func TestAnchorOfOddNames(t *testing.T) {
	long := strings.Repeat("x", 253)
	for name, a := range map[string]*nav.Anchor{
		"anchor": {Navigator: &nav.Services{}}, "self-match": {Navigator: &nav.Services{}, SelfMatch: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			racks := []string{"", strings.Repeat("y", 300), strings.Repeat("z", 253), "-"}
			if a.SelfMatch { // the wrapped navigator goes where it likes
				racks[1] = ""
			}
			for i, rack := range racks {
				for k := range 3 {
					n := node(fmt.Sprint(long[:200], i, k), 8)
					n.Node.Labels = map[string]string{long: rack}
					if rack == "-" {
						n.Node.Labels = nil
					}
					commit(t, l, n)
				}
			}
			s := near(long, 2)
			s.Near.Level = long
			submit(t, l, long[:240], 6, s)
			e := &orbit.Engine{Ledger: l, Navigator: a, MaxPlan: 1}
			for range 40 {
				mustPass(t, e)
			}
			assert.Zero(t, snapshot(t, l).PendingCount())
			assert.Zero(t, countHolds(t, l))
		})
	}
}

// A ledger that takes short ids takes no holds; groups start without.
func TestAnchorWithinShortIDs(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{IDBytes: 15, Commitments: 3, Preconditions: 2, ValueBytes: 2}}
	racked(t, l, 2, 3, 8)
	submit(t, l, "g", 6, near("g", 2))
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	for range 10 {
		mustPass(t, e)
	}
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// Huge values, members that take nothing, and a group of class Gang without a gang.
func TestAnchorOfHugeAndNothing(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 3, math.MaxInt64)
	submit(t, l, "huge", 3, near("huge", math.MaxInt64))
	submit(t, l, "nothing", 3, near("nothing", 0))
	stray := near("stray", 1)
	stray.Class = orbit.GangClass
	submit(t, l, "stray", 3, stray)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	g := &orbit.Engine{Ledger: l, Name: "g", Navigator: &nav.Anchor{Navigator: &nav.Gang{}}}
	for range 10 {
		mustPass(t, e)
		mustPass(t, g)
	}
	assert.LessOrEqual(t, snapshot(t, l).PendingCount(), 3)
	sound(t, l)
	r := g.Pass(t.Context())
	for _, u := range r.Unplaced {
		t.Log(u.Why)
	}
}

// Capsules that a navigator would not claim but is assigned, in groups.
func TestAnchorWorksOnWhatItIsAssigned(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 3, 8)
	s := near("g", 2)
	s.Class = orbit.Batch
	submit(t, l, "g", 6, s)
	for i := range 6 {
		commit(t, l, orbit.Assign{Capsule: orbit.CapsuleID(fmt.Sprint("g-", i)), Owner: "mine"})
	}
	gangOf(t, l, "gang", "mine", 2, 1)
	e := &orbit.Engine{Name: "mine", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	for range 4 {
		mustPass(t, e)
	}
	_, placed, anchors := racksOf(snapshot(t, l), "g")
	assert.Equal(t, 6, placed)
	assert.Equal(t, 1, anchors)
}

// A group's members are assigned to another engine while its holds are live: the next plan releases the holds.
func TestAnchorHoldsOfMembersThatChangeOwner(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racked(t, l, 2, 3, 8)
	submit(t, l, "g", 6, near("g", 2))
	e := &orbit.Engine{Name: "mine", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Services{}}}
	mustPass(t, e)
	require.Equal(t, 5, countHolds(t, l))
	for c := range snapshot(t, l).Capsules() {
		if c.Pending() {
			commit(t, l, orbit.Assign{Capsule: c.ID, Owner: "other"})
		}
	}
	other := &orbit.Engine{Name: "other", Ledger: l, Navigator: &nav.Anchor{Navigator: &nav.Batch{}}}
	mustPass(t, other)
	assert.Zero(t, countHolds(t, l))
	assert.Zero(t, snapshot(t, l).PendingCount())
}

// A capsule that wants to be near a group does not bet on a rack whose name is too long for a bet.
func TestServicesNearLongDomains(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i, rack := range []string{strings.Repeat("y", 300), "short"} {
		n := node(fmt.Sprint("n", i), 8-4*int64(i))
		n.Node.Labels = map[string]string{"rack": rack}
		s := spec(1, 0)
		s.Group = "db"
		id := orbit.CapsuleID(fmt.Sprint("db", i))
		commit(t, l, n)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: n.Node.ID})
	}
	s := spec(1, 0)
	s.Near = orbit.Near{Group: "db", Level: "rack"}
	submit(t, l, "w", 3, s)
	e := &orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
	mustPass(t, e)
	assert.Zero(t, snapshot(t, l).PendingCount())
}
