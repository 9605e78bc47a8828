package orbit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// member is the spec of members that take one core.
var member = &Spec{Class: GangClass, Envelope: Envelope{Reservation: Resources{CPU: 1}}}

// crewOf is a gang of one role with these members.
func crewOf(least int, members ...CapsuleID) *Gang {
	return &Gang{ID: "g", Roles: []Role{{Name: "w", Spec: member, Members: members, Min: least}}}
}

// grown is a ledger with a gang of four members that has grown: w2 has ended and was replaced, and a boss has joined.
func grown(t *testing.T) *MemoryLedger {
	l := &MemoryLedger{}
	g := crewOf(1, "w1", "w2")
	g.Min, g.Levels = 2, []string{"rack"}
	n := machine("n", 9)
	n.Labels = map[string]string{"rack": "r"}
	commit(t, l, PutNode{n}, Submit{Gang: g, Labels: map[string]string{"team": "a"}, LabelsOf: map[CapsuleID]map[string]string{"w1": {"uid": "1"}, "w2": {"uid": "2", "team": "b"}}})
	commit(t, l, Place{Capsule: "w1", Node: "n"}, Place{Capsule: "w2", Node: "n"})
	commit(t, l, Release{Capsule: "w2", Final: true}, Submit{Join: true, Gang: crewOf(0, "w3")})
	boss := *member
	boss.Priority = 3
	commit(t, l, Submit{Join: true, Owner: "e", Gang: &Gang{ID: "g", Roles: []Role{{Name: "boss", Spec: &boss, Members: []CapsuleID{"b"}}}}})
	return l
}

// What has joined is written and read again: as JSON, and in a dump.
func TestGrownGangIsStored(t *testing.T) {
	l := grown(t)
	s := snapshotOf(t, l)
	var dump bytes.Buffer
	require.NoError(t, s.Dump(&dump))
	require.Contains(t, dump.String(), `{"gang":{"id":"g","levels":["rack"],"min":2,"roles":[{"name":"w","spec":0,"members":["w1","w2","w3"],"min":1},{"name":"boss","spec":1,"members":["b"]}],"changed":4}}`+"\n")
	require.Contains(t, dump.String(), `"labels":{"team":"b","uid":"2"}`)
	restored, again := new(State), bytes.Buffer{}
	require.NoError(t, restored.Restore(bytes.NewReader(dump.Bytes())))
	require.NoError(t, restored.Dump(&again))
	require.Equal(t, dump.String(), again.String())
	require.Equal(t, s.Gang("g").Shortfall(), restored.Gang("g").Shortfall())

	changes, err := l.Changes(t.Context(), 0)
	require.NoError(t, err)
	var texts []string
	applied := new(State)
	for _, c := range changes {
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var read Change
		require.NoError(t, json.Unmarshal(text, &read))
		texts = append(texts, string(text))
		applied, err = applied.Apply([]Change{read})
		require.NoError(t, err)
	}
	require.Equal(t, textOf(s), textOf(applied))
	all := strings.Join(texts, "\n")
	for _, golden := range []string{
		`"labels":{"team":"a"},"labelsOf":{"w1":{"uid":"1"},"w2":{"team":"b","uid":"2"}}}}`,
		`"levels":["rack"],"min":2}`,
		`"members":["w3"]}]},"join":true}}`,
	} {
		require.Contains(t, all, golden)
	}
}

// Labels of single capsules go with those that all have, and nobody who holds the submission can change them.
func TestLabelsOfMembers(t *testing.T) {
	l := &MemoryLedger{}
	own := map[CapsuleID]map[string]string{"a": {"uid": "7", "team": "b"}, "b": {}}
	p := Proposal{Do: []Commitment{Submit{IDs: []CapsuleID{"a", "b"}, Spec: member, Labels: map[string]string{"team": "a", "x": ""}, LabelsOf: own}}}
	_, err := l.Propose(t.Context(), p)
	require.NoError(t, err)
	own["a"]["uid"] = "8"
	s := snapshotOf(t, l)
	assert.Equal(t, map[string]string{"uid": "7", "team": "b", "x": ""}, s.Capsule("a").Labels())
	assert.Equal(t, map[string]string{"team": "a", "x": ""}, s.Capsule("b").Labels())
	changes, err := l.Changes(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, "7", changes[0].Do.(Submit).LabelsOf["a"]["uid"])
	for says, c := range map[string]Submit{
		`labels of capsule "x", which is not submitted here`: {IDs: []CapsuleID{"c"}, Spec: member, LabelsOf: map[CapsuleID]map[string]string{"x": {"k": "v"}}},
		"empty label key":  {IDs: []CapsuleID{"c"}, Spec: member, LabelsOf: map[CapsuleID]map[string]string{"c": {"": "v"}}},
		"labels have 9000": {IDs: []CapsuleID{"c"}, Spec: member, Labels: map[string]string{"a": strings.Repeat("x", 4499)}, LabelsOf: map[CapsuleID]map[string]string{"c": {"b": strings.Repeat("x", 4499)}}},
	} {
		tight := &MemoryLedger{Bounds: Limits{SpecBytes: 8999}}
		_, err := tight.Propose(t.Context(), Proposal{Do: []Commitment{c}})
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

// A submission that cannot join says why, and what to do.
func TestJoinIsRefused(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{GangMembers: 3}}
	commit(t, l, Submit{Gang: crewOf(1, "a", "b")})
	view := snapshotOf(t, l).Revision()
	commit(t, l, Release{Capsule: "b", Final: true})
	refused := func(kind error, view Revision, by *Gang, says ...string) {
		t.Helper()
		_, err := l.Propose(t.Context(), Proposal{View: view, Do: []Commitment{Submit{Join: true, Gang: by}}})
		require.ErrorIs(t, err, kind)
		for _, s := range says {
			require.ErrorContains(t, err, s)
		}
	}
	other, now := crewOf(0, "c"), snapshotOf(t, l).Revision()
	other.ID = "h"
	refused(ErrInfeasible, now, other, `there is no gang "h" to join`, "submit it without Join")
	refused(ErrInfeasible, now, crewOf(2, "c"), `gang "g" has a minimum of 1 in role "w", not of 2`, "leave out what the gang has already")
	refused(ErrConflict, view, crewOf(2, "c"), "changed at revision 2")
	large := crewOf(0, "c", "d", "e")
	refused(ErrInfeasible, now, large, `gang "g" would have 4 members that are not done, and 1 roles; this ledger takes 3 and 65536`, "release some for good")
	refused(ErrInvalid, now, crewOf(0, "c", "d", "e", "f"), "gang has 4 members; this ledger takes 3")
	refused(ErrInfeasible, now, crewOf(0, "a"), `there is a capsule "a" already`)
	commit(t, l, Submit{Join: true, Gang: crewOf(0, "b", "c")}) // the same that has ended, and one more
	require.Equal(t, []CapsuleID{"a", "b", "c"}, snapshotOf(t, l).Gang("g").Gang.Roles[0].Members)
	_, err := l.Propose(t.Context(), Proposal{View: snapshotOf(t, l).Revision(), Do: []Commitment{Submit{Gang: crewOf(0, "d")}}})
	require.ErrorContains(t, err, "set Join to add members")
	commit(t, l, Release{Capsule: "a", Final: true}, Release{Capsule: "b", Final: true}, Release{Capsule: "c", Final: true})
	refused(ErrInfeasible, snapshotOf(t, l).Revision(), crewOf(0, "d"), `gang "g" has no members that are not done`, "submit it anew, without Join")
}

// A gang whose members are replaced for ever does not grow.
func TestReplacedMembersAreForgotten(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{GangMembers: 3, Terminal: 2}}
	commit(t, l, PutNode{machine("n", 9)}, Submit{Gang: crewOf(2, "a", "b", "c0")})
	commit(t, l, Place{Capsule: "a", Node: "n"}, Place{Capsule: "b", Node: "n"}, Place{Capsule: "c0", Node: "n"})
	for i := range 50 {
		old, next := CapsuleID(fmt.Sprint("c", i)), CapsuleID(fmt.Sprint("c", i+1))
		commit(t, l, Release{Capsule: old, Final: true})
		commit(t, l, Submit{Join: true, Gang: crewOf(0, next)}, Place{Capsule: next, Node: "n"})
		s := snapshotOf(t, l)
		require.NoError(t, s.Verify())
		g := s.Gang("g")
		require.LessOrEqual(t, len(g.Gang.Roles[0].Members), 3+2)
		require.Equal(t, []int{3}, g.Placed)
		require.Equal(t, 3, g.Left(0))
	}
	all := []Commitment{Release{Capsule: "a", Final: true}, Release{Capsule: "b", Final: true}}
	commit(t, l, all...)
	commit(t, l, Submit{IDs: []CapsuleID{"x", "y", "z"}, Spec: member})
	commit(t, l, Release{Capsule: "x", Final: true}, Release{Capsule: "y", Final: true}, Release{Capsule: "z", Final: true})
	boss := *member
	boss.Priority = 1
	commit(t, l, Submit{Join: true, Gang: &Gang{ID: "g", Roles: []Role{{Name: "boss", Spec: &boss, Members: []CapsuleID{"b"}}}}})
	commit(t, l, Release{Capsule: "c50", Final: true})
	commit(t, l, Submit{IDs: []CapsuleID{"v", "w"}, Spec: member})
	commit(t, l, Release{Capsule: "v", Final: true}, Release{Capsule: "w", Final: true})
	commit(t, l, Submit{Join: true, Gang: &Gang{ID: "g", Roles: []Role{{Name: "boss", Spec: &boss, Members: []CapsuleID{"b2"}}}}})
	g := snapshotOf(t, l).Gang("g")
	require.Empty(t, g.Gang.Roles[0].Members, "nothing is left of the first role")
	var dump bytes.Buffer
	require.NoError(t, snapshotOf(t, l).Dump(&dump))
	require.NoError(t, new(State).Restore(&dump), "a role without members, and a minimum of more than there are")
	commit(t, l, Submit{Join: true, Gang: crewOf(0, "again")})
	require.Equal(t, 1, snapshotOf(t, l).Gang("g").Left(0))
}

// What is lent on behalf of a gang must be due to it at each of its priorities, so none joins that is lower than all
// others.
func TestLowerRoleIsRefused(t *testing.T) {
	l := &MemoryLedger{}
	high := *member
	high.Priority = 5
	commit(t, l, Submit{Gang: &Gang{ID: "g", Roles: []Role{{Name: "w", Spec: &high, Members: []CapsuleID{"a", "b"}}}}})
	_, err := l.Propose(t.Context(), Proposal{View: 1, Do: []Commitment{Submit{Join: true, Gang: &Gang{ID: "g", Roles: []Role{{Name: "helper", Spec: member, Members: []CapsuleID{"c"}}}}}}})
	require.ErrorIs(t, err, ErrInfeasible)
	require.ErrorContains(t, err, `gang "g" has no role below priority 5, and role "helper" has 0`)
}

// claimsNothing is a navigator of an engine that plans only what is assigned to it.
type claimsNothing struct{ planFunc }

func (claimsNothing) Claims(string, AppClass) bool { return false }

// Who joins belongs to the engine that the others are assigned to, which learns of it.
func TestJoiningMembersAreAssigned(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 9)}, Submit{Gang: crewOf(0, "a"), Owner: "e"})
	plans := [][]*Capsule{}
	e := &Engine{Name: "e", Ledger: l, Navigator: claimsNothing{planFunc(func(_ context.Context, _ *View, pending []*Capsule) (Plan, error) {
		plans = append(plans, pending)
		return Plan{}, nil
	})}}
	e.Pass(t.Context())
	commit(t, l, Submit{Join: true, Gang: crewOf(0, "b")})
	require.Equal(t, "e", snapshotOf(t, l).Capsule("b").Owner())
	e.Pass(t.Context())
	last := plans[len(plans)-1]
	require.Contains(t, last, snapshotOf(t, l).Capsule("b"))
}

// A minimum of the gang says with whichever members: only the sum counts.
func TestMinimumOfAGang(t *testing.T) {
	g := &Gang{ID: "g", Min: 3, Roles: []Role{
		{Name: "a", Spec: member, Members: []CapsuleID{"a1", "a2", "a3"}, Min: 1}, {Name: "b", Spec: member, Members: []CapsuleID{"b1", "b2", "b3"}, Min: 1},
	}}
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 9)}, Submit{Gang: g})
	_, err := l.Propose(t.Context(), Proposal{View: snapshotOf(t, l).Revision(), Do: []Commitment{Place{Capsule: "a1", Node: "n"}, Place{Capsule: "b1", Node: "n"}}})
	require.ErrorIs(t, err, ErrInfeasible)
	require.ErrorContains(t, err, `gang "g": it would have 2 members placed, at least 3 must be at first`)
	commit(t, l, Place{Capsule: "a1", Node: "n"}, Place{Capsule: "b1", Node: "n"}, Place{Capsule: "b2", Node: "n"})
	commit(t, l, Release{Capsule: "b2", Stopped: true})
	s := snapshotOf(t, l).Gang("g")
	require.True(t, s.Broken())
	require.Equal(t, map[string]int{"*": 1}, s.Shortfall())
	require.Equal(t, 1, s.LacksInAll())
	require.Equal(t, []int{0, 0}, []int{s.Lacks(0), s.Lacks(1)})
	commit(t, l, Release{Capsule: "b1", Stopped: true})
	s = snapshotOf(t, l).Gang("g")
	require.Equal(t, map[string]int{"b": 1, "*": 1}, s.Shortfall())
	for _, bad := range []*Gang{{ID: "h", Min: 7, Roles: g.Roles}, {ID: "h", Min: -1, Roles: g.Roles}} {
		_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{Submit{Gang: bad}}})
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "minimum of the gang is")
	}
}

// Members that join a gang end its nomination, which was made for fewer. The gang keeps its place among nominees.
func TestJoinEndsTheNomination(t *testing.T) {
	member := cpuSpec(1)
	member.Class = GangClass
	gang := func(ids ...CapsuleID) *Gang {
		return &Gang{ID: "g", Roles: []Role{{Name: "r", Spec: member, Members: ids}}}
	}
	c := newCourt(t, cpuNode("n", 9), Submit{Gang: gang("a", "b")})
	c.commits(Nominate{Gang: "g", Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 2}}}, Ends: time.Unix(1, 0)})
	was := *c.now().Gang("g").Nomination
	require.True(t, was.Lives())
	join := Submit{Gang: gang("c"), Join: true}
	c.commits(join)
	now := c.now().Gang("g").Nomination
	require.False(t, now.Lives())
	require.Equal(t, was.First, now.First)
	require.Equal(t, Nominee{Gang: "g"}, effectOf(join).nominee, "queues look again at what the nomination held back")
	require.Zero(t, effectOf(Submit{Join: true}), "a plan may hold anything")
}
