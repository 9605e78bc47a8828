package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sandbox"
)

// nearSpec is the spec of a sandbox that must be on the node of a member of group db, and is in another group itself.
func nearSpec(group string) *orbit.Spec {
	s := bootSpec(code)
	s.Group, s.Nears = group, []orbit.Near{{Group: "db", Level: orbit.NodeKey}}
	return s
}

// What a plan places opens nodes to what it had no node for before.
func TestWarmFollowsWhatItsPlanPlaces(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.Slots: 9}}})
	near, db := nearSpec("web"), bootSpec(code)
	db.Group = "db"
	for _, c := range []struct {
		id   orbit.CapsuleID
		spec *orbit.Spec
	}{{"before", near}, {"db", db}, {"after", near}} {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{c.id}, Spec: c.spec})
	}
	e := orbit.Engine{Ledger: l, Navigator: &sandbox.Warm{}}
	require.Equal(t, 2, e.Pass(t.Context()).Committed)
	require.True(t, snapshot(t, l).Capsule("after").Placed())
}

// A create that is refused because of its company leaves no reason for one that asks for no company, and the reason
// names the company rather than the slots that are in use.
func TestGatewayRefusesByCompanyApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		f.host("a", 0, 0, 0)
		f.host("b", 0, 0, 0)
		g := f.gateway()
		_, err := g.Create(context.Background(), "near", nearSpec(""))
		require.ErrorIs(t, err, sandbox.ErrNoNode)
		require.ErrorContains(t, err, "2 are in no node of group db")
		_, err = g.Create(context.Background(), "plain", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrNoSlot)
		require.ErrorContains(t, err, "2 have no free slot")
	})
}
