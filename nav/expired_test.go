package nav_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// leases is telemetry that reports the nodes in over as Expired.
type leases struct {
	over    map[orbit.NodeID]bool
	version uint64
	nodes   []orbit.NodeID
}

func (l *leases) Reports(_ context.Context, after uint64) (out []orbit.Report, version uint64, err error) {
	for _, n := range l.nodes {
		if after < l.version {
			out = append(out, orbit.Report{Node: n, Expired: l.over[n]})
		}
	}
	return out, l.version, nil
}

func (l *leases) Latest(n orbit.NodeID) (orbit.Report, bool) {
	return orbit.Report{Node: n, Expired: l.over[n]}, true
}

func (l *leases) StaleAfter() time.Duration { return 0 }

// expiredSite has twenty large nodes whose lease is over and a small one with a lease.
func expiredSite(t require.TestingT) (*orbit.MemoryLedger, *leases) {
	l, soft := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}, &leases{over: map[orbit.NodeID]bool{}, version: 1}
	for i := range 20 {
		id := fmt.Sprintf("dead-%02d", i)
		commit(t, l, node(id, 16))
		soft.over[orbit.NodeID(id)], soft.nodes = true, append(soft.nodes, orbit.NodeID(id))
	}
	commit(t, l, node("live", 4))
	soft.nodes = append(soft.nodes, "live")
	return l, soft
}

// No ready navigator places anything on a node whose report is Expired, and says that this is why; once the lease is back, it does.
func TestExpiredNodesTakeNoWork(t *testing.T) {
	gangs := spec(4, 0)
	gangs.Class = orbit.GangClass
	gang := func(id orbit.GangID, members ...orbit.CapsuleID) orbit.Submit {
		return orbit.Submit{Gang: &orbit.Gang{ID: id, Roles: []orbit.Role{{Name: "r", Spec: gangs, Members: members}}}}
	}
	services := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: spec(4, 0)}, orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: spec(4, 0)}}
	batch := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: batchSpec(4)}}
	for name, c := range map[string]struct {
		navigator orbit.Navigator
		work      []orbit.Commitment
	}{
		"services":   {&nav.Services{}, services},
		"exhaustive": {&nav.Services{Placement: &place.Exhaustive{}}, services},
		"sampled":    {&nav.Services{Placement: &place.Sampled{}}, services},
		"batch":      {&nav.Batch{}, batch},
		"gang":       {&nav.Gang{}, []orbit.Commitment{gang("a", "a"), gang("b", "b")}},
		"anchor":     {&nav.Anchor{Navigator: &nav.Services{}}, services},
		"patient":    {&nav.Patient{Navigator: &nav.Services{}}, services},
		"preempting": {&nav.Preempting{Navigator: &nav.Services{}}, services},
	} {
		t.Run(name, func(t *testing.T) {
			l, soft := expiredSite(t)
			commit(t, l, c.work...)
			e := orbit.Engine{Name: "e", Ledger: l, Navigator: c.navigator, Telemetry: soft, ParkFor: time.Hour}
			var last orbit.Round
			for range 4 {
				if r := e.Pass(t.Context()); r.Pending > 0 {
					last = r
				}
			}
			s := snapshot(t, l)
			require.Equal(t, 1, s.PendingCount(), "only one has room where there is a lease")
			require.Equal(t, 1, s.Node("live").Capsules)
			for range s.Nominations() {
				require.Fail(t, "room is nominated on a node without a lease")
			}
			require.NotEmpty(t, last.Unplaced)
			if name != "gang" {
				require.ErrorContains(t, last.Unplaced[0].Why, "20 have no live lease")
			}
			soft.over["dead-07"] = false
			soft.version++
			for range 4 {
				e.Pass(t.Context())
			}
			require.Equal(t, 1, snapshot(t, l).Node("dead-07").Capsules, "its lease is back")
		})
	}
}

// What runs on a node whose report is Expired is not evicted for work that could not go there.
func TestNobodyIsEvictedOnExpiredNodes(t *testing.T) {
	l, soft := expiredSite(t)
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: spec(16, 0)}, orbit.Place{Capsule: "low", Node: "dead-03"},
		orbit.Submit{IDs: []orbit.CapsuleID{"also"}, Spec: spec(4, 0)}, orbit.Place{Capsule: "also", Node: "live"},
		orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: spec(4, 10)})
	e := orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Services{}}, Telemetry: soft}
	for range 3 {
		e.Pass(t.Context())
	}
	s := snapshot(t, l)
	require.Equal(t, orbit.NodeID("live"), s.Capsule("urgent").Node)
	require.Equal(t, orbit.NodeID("dead-03"), s.Capsule("low").Node)
}

// A drain moves nothing to a node whose report is Expired, and does not take such a node for one that is to be drained.
func TestDrainLeavesExpiredNodesAlone(t *testing.T) {
	l, soft := expiredSite(t)
	movable := spec(4, 0)
	movable.Movable = true
	commit(t, l, node("old", 16), orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: movable},
		orbit.Place{Capsule: "a", Node: "old"}, orbit.Place{Capsule: "b", Node: "old"}, orbit.Place{Capsule: "c", Node: "dead-00"})
	cordoned := node("old", 16)
	cordoned.Node.State = orbit.Cordoned
	commit(t, l, cordoned)
	d := nav.Drain{Ledger: l, Telemetry: soft}
	for range 3 {
		d.Pass(t.Context())
	}
	s := snapshot(t, l)
	require.Equal(t, 1, s.Node("live").Capsules)
	require.Equal(t, 1, s.Node("old").Capsules)
	require.Equal(t, orbit.NodeID("dead-00"), s.Capsule("c").Node)
}
