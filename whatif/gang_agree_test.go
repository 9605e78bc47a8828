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
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/whatif"
)

// agreeWorld draws a small world with a gang of up to three roles. Its nodes are cordoned, tainted and lost, hold room,
// are nominated for others, and have capsules of several priorities that run, or have left and still run. The members
// have rules of company and take devices and extras. Some gangs run and have lost members, and some still stop elsewhere.
// At most that many other capsules run.
func agreeWorld(t *rapid.T, others int) *orbit.State {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	pick := func(n int, what string) bool { return rapid.IntRange(0, n).Draw(t, what) == 0 }
	try := func(do ...orbit.Commitment) bool {
		_, err := l.Propose(context.Background(), orbit.Proposal{Do: do})
		return err == nil
	}
	var nodes []orbit.Node
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := orbit.Node{ID: nodeID(i), Labels: map[string]string{}, Capacity: orbit.Resources{
			orbit.CPU: rapid.Int64Range(1, 5).Draw(t, "cpu"), orbit.Memory: rapid.Int64Range(1, 5).Draw(t, "memory")}}
		for _, level := range []string{"rack", "zone"} {
			if v := rapid.SampledFrom([]string{"0", "0", "0", "1", "1", "", "-", strings.Repeat("x", 300)}).Draw(t, level); v != "-" {
				n.Labels[level] = v
			}
		}
		n.Labels["disk"] = rapid.SampledFrom([]string{"ssd", "ssd", "hdd"}).Draw(t, "disk")
		if n.Devices.Count = rapid.IntRange(0, 2).Draw(t, "devices"); n.Devices.Count > 0 {
			n.Devices.Model = rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "model")
		}
		n.Extras = []orbit.Extra{{Name: "ip", Amount: rapid.Int64Range(0, 3).Draw(t, "ips")}}
		n.Confirms = pick(2, "confirms")
		if pick(8, "tainted") {
			n.Taints = []orbit.Taint{{Key: "k", Effect: "NoSchedule"}}
		}
		require.True(t, try(orbit.PutNode{Node: n}))
		nodes = append(nodes, n)
	}
	at := func() orbit.NodeID { return nodeID(rapid.IntRange(0, len(nodes)-1).Draw(t, "at")) }
	gang := agreeGang(t)
	require.True(t, try(orbit.Submit{Gang: gang}))
	if pick(2, "ran") {
		agreeRan(t, l)
	}
	if pick(3, "grew") {
		agreeGrown(t, l)
	}
	if pick(3, "changed") {
		agreeChanged(t, l)
	}
	for i := range rapid.IntRange(others/2, others).Draw(t, "others") {
		id, s := orbit.CapsuleID(fmt.Sprint("c", i)), wants(rapid.Int64Range(0, max(2, int64(others)/2)).Draw(t, "takes"), int32(rapid.IntRange(0, 3).Draw(t, "priority")))
		if agreeRules(t, s); pick(2, "with device") {
			s.Devices = orbit.DeviceRequest{Count: 1, Milli: rapid.SampledFrom([]int{400, 1000}).Draw(t, "milli")}
		}
		n := snapshot(t, l).Node(at())
		devices, _ := n.PickDevices(s)
		if try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: n.Node.ID, Devices: devices}) && n.Node.Confirms && !pick(2, "begins") {
			try(orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt, Begun: true})
			if pick(2, "leaves") {
				try(orbit.Release{Capsule: id, Final: true})
			}
		}
	}
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "holds") {
		try(orbit.Hold{ID: orbit.HoldID(fmt.Sprint("h", i)), Node: at(), Room: orbit.Resources{orbit.CPU: rapid.Int64Range(1, 3).Draw(t, "held")}, Ends: time.Unix(rapid.Int64Range(1, 5).Draw(t, "ends"), 0)})
	}
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "nominations") {
		id, s := orbit.CapsuleID(fmt.Sprint("waits", i)), wants(1, rapid.SampledFrom([]int32{0, 1, 2, 3, 5}).Draw(t, "rank"))
		try(orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Nominate{Capsule: id, Ends: time.Unix(9, 0), Parts: []orbit.NominatedRoom{
			{Node: at(), Room: orbit.Resources{orbit.CPU: rapid.Int64Range(1, 4).Draw(t, "claimed")}}}})
	}
	if pick(3, "nominated") {
		try(orbit.Nominate{Gang: "g", Ends: time.Unix(9, 0), Parts: []orbit.NominatedRoom{
			{Node: at(), Room: orbit.Resources{orbit.CPU: rapid.Int64Range(1, 4).Draw(t, "claimed")}}, {Node: at(), Room: orbit.Resources{orbit.CPU: 1}}}})
	}
	for i := range nodes {
		if nodes[i].State = rapid.SampledFrom([]orbit.Condition{orbit.Ready, orbit.Ready, orbit.Ready, orbit.Cordoned, orbit.Lost}).Draw(t, "state"); nodes[i].State != orbit.Ready {
			try(orbit.PutNode{Node: nodes[i]})
		}
	}
	return snapshot(t, l)
}

// agreeRules draws rules of company.
func agreeRules(t *rapid.T, s *orbit.Spec) {
	pick := func(n int, what string) bool { return rapid.IntRange(0, n).Draw(t, what) == 0 }
	level := func() string { return rapid.SampledFrom([]string{orbit.NodeKey, "zone", "rack"}).Draw(t, "level") }
	if s.Group = rapid.SampledFrom([]string{"", "", "g", "h"}).Draw(t, "group"); pick(3, "apart") {
		s.Apart = []orbit.Apart{{Group: rapid.SampledFrom([]string{"g", "h"}).Draw(t, "from"), Level: level()}}
	}
	for s.Group != "" && pick(3, "even") {
		s.Even = append(s.Even, orbit.Even{Group: s.Group, Level: level(), MaxSkew: rapid.IntRange(0, 2).Draw(t, "skew"), MinDomains: rapid.IntRange(0, 2).Draw(t, "domains")})
	}
	if pick(3, "extra") {
		s.Extras = []orbit.Extra{{Name: "ip", Amount: rapid.Int64Range(1, 2).Draw(t, "ips")}}
	}
}

func agreeGang(t *rapid.T) *orbit.Gang {
	pick := func(n int, what string) bool { return rapid.IntRange(0, n).Draw(t, what) == 0 }
	gang := &orbit.Gang{ID: "g", Loose: pick(4, "loose")}
	gang.Levels = rapid.SampledFrom([][]string{nil, {"rack"}, {"rack"}, {"rack", "zone"}, {"none", "zone"}}).Draw(t, "levels")
	ruled := pick(1, "ruled")
	for i, left := 0, 4; i < rapid.SampledFrom([]int{1, 2, 3}).Draw(t, "roles") && left > 0; i++ {
		s := gangSpec(rapid.Int64Range(0, 3).Draw(t, "wants"), rapid.SampledFrom([]int32{1, 2, 4}).Draw(t, "gang priority"))
		s.Envelope.Reservation[orbit.Memory] = rapid.Int64Range(0, 3).Draw(t, "wants memory")
		if ruled {
			agreeRules(t, s)
		}
		if pick(3, "wants device") {
			s.Devices = orbit.DeviceRequest{Count: rapid.IntRange(1, 2).Draw(t, "count"), Milli: rapid.SampledFrom([]int{300, 400, 700, 1000}).Draw(t, "milli")}
		}
		if pick(6, "picky") {
			s.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
		}
		if pick(7, "tolerant") {
			s.Tolerate = []orbit.Toleration{{Key: "k"}}
		}
		role := orbit.Role{Name: fmt.Sprint("role", i), Spec: s}
		for k := range rapid.IntRange(1, min(3, left)).Draw(t, "members") {
			role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint("m", i, "-", k)))
			left--
		}
		role.Min = rapid.IntRange(0, len(role.Members)).Draw(t, "least")
		gang.Roles = append(gang.Roles, role)
	}
	leastOfAll(t, gang)
	return gang
}

// agreeGrown lets up to two members join the gang, of a role that there is, and now and then of a new one.
func agreeGrown(t *rapid.T, l *orbit.MemoryLedger) {
	gang := snapshot(t, l).Gang("g").Gang
	r := rapid.SampledFrom(gang.Roles).Draw(t, "role")
	more := orbit.Role{Name: r.Name, Spec: r.Spec}
	if rapid.IntRange(0, 3).Draw(t, "new role") == 0 {
		more = orbit.Role{Name: "new", Spec: gangSpec(rapid.Int64Range(0, 3).Draw(t, "wants"), 2)}
	}
	for k := range rapid.IntRange(1, 2).Draw(t, "joins") {
		more.Members = append(more.Members, orbit.CapsuleID(fmt.Sprint("j", k)))
	}
	_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{more}}, Join: true}}}) // unless all others are done
}

// agreeChanged gives up to two waiting members specs of their own, which ask for more or less CPU than their roles.
func agreeChanged(t *rapid.T, l *orbit.MemoryLedger) {
	for range rapid.IntRange(1, 2).Draw(t, "changes") {
		role := rapid.SampledFrom(snapshot(t, l).Gang("g").Gang.Roles).Draw(t, "role")
		own := role.Spec.Clone()
		own.Envelope.Reservation[orbit.CPU] = rapid.Int64Range(0, 4).Draw(t, "wants now")
		id := rapid.SampledFrom(role.Members).Draw(t, "member")
		_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Respec{Capsule: id, Spec: own}}}) // unless it is placed, or done
	}
}

// changed reports whether members of the gang have specs of their own.
func changed(state *orbit.State) bool {
	g := state.Gang("g").Gang
	return slices.ContainsFunc(g.Roles, func(r orbit.Role) bool {
		return slices.ContainsFunc(r.Members, func(id orbit.CapsuleID) bool {
			c := state.Capsule(id)
			return c != nil && c.Pending() && c.Gang() == "g" && c.Spec != r.Spec
		})
	})
}

// agreeRan places the gang, begins members on nodes that confirm, and takes some or all members off their nodes again.
func agreeRan(t *rapid.T, l *orbit.MemoryLedger) {
	(&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
	s, whole := snapshot(t, l), rapid.Bool().Draw(t, "whole")
	var leave []orbit.Commitment
	for c := range s.Members("g") {
		if !c.Placed() {
			continue
		}
		node := s.Node(c.Node).Node
		if node.Confirms && rapid.Bool().Draw(t, "begun") {
			commit(t, l, orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Begun: true})
		}
		if whole || rapid.Bool().Draw(t, "goes") {
			leave = append(leave, orbit.Release{Capsule: c.ID, From: c.Node, Final: rapid.IntRange(0, 3).Draw(t, "ends") == 0})
		}
	}
	var away, back []orbit.Commitment
	for n := range s.Nodes() {
		cordoned := *n.Node
		cordoned.State = orbit.Cordoned
		away, back = append(away, orbit.PutNode{Node: cordoned}), append(back, orbit.PutNode{Node: *n.Node})
	}
	commit(t, l, away...)
	if len(leave) > 0 {
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: leave})
		for i := 0; err != nil && i < len(leave); i++ { // a gang below its minimum is left only as a whole, unless a member is done
			r := leave[i].(orbit.Release)
			if _, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: r.Capsule, From: r.From, Stopped: true}}}); err != nil {
				r.Final = true
				_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{r}})
			}
		}
	}
	commit(t, l, back...)
}

// completed reports whether the gang has what it lacks once a navigator has planned it. It also returns why members are
// left out.
func completed(t *rapid.T, state *orbit.State, navigator orbit.Navigator) (bool, []orbit.Unplaced) {
	l, view := &orbit.MemoryLedger{Start: state}, &orbit.View{}
	require.NoError(t, view.Refresh(t.Context(), l, nil, time.Unix(0, 0)))
	var pending []*orbit.Capsule
	for c := range state.Members("g") {
		if c.Pending() {
			pending = append(pending, c)
		}
	}
	plan, err := navigator.Plan(t.Context(), view, pending)
	require.NoError(t, err)
	for _, p := range plan.Proposals {
		_, err := l.Propose(t.Context(), p)
		require.NoError(t, err, "%v", p.Do)
	}
	return lacksNothing(snapshot(t, l).Gang("g")), plan.Unplaced
}

func sumOfLacks(g *orbit.GangState) (n int) {
	for i := range g.Gang.Roles {
		n += g.Lacks(i)
	}
	return n
}

func lacksNothing(g *orbit.GangState) bool {
	placed, left := 0, 0
	for i := range g.Gang.Roles {
		if g.Lacks(i) > 0 {
			return false
		}
		placed, left = placed+g.Placed[i], left+g.Left(i)
	}
	return placed >= min(g.Gang.Min, left)
}

// gangCouldFit reports whether the ledger accepts some placement of what the gang lacks, in one domain. It tries all.
func gangCouldFit(state *orbit.State, g *orbit.GangState) bool {
	domains := map[string][]*orbit.NodeState{}
	for n := range state.Nodes() {
		if len(g.Gang.Levels) == 0 || g.Gang.Loose {
			domains[""] = append(domains[""], n)
		}
		for _, level := range g.Gang.Levels {
			if d := n.Node.Labels[level]; d != "" {
				domains[level+"="+d] = append(domains[level+"="+d], n)
			}
		}
	}
	for c := range state.Members("g") {
		for name := range domains {
			if level, d, leveled := strings.Cut(name, "="); c.Placed() && leveled && state.Node(c.Node).Node.Labels[level] != d {
				delete(domains, name)
			}
		}
	}
	for _, nodes := range domains {
		if couldFitOn(state, g, nodes) {
			return true
		}
	}
	return false
}

func couldFitOn(state *orbit.State, g *orbit.GangState, nodes []*orbit.NodeState) bool {
	var do []orbit.Commitment
	var role func(i, member, left int) bool
	from := func(i int) bool { // at least what the role lacks, and more if the gang does
		for n := g.Lacks(i); n <= len(g.Gang.Roles[i].Members); n++ {
			if role(i, 0, n) {
				return true
			}
		}
		return false
	}
	role = func(i, member, left int) bool {
		switch {
		case len(do)+left > g.LacksInAll():
			return false
		case left == 0 && i+1 == len(g.Gang.Roles):
			return len(do) == g.LacksInAll() && state.Check(orbit.Proposal{Do: do}) == nil
		case left == 0:
			return from(i + 1)
		case member == len(g.Gang.Roles[i].Members):
			return false
		}
		c := state.Capsule(g.Gang.Roles[i].Members[member])
		if c != nil && c.Pending() && c.Gang() == g.Gang.ID {
			for _, n := range nodes {
				for set := range orbit.DeviceSet(1) << n.Node.Devices.Count {
					if set.Len() != c.Spec.Devices.Count {
						continue
					}
					for _, after := range []bool{false, true} {
						if after && !n.Node.Confirms {
							continue
						}
						do = append(do, orbit.Place{Capsule: c.ID, Node: n.Node.ID, Devices: set, After: after})
						fits := role(i, member+1, left-1)
						if do = do[:len(do)-1]; fits {
							return true
						}
					}
				}
			}
		}
		return role(i, member+1, left)
	}
	return from(0)
}

// severalEvens reports whether members have rules Even about several groups or by several levels. Of these the search
// may miss what the ledger accepts.
func severalEvens(gang *orbit.Gang) bool {
	evens := map[[2]string]bool{}
	for i := range gang.Roles {
		for _, e := range gang.Roles[i].Spec.Even {
			evens[[2]string{e.Group, e.Level}] = true
		}
	}
	return len(evens) > 1
}

// choosesMembers reports whether a role needs only some of its waiting members, and these have several specs. The search
// considers one choice of them.
func choosesMembers(state *orbit.State, g *orbit.GangState) bool {
	for i := range g.Gang.Roles {
		waiting, specs := 0, map[*orbit.Spec]bool{}
		for _, id := range g.Gang.Roles[i].Members {
			if c := state.Capsule(id); c != nil && c.Pending() && c.Gang() == "g" {
				waiting++
				specs[c.Spec] = true
			}
		}
		if len(specs) > 1 && g.Lacks(i) > 0 && g.Lacks(i) < waiting {
			return true
		}
	}
	return false
}

// What is explained is what happens: ExplainGang says of a domain that the gang fits there exactly if a nav.Gang places
// what the gang lacks, and both say so exactly if the ledger accepts some placement.
func TestGangFitsWhereItIsPlaced(t *testing.T) {
	scale.Sequential(t)
	for seen := range scale.Reach(t, "fits", "fits not", "broken", "several roles", "nominated", "rules", "least of all", "grown", "changed") {
		rapid.Check(t, func(t *rapid.T) {
			for range 4 * worlds {
				state := agreeWorld(t, 4)
				g := state.Gang("g")
				if g == nil || lacksNothing(g) {
					continue
				}
				e, err := whatif.ExplainGang(context.Background(), state, "g")
				require.NoError(t, err)
				fits := slices.ContainsFunc(e.Domains, func(d whatif.DomainFit) bool { return d.Why == nil })
				placed, left := completed(t, state, &nav.Gang{})
				could := gangCouldFit(state, g)
				if fits != placed || could != fits && !severalEvens(g.Gang) && !choosesMembers(state, g) || fits && !could {
					t.Fatalf("explained %v, placed %v, accepted by the ledger %v\n%s\n%v", fits, placed, could, e, left)
				}
				seen[map[bool]string{true: "fits", false: "fits not"}[fits]]++
				seen["broken"] += count01(g.Broken())
				seen["several roles"] += count01(len(g.Gang.Roles) > 1)
				seen["least of all"] += count01(g.LacksInAll() > sumOfLacks(g))
				seen["grown"] += count01(state.Capsule("j0") != nil)
				seen["changed"] += count01(changed(state))
				seen["nominated"] += count01(g.Nomination != nil)
				seen["rules"] += count01(slices.ContainsFunc(g.Gang.Roles, func(r orbit.Role) bool { return len(r.Spec.Apart)+len(r.Spec.Even) > 0 }))
			}
		})
	}
}

// A fix by eviction is found exactly where a nav.Preempting without moves evicts: if a gang fits nowhere, a nav.Preempting that wraps a
// nav.Gang places what it lacks exactly if ExplainGang names victims. A broken gang is an exception, if the nav.Gang finds
// seats for a part of what it lacks: those seats may be in the way of the rest.
func TestGangEvictsWhereVictimsAreNamed(t *testing.T) {
	for seen := range scale.Reach(t, "evicts", "evicts nobody", "several roles", "rules", "changed") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				state := agreeWorld(t, 8)
				g := state.Gang("g")
				if g == nil || lacksNothing(g) {
					continue
				}
				e, err := whatif.ExplainGang(context.Background(), state, "g")
				require.NoError(t, err)
				if slices.ContainsFunc(e.Domains, func(d whatif.DomainFit) bool { return d.Why == nil }) {
					continue
				}
				if g.Broken() && placesAny(t, state) {
					continue
				}
				named := slices.ContainsFunc(e.Fixes, func(f whatif.GangFix) bool { return len(f.Evict) > 0 })
				placed, left := completed(t, state, &nav.Preempting{Navigator: &nav.Gang{}, Moves: -1})
				require.Equal(t, placed, named, "%s\n%v", e, left)
				seen[map[bool]string{true: "evicts", false: "evicts nobody"}[named]]++
				seen["several roles"] += count01(named && len(g.Gang.Roles) > 1)
				seen["changed"] += count01(named && changed(state))
				seen["rules"] += count01(named && slices.ContainsFunc(g.Gang.Roles, func(r orbit.Role) bool { return len(r.Spec.Apart)+len(r.Spec.Even) > 0 }))
			}
		})
	}
}

// Room that is nominated for work of lower priority is room for a gang, as it is for a nav.Gang.
func TestGangFitsWhereItOutranksANomination(t *testing.T) {
	for priority, fits := range map[int32]bool{5: true, 1: false} {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n0", Capacity: orbit.Resources{orbit.CPU: 4}, Labels: map[string]string{"rack": "r"}}},
			orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: wants(4, 1)},
			orbit.Nominate{Capsule: "waits", Ends: time.Unix(9, 0), Parts: []orbit.NominatedRoom{{Node: "n0", Room: orbit.Resources{orbit.CPU: 4}}}})
		gangOf(t, l, gangSpec(2, priority), 2, 0)
		e, err := whatif.ExplainGang(t.Context(), snapshot(t, l), "g")
		require.NoError(t, err)
		require.Equal(t, fits, e.Domains[0].Why == nil, "priority %d: %s", priority, e)
	}
}

// Two members differ in nothing but their priority. The one that outranks a nomination takes the nominated room, so that the other
// node is left for the other member.
func TestGangSeatsEachMemberWhereItMay(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}
	node := func(id orbit.NodeID, cpu, memory int64) orbit.PutNode {
		return orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: cpu, orbit.Memory: memory}}}
	}
	role := func(name string, priority int32) orbit.Role {
		spec := &orbit.Spec{Class: orbit.GangClass, Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1, orbit.Memory: 3}}}
		return orbit.Role{Name: name, Members: []orbit.CapsuleID{orbit.CapsuleID(name)}, Spec: spec}
	}
	commit(t, l, node("nominated", 1, 5), node("free", 3, 3), orbit.Submit{IDs: []orbit.CapsuleID{"waits"}, Spec: wants(1, 3)},
		orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{role("high", 4), role("low", 2)}}})
	commit(t, l, orbit.Nominate{Capsule: "waits", Ends: time.Now().Add(time.Minute), Parts: []orbit.NominatedRoom{{Node: "nominated", Room: orbit.Resources{orbit.CPU: 1}}}})
	e, err := whatif.ExplainGang(t.Context(), snapshot(t, l), "g")
	require.NoError(t, err)
	require.NoError(t, e.Domains[0].Why)
	(&orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Gang{}, OnRound: func(orbit.Round) {}}).Pass(t.Context())
	require.Equal(t, orbit.NodeID("nominated"), snapshot(t, l).Capsule("high").Node)
	require.Equal(t, orbit.NodeID("free"), snapshot(t, l).Capsule("low").Node)
}

// placesAny reports whether a nav.Gang places any member of the gang.
func placesAny(t *rapid.T, state *orbit.State) bool {
	_, left := completed(t, state, &nav.Gang{})
	pending := 0
	for c := range state.Members("g") {
		pending += count01(c.Pending())
	}
	return len(left) < pending
}

func count01(is bool) int {
	if is {
		return 1
	}
	return 0
}
