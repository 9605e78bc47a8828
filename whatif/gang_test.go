package whatif_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/whatif"
)

// gangSpec is the spec of members of a gang.
func gangSpec(cpu int64, priority int32) *orbit.Spec {
	s := wants(cpu, priority)
	s.Class = orbit.GangClass
	return s
}

// gangOf submits a gang of one role by rack.
func gangOf(t require.TestingT, l orbit.Ledger, spec *orbit.Spec, members, least int) {
	role := orbit.Role{Name: "worker", Spec: spec, Min: least}
	for i := range members {
		role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("w", i)))
	}
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: []string{"rack"}, Roles: []orbit.Role{role}}})
}

// gangFixes explains the gang, and checks that each fix is sound.
func gangFixes(t require.TestingT, state *orbit.State) *whatif.GangExplanation {
	e, err := whatif.ExplainGang(context.Background(), state, "g")
	require.NoError(t, err)
	require.LessOrEqual(t, e.Seatings(), whatif.MostSeatings)
	for i := range e.Fixes {
		soundGangFix(t, state, &e.Fixes[i])
	}
	for _, counts := range e.Specs {
		sum := counts.Fits
		for _, w := range counts.Why {
			sum += w.Nodes
			require.NotNil(t, state.Node(w.Example))
		}
		require.Equal(t, state.NodeCount(), sum)
		if state.Gang("g").Nomination == nil {
			alone, err := whatif.Count(context.Background(), state, counts.Spec)
			require.NoError(t, err)
			require.Equal(t, alone, counts)
		}
	}
	require.NotEmpty(t, e.Specs)
	return e
}

// soundGangFix checks that the proposal of a fix commits, and that then every role has its minimum, all in one domain.
func soundGangFix(t require.TestingT, state *orbit.State, f *whatif.GangFix) {
	next, err := state.With(f.Proposal())
	require.NoError(t, err, "%s", f.String())
	require.NoError(t, next.Verify())
	require.NoError(t, state.Check(f.Proposal()))
	g := next.Gang("g")
	for i := range g.Gang.Roles {
		least := g.Gang.Roles[i].Min
		if least == 0 {
			least = len(g.Gang.Roles[i].Members)
		}
		require.GreaterOrEqual(t, g.Placed[i], least, "%s", f.String())
	}
	require.GreaterOrEqual(t, g.Total(), g.Gang.Min, "%s", f.String())
	for c := range next.Members("g") {
		if c.Placed() && f.Level != "" {
			require.Equal(t, f.Domain, next.Node(c.Node).Node.Labels[f.Level], "%s", f.String())
		}
	}
	for _, id := range f.Evict {
		require.True(t, next.Capsule(id).Pending(), "%s evicts %s in vain", f.String(), id)
	}
	require.NotEmpty(t, f.String())
}

// The fixes of a gang that lacks one seat, each in its words.
func TestGangFixesInWords(t *testing.T) {
	l := racks(t, 2, 3)
	closed := *snapshot(t, l).Node("r0-n2").Node
	closed.State = orbit.Cordoned
	spec := gangSpec(3, 5)
	spec.Require = []orbit.Predicate{{Key: "rack", Op: "NotIn", Values: []string{"r9"}}}
	commit(t, l, orbit.PutNode{Node: closed}, orbit.Hold{ID: "h", Node: "r1-n0", Room: orbit.Resources{orbit.CPU: 1}, Ends: time.Unix(5, 0)},
		orbit.Submit{IDs: []orbit.CapsuleID{"x", "y"}, Spec: wants(2, 0)}, orbit.Place{Capsule: "x", Node: "r1-n1"}, orbit.Place{Capsule: "y", Node: "r1-n2"})
	gangOf(t, l, spec, 3, 0)
	require.Equal(t, `gang "g" needs 3 members placed at once
  rack r0: 2 fit, then none of role "worker": 0 of 6 nodes fit: 3 do not meet rack in (r0), 2 lack cpu, 1 is unschedulable
  rack r1: 1 fit, then none of role "worker": 0 of 6 nodes fit: 3 lack cpu, 2 do not meet rack in (r1), 1 is unschedulable; on 2 of them movable work takes what is lacking
one member of role "worker": 3 of 6 nodes fit
         2: lacks cpu, as r1-n1
         1: is cordoned, as r0-n2
it would fit if you
  * uncordon node r0-n2: then it fits in rack r0
  * evict 2 capsules of lower priority, "x" among them: then it fits in rack r1
  * ask for 0.001 cores less in role "worker": then it fits in rack r0
  * begin with 1 fewer members of role "worker": then it fits in rack r0
  * add a node like r0-n0: then it fits in rack r0`, gangFixes(t, snapshot(t, l)).String())
}

// Several nodes, holds and capsules are named, or counted; so is more than one node to add.
func TestGangFixesOfMany(t *testing.T) {
	l := racks(t, 1, 14)
	for i := range 14 {
		n := *snapshot(t, l).Node(orbit.NodeID(fmt.Sprint("r0-n", i))).Node
		commit(t, l, orbit.Hold{ID: orbit.HoldID(fmt.Sprint("h", i)), Node: n.ID, Room: orbit.Resources{orbit.CPU: 2}, Ends: time.Unix(int64(i), 0)})
	}
	gangOf(t, l, gangSpec(3, 0), 2, 0)
	e := gangFixes(t, snapshot(t, l))
	require.Contains(t, e.String(), `wait for 2 holds until 1970-01-01T00:00:01Z, "h1" the last of them: then it fits in rack r0`)
	require.Contains(t, e.String(), "add 2 nodes like r0-n0: then it fits in rack r0")
	require.True(t, time.Unix(1, 0).Equal(e.Fixes[0].Until))

	l = racks(t, 1, 14)
	for i := range 14 {
		n := *snapshot(t, l).Node(orbit.NodeID(fmt.Sprint("r0-n", i))).Node
		n.State = orbit.Cordoned
		commit(t, l, orbit.PutNode{Node: n})
	}
	gangOf(t, l, gangSpec(3, 0), 12, 0)
	e = gangFixes(t, snapshot(t, l))
	require.Len(t, e.Fixes[0].Uncordon, 12)
	require.Contains(t, e.String(), "uncordon 12 nodes: r0-n0, r0-n1, r0-n10, r0-n11, r0-n12, r0-n13, r0-n2, r0-n3, r0-n4, r0-n5 and 2 more: then it fits in rack r0")
	require.Len(t, e.Fixes, 2, "nothing of the request, of which any member fits nowhere: %s", e)
}

// Of several kinds the smallest one that serves is added.
func TestGangFixAddsTheSmallestKind(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i, cpu := range []int64{8, 2, 4} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: cpu}, State: orbit.Cordoned, Labels: map[string]string{"rack": "r"}}})
	}
	gangOf(t, l, gangSpec(3, 0), 1, 0)
	require.Contains(t, gangFixes(t, snapshot(t, l)).String(), "add a node like n2: then it fits in rack r")
}

// A gang that runs and has lost members is to come back to its minimum where it runs, and nothing of its request can change.
func TestGangFixesOfOneThatRuns(t *testing.T) {
	l := racks(t, 2, 2)
	gangOf(t, l, gangSpec(3, 5), 2, 0)
	commit(t, l, orbit.Place{Capsule: "w0", Node: "r0-n0"}, orbit.Place{Capsule: "w1", Node: "r0-n1"})
	lost := *snapshot(t, l).Node("r0-n1").Node
	lost.State = orbit.Lost
	commit(t, l, orbit.PutNode{Node: lost}, orbit.Release{Capsule: "w1"})
	e := gangFixes(t, snapshot(t, l))
	require.Equal(t, 1, e.Wants)
	require.Len(t, e.Domains, 1, "r1 has room, but the gang runs in r0")
	require.Len(t, e.Fixes, 1, "%s", e)
	require.Equal(t, "add a node like r0-n0: then it fits in rack r0", e.Fixes[0].String())

	commit(t, l, orbit.Release{Capsule: "w1", Final: true})
	require.Empty(t, gangFixes(t, snapshot(t, l)).Fixes, "who has ended comes back by nothing")
}

// A gang for which room is nominated finds it.
func TestExplainGangThatIsNominated(t *testing.T) {
	l := racks(t, 1, 2)
	gangOf(t, l, gangSpec(3, 0), 2, 0)
	commit(t, l, orbit.Nominate{Gang: "g", Ends: time.Unix(9, 0), Parts: []orbit.NominatedRoom{
		{Node: "r0-n0", Room: orbit.Resources{orbit.CPU: 3}}, {Node: "r0-n1", Room: orbit.Resources{orbit.CPU: 3}}}})
	e := gangFixes(t, snapshot(t, l))
	require.NoError(t, e.Domains[0].Why)
	require.Equal(t, 2, e.Domains[0].Fits)
	require.Empty(t, e.Fixes)
	require.Positive(t, e.Specs[0].Fits, "what is nominated for the gang is in nobody's way")
}

// Nodes without a name for their domain are in none: one is to be added in a new domain. A long name is one: no proposal
// that places a gang has to hold it.
func TestExplainGangWithoutDomains(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i, labels := range []map[string]string{{"rack": ""}, nil} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: 9}, Labels: labels}})
	}
	gangOf(t, l, gangSpec(3, 0), 2, 0)
	e := gangFixes(t, snapshot(t, l))
	require.Empty(t, e.Domains)
	require.Len(t, e.Fixes, 1)
	require.Equal(t, "add a node like n0 in a new rack", e.Fixes[0].String())
	require.True(t, e.Fixes[0].New)

	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n2", Capacity: orbit.Resources{orbit.CPU: 9}, Labels: map[string]string{"rack": strings.Repeat("x", 300)}}})
	e = gangFixes(t, snapshot(t, l))
	require.Len(t, e.Domains, 1)
	require.NoError(t, e.Domains[0].Why)
}

// The fixes of a large gang on many nodes cost a bounded number of seatings, also where a hundred things have to change, and all are needed.
func TestGangFixesAreBounded(t *testing.T) {
	scale.Long(t)
	for _, levels := range [][]string{{"rack"}, nil} {
		l := &orbit.MemoryLedger{}
		for i := range 2000 {
			id := nodeID(i)
			n := orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 2_000}, Labels: map[string]string{"rack": fmt.Sprint("r", i/100)}}
			do := []orbit.Commitment{orbit.PutNode{Node: n}}
			switch c := orbit.CapsuleID(fmt.Sprint("c", i)); i / 100 % 3 {
			case 0:
				n.State = orbit.Cordoned
				do[0] = orbit.PutNode{Node: n}
			case 1:
				do = append(do, orbit.Hold{ID: orbit.HoldID(c), Node: id, Room: orbit.Resources{orbit.CPU: 1_000}, Ends: time.Unix(int64(i), 0)})
			default:
				do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: wants(1_000, 0)}, orbit.Place{Capsule: c, Node: id})
			}
			commit(t, l, do...)
		}
		role := orbit.Role{Name: "worker", Spec: gangSpec(1_500, 5)}
		for i := range 100 {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("w", i)))
		}
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Levels: levels, Roles: []orbit.Role{role}}})
		state, begun := snapshot(t, l), time.Now()
		e := gangFixes(t, state)
		t.Logf("%d seatings, %v\n%s", e.Seatings(), time.Since(begun), e)
		require.Less(t, e.Seatings(), 3000)
		require.Len(t, e.Fixes, 5)
		require.Len(t, e.Fixes[0].Await, 100)
		require.Len(t, e.Fixes[1].Uncordon, 100)
		require.Len(t, e.Fixes[2].Evict, 100)
		require.EqualValues(t, 500, e.Fixes[3].Less[orbit.CPU])
		require.Len(t, e.Fixes[4].Add, 100)
	}
}

// TestGangFixesAreSound: whatever is proposed as a fix commits, and places the gang in the domain that it names.
func TestGangFixesAreSound(t *testing.T) {
	for seen := range scale.Reach(t, "less", "less extras", "devices", "drop", "members", "uncordon", "await", "evict", "add", "two roles", "several added") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				state := gangWorld(t)
				e := gangFixes(t, state)
				for i := range e.Fixes {
					countGang(seen, &e.Fixes[i])
				}
			}
		})
	}
}

// gangWorld is a world with a gang of any specs.
func gangWorld(t *rapid.T) *orbit.State {
	l := &orbit.MemoryLedger{Start: world(t)}
	gang := &orbit.Gang{ID: "g", Loose: rapid.IntRange(0, 4).Draw(t, "loose") == 0}
	if rapid.IntRange(0, 3).Draw(t, "leveled") > 0 {
		gang.Levels = []string{"zone"}
		if rapid.Bool().Draw(t, "by rack") {
			gang.Levels = []string{"rack"}
		}
	}
	for i := range rapid.SampledFrom([]int{1, 1, 2}).Draw(t, "roles") {
		spec := drawSpec(t)
		spec.Class, spec.Priority = orbit.GangClass, 3
		role := orbit.Role{Name: fmt.Sprint("role", i), Spec: spec}
		for k := range rapid.IntRange(1, 3).Draw(t, "members") {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("m", i, "-", k)))
		}
		role.Min = rapid.IntRange(0, len(role.Members)).Draw(t, "least")
		gang.Roles = append(gang.Roles, role)
	}
	leastOfAll(t, gang)
	commit(t, l, orbit.Submit{Gang: gang})
	return snapshot(t, l)
}

// leastOfAll gives every third gang a minimum of its own.
func leastOfAll(t *rapid.T, g *orbit.Gang) {
	members := 0
	for _, r := range g.Roles {
		members += len(r.Members)
	}
	if rapid.IntRange(0, 2).Draw(t, "has a minimum") == 0 {
		g.Min = rapid.IntRange(1, members).Draw(t, "least of all")
	}
}

func countGang(seen map[string]int, f *whatif.GangFix) {
	for kind, is := range map[string]bool{
		"less": f.Less != (orbit.Resources{}), "less extras": f.LessExtra.Amount > 0, "devices": f.FewerDevices > 0, "drop": len(f.Drop) > 0, "members": f.FewerMembers > 0,
		"uncordon": len(f.Uncordon) > 0, "await": len(f.Await) > 0, "evict": len(f.Evict) > 0, "add": len(f.Add) > 0, "two roles": len(f.Gang.Roles) > 1,
		"several uncordoned": len(f.Uncordon) > 1, "several awaited": len(f.Await) > 1, "several evicted": len(f.Evict) > 1, "several added": len(f.Add) > 1,
	} {
		if is {
			seen[kind]++
		}
	}
}

// plainWorld is a world of one dimension in two racks, with a gang of one role, or of two. It is full of what is held, cordoned or may be evicted.
func plainWorld(t *rapid.T, roles int) *orbit.State {
	l := &orbit.MemoryLedger{}
	nodes := rapid.IntRange(2, 5).Draw(t, "nodes")
	racks := rapid.IntRange(1, 2).Draw(t, "racks")
	for i := range nodes {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: nodeID(i), Capacity: orbit.Resources{orbit.CPU: rapid.Int64Range(1, 4).Draw(t, "cpu")},
			Labels: map[string]string{"rack": fmt.Sprint("r", i%racks), "disk": rapid.SampledFrom([]string{"ssd", "ssd", "hdd"}).Draw(t, "disk")}}})
	}
	most := rapid.SampledFrom([]int{1, 4, 8}).Draw(t, "most")
	for i := range rapid.IntRange(0, most).Draw(t, "taken") {
		id, on := orbit.CapsuleID(fmt.Sprint("c", i)), nodeID(rapid.IntRange(0, nodes-1).Draw(t, "on"))
		var do []orbit.Commitment
		if room := rapid.Int64Range(1, 2).Draw(t, "room"); rapid.Bool().Draw(t, "held") {
			do = append(do, orbit.Hold{ID: orbit.HoldID(id), Node: on, Room: orbit.Resources{orbit.CPU: room}, Ends: time.Unix(rapid.Int64Range(1, 5).Draw(t, "ends"), 0)})
		} else {
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: wants(room, rapid.SampledFrom([]int32{0, 0, 1, 2}).Draw(t, "priority"))}, orbit.Place{Capsule: id, Node: on})
		}
		_, _ = l.Propose(context.Background(), orbit.Proposal{Do: do}) // if it fits
	}
	for i := range nodes {
		if rapid.IntRange(0, 2).Draw(t, "cordoned") == 0 {
			n := *snapshot(t, l).Node(nodeID(i)).Node
			n.State = orbit.Cordoned
			commit(t, l, orbit.PutNode{Node: n})
		}
	}
	gang := &orbit.Gang{ID: "g"}
	if rapid.IntRange(0, 3).Draw(t, "leveled") > 0 {
		gang.Levels, gang.Loose = []string{"rack"}, rapid.IntRange(0, 3).Draw(t, "loose") == 0
	}
	for i := range roles {
		role := orbit.Role{Name: fmt.Sprint("role", i), Spec: gangSpec(rapid.Int64Range(1, 4).Draw(t, "wants"), int32(rapid.IntRange(1, 3).Draw(t, "rank")))}
		if rapid.Bool().Draw(t, "picky") {
			role.Spec.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
		}
		for k := range rapid.IntRange(1, 3).Draw(t, "members") {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("m", i, "-", k)))
		}
		role.Min = rapid.IntRange(0, len(role.Members)).Draw(t, "least")
		gang.Roles = append(gang.Roles, role)
	}
	commit(t, l, orbit.Submit{Gang: gang})
	return snapshot(t, l)
}

// fitsAfter tries every way to place the minimum of each role in one domain, in one proposal behind these commitments.
func fitsAfter(state *orbit.State, gang *orbit.Gang, do ...orbit.Commitment) bool {
	nodes := map[string][]orbit.NodeID{}
	file := func(n *orbit.Node) {
		if len(gang.Levels) == 0 || gang.Loose {
			nodes[""] = append(nodes[""], n.ID)
		}
		for _, level := range gang.Levels {
			nodes[level+n.Labels[level]] = append(nodes[level+n.Labels[level]], n.ID)
		}
	}
	for n := range state.Nodes() {
		file(n.Node)
	}
	for _, c := range do {
		if put, is := c.(orbit.PutNode); is && state.Node(put.Node.ID) == nil {
			file(&put.Node)
		}
	}
	var members []orbit.CapsuleID
	for _, r := range gang.Roles {
		if r.Min == 0 {
			r.Min = len(r.Members)
		}
		members = append(members, r.Members[:r.Min]...)
	}
	var place func(in []orbit.NodeID, do []orbit.Commitment, left []orbit.CapsuleID) bool
	place = func(in []orbit.NodeID, do []orbit.Commitment, left []orbit.CapsuleID) bool {
		if len(left) == 0 {
			return state.Check(orbit.Proposal{Do: do}) == nil
		}
		return slices.ContainsFunc(in, func(id orbit.NodeID) bool {
			return place(in, append(slices.Clip(do), orbit.Place{Capsule: left[0], Node: id}), left[1:])
		})
	}
	for _, in := range nodes {
		if place(in, do, members) {
			return true
		}
	}
	return false
}

// everything returns all that could be done of each kind that changes nothing of the request.
func everything(state *orbit.State) map[string][]orbit.Commitment {
	all := map[string][]orbit.Commitment{}
	for h := range state.Holds() {
		all["await"] = append(all["await"], orbit.Release{Hold: h.ID})
	}
	for n := range state.Nodes() {
		if n.Node.State == orbit.Cordoned {
			node := *n.Node
			node.State = orbit.Ready
			all["uncordon"] = append(all["uncordon"], orbit.PutNode{Node: node})
		}
	}
	lowest := int32(9)
	for _, r := range state.Gang("g").Gang.Roles {
		lowest = min(lowest, r.Spec.Priority)
	}
	for c := range state.Capsules() {
		if c.Placed() && c.Spec.Priority < lowest {
			all["evict"] = append(all["evict"], orbit.Evict{Capsule: c.ID, From: c.Node, Since: c.PlacedAt, ForGang: "g"})
		}
	}
	return all
}

// again submits the gang anew after a change of its only role.
func again(t require.TestingT, gang *orbit.Gang, change func(*orbit.Role)) (*orbit.Gang, []orbit.Commitment) {
	changed := *gang
	changed.Roles = slices.Clone(gang.Roles)
	spec := *changed.Roles[0].Spec
	changed.Roles[0].Spec = &spec
	change(&changed.Roles[0])
	shared, err := spec.Share()
	require.NoError(t, err)
	changed.Roles[0].Spec = shared
	var do []orbit.Commitment
	for _, id := range gang.Roles[0].Members {
		do = append(do, orbit.Release{Capsule: id, Final: true})
	}
	return &changed, append(do, orbit.Submit{Gang: &changed})
}

// copies returns nodes like one that join.
func copies(of *orbit.Node, count int) (do []orbit.Commitment) {
	for i := range count {
		n := *of
		n.ID, n.State = orbit.NodeID(fmt.Sprint("copy", i)), orbit.Ready
		do = append(do, orbit.PutNode{Node: n})
	}
	return do
}

// subsets yields the subsets of so many.
func subsets(of []orbit.Commitment, size int, yield func([]orbit.Commitment)) {
	for bits := range 1 << len(of) {
		var out []orbit.Commitment
		for i, c := range of {
			if bits>>i&1 == 1 {
				out = append(out, c)
			}
		}
		if len(out) == size {
			yield(out)
		}
	}
}

// TestGangFixesAreMinimal compares with brute force, where the planner is exact: a gang of one role. If it fits, there are no fixes. Otherwise a kind of
// change has a fix exactly if all of that kind together help, and no less than the fix does, in any domain.
func TestGangFixesAreMinimal(t *testing.T) {
	scale.Sequential(t)
	for seen := range scale.Reach(t, "less", "drop", "members", "uncordon", "await", "evict", "add", "several uncordoned", "several awaited", "several evicted", "several added") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				state := plainWorld(t, 1)
				gang := state.Gang("g").Gang
				e := gangFixes(t, state)
				if fitsAfter(state, gang) {
					require.Empty(t, e.Fixes)
					continue
				}
				kinds := map[string]int{}
				for i := range e.Fixes {
					countGang(seen, &e.Fixes[i])
					countGang(kinds, &e.Fixes[i])
					minimalGangFix(t, state, &e.Fixes[i])
				}
				for kind, all := range everything(state) {
					require.Equal(t, fitsAfter(state, gang, all...), kinds[kind] == 1, "%s\n%s", kind, e)
				}
				helps := func(change func(*orbit.Role)) bool {
					changed, do := again(t, gang, change)
					return fitsAfter(state, changed, do...)
				}
				require.Equal(t, helps(func(r *orbit.Role) { r.Spec.Envelope.Reservation[orbit.CPU] = 0 }), kinds["less"] == 1, "%s", e)
				require.Equal(t, helps(func(r *orbit.Role) { r.Spec.Require = nil }), kinds["drop"] == 1, "%s", e)
				require.Equal(t, helps(func(r *orbit.Role) { r.Min = 1 }), kinds["members"] == 1, "%s", e)
				for n := range state.Nodes() {
					if fitsAfter(state, gang, copies(n.Node, 3)...) {
						require.Equal(t, 1, kinds["add"], "three nodes like %s help\n%s", n.Node.ID, e)
					}
				}
			}
		})
	}
}

// minimalGangFix checks that nothing less than a fix helps.
func minimalGangFix(t require.TestingT, state *orbit.State, f *whatif.GangFix) {
	gang, all := state.Gang("g").Gang, everything(state)
	none := func(do ...orbit.Commitment) {
		require.False(t, fitsAfter(state, gang, do...), "%s: so is %v", f.String(), do)
	}
	more := func(change func(*orbit.Role)) {
		changed, do := again(t, f.Gang, change)
		require.False(t, fitsAfter(state, changed, do...), "%s", f.String())
	}
	switch {
	case len(f.Uncordon) > 0:
		subsets(all["uncordon"], len(f.Uncordon)-1, func(fewer []orbit.Commitment) { none(fewer...) })
	case len(f.Await) > 0:
		var sooner []orbit.Commitment
		for h := range state.Holds() {
			if h.Ends.Before(f.Until) {
				sooner = append(sooner, orbit.Release{Hold: h.ID})
			}
		}
		none(sooner...)
		subsets(f.Proposal().Do[:len(f.Await)], len(f.Await)-1, func(fewer []orbit.Commitment) { none(fewer...) })
	case len(f.Evict) > 0:
		subsets(f.Proposal().Do[:len(f.Evict)], len(f.Evict)-1, func(fewer []orbit.Commitment) { none(fewer...) })
	case len(f.Add) > 0:
		none(f.Proposal().Do[1:len(f.Add)]...)
	case f.FewerMembers > 0:
		more(func(r *orbit.Role) { r.Min++ })
	case len(f.Drop) == 0:
		more(func(r *orbit.Role) { r.Spec.Envelope.Reservation[orbit.CPU]++ })
	}
}

// TestGangFixesOfTwoRoles: what is proposed for two roles is sound, and no part of it is enough for the same planner.
func TestGangFixesOfTwoRoles(t *testing.T) {
	for seen := range scale.Reach(t, "less", "drop", "members", "uncordon", "await", "evict", "add", "several uncordoned", "several awaited", "several evicted", "several added") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				state := plainWorld(t, 2)
				e := gangFixes(t, state)
				for i := range e.Fixes {
					f := &e.Fixes[i]
					countGang(seen, f)
					size := len(f.Uncordon) + len(f.Await) + len(f.Add)
					if size == 0 {
						continue
					}
					do := f.Proposal().Do[:size]
					for k := range do {
						part, err := state.With(orbit.Proposal{Do: append(slices.Delete(slices.Clone(do), k, k+1), orbit.Mark{Key: "k", Value: "v"})})
						require.NoError(t, err)
						require.False(t, whatif.SeatsGang(part, "g"), "%s: it is enough without %v", f.String(), do[k])
					}
				}
			}
		})
	}
}

// Of a gang that runs below its minimum the explanation says so, and what it lacks; members that have ended are neither
// wanted nor missed.
func TestExplainBrokenGang(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 3 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 4}, Labels: map[string]string{"rack": "r"}}})
	}
	gangOf(t, l, gangSpec(4, 0), 3, 0)
	commit(t, l, orbit.Place{Capsule: "w0", Node: "n0"}, orbit.Place{Capsule: "w1", Node: "n1"}, orbit.Place{Capsule: "w2", Node: "n2"})
	explain := func() *whatif.GangExplanation {
		e, err := whatif.ExplainGang(t.Context(), snapshot(t, l), "g")
		require.NoError(t, err)
		return e
	}
	require.Zero(t, explain().Wants)
	require.Nil(t, explain().Broken)
	require.Equal(t, `gang "g" needs no more members: 3 of 3 are placed`, explain().String())
	commit(t, l, orbit.Release{Capsule: "w0", Final: true})
	require.Zero(t, explain().Wants)
	commit(t, l, orbit.Release{Capsule: "w1", Stopped: true})
	e := explain()
	require.Equal(t, map[string]int{"worker": 1}, e.Broken)
	require.Equal(t, 1, e.Wants)
	require.Contains(t, e.String(), `gang "g" runs below its minimum: it lacks 1 of role "worker"`)
	require.Contains(t, e.String(), "rack r: all 1 fit")
	commit(t, l, orbit.Release{Capsule: "w2", Stopped: true})
	e = explain()
	require.Nil(t, e.Broken)
	require.Equal(t, 2, e.Wants)
	require.Contains(t, e.String(), `gang "g" needs 2 members placed at once`)
	require.Contains(t, e.String(), "rack r: all 2 fit")
}

// A gang that no navigator of gangs claims waits for ever, wherever it fits.
func TestExplainGangOfAnotherClass(t *testing.T) {
	l := racks(t, 1, 3)
	spec := gangSpec(1, 0)
	spec.Class = orbit.Batch
	gangOf(t, l, spec, 2, 0)
	e, err := whatif.ExplainGang(t.Context(), snapshot(t, l), "g")
	require.NoError(t, err)
	require.Contains(t, e.String(), `role "worker" has the class Batch: nav.Gang places only specs of the class Gang`)
}

// A broken gang that holds what another one lacks gives way to it, if it comes after it. The fix says so, and commits.
func TestExplainBrokenGangThatReplacesAnother(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 4 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: orbit.Resources{orbit.CPU: 4}}})
	}
	gone := map[orbit.CapsuleID]orbit.NodeID{}
	for i, id := range []string{"a", "b"} {
		members, first := []orbit.CapsuleID{orbit.CapsuleID(id + "0"), orbit.CapsuleID(id + "1")}, 2*i
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "w", Spec: gangSpec(4, 0), Members: members}}}})
		commit(t, l, orbit.Place{Capsule: members[0], Node: orbit.NodeID(fmt.Sprint("n", first))}, orbit.Place{Capsule: members[1], Node: orbit.NodeID(fmt.Sprint("n", first+1))})
		gone[members[1]] = orbit.NodeID(fmt.Sprint("n", first+1))
	}
	for c, n := range gone {
		commit(t, l, orbit.Release{Capsule: c, Stopped: true})
		commit(t, l, orbit.RemoveNode{Node: n})
	}
	for gang, victim := range map[orbit.GangID]string{"a": "b0", "b": ""} {
		s := snapshot(t, l)
		e, err := whatif.ExplainGang(t.Context(), s, gang)
		require.NoError(t, err)
		text := fmt.Sprintf("evict %q, whose gang runs below its minimum too and comes after it", victim)
		require.Equal(t, victim != "", strings.Contains(e.String(), text), "%s", e)
		for _, f := range e.Fixes {
			require.NoError(t, s.Check(f.Proposal()))
		}
	}
}
