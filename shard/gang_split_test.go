package shard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A gang whose pending members belong to two living schedulers is reunited and placed: by the scheduler that it is
// pinned to, or otherwise by the owner of its first member. A gang is divided like this if a member is released while
// the dispatcher assigns the others.
func TestDividedGangIsPlaced(t *testing.T) {
	for _, pinned := range []string{"", "s1"} {
		t.Run("pinned to "+pinned, func(t *testing.T) {
			s := newStage(t)
			s.live("s0", "s1")
			members, u := ids("g/", 3), unit{"g", true}
			s.do(node("n", 10), orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: members}}}})
			s.do(orbit.Assign{Capsule: members[0], Owner: "s0"}, orbit.Assign{Capsule: members[1], Owner: "s1"}, orbit.Assign{Capsule: members[2], Owner: "s1"})
			if pinned != "" {
				s.do(orbit.Mark{Key: u.pinnedMark().key(u.id), Value: pinned})
			}
			var engines []*orbit.Engine
			for _, name := range []string{"s0", "s1"} {
				sch := &Scheduler{Name: name, Navigator: &nav.Gang{}, Leases: s.leases}
				sch.Serve(s.terms[name])
				engines = append(engines, &orbit.Engine{Name: name, Ledger: s.ledger, Navigator: sch})
			}
			for range 10 {
				s.settle(&Dispatcher{Ledger: s.ledger, Leases: s.leases})
				for _, e := range engines {
					require.Empty(t, e.Pass(context.Background()).Errors)
				}
			}
			require.Zero(t, s.state().PendingCount())
			home := "s0"
			if pinned != "" {
				home = pinned
			}
			for _, id := range members {
				require.Equal(t, home, s.owner(id))
			}
		})
	}
}
