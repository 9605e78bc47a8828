package nav_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
)

// gangRules is a small random world with one gang, whose members have rules of company and take extras and devices.
type gangRules struct {
	state *orbit.State
	gang  *orbit.Gang
}

var ruledLevels = []string{orbit.NodeKey, "zone", "rack"}

// drawRules gives a spec rules, also about the groups of other capsules.
func drawRules(t *rapid.T, s *orbit.Spec) {
	draw := func(n int, what string) int { return rapid.IntRange(0, n).Draw(t, what) }
	level := func() string { return rapid.SampledFrom(ruledLevels).Draw(t, "level") }
	s.Group = rapid.SampledFrom([]string{"", "g", "g", "h"}).Draw(t, "group")
	if draw(2, "another group") == 0 {
		s.Groups = []string{"x"}
	}
	if draw(2, "apart") == 0 {
		s.Apart = []orbit.Apart{{Group: rapid.SampledFrom([]string{"g", "h", "x"}).Draw(t, "apart from"), Level: level()}}
	}
	for s.Group != "" && draw(2, "even") == 0 {
		s.Even = append(s.Even, orbit.Even{Group: s.Group, Level: level(), MaxSkew: draw(2, "skew"), MinDomains: draw(3, "domains")})
	}
	if draw(2, "extra") == 0 {
		s.Extras = []orbit.Extra{{Name: "ip", Amount: int64(1 + draw(1, "ips"))}}
	}
	if draw(4, "devices") == 0 {
		s.Devices = orbit.DeviceRequest{Count: 1, Milli: 500 * (1 + draw(1, "milli"))}
	}
}

// drawGangRules draws a world in which a few capsules run already.
func drawGangRules(t *rapid.T) (w gangRules, l orbit.Ledger) {
	l = &orbit.MemoryLedger{}
	nodes := rapid.IntRange(1, 4).Draw(t, "nodes")
	for i := range nodes {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Labels: map[string]string{}}
		n.Capacity[orbit.CPU] = rapid.Int64Range(1, 4).Draw(t, "cpu")
		for _, level := range ruledLevels[1:] {
			if v := rapid.IntRange(0, 4).Draw(t, level); v > 0 {
				n.Labels[level] = fmt.Sprint(level, v%2)
			}
		}
		n.Extras = []orbit.Extra{{Name: "ip", Amount: rapid.Int64Range(0, 3).Draw(t, "ips")}}
		n.Devices = orbit.Devices{Count: rapid.IntRange(0, 2).Draw(t, "devices"), Model: "m"}
		n.Confirms = rapid.Bool().Draw(t, "confirms")
		commit(t, l, orbit.PutNode{Node: n})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "others") {
		s, id := spec(1, 0), orbit.CapsuleID(fmt.Sprint("o", i))
		drawRules(t, s)
		s.Devices = orbit.DeviceRequest{}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
		at := orbit.NodeID(fmt.Sprint("n", rapid.IntRange(0, nodes-1).Draw(t, "on")))
		if _, err := l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: at}}}); err == nil && snapshot(t, l).Node(at).Node.Confirms {
			_, _ = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Confirm{Capsule: id, Since: snapshot(t, l).Capsule(id).PlacedAt, Begun: true}}}) // or it waits for another one to stop
			if rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
				commit(t, l, orbit.Release{Capsule: id, Final: true}) // it still runs there
			}
		}
	}
	w.gang = &orbit.Gang{ID: "gang", Loose: rapid.Bool().Draw(t, "loose")}
	for range rapid.IntRange(0, 2).Draw(t, "levels") {
		w.gang.Levels = append(w.gang.Levels, rapid.SampledFrom(ruledLevels[1:]).Draw(t, "gang level"))
	}
	members := 0
	for role := range rapid.IntRange(1, 2).Draw(t, "roles") {
		s := gangSpec(rapid.Int64Range(0, 2).Draw(t, "wants"))
		drawRules(t, s)
		r := orbit.Role{Name: fmt.Sprint("r", role), Spec: s}
		for range rapid.IntRange(1, 3-role).Draw(t, "members") {
			r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("m", members)))
			members++
		}
		r.Min = rapid.IntRange(0, len(r.Members)).Draw(t, "min")
		w.gang.Roles = append(w.gang.Roles, r)
	}
	drawLeast(t, w.gang)
	commit(t, l, orbit.Submit{Gang: w.gang})
	w.state = snapshot(t, l)
	return w, l
}

// exact reports whether the search promises to find what there is: not if members have rules Even about several groups
// or by several levels.
func (w *gangRules) exact() bool {
	evens := map[[2]string]bool{}
	for i := range w.gang.Roles {
		for _, e := range w.gang.Roles[i].Spec.Even {
			evens[[2]string{e.Group, e.Level}] = true
		}
	}
	return len(evens) < 2
}

// most returns how many members one proposal may place on these nodes, with at least the minimum of each role, by all
// assignments that there are; 0: none.
func (w *gangRules) most(nodes []*orbit.NodeState) (most int) {
	var members []*orbit.Capsule
	for c := range w.state.Members(w.gang.ID) {
		members = append(members, c)
	}
	var do []orbit.Commitment
	var assign func(i int)
	assign = func(i int) {
		if len(do)+len(members)-i <= most {
			return
		}
		if i == len(members) {
			if w.state.Check(orbit.Proposal{Do: do}) == nil {
				most = len(do)
			}
			return
		}
		c := members[i]
		for _, n := range nodes {
			sets := []orbit.DeviceSet{0}
			if c.Spec.Devices.Count > 0 {
				sets = []orbit.DeviceSet{1, 2}
			}
			for _, set := range sets {
				for _, after := range []bool{false, true}[:1+btoi(n.Node.Confirms)] {
					do = append(do, orbit.Place{Capsule: c.ID, Node: n.Node.ID, Devices: set, After: after})
					assign(i + 1)
					do = do[:len(do)-1]
				}
			}
		}
		assign(i + 1)
	}
	assign(0)
	return most
}

// wants returns how many members a gang that is placed by the rules of [nav.Gang] has, by all assignments that there are.
func (w *gangRules) wants() int {
	levels := slices.Clone(w.gang.Levels)
	if len(levels) == 0 || w.gang.Loose {
		levels = append(levels, "")
	}
	whole := 0
	for i := range w.gang.Roles {
		whole += len(w.gang.Roles[i].Members)
	}
	least := 0
	for _, level := range levels {
		domains := map[string][]*orbit.NodeState{}
		for n := range w.state.Nodes() {
			if d := n.Node.Labels[level]; level == "" || d != "" {
				domains[d] = append(domains[d], n)
			}
		}
		most := 0
		for _, nodes := range domains {
			most = max(most, w.most(nodes))
		}
		if most == whole {
			return whole
		}
		if least == 0 {
			least = most
		}
	}
	return least
}

// A gang whose members have rules of company, take extras and devices, is placed exactly where some assignment exists
// that the ledger takes, and with as many members. Where members have several rules Even the search may miss one. It
// never fails.
func TestGangKeepsRules(t *testing.T) {
	for total := range scale.Reach(t, "whole", "in part", "nowhere", "several rules Even") {
		rapid.Check(t, func(t *rapid.T) {
			w, l := drawGangRules(t)
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			round := e.Pass(t.Context())
			require.Empty(t, round.Errors)
			require.Zero(t, round.Infeasible+round.Invalid+round.Conflicts)
			got, want := snapshot(t, l).Gang("gang").Total(), w.wants()
			if w.exact() {
				require.Equal(t, want, got, "%v", round.Unplaced)
			}
			require.LessOrEqual(t, got, want)
			total["several rules Even"] += btoi(!w.exact() && got > 0)
			switch {
			case got == 0:
				total["nowhere"]++
			case len(round.Unplaced) > 0:
				total["in part"]++
			default:
				total["whole"]++
			}
		})
	}
}

// The ledger judges rules Even after the whole proposal, and the search after each placement. So it misses what it can
// reach by no order: here each member alone would make the zones or the racks too uneven. That is no error.
func TestGangMissesWhatNoOrderReaches(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for id, labels := range map[orbit.NodeID]map[string]string{
		"o1": {"zone": "b"}, "o2": {"rack": "a"}, "n1": {"zone": "a", "rack": "a"}, "n2": {"zone": "b", "rack": "b"},
	} {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 1}, Labels: labels}})
	}
	other, s := spec(1, 0), gangSpec(1)
	other.Group, s.Group = "g", "g"
	s.Even = []orbit.Even{{Group: "g", Level: "zone"}, {Group: "g", Level: "rack"}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"o1", "o2"}, Spec: other}, orbit.Place{Capsule: "o1", Node: "o1"}, orbit.Place{Capsule: "o2", Node: "o2"})
	commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "gang", Roles: []orbit.Role{{Name: "r", Spec: s, Members: []orbit.CapsuleID{"m1", "m2"}}}}})
	require.NoError(t, snapshot(t, l).Check(orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "m1", Node: "n1"}, orbit.Place{Capsule: "m2", Node: "n2"}}}))
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
	for range 3 {
		round := e.Pass(t.Context())
		require.Empty(t, round.Errors)
		require.Len(t, round.Unplaced, 2)
		require.ErrorContains(t, round.Unplaced[0].Why, "fits 0 of 2")
	}
}

// A gang that waits because of rules of company is placed in the first pass after something has opened a domain to it,
// and not earlier.
func TestGangKeepsRulesAsTheyChange(t *testing.T) {
	scale.Sequential(t)
	for total := range scale.Reach(t, "at once", "later", "never") {
		rapid.Check(t, func(t *rapid.T) {
			w, l := drawGangRules(t)
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			for i := range 6 {
				w.state = snapshot(t, l)
				want := w.wants()
				round := e.Pass(t.Context())
				require.Empty(t, round.Errors)
				got := snapshot(t, l).Gang("gang").Total()
				if w.exact() {
					require.Equal(t, want, got, "pass %d: %v", i, round.Unplaced)
				}
				if got > 0 {
					total[[]string{"at once", "later"}[min(i, 1)]]++
					return
				}
				stirRules(t, l)
			}
			total["never"]++
		})
	}
}

// A gang that waits is tried again when the last rule that applied to its members has gone, however often the nodes have
// changed before.
func TestGangIsTriedAgainWhenRulesEnd(t *testing.T) {
	for changes := range 12 {
		l := &orbit.MemoryLedger{}
		shy, s := spec(1, 0), gangSpec(2)
		shy.Apart, s.Group = []orbit.Apart{{Group: "h", Level: orbit.NodeKey}}, "h"
		commit(t, l, node("n", 2), node("m", 1), orbit.Submit{IDs: []orbit.CapsuleID{"shy"}, Spec: shy}, orbit.Place{Capsule: "shy", Node: "n"})
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "gang", Roles: []orbit.Role{{Name: "r", Spec: s, Members: []orbit.CapsuleID{"c"}}}}})
		e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
		for i := range changes {
			require.Zero(t, e.Pass(t.Context()).Committed)
			n := *snapshot(t, l).Node("m").Node
			n.Labels = map[string]string{"change": fmt.Sprint(i)}
			commit(t, l, orbit.PutNode{Node: n})
		}
		require.Zero(t, e.Pass(t.Context()).Committed)
		commit(t, l, orbit.Release{Capsule: "shy", Final: true})
		require.Equal(t, 1, e.Pass(t.Context()).Committed, "after %d changes", changes)
	}
}

// stirRules ends or places another capsule, or changes a node.
func stirRules(t *rapid.T, l orbit.Ledger) {
	s := snapshot(t, l)
	var others []*orbit.Capsule
	for c := range s.Capsules() {
		if c.Gang() == "" && !c.Released() {
			others = append(others, c)
		}
	}
	n := *rapid.SampledFrom(slices.Collect(s.Nodes())).Draw(t, "node").Node
	do := []orbit.Commitment{orbit.PutNode{Node: n}}
	switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
	case what < 3 && len(others) > 0:
		c := rapid.SampledFrom(others).Draw(t, "other")
		if do = []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: true}}; !c.Placed() {
			do = []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: n.ID}}
		}
	case what == 3:
		n.Labels = maps.Clone(n.Labels)
		level := rapid.SampledFrom(ruledLevels[1:]).Draw(t, "level")
		n.Labels[level] = fmt.Sprint(level, rapid.IntRange(0, 1).Draw(t, "domain"))
		do = []orbit.Commitment{orbit.PutNode{Node: n}}
	case what == 4:
		n.Extras = []orbit.Extra{{Name: "ip", Amount: rapid.Int64Range(0, 3).Draw(t, "ips")}}
		do = []orbit.Commitment{orbit.PutNode{Node: n}}
	case what == 5:
		for c := range s.Capsules() {
			if c.Remains() != nil {
				do = []orbit.Commitment{orbit.Confirm{Capsule: c.ID, Since: c.Remains().Since, Stopped: true}}
			}
		}
	}
	_, _ = l.Propose(t.Context(), orbit.Proposal{Do: do}) // or the rules forbid it
}

// Of two nodes that are alike in all but what stops there, only the one on which it stops lets a member wait for it.
func TestGangWaitsWhereTheOtherStops(t *testing.T) {
	for _, leaves := range []string{"a", "b"} {
		l := &orbit.MemoryLedger{}
		for _, id := range []string{"a", "b"} {
			n := node(id, 2)
			n.Node.Confirms, n.Node.Labels = true, map[string]string{"zone": "z"}
			commit(t, l, n)
		}
		shy, s := spec(1, 0), gangSpec(1)
		shy.Apart, s.Group = []orbit.Apart{{Group: "g", Level: "zone"}}, "g"
		put(t, l, "shy", leaves, shy)
		commit(t, l, orbit.Confirm{Capsule: "shy", Since: snapshot(t, l).Capsule("shy").PlacedAt, Begun: true})
		commit(t, l, orbit.Release{Capsule: "shy", Final: true})
		commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "gang", Roles: []orbit.Role{{Name: "r", Spec: s, Members: []orbit.CapsuleID{"c"}}}}})
		(&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
		require.Equal(t, orbit.NodeID(leaves), snapshot(t, l).Capsule("c").Node)
	}
}

// Gangs that ask for the same room under other rules share no answer, whichever of them is planned first. The two gangs of
// a case differ in nothing but what the rule adds to the first of them, which therefore has no place.
func TestGangsOfOtherRulesShareNoAnswer(t *testing.T) {
	for name, rule := range map[string]func(*orbit.Spec){
		"extra":      func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "licence", Amount: 1}} },
		"apart":      func(s *orbit.Spec) { s.Apart = []orbit.Apart{{Group: "db", Level: orbit.NodeKey}} },
		"even":       func(s *orbit.Spec) { s.Even = []orbit.Even{{Group: "a", Level: "zone"}} },
		"group":      func(s *orbit.Spec) { s.Group = "shy" },
		"groups":     func(s *orbit.Spec) { s.Groups = []string{"shy"} },
		"near":       func(s *orbit.Spec) { s.Near = orbit.Near{Group: "absent", Level: "rack"} },
		"require":    func(s *orbit.Spec) { s.Require = []orbit.Predicate{{Key: "gpu", Op: "Exists"}} },
		"intolerant": func(s *orbit.Spec) { s.Tolerate = nil },
	} {
		for _, order := range [][]string{{"ruled", "plain"}, {"plain", "ruled"}} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				l := &orbit.MemoryLedger{}
				db := spec(0, 0)
				db.Group, db.Apart, db.Tolerate = "db", []orbit.Apart{{Group: "shy", Level: orbit.NodeKey}}, []orbit.Toleration{{Op: "Exists"}}
				n := node("n", 8)
				n.Node.Taints = []orbit.Taint{{Key: "k", Effect: "NoSchedule"}}
				commit(t, l, n, orbit.Submit{IDs: []orbit.CapsuleID{"db"}, Spec: db}, orbit.Place{Capsule: "db", Node: "n"})
				for _, id := range order {
					s := gangSpec(1)
					s.Group, s.Tolerate = "a", db.Tolerate
					if id == "ruled" {
						rule(s)
					}
					commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "r", Spec: s, Members: gangMembers(id, 2)}}}})
				}
				round := (&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
				require.Empty(t, round.Errors)
				require.Equal(t, 2, placedOf(t, l, "plain"))
				require.Zero(t, placedOf(t, l, "ruled"))
				for _, u := range round.Unplaced {
					require.Equal(t, orbit.GangID("ruled"), u.Capsule.Gang())
				}
			})
		}
	}
}

// With many nodes that are alike the search decides in few steps, also where a gang does not fit.
func TestGangOfRulesAmongManyNodes(t *testing.T) {
	for name, c := range map[string]struct {
		members, want int
		rule          func(*orbit.Spec)
	}{
		"apart":              {60, 60, func(s *orbit.Spec) { s.Apart = []orbit.Apart{{Group: "g", Level: orbit.NodeKey}} }},
		"too many apart":     {61, 0, func(s *orbit.Spec) { s.Apart = []orbit.Apart{{Group: "g", Level: orbit.NodeKey}} }},
		"apart by rack":      {6, 6, func(s *orbit.Spec) { s.Apart = []orbit.Apart{{Group: "g", Level: "rack"}} }},
		"too many for racks": {7, 0, func(s *orbit.Spec) { s.Apart = []orbit.Apart{{Group: "g", Level: "rack"}} }},
		"extras":             {120, 120, func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "ip", Amount: 1}} }},
		"too few extras":     {121, 0, func(s *orbit.Spec) { s.Extras = []orbit.Extra{{Name: "ip", Amount: 1}} }},
		"even by zone":       {182, 182, func(s *orbit.Spec) { s.Even = []orbit.Even{{Group: "g", Level: "zone"}} }},
		"one too many":       {183, 0, func(s *orbit.Spec) { s.Even = []orbit.Even{{Group: "g", Level: "zone"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			for i := range 60 {
				n := orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Labels: map[string]string{"zone": fmt.Sprint(i % 3), "rack": fmt.Sprint(i % 6)},
					Extras: []orbit.Extra{{Name: "ip", Amount: 2}}}
				n.Capacity[orbit.CPU] = int64(3 + 3*btoi(i%3 > 0))
				commit(t, l, orbit.PutNode{Node: n})
			}
			s := gangSpec(1)
			s.Group = "g"
			c.rule(s)
			r := orbit.Role{Name: "r", Spec: s}
			for i := range c.members {
				r.Members = append(r.Members, orbit.CapsuleID(fmt.Sprint("m", i)))
			}
			commit(t, l, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{r}}})
			round := (&orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}).Pass(t.Context())
			require.Empty(t, round.Errors)
			require.Equal(t, c.want, placedOf(t, l, "g"), "%v", round.Unplaced)
			require.Less(t, noteOf(round.Notes, "search.steps"), int64(2000))
			if c.want == 0 {
				require.NotContains(t, round.Unplaced[0].Why.Error(), "cut short")
			}
		})
	}
}
