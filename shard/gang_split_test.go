package shard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// The members of a gang that wait come to one scheduler, also when two schedulers that live have some of them: a member
// may have been released by one scheduler's node while another was given the rest.
func TestSplitGangIsUnited(t *testing.T) {
	s := newStage(t)
	s.live("s0", "s1")
	members := ids("g/", 3)
	s.do(orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: members}}}})
	s.do(orbit.Assign{Capsule: members[0], Owner: "s0"}, orbit.Assign{Capsule: members[1], Owner: "s1"}, orbit.Assign{Capsule: members[2], Owner: "s1"})
	s.settle(&Dispatcher{Ledger: s.ledger, Leases: s.leases})
	for _, id := range members {
		require.Equal(t, s.owner(members[0]), s.owner(id), "%q", id)
	}
}
