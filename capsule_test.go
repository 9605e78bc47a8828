package orbit

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Chunks of capsule records fill the size class of 256 bytes: what is added to a record costs 64 bytes for two capsules.
func TestCapsuleRecordsFillTheirSizeClass(t *testing.T) {
	const owner, used = 8, 8 // in front of the two records of a chunk
	require.EqualValues(t, 256, owner+used+2*unsafe.Sizeof(capsuleRecord{}))
}

// Capsules of submissions with the same owner, gang, role, labels and time share them, and no others do. An Assign, a
// snapshot and a restored dump change nothing about it.
func TestSubmissionsShareWhatTheyGive(t *testing.T) {
	l := &MemoryLedger{}
	labels := func(v string) map[string]string { return map[string]string{"team": v} }
	two := gangOf("g", 1, "a", "b")
	two.Gang.Roles = append(two.Gang.Roles, Role{Name: "second", Spec: wants(1), Members: []CapsuleID{"c"}})
	for _, c := range []Commitment{
		Submit{Spec: wants(1), IDs: []CapsuleID{"plain"}},
		Submit{Spec: wants(1), IDs: []CapsuleID{"o1"}, Owner: "o"}, Submit{Spec: wants(2), IDs: []CapsuleID{"o2", "o3"}, Owner: "o"},
		Submit{Spec: wants(1), IDs: []CapsuleID{"p"}, Owner: "p"},
		Submit{Spec: wants(1), IDs: []CapsuleID{"t"}, Owner: "p", At: 7},
		Submit{Spec: wants(1), IDs: []CapsuleID{"x1"}, Owner: "p", At: 7, Labels: labels("x")}, Submit{Spec: wants(1), IDs: []CapsuleID{"x2"}, Owner: "p", At: 7, Labels: labels("x")},
		Submit{Spec: wants(1), IDs: []CapsuleID{"y"}, Owner: "p", At: 7, Labels: labels("y")},
		two, gangOf("h", 1, "d"), gangOf("i", 1, "e"),
		Submit{Spec: wants(1), IDs: []CapsuleID{"z1", "z2", "z3"}, Owner: "z"},
	} {
		commit(t, l, c)
	}
	commit(t, l, Assign{Capsule: "z1", From: "z", Owner: "q"}, Assign{Capsule: "z2", From: "z", Owner: "q"})
	check := func(s *State) {
		sharers := map[*common][]CapsuleID{}
		for c := range s.Capsules() {
			sharers[c.common] = append(sharers[c.common], c.ID)
		}
		for _, ids := range sharers {
			slices.Sort(ids)
		}
		require.ElementsMatch(t, [][]CapsuleID{{"plain"}, {"o1", "o2", "o3"}, {"p"}, {"t"}, {"x1", "x2"}, {"y"}, {"a", "b"}, {"c"}, {"d"}, {"e"}, {"z1", "z2"}, {"z3"}}, slices.Collect(maps.Values(sharers)))
		require.Nil(t, s.Capsule("plain").common)
	}
	s := snapshotOf(t, l)
	check(s)
	back := &State{}
	require.NoError(t, back.Restore(strings.NewReader(dumpOf(t, s))))
	check(back)
}
