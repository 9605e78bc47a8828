package shard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// A gang whose members that wait are with two live schedulers is placed all the same: whichever plans first places all.
// A member that was released while the dispatcher assigned the others leaves a gang like that.
func TestDividedGangIsPlaced(t *testing.T) {
	s := newStage(t)
	s.live("s0", "s1")
	members := ids("g/", 3)
	s.do(node("n", 10), orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "r", Spec: cpu(1), Members: members}}}})
	s.do(orbit.Assign{Capsule: members[0], Owner: "s0"}, orbit.Assign{Capsule: members[1], Owner: "s1"}, orbit.Assign{Capsule: members[2], Owner: "s1"})
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
}
