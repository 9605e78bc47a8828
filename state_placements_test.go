package orbit

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommitted: a proposer can ask a state by proposal id whether the proposal is committed. A placement's id is in
// the record that it changed, any other proposal's id is among the recent ones, and a proposal without an id is never
// recognised.
func TestCommitted(t *testing.T) {
	var l MemoryLedger
	send := func(p Proposal) Revision {
		t.Helper()
		rev, err := l.Propose(context.Background(), p)
		require.NoError(t, err)
		return rev
	}
	world := Proposal{ID: ProposalID{1}, Do: []Commitment{
		PutNode{Node: Node{ID: "n", Capacity: Resources{CPU: 10}}},
		Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{Envelope: Envelope{Reservation: Resources{CPU: 1}}}},
	}}
	place := func(id ProposalID) Proposal {
		return Proposal{ID: id, Do: []Commitment{Place{Capsule: "c", Node: "n"}}}
	}
	back := Proposal{Do: []Commitment{Release{Capsule: "c", Stopped: true}}}

	before := snapshotOf(t, &l)
	joined, first := send(world), send(place(ProposalID{2}))
	send(back)
	second := send(place(ProposalID{3}))
	send(back)
	third := send(place(ProposalID{}))

	now := snapshotOf(t, &l)
	assert.Zero(t, before.Committed(world))
	assert.Equal(t, joined, now.Committed(world))
	assert.Equal(t, first, now.Committed(place(ProposalID{2})))
	assert.Equal(t, second, now.Committed(place(ProposalID{3})))
	assert.Zero(t, now.Committed(place(ProposalID{4})))
	assert.Zero(t, now.Committed(place(ProposalID{})))
	assert.Zero(t, now.Committed(back))

	send(back)
	fourth := send(place(ProposalID{5}))
	assert.Less(t, third, fourth)
	var ids []ProposalID
	var at []Revision
	for id, rev := range snapshotOf(t, &l).Capsule("c").Placements() {
		ids, at = append(ids, id), append(at, rev)
	}
	assert.Equal(t, []ProposalID{{5}, {3}, {2}}, ids, "the newest first; the one without an id is not remembered")
	assert.Equal(t, []Revision{fourth, second, first}, at)
	for range now.Capsule("c").Placements() {
		break // may stop at any time
	}
}

// TestSubmittedFollowsRevision: what order a capsule gets depends on the revision alone, so that a state that has
// not seen what came before goes on like one that has.
func TestSubmittedFollowsRevision(t *testing.T) {
	var l MemoryLedger
	for _, p := range []Proposal{
		{Do: []Commitment{Submit{IDs: []CapsuleID{"a", "b"}, Spec: &Spec{}}}},
		{Do: []Commitment{Release{Capsule: "a", Final: true}, Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{}}}},
	} {
		_, err := l.Propose(context.Background(), p)
		require.NoError(t, err)
	}
	s := snapshotOf(t, &l)
	assert.EqualValues(t, 1<<20, s.Capsule("a").Submitted)
	assert.EqualValues(t, 1<<20+1, s.Capsule("b").Submitted)
	assert.EqualValues(t, 2<<20, s.Capsule("c").Submitted)
	assert.EqualValues(t, 7, submission(6).next(0), "it rises even where revisions leave no room")
}
