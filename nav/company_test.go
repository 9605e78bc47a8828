package nav_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
)

// drawSet is the spec of a replica set with rules of company.
func drawSet(t *rapid.T, group string) *orbit.Spec {
	s := &orbit.Spec{Module: group, Group: group, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: rapid.Int64Range(1, 3).Draw(t, "cpu")}}}
	level := rapid.SampledFrom([]string{"zone", "rack", orbit.NodeKey})
	if rapid.Bool().Draw(t, "even") {
		s.Even = []orbit.Even{{Group: group, Level: level.Draw(t, "level"), MaxSkew: rapid.IntRange(1, 2).Draw(t, "skew")}}
	}
	if rapid.Bool().Draw(t, "apart") {
		s.Apart = append(s.Apart, orbit.Apart{Group: group, Level: rapid.SampledFrom([]string{"rack", orbit.NodeKey}).Draw(t, "level")})
	}
	if rapid.IntRange(0, 3).Draw(t, "apart from others") == 0 {
		s.Apart = append(s.Apart, orbit.Apart{Group: rapid.SampledFrom([]string{"set0", "set1", "set2"}).Draw(t, "from"), Level: level.Draw(t, "level")})
	}
	for rapid.IntRange(0, 4).Draw(t, "near") == 0 {
		s.Nears = append(s.Nears, orbit.Near{Group: rapid.SampledFrom([]string{group, "set0", "set1", "set2"}).Draw(t, "near"), Level: level.Draw(t, "level")})
	}
	return s
}

// brokenRules counts the capsules that have a rule which does not hold, by looking at all pairs. Nothing departs in these worlds, so rules Even hold as
// they did when the last capsule came.
func brokenRules(s *orbit.State) (broken []string) {
	domain := func(c *orbit.Capsule, level string) string {
		if level == orbit.NodeKey {
			return string(c.Node)
		}
		return s.Node(c.Node).Node.Labels[level]
	}
	var placed []*orbit.Capsule
	for c := range s.Capsules() {
		if c.Placed() {
			placed = append(placed, c)
		}
	}
	for _, c := range placed {
		for _, a := range c.Spec.Apart {
			for _, o := range placed {
				if o != c && o.Spec.IsIn(a.Group) && domain(o, a.Level) == domain(c, a.Level) {
					broken = append(broken, fmt.Sprintf("%s and %s are in %s %s", c.ID, o.ID, a.Level, domain(c, a.Level)))
				}
			}
		}
	}
	for skew := range s.Skewed() {
		broken = append(broken, fmt.Sprintf("%+v", skew))
	}
	return broken
}

// companyBooks are kept by the changes of a ledger alone. They count anew for each placement.
type companyBooks struct {
	nodes map[orbit.NodeID]*orbit.Node
	specs map[orbit.CapsuleID]*orbit.Spec
	on    map[orbit.CapsuleID]orbit.NodeID
	seen  map[string]int
}

// domain returns the domain of a node by a level; empty: it is in none.
func (b *companyBooks) domain(n orbit.NodeID, level string) string {
	if level == orbit.NodeKey {
		return string(n)
	}
	return b.nodes[n].Labels[level]
}

// members counts the members of a group in a domain, and in all domains, but one capsule.
func (b *companyBooks) members(group, level, domain string, but orbit.CapsuleID) (here, anywhere int) {
	for id, n := range b.on {
		if d := b.domain(n, level); id != but && d != "" && b.specs[id].IsIn(group) {
			anywhere++
			if d == domain {
				here++
			}
		}
	}
	return here, anywhere
}

// enter enters the changes of one commit, and returns what its placements have broken.
func (b *companyBooks) enter(changes []orbit.Change) (broken []string) {
	was := *b
	was.on, was.nodes = maps.Clone(b.on), maps.Clone(b.nodes)
	var placed []orbit.CapsuleID
	for _, c := range changes {
		switch do := c.Do.(type) {
		case orbit.PutNode:
			b.nodes[do.Node.ID] = &do.Node
		case orbit.RemoveNode:
			delete(b.nodes, do.Node)
			b.seen["gone"]++
		case orbit.Submit:
			for _, id := range do.IDs {
				b.specs[id] = do.Spec
			}
		case orbit.Adopt:
			b.on[do.Capsule] = do.Node
			b.specs[do.Capsule] = cmp.Or(do.Spec, b.specs[do.Capsule])
			b.seen["adopted"]++
		case orbit.Respec:
			b.specs[do.Capsule] = do.Spec
			b.seen["respec"]++
		case orbit.Release:
			delete(b.on, do.Capsule)
		case orbit.Place:
			b.on[do.Capsule] = do.Node
			placed = append(placed, do.Capsule)
		}
	}
	for _, id := range placed {
		broken = append(broken, b.faults(&was, id)...)
	}
	return broken
}

// faults returns the rules of company that a placed capsule breaks. was are the books before its commit.
func (b *companyBooks) faults(was *companyBooks, id orbit.CapsuleID) (out []string) {
	spec, n := b.specs[id], b.on[id]
	for other, at := range b.on {
		for _, a := range spec.Apart {
			if d := b.domain(n, a.Level); other != id && d != "" && d == b.domain(at, a.Level) && b.specs[other].IsIn(a.Group) {
				out = append(out, fmt.Sprintf("%s and %s are in %s %s", id, other, a.Level, d))
			}
		}
		for _, a := range b.specs[other].Apart {
			if d := b.domain(n, a.Level); other != id && d != "" && d == b.domain(at, a.Level) && spec.IsIn(a.Group) {
				out = append(out, fmt.Sprintf("%s comes to %s in %s %s", id, other, a.Level, d))
			}
		}
	}
	for near := range spec.AllNear {
		d := b.domain(n, near.Level)
		b.seen["near "+near.Level]++
		if here, anywhere := b.members(near.Group, near.Level, d, id); d == "" || here == 0 && (anywhere > 0 || !spec.IsIn(near.Group)) {
			out = append(out, fmt.Sprintf("%s on %s is near none of group %s by %s, of which %d are elsewhere", id, n, near.Group, near.Level, anywhere))
		}
	}
	for _, e := range spec.Even {
		counts := map[string]int{}
		for node := range b.nodes {
			if d := b.domain(node, e.Level); d != "" {
				counts[d], _ = b.members(e.Group, e.Level, d, "")
			}
		}
		d := b.domain(n, e.Level)
		before, _ := was.members(e.Group, e.Level, d, "")
		if counts[d] > slices.Min(slices.Collect(maps.Values(counts)))+max(1, e.MaxSkew) && counts[d] > before {
			out = append(out, fmt.Sprintf("%s on %s: %s %s has %d of group %s, of %v", id, n, e.Level, d, counts[d], e.Group, counts))
		}
	}
	return out
}

// mayStart reports whether a planner may place a capsule on a node as far as it starts no group: none is started by
// Spec.Near, if that is by a label.
func mayStart(s *orbit.State, c *orbit.Capsule, n *orbit.NodeState) bool {
	near := c.Spec.Near
	if near.Group == "" || near.Level == orbit.NodeKey {
		return true
	}
	for o := range s.GroupNodes(near.Group) {
		if d := o.Node.Labels[near.Level]; d != "" && d == n.Node.Labels[near.Level] {
			return true
		}
	}
	return false
}

// happen lets another party do something: a node is gone with all on it and joins anew, a capsule runs that nobody has
// placed, or a capsule gets into other groups.
func happen(t *rapid.T, l *orbit.MemoryLedger, i int) {
	s := snapshot(t, l)
	nodes := slices.Collect(s.Nodes())
	n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")]
	spec := drawSet(t, fmt.Sprint("set", rapid.IntRange(0, 2).Draw(t, "set")))
	switch rapid.IntRange(0, 3).Draw(t, "event") {
	case 0:
		commit(t, l, orbit.RemoveNode{Node: n.Node.ID, Gone: true}, orbit.PutNode{Node: *n.Node})
	case 1:
		commit(t, l, orbit.Adopt{Capsule: orbit.CapsuleID(fmt.Sprint("found", i)), Node: n.Node.ID, Spec: spec})
	case 2:
		ids := slices.Sorted(func(yield func(orbit.CapsuleID) bool) {
			for c := range s.Capsules() {
				if !yield(c.ID) {
					return
				}
			}
		})
		c := s.Capsule(rapid.SampledFrom(ids).Draw(t, "of"))
		do := orbit.Respec{Capsule: c.ID, Spec: spec, Applied: c.Placed()}
		if c.Placed() {
			do.Since = c.PlacedAt
		}
		commit(t, l, do)
	}
}

// TestEnginesKeepCompany: eight engines that plan at once place replica sets with rules of company, while nodes go with all on
// them, capsules run that nobody has placed, and specs change. No placement ever breaks a rule. When they rest, nothing
// waits that a ledger would place somewhere.
func TestEnginesKeepCompany(t *testing.T) {
	for seen := range scale.Reach(t, "placed", "waiting", "gone", "adopted", "respec", "near zone", "near rack", "near "+orbit.NodeKey) {
		rapid.Check(t, func(t *rapid.T) { keepCompany(t, seen) })
	}
}

// keepCompany plays and judges one world of TestEnginesKeepCompany, and counts what it has seen.
func keepCompany(t *rapid.T, seen map[string]int) {
	l := &orbit.MemoryLedger{}
	for i := range rapid.IntRange(4, 40).Draw(t, "nodes") {
		n := node(fmt.Sprintf("n%02d", i), rapid.Int64Range(1, 8).Draw(t, "cpu"))
		n.Node.Labels = map[string]string{"zone": fmt.Sprint("z", i%3), "rack": fmt.Sprint("r", i%7)}
		commit(t, l, n)
	}
	for i := range 3 {
		var ids []orbit.CapsuleID
		for k := range rapid.IntRange(1, 12).Draw(t, "replicas") {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("s%d-%02d", i, k)))
		}
		commit(t, l, orbit.Submit{IDs: ids, Spec: drawSet(t, fmt.Sprint("set", i))})
	}
	var engines []*orbit.Engine
	for i := range 8 {
		var placement orbit.PlacementEngine = &place.Indexed{}
		if i%3 == 2 {
			placement = &place.Exhaustive{}
		}
		engines = append(engines, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: l, Navigator: &nav.Services{Placement: placement}})
	}
	books := companyBooks{map[orbit.NodeID]*orbit.Node{}, map[orbit.CapsuleID]*orbit.Spec{}, map[orbit.CapsuleID]orbit.NodeID{}, seen}
	known := orbit.Revision(0)
	events := rapid.IntRange(0, 12).Draw(t, "events")
	for i := range 30 {
		if i < events {
			happen(t, l, i)
		}
		var wg sync.WaitGroup
		for _, e := range engines {
			wg.Go(func() { e.Pass(t.Context()) })
		}
		wg.Wait()
		changes, err := l.Changes(t.Context(), known)
		require.NoError(t, err)
		for len(changes) > 0 {
			n := 1
			for n < len(changes) && changes[n].Revision == changes[0].Revision && changes[n].ID == changes[0].ID {
				n++
			}
			known = changes[0].Revision
			require.Empty(t, books.enter(changes[:n]))
			changes = changes[n:]
		}
		require.NoError(t, snapshot(t, l).Verify())
	}
	s := snapshot(t, l)
	for c := range s.Capsules() {
		if c.Placed() {
			seen["placed"]++
			continue
		}
		seen["waiting"]++
		for n := range s.Nodes() {
			if mayStart(s, c, n) {
				err := s.Check(orbit.Proposal{View: s.Revision(), Do: []orbit.Commitment{orbit.Place{Capsule: c.ID, Node: n.Node.ID}}})
				require.Error(t, err, "%s waits, and fits on %s", c.ID, n.Node.ID)
			}
		}
	}
}

// A rule Even over single nodes has as many domains as there are nodes. Each node gets its share, one that is added later first.
func TestEvenOverThousandsOfNodes(t *testing.T) {
	const nodes = 2500
	l := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for i := range nodes {
		do = append(do, node(fmt.Sprint("n", i), 4))
	}
	commit(t, l, do...)
	s := spec(1, 0)
	s.Group, s.Even = "set", []orbit.Even{{Group: "set", Level: orbit.NodeKey}}
	e := orbit.Engine{Ledger: l, Navigator: &nav.Services{}, MaxPlan: nodes}
	members := func() (byCount map[int]int) {
		byCount = map[int]int{}
		for n := range snapshot(t, l).Nodes() {
			byCount[n.Capsules]++
		}
		return byCount
	}
	submit(t, l, "first", nodes, s)
	require.Equal(t, nodes, e.Pass(t.Context()).Committed)
	require.Equal(t, map[int]int{1: nodes}, members())

	commit(t, l, node("new", 4))
	submit(t, l, "second", 2, s)
	require.Equal(t, 2, e.Pass(t.Context()).Committed)
	require.Equal(t, map[int]int{1: nodes, 2: 1}, members(), "the new node is first")
	submit(t, l, "third", nodes+1, s)
	for e.Pass(t.Context()).Committed > 0 {
	}
	require.Equal(t, map[int]int{2: nodes, 3: 1}, members())
	require.Empty(t, brokenRules(snapshot(t, l)))
}

// TestUnplacedByRulesSaysSo: what waits because of rules of company says so, with counts.
func TestUnplacedByRulesSaysSo(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for _, id := range []string{"a", "b"} {
		commit(t, l, node(id, 8))
	}
	s := spec(1, 0)
	s.Group, s.Apart = "db", []orbit.Apart{{Group: "db", Level: orbit.NodeKey}}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y", "z"}, Spec: s})
	e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}}
	r := e.Pass(t.Context())
	require.Len(t, r.Unplaced, 1)
	require.ErrorContains(t, r.Unplaced[0].Why, `0 of 2 nodes fit: 2 have, or share their node with, members of group db`)
	e.Pass(t.Context()) // what it has committed might have helped the class
	require.Empty(t, e.Pass(t.Context()).Unplaced, "it is parked, and comes back when a member leaves")
	commit(t, l, orbit.Release{Capsule: "x", Final: true})
	e.Pass(t.Context())
	require.Equal(t, 0, snapshot(t, l).PendingCount())
	require.True(t, slices.ContainsFunc(slices.Collect(snapshot(t, l).Capsules()), func(c *orbit.Capsule) bool { return c.ID == "z" && c.Placed() }))
}

// What a rule kept away, and was parked for, is placed in the next pass once the rule lets it, though no room has become free on its node.
func TestParkedByRulesComesBack(t *testing.T) {
	in := func(id, rack string, cpu int64) orbit.PutNode { return rackNode(id, rack, cpu) }
	of := func(group string, cpu int64, apart ...string) *orbit.Spec {
		s := spec(cpu, 0)
		s.Group = group
		for _, g := range apart {
			s.Apart = append(s.Apart, orbit.Apart{Group: g, Level: "rack"})
		}
		return s
	}
	even := of("web", 4)
	even.Even = []orbit.Even{{Group: "web", Level: "rack"}}
	more := of("web", 1)
	more.Class = orbit.Batch // which the engine leaves to another
	onSmall := func(id orbit.CapsuleID, s *orbit.Spec) []orbit.Commitment {
		return []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: "small"}}
	}
	lost := in("other", "r2", 1)
	lost.Node.State = orbit.Lost
	has := func(amount int64) orbit.PutNode {
		n := in("large", "r1", 8)
		n.Node.Extras = []orbit.Extra{{Name: "ip", Amount: amount}}
		return n
	}
	takes := func(amount int64) *orbit.Spec {
		s := spec(1, 0)
		s.Extras = []orbit.Extra{{Name: "ip", Amount: amount}}
		return s
	}
	onLarge := []orbit.Commitment{has(2), orbit.Submit{IDs: []orbit.CapsuleID{"web"}, Spec: takes(1)}, orbit.Place{Capsule: "web", Node: "large"}}
	for name, c := range map[string]struct {
		before []orbit.Commitment
		waits  *orbit.Spec
		event  orbit.Commitment
	}{
		"one of whom it keeps apart leaves":         {onSmall("web", of("web", 1)), of("db", 4, "web"), orbit.Release{Capsule: "web", Final: true}},
		"one that kept it away leaves":              {onSmall("lone", of("", 1, "db")), of("db", 4), orbit.Release{Capsule: "lone", Final: true}},
		"one of whom it keeps apart is elsewhere":   {onSmall("web", of("web", 1)), of("db", 4, "web"), in("small", "r3", 2)},
		"the domain with the fewest is lost":        {append(onSmall("web", of("web", 1)), in("other", "r2", 1)), even, lost},
		"the domain with the fewest has one more":   {append(onSmall("web", of("web", 1)), in("other", "r2", 1), orbit.Submit{IDs: []orbit.CapsuleID{"more"}, Spec: more}), even, orbit.Place{Capsule: "more", Node: "other"}},
		"one that has an extra leaves":              {onLarge, takes(2), orbit.Release{Capsule: "web", Final: true}},
		"its node gets more of an extra":            {onLarge, takes(2), has(3)},
		"the node of the fewest is there no longer": {append(onSmall("web", of("web", 1)), in("other", "r2", 1)), even, orbit.RemoveNode{Node: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, append([]orbit.Commitment{in("small", "r1", 2), in("large", "r1", 8)}, c.before...)...)
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: c.waits})
			e := &orbit.Engine{Name: "e", Ledger: l, Navigator: &nav.Services{}}
			for range 3 {
				e.Pass(t.Context())
			}
			require.True(t, snapshot(t, l).Capsule("x").Pending())
			commit(t, l, c.event)
			e.Pass(t.Context())
			require.Equal(t, orbit.NodeID("large"), snapshot(t, l).Capsule("x").Node)
		})
	}
}

// TestOneOfEachName: capsules of different sets that use one port never share a node, under any race; those that use another one, or none, do.
func TestOneOfEachName(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 6 {
		commit(t, l, node(fmt.Sprint("n", i), 100))
	}
	of := func(set string, ports ...string) *orbit.Spec {
		s := &orbit.Spec{Group: set, Groups: ports, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}
		for _, port := range ports {
			s.Apart = append(s.Apart, orbit.Apart{Group: port, Level: orbit.NodeKey})
		}
		return s
	}
	sets := []*orbit.Spec{of("web", "port/80", "port/8080"), of("api", "port/8080"), of("proxy", "port/80"), of("plain")}
	for i, s := range sets {
		for k := range 4 {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("%s-%d", s.Group, k))}, Spec: sets[i]})
		}
	}
	var engines []*orbit.Engine
	for i := range 3 {
		engines = append(engines, &orbit.Engine{Name: fmt.Sprint("e", i), Ledger: l, Navigator: &nav.Services{Placement: &place.Indexed{Seed: uint64(i)}}})
	}
	for range 10 {
		var wg sync.WaitGroup
		for _, e := range engines {
			wg.Go(func() { e.Pass(t.Context()) })
		}
		wg.Wait()
	}
	s, placed := snapshot(t, l), map[string]int{}
	for n := range s.Nodes() {
		users := map[string]int{}
		for c := range s.On(n.Node.ID) {
			placed[c.Spec.Group]++
			for group := range c.Spec.MemberOf {
				users[group]++
			}
		}
		require.LessOrEqual(t, users["port/80"], 1)
		require.LessOrEqual(t, users["port/8080"], 1)
	}
	require.LessOrEqual(t, placed["web"]+placed["api"], 6)
	require.LessOrEqual(t, placed["web"]+placed["proxy"], 6)
	require.Equal(t, 4, placed["plain"])
	require.NotZero(t, s.PendingCount(), "eight ask for each port of six nodes")
}

// What a plan places opens nodes to a class for which it had none before.
func TestServicesFollowWhatTheirPlanPlaces(t *testing.T) {
	l := &orbit.MemoryLedger{}
	near, db := spec(1, 0), spec(1, 0)
	near.Nears, db.Group = []orbit.Near{{Group: "db", Level: orbit.NodeKey}}, "db"
	commit(t, l, node("n", 9))
	submit(t, l, "before", 1, near)
	submit(t, l, "db", 1, db)
	submit(t, l, "after", 1, near)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Services{}}
	require.Equal(t, 2, e.Pass(t.Context()).Committed)
	require.True(t, snapshot(t, l).Capsule("after-0").Placed())
}
