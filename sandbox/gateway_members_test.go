package sandbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
	"github.com/orbitsched/orbit/sandbox"
)

// company is a fleet whose hosts are members under leases.
type company struct {
	*fleet
	members *lease.Members
}

func newCompany(t *testing.T) *company {
	f := newFleet(t)
	f.board.Leases = &lease.Keeper{Ledger: f.ledger}
	return &company{f, &lease.Members{Leases: f.board.Leases}}
}

// enter lets a host with so many slots join and report.
func (c *company) enter(id string, slots int64, warm int, volumes ...string) {
	_, err := c.members.Join(context.Background(), orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.Slots: slots}}, "agent")
	require.NoError(c.t, err)
	c.beat(id, slots, warm, volumes...)
}

func (c *company) beat(id string, slots int64, warm int, volumes ...string) {
	require.NoError(c.t, c.board.Report(orbit.Report{
		Node: orbit.NodeID(id), At: time.Now(), Term: c.termOf(id), FreeSlots: int(slots),
		Warm: map[string]int{code: warm}, Templates: []string{code}, Volumes: volumes,
	}))
}

func (c *company) step() {
	_, err := c.members.Step(context.Background())
	require.NoError(c.t, err)
}

// A host that has died is unavailable, from when its report is stale on: also when its lease is over, and when it has
// been cordoned for that. So is what is only there: a volume, or the parent of a fork. What is nowhere is nowhere.
func TestGatewayDeadHostStaysUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompany(t)
		c.enter("dead", 9, 9, "v")
		g := c.gateway()
		c.create(g, "parent")
		c.enter("lives", 9, 0)
		live := func() { c.beat("lives", 0, 0) }
		ask := func(start orbit.Start) error {
			start.Template = code
			s := bootSpec(code)
			s.Start = start
			_, err := g.Create(context.Background(), "x", s)
			require.Error(t, err)
			return err
		}
		for i := range 20 {
			time.Sleep(10 * time.Second)
			live()
			if i < 2 {
				continue
			}
			require.ErrorIs(t, ask(orbit.Start{Volumes: []string{"v"}}), sandbox.ErrAllStale, "after %d heartbeats", i+1)
			require.ErrorIs(t, ask(orbit.Start{Parent: "parent"}), sandbox.ErrAllStale, "after %d heartbeats", i+1)
			require.ErrorIs(t, ask(orbit.Start{Volumes: []string{"w"}}), sandbox.ErrNoVolume, "after %d heartbeats", i+1)
			c.step()
		}
		require.False(t, snapshot(t, c.ledger).Node("dead").Node.Schedulable())
		require.ErrorContains(t, ask(orbit.Start{Volumes: []string{"v"}}), "1 does not have volume \"v\", 1 has no live lease; bring up a host, or see why heartbeats")
	})
}

// The same for a gateway that hears of leases only by what telemetry says.
func TestGatewayDeadHostStaysUnavailableFromAfar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompany(t)
		c.enter("dead", 9, 9)
		g := &sandbox.Gateway{Ledger: c.ledger, Telemetry: c.board}
		time.Sleep(time.Minute)
		c.step()
		require.False(t, snapshot(t, c.ledger).Node("dead").Node.Schedulable())
		_, err := g.Create(context.Background(), "x", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrAllStale)
	})
}

// A host that an operator has cordoned is no suitable node for as long as its lease lives.
func TestGatewayCordonedHostIsNotUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCompany(t)
		c.enter("a", 9, 9)
		node := *snapshot(t, c.ledger).Node("a").Node
		node.State = orbit.Cordoned
		commit(t, c.ledger, orbit.PutNode{Node: node})
		g := c.gateway()
		_, err := g.Create(context.Background(), "x", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrNoNode)
		require.ErrorContains(t, err, "1 is unschedulable")
		time.Sleep(time.Minute)
		c.step()
		_, err = g.Create(context.Background(), "x", bootSpec(code))
		require.ErrorIs(t, err, sandbox.ErrAllStale)
	})
}
