package orbit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// waitingIn lists what GroupPending yields, by module.
func waitingIn(s *State, group string) map[string]int {
	out := map[string]int{}
	for spec, n := range s.GroupPending(group) {
		out[spec.Module] += n
	}
	return out
}

// Members and those who want to be near one are counted while they wait, those that are both once, members of gangs
// too; the order is that of what specs ask for.
func TestGroupPending(t *testing.T) {
	l := &MemoryLedger{}
	member, both, outside := wants(1), wants(1), wants(1)
	member.Module, member.Group = "member", "g"
	both.Module, both.Group, both.Near = "both", "g", Near{"g", "rack"}
	outside.Module, outside.Near = "outside", Near{"g", "rack"}
	commit(t, l, PutNode{machine("n", 10)},
		Submit{IDs: []CapsuleID{"o"}, Spec: outside}, Submit{IDs: []CapsuleID{"m1", "m2"}, Spec: member}, Submit{IDs: []CapsuleID{"b"}, Spec: both},
		Submit{Gang: &Gang{ID: "gang", Roles: []Role{{Spec: both, Members: []CapsuleID{"r"}}}}}, Submit{IDs: []CapsuleID{"none"}, Spec: wants(1)})
	s := snapshotOf(t, l)
	assert.Equal(t, map[string]int{"member": 2, "both": 2, "outside": 1}, waitingIn(s, "g"))
	assert.Empty(t, waitingIn(s, ""))
	assert.Empty(t, waitingIn(s, "h"))
	var order []string
	for spec := range s.GroupPending("g") {
		order = append(order, spec.Module)
	}
	assert.Equal(t, []string{"both", "member", "outside"}, order)
	for range s.GroupPending("g") {
		break
	}
	commit(t, l, Place{Capsule: "m1", Node: "n"}, Release{Capsule: "b", Final: true}, Release{Capsule: "o", Final: true})
	assert.Equal(t, map[string]int{"member": 1, "both": 1}, waitingIn(snapshotOf(t, l), "g"))
	commit(t, l, Release{Capsule: "m1", Stopped: true})
	assert.Equal(t, map[string]int{"member": 2, "both": 1}, waitingIn(snapshotOf(t, l), "g"))
	assert.Equal(t, map[string]int{"member": 2, "both": 2, "outside": 1}, waitingIn(s, "g"), "a state does not change")
}

// Verify counts again: what is counted too often and what is not counted are both faults.
func TestVerifyCountsWhatWaits(t *testing.T) {
	l := &MemoryLedger{}
	spec := wants(1)
	spec.Group = "g"
	commit(t, l, Submit{IDs: []CapsuleID{"a", "b"}, Spec: spec})
	for by, fault := range map[int]string{1: "counts 3 pending", -1: "counts 1 pending", -2: "has 2 pending"} {
		s := snapshotOf(t, l).thaw()
		require.NoError(t, s.Verify())
		s.countWaiting(s.Capsule("a").Spec, by)
		assert.ErrorContains(t, s.Verify(), fault)
	}
}

// Verify recounts from the records, so it finds a record that was changed behind the back of what is counted.
func TestVerifyFindsABrokenRecord(t *testing.T) {
	l := &MemoryLedger{}
	backfills := &Spec{Backfills: true, RunsAtMost: time.Minute}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: backfills}, Place{Capsule: "a", Node: "n"})
	for fault, breaks := range map[string]func(*Capsule){
		"was placed, at revision 0":          func(c *Capsule) { c.PlacedAt = 0 },
		"counts loans that are not those":    func(c *Capsule) { c.setRare(uncommon{borrows: &Nominee{Capsule: "b"}}) },
		"ready is true":                      func(c *Capsule) { c.Ready = true },
		"what rules Apart and Even count":    func(c *Capsule) { c.Spec = &Spec{Apart: []Apart{{Group: "g", Level: NodeKey}}} },
		"its placements and holds take":      func(c *Capsule) { c.Spec = wants(1) },
		"is not found by its id":             func(c *Capsule) { c.ID = "b" },
		`is on node "m", which is not a mem`: func(c *Capsule) { c.Node = "m" },
	} {
		s := snapshotOf(t, l).thaw()
		require.NoError(t, s.Verify())
		_, slot := s.findCapsule("a")
		breaks(&s.capsules.Own(slot, s.owner).capsule)
		assert.ErrorContains(t, s.Verify(), fault)
	}
}

// A member whose role its gang does not have is a fault, and no reason to panic.
func TestVerifyFindsARoleTooMany(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, gangOf("g", 1, "member"))
	s := snapshotOf(t, l).thaw()
	_, slot := s.findCapsule("member")
	s.capsules.Own(slot, s.owner).capsule.common = &common{gang: "g", role: 3}
	assert.ErrorContains(t, s.Verify(), `gang "g" of 1 roles counts 1 records`)
}

// Holds are found by the beginning of their id, and only those.
func TestHoldsWith(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)})
	for _, id := range []HoldID{"a", "b/1", "b/2", "b", "c"} {
		commit(t, l, Hold{ID: id, Node: "n", Room: Resources{1}, Ends: time.Unix(2000, 0)})
	}
	for prefix, want := range map[HoldID][]HoldID{"b/": {"b/1", "b/2"}, "b": {"b", "b/1", "b/2"}, "": {"a", "b", "b/1", "b/2", "c"}, "d": nil, "b/1/": nil} {
		var got []HoldID
		for h := range snapshotOf(t, l).HoldsWith(prefix) {
			got = append(got, h.ID)
		}
		assert.Equal(t, want, got, "%q", prefix)
	}
}
