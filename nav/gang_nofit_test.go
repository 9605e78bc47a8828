package nav_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// The diagnosis names, for every level, the best domain, how far it gets, and what it lacks for the next member.
func TestGangSaysWhy(t *testing.T) {
	rackNode := func(id, rack, block string, cpu int64) orbit.Commitment {
		labels := map[string]string{"rack": rack, "block": block}
		return orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: labels}}
	}
	constellation := []orbit.Commitment{
		rackNode("a", "r16", "b1", 8), rackNode("b", "r17", "b2", 16), rackNode("c", "r17", "b2", 8), rackNode("d", "", "b2", 2),
		orbit.PutNode{Node: orbit.Node{ID: "e", Labels: map[string]string{"rack": "r17", "block": "b2"}, State: orbit.Cordoned}},
	}
	tight := gangSpec(4)
	tight.Require = []orbit.Predicate{{Key: "rack", Op: "NotIn", Values: []string{"r17"}}}
	device := gangSpec(1)
	device.Devices = orbit.DeviceRequest{Count: 2, Milli: 500}
	for name, c := range map[string]struct {
		levels []string
		loose  bool
		roles  []orbit.Role
		want   string
	}{
		"levels": {[]string{"rack", "block"}, false, []orbit.Role{{Spec: gangSpec(4)}},
			`gang "g": best rack r17 fits 6 of 8 (2 nodes lack cpu, 1 is unschedulable); best block b2 fits 6 of 8 (3 nodes lack cpu, 1 is unschedulable)`},
		"no such level": {[]string{"row"}, false, []orbit.Role{{Spec: gangSpec(4)}}, `gang "g": no node is in a row`},
		"anywhere": {nil, false, []orbit.Role{{Spec: gangSpec(5)}},
			`gang "g": anywhere fits 5 of 8 (4 nodes lack cpu, 1 is unschedulable)`},
		"loose, with a minimum": {[]string{"rack"}, true, []orbit.Role{{Spec: gangSpec(8), Min: 5}},
			`gang "g": best rack r17 fits 3 of 8 (2 nodes lack cpu, 1 is unschedulable); anywhere fits 4 of 8 (4 nodes lack cpu, 1 is unschedulable); it needs at least 5`},
		"requirement": {[]string{"rack"}, false, []orbit.Role{{Spec: tight}},
			`gang "g": best rack r16 fits 2 of 8 (1 node lacks cpu)`},
		"device": {[]string{"block"}, false, []orbit.Role{{Spec: device}},
			`gang "g": best block b1 fits 0 of 8 (1 node has no device); no node is that large: the largest has 0 devices`},
		"two roles": {[]string{"rack"}, false, []orbit.Role{{Spec: gangSpec(9)}, {Spec: gangSpec(3)}},
			`gang "g": best rack r17 fits 7 of 16 (2 nodes lack cpu, 1 is unschedulable)`},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, constellation...)
			g := &orbit.Gang{ID: "g", Levels: c.levels, Loose: c.loose, Roles: c.roles}
			for r := range g.Roles {
				g.Roles[r].Name = fmt.Sprint(r)
				for i := range 8 {
					g.Roles[r].Members = append(g.Roles[r].Members, orbit.CapsuleID(fmt.Sprint(r, "-", i)))
				}
			}
			commit(t, l, orbit.Submit{Gang: g})
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			round := e.Pass(t.Context())
			require.NotEmpty(t, round.Unplaced)
			why := round.Unplaced[0].Why
			assert.EqualError(t, why, c.want)
			var noFit *nav.GangNoFit
			require.ErrorAs(t, why, &noFit)
			var parks *orbit.NoFit
			assert.NotErrorAs(t, why, &parks, "it would put aside other gangs of the spec")
			assert.Zero(t, round.Parked)
		})
	}
}

// The best domain is found among many, also when members of several shapes compete and only a few are looked into.
func TestGangNamesTheBestOfMany(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 12 {
		rackOf(t, l, fmt.Sprint("r", i), 1, int64(5+i*5%12))
	}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{
		{Name: "a", Spec: gangSpec(1), Members: []orbit.CapsuleID{"a"}}, {Name: "b", Spec: gangSpec(5), Members: []orbit.CapsuleID{"0", "1", "2", "3"}}}}})
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	assert.EqualError(t, e.Pass(t.Context()).Unplaced[0].Why, `gang "g": best rack r7 fits 4 of 5 (1 node lacks cpu)`)
}

// What is held, who runs, and that the search gave up, are said too; odd names are quoted.
func TestGangNoFitText(t *testing.T) {
	l := &orbit.MemoryLedger{}
	refuses := func(id orbit.NodeID, change func(*orbit.Node)) orbit.PutNode {
		n := orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 9, orbit.Memory: 9}, Labels: map[string]string{"disk": "ssd"}}
		change(&n)
		return orbit.PutNode{Node: n}
	}
	commit(t, l,
		refuses("a", func(n *orbit.Node) { n.State = orbit.Cordoned }),
		refuses("b", func(n *orbit.Node) { n.Capacity[orbit.CPU] = 1 }),
		refuses("c", func(n *orbit.Node) { n.Capacity[orbit.Memory] = 1 }),
		refuses("d", func(n *orbit.Node) { n.Labels = nil }),
		refuses("e", func(n *orbit.Node) { n.Taints = []orbit.Taint{{Key: "x", Effect: "NoSchedule"}} }),
		orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "w", Members: []orbit.CapsuleID{"w0"}, Spec: &orbit.Spec{Class: orbit.GangClass,
			Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 5, orbit.Memory: 5}}, Require: []orbit.Predicate{{Key: "disk", Op: "Exists"}}}}}}})
	round := (&orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
	require.Len(t, round.Unplaced, 1)
	require.ErrorContains(t, round.Unplaced[0].Why, ", and 2 reasons more)", "no node is passed over in silence")

	e := &nav.GangNoFit{Gang: "g", Waiting: 2, Running: 3, NominatedUntil: time.Unix(0, 0), Inexact: true,
		Levels: []nav.DomainFit{{Level: "a b", Domains: 1, Best: "\n", Fits: 1, Of: 2}}}
	assert.EqualError(t, e, `gang "g": 3 run, 2 wait: best "a b" "\n" fits 1 of 2; room is nominated for it until 1970-01-01T00:00:00Z; more may fit: the search was cut short`)
	assert.EqualError(t, &nav.GangNoFit{Gang: "g", Waiting: 1, Running: 1}, `gang "g": 1 run, 1 wait: those that run share no domain of its levels`)
	assert.EqualError(t, &nav.GangNoFit{Gang: "g", Waiting: 1, Least: 1, Levels: []nav.DomainFit{{Of: 1}}}, `gang "g": there are no nodes`)
}

// A gang of which a member would fit on no node, even if all were empty, is told apart from one that only waits for room.
func TestGangNoFitSaysWhatIsTooLarge(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("a", 4000), node("b", 3000))
	gang := func(id string, large int64) {
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{
			{Name: "small", Spec: gangSpec(1000), Members: gangMembers(id+"-small", 1)},
			{Name: "large", Spec: gangSpec(large), Members: gangMembers(id+"-large", 1)},
		}}})
	}
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	whys := func() map[orbit.GangID]*nav.GangNoFit {
		out := map[orbit.GangID]*nav.GangNoFit{}
		for _, u := range mustPass(t, &e).Unplaced {
			var why *nav.GangNoFit
			require.ErrorAs(t, u.Why, &why)
			out[u.Capsule.Gang()] = why
		}
		return out
	}
	gang("runs", 4000)
	require.Empty(t, whys())
	put(t, l, "filler", "b", spec(2000, 0))
	gang("waits", 4000)
	gang("never", 5000)
	now := whys()
	require.Empty(t, now["waits"].TooLarge)
	require.Equal(t, "no node is that large: the largest has 4 cores", now["never"].TooLarge)
	require.ErrorContains(t, now["never"], "; "+now["never"].TooLarge)
	loseNode(t, l, "a")
	now = whys()
	for _, id := range []orbit.GangID{"runs", "waits", "never"} {
		require.Equal(t, "no node is that large: the largest has 3 cores", now[id].TooLarge, id)
	}
}
