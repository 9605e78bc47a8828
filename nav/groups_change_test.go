package nav_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// ofModule is a navigator of services that claims one module.
type ofModule struct {
	nav.Services
	module string
}

func (n *ofModule) Claims(module string, _ orbit.AppClass) bool { return module == n.module }

// crowd is a ledger on which eight engines place capsules with rules about groups, while others change the groups of what runs.
type crowd struct {
	*orbit.MemoryLedger
	t *testing.T
	r *rand.Rand
}

// spec returns a spec of a module: in one of three groups or none, apart from one by node, and even among its own by zone.
func (c *crowd) spec(module int) *orbit.Spec {
	s := spec(100, 0)
	s.Module = fmt.Sprint("m", module)
	group := func() string { return fmt.Sprint("g", c.r.IntN(3)) }
	if c.r.IntN(4) > 0 {
		s.Group = group()
		s.Even = []orbit.Even{{Group: s.Group, Level: "zone", MaxSkew: 1}}
	}
	if c.r.IntN(2) == 0 {
		s.Apart = []orbit.Apart{{Group: group(), Level: orbit.NodeKey}}
	}
	return s
}

// change gives some of what runs another spec of its module, on the newest state, and returns how many, and how many run. If
// nothing runs yet it waits for the next commit. A conflict is no fault.
func (c *crowd) change() (respecs, placed int) {
	s, err := c.Snapshot(c.t.Context())
	require.NoError(c.t, err)
	var do []orbit.Commitment
	for k := range s.Capsules() {
		placed += btoi(k.Placed())
		if k.Placed() && len(do) < 3 && c.r.IntN(10) == 0 {
			var module int
			_, _ = fmt.Sscanf(k.Spec.Module, "m%d", &module)
			do = append(do, orbit.Respec{Capsule: k.ID, Since: k.PlacedAt, Spec: c.spec(module)})
		}
	}
	if placed == 0 {
		_, err = c.Wait(c.t.Context(), s.Revision())
		require.NoError(c.t, err)
	}
	if len(do) == 0 {
		return 0, placed
	}
	_, err = c.Propose(c.t.Context(), orbit.Proposal{View: s.Revision(), Do: do})
	if err != nil {
		require.ErrorIs(c.t, err, orbit.ErrConflict)
		return 0, placed
	}
	return len(do), placed
}

// judge counts anew what is on the nodes and returns which rules the capsules that have just arrived break.
func judgeArrivals(s *orbit.State, arrived map[orbit.CapsuleID]bool) (faults []string) {
	for id := range arrived {
		c := s.Capsule(id)
		zones := map[string]map[string]int{} // by group
		for n := range s.Nodes() {
			for o := range s.On(n.Node.ID) {
				for _, a := range c.Spec.Apart {
					if o.ID != id && o.Spec.IsIn(a.Group) && n.Node.ID == c.Node {
						faults = append(faults, fmt.Sprintf("%s came to %s beside %s of group %s", id, c.Node, o.ID, a.Group))
					}
				}
				for _, a := range o.Spec.Apart {
					if o.ID != id && c.Spec.IsIn(a.Group) && n.Node.ID == c.Node {
						faults = append(faults, fmt.Sprintf("%s of group %s came to %s, from which %s keeps it away", id, a.Group, c.Node, o.ID))
					}
				}
				for g := range o.Spec.MemberOf {
					if zones[g] == nil {
						zones[g] = map[string]int{}
					}
					zones[g][n.Node.Labels["zone"]]++
				}
			}
		}
		for _, e := range c.Spec.Even {
			here, least := zones[e.Group][s.Node(c.Node).Node.Labels["zone"]], 1<<30
			for _, zone := range []string{"z0", "z1", "z2"} {
				least = min(least, zones[e.Group][zone])
			}
			if here > least+e.MaxSkew {
				faults = append(faults, fmt.Sprintf("%s of group %s came to a zone of %d, and the least has %d", id, e.Group, here, least))
			}
		}
	}
	return faults
}

// While groups and rules of running capsules change under eight engines, no arrival breaks a rule Apart or Even at the
// moment of its commit, by its own rules and by those of what is there.
func TestGroupsChangeUnderEightEngines(t *testing.T) {
	c := &crowd{&orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 20}}, t, rand.New(rand.NewPCG(3, 9))}
	for i := range 12 {
		commit(t, c, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 2000}, Labels: map[string]string{"zone": fmt.Sprint("z", i%3)}}})
	}
	population := &orbit.Population{OnError: func(err error) { t.Error(err) }}
	for i := range 8 {
		module := fmt.Sprint("m", i)
		population.Engines = append(population.Engines, &orbit.Engine{Name: module, Ledger: c, Navigator: &ofModule{module: module}, ParkFor: time.Millisecond})
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- population.Run(ctx) }()
	for i, respecs, running := 0, 0, 0; i < 150 || respecs < 50 || running < 30; i++ {
		if i < 150 {
			commit(t, c, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: c.spec(i % 8)})
		}
		more, now := c.change()
		respecs, running = respecs+more, now
	}
	stop()
	require.NoError(t, <-done)
	changes, err := c.Changes(t.Context(), 0)
	require.NoError(t, err)
	state, placed := &orbit.State{}, 0
	for len(changes) > 0 {
		n, arrived := 0, map[orbit.CapsuleID]bool{}
		for ; n < len(changes) && changes[n].Revision == changes[0].Revision; n++ {
			if place, ok := changes[n].Do.(orbit.Place); ok {
				arrived[place.Capsule] = true
			}
		}
		state, err = state.Apply(changes[:n])
		require.NoError(t, err)
		require.Empty(t, judgeArrivals(state, arrived), "revision %d", changes[0].Revision)
		placed, changes = placed+len(arrived), changes[n:]
	}
	require.NoError(t, state.Verify())
	require.GreaterOrEqual(t, placed, 30)
}
