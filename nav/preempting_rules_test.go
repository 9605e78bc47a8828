package nav_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// preemptor runs passes of services that preempt.
func preemptor(l orbit.Ledger, change func(*nav.Preempting)) *orbit.Engine {
	p := &nav.Preempting{Navigator: &nav.Services{}}
	if change != nil {
		change(p)
	}
	return &orbit.Engine{Name: "urgent", Ledger: l, Navigator: p, ParkFor: time.Nanosecond}
}

// runningOn places capsules of these sizes and priorities on a node, in the order of their ids.
func runningOn(t require.TestingT, l orbit.Ledger, on string, capsules map[string][2]int64) {
	var ids []string
	for id := range capsules {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		put(t, l, id, on, cores(capsules[id][0], int32(capsules[id][1])))
	}
}

// evicted lists who was evicted, in the order of the history.
func evicted(t require.TestingT, l orbit.Ledger) (ids []orbit.CapsuleID) {
	changes, err := l.Changes(context.Background(), 0)
	require.NoError(t, err)
	for _, c := range changes {
		if e, ok := c.Do.(orbit.Evict); ok {
			ids = append(ids, e.Capsule)
		}
	}
	return ids
}

// The paragraph on kube-scheduler of what other systems do, as cases: an urgent capsule of 2 cores and priority 10 comes to nodes of 4.
func TestPreemptingAsKubeScheduler(t *testing.T) {
	type nodes map[string]map[string][2]int64 // by node and capsule: size and priority; in order of their names is in order of start
	for _, c := range []struct {
		name  string
		nodes nodes
		want  []orbit.CapsuleID
	}{
		{"equal priority is no victim", nodes{"n": {"a": {4, 10}}}, nil},
		{"higher priority is no victim", nodes{"n": {"a": {3, 11}, "b": {1, 0}}}, nil},
		{"one that does not help is no victim", nodes{"n": {"a": {1, 0}, "b": {3, 10}}}, nil},
		{"nobody leaves where there is room", nodes{"n": {"a": {4, 0}}, "m": {"b": {2, 0}}}, nil},
		{"the most important come back first", nodes{"n": {"a": {2, 5}, "b": {2, 1}}}, []orbit.CapsuleID{"b"}},
		{"of equal priority the older stays", nodes{"n": {"a": {2, 1}, "b": {2, 1}}}, []orbit.CapsuleID{"b"}},
		{"what comes back goes by importance, not by number", nodes{"n": {"a": {2, 5}, "b": {1, 1}, "c": {1, 1}}}, []orbit.CapsuleID{"b", "c"}},
		{"lowest highest victim", nodes{"m": {"a": {4, 5}}, "n": {"b": {2, 1}, "c": {2, 4}}, "o": {"d": {4, 3}}}, []orbit.CapsuleID{"b"}},
		{"lowest highest victim before fewer victims", nodes{"m": {"a": {4, 5}}, "n": {"b": {1, 4}, "c": {1, 4}, "d": {2, 10}}}, []orbit.CapsuleID{"b", "c"}},
		{"least sum of priorities", nodes{"m": {"a": {1, 5}, "b": {1, 4}, "c": {2, 10}}, "n": {"d": {1, 5}, "e": {1, 3}, "f": {2, 10}}}, []orbit.CapsuleID{"d", "e"}},
		{"fewer victims before a lower sum of what is below zero", nodes{"m": {"a": {1, 5}, "b": {1, -5}, "c": {2, 10}}, "n": {"d": {2, 5}, "e": {2, 10}}}, []orbit.CapsuleID{"d"}},
		{"fewest victims where the sums are equal: one of the lowest priority there is adds nothing to a sum", nodes{"m": {"d": {1, 5}, "e": {1, math.MinInt32}, "x": {2, 10}}, "n": {"a": {2, 5}, "y": {2, 10}}}, []orbit.CapsuleID{"a"}},
		{"latest start of the first of the highest victims", nodes{"m": {"a": {4, 5}}, "n": {"b": {4, 5}}}, []orbit.CapsuleID{"b"}},
		{"the priority of the highest victim decides before the start", nodes{"m": {"a": {4, 4}}, "n": {"b": {4, 5}}}, []orbit.CapsuleID{"a"}},
		{"victims leave one node only: two halves on two nodes are no candidate", nodes{"m": {"a": {1, 0}, "x": {3, 10}}, "n": {"b": {1, 0}, "y": {3, 10}}}, nil},
		{"latest start looks at the highest victims only", nodes{"m": {"a": {1, 1}, "d": {1, 5}, "x": {2, 10}}, "n": {"b": {1, 5}, "c": {1, 1}, "y": {2, 10}}}, []orbit.CapsuleID{"d", "a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			var starts []string
			on := map[string]string{}
			for name, capsules := range c.nodes {
				commit(t, l, node(name, 4))
				for id := range capsules {
					starts, on[id] = append(starts, id), name
				}
			}
			slices.Sort(starts)
			for _, id := range starts {
				at := c.nodes[on[id]][id]
				s := cores(at[0], int32(at[1]))
				s.Class = orbit.Batch // another navigator's: it does not evict others in its turn
				put(t, l, id, on[id], s)
			}
			submit(t, l, "urgent", 1, cores(2, 10))
			runOut(t, 3, preemptor(l, nil))
			require.Equal(t, c.want, evicted(t, l))
		})
	}
}

// Which nodes are candidates, and what becomes of the preemptor. An urgent capsule of 2 cores and priority 10 comes to nodes of 4.
func TestPreemptingCandidates(t *testing.T) {
	low := cores(4, 0)
	low.Class = orbit.Batch
	for _, c := range []struct {
		name string
		run  func(t require.TestingT, l orbit.Ledger, urgent *orbit.Spec)
		want []orbit.CapsuleID
	}{
		{"a node whose labels do not match is none, whoever leaves", func(t require.TestingT, l orbit.Ledger, urgent *orbit.Spec) {
			commit(t, l, node("m", 4))
			put(t, l, "a", "m", low)
			urgent.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"x"}}}
		}, nil},
		{"a cordoned node is none", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			commit(t, l, node("m", 4))
			put(t, l, "a", "m", low)
			cordon(t, l, true, "m")
		}, nil},
		{"a node that is too small is none", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			commit(t, l, node("m", 1))
			put(t, l, "a", "m", cores(1, 0))
		}, nil},
		{"all nodes are compared, where Kubernetes stops after a hundred: the best is the last of 300", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			for i := range 300 {
				id := fmt.Sprintf("n%03d", i)
				commit(t, l, node(id, 4))
				s := *low
				s.Priority = 5 - int32(i/299)
				put(t, l, "on "+id, id, &s)
			}
		}, []orbit.CapsuleID{"on n299"}},
		{"among equals the first node by id", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			commit(t, l, node("m", 4), node("n", 4), orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: low},
				orbit.Place{Capsule: "a", Node: "n"}, orbit.Place{Capsule: "b", Node: "m"})
		}, []orbit.CapsuleID{"b"}},
		{"a node with a taint that is not tolerated is none, whoever leaves", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			n := node("m", 4)
			commit(t, l, n)
			put(t, l, "a", "m", low)
			n.Node.Taints = []orbit.Taint{{Key: "gpu", Effect: "NoSchedule"}}
			commit(t, l, n)
		}, nil},
		{"who is protected is no victim, as one that has not run for KAI's minimum: the more important one leaves", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			important := *low
			important.Priority = 5
			commit(t, l, node("m", 4), node("n", 4), orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: low}, orbit.Submit{IDs: []orbit.CapsuleID{"b"}, Spec: &important},
				orbit.Place{Capsule: "a", Node: "m"}, orbit.Protect{Capsule: "a", For: time.Minute}, orbit.Place{Capsule: "b", Node: "n"})
		}, []orbit.CapsuleID{"b"}},
		{"a member that was disrupted before is missing once, and no victim again: of two with one to spare nobody else goes", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			db := *low
			db.Module = "db"
			commit(t, l, node("m", 4), node("n", 4))
			put(t, l, "a", "m", &db)
			put(t, l, "b", "n", &db)
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Module: "db", Expected: 2, Missing: 1}})
			cordon(t, l, true, "m")
			commit(t, l, orbit.Release{Capsule: "a"})
		}, nil},
		{"a victim that still stops makes nobody else leave: the preemptor is placed, where Kubernetes nominates it and looks again", func(t require.TestingT, l orbit.Ledger, _ *orbit.Spec) {
			n := node("m", 4)
			n.Node.Confirms = true
			commit(t, l, n, node("n", 4))
			put(t, l, "a", "m", low)
			commit(t, l, orbit.Confirm{Capsule: "a", Since: snapshot(t, l).Capsule("a").PlacedAt, Begun: true})
			important := *low
			important.Priority = 5
			put(t, l, "b", "n", &important)
		}, []orbit.CapsuleID{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, urgent := &orbit.MemoryLedger{}, cores(2, 10)
			c.run(t, l, urgent)
			submit(t, l, "urgent", 1, urgent)
			runOut(t, 3, preemptor(l, nil))
			require.Equal(t, c.want, evicted(t, l))
			require.Equal(t, c.want != nil, snapshot(t, l).Capsule("urgent-0").Placed())
			causes(t, l, 0)
		})
	}
}

// Budgets are the first thing that kube-scheduler goes by, and the last that it keeps: it breaks those that are in the way. Here none is
// broken.
func TestPreemptingKeepsBudgets(t *testing.T) {
	for _, c := range []struct {
		name    string
		a, b    [2]int64 // size and priority of db-0 and web-0 on m
		missing int      // of db, whose members are db-0 on m and db-1 on n
		want    []orbit.CapsuleID
	}{
		{"fewest budgets broken: another on the node makes way, though it is more important", [2]int64{2, 1}, [2]int64{2, 5}, 0, []orbit.CapsuleID{"web-0"}},
		{"orbit refuses where Kubernetes prefers to break a budget", [2]int64{4, 1}, [2]int64{}, 0, nil},
		{"a budget with one to spare gives one", [2]int64{4, 1}, [2]int64{}, 1, []orbit.CapsuleID{"db-0"}},
		{"orbit refuses the second of two where Kubernetes counts a violation", [2]int64{1, 1}, [2]int64{3, 10}, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, node("m", 4), node("n", 4))
			member := func(size, priority int64, module string) *orbit.Spec {
				s := cores(size, int32(priority))
				s.Module, s.Class = module, orbit.Batch
				return s
			}
			put(t, l, "db-0", "m", member(c.a[0], c.a[1], "db"))
			if c.b[0] > 0 {
				put(t, l, "web-0", "m", member(c.b[0], c.b[1], "web"))
			}
			put(t, l, "db-1", "n", member(4, 10, "db"))
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Module: "db", Expected: 2, Missing: c.missing}})
			submit(t, l, "urgent", 1, cores(2, 10))
			runOut(t, 3, preemptor(l, nil))
			require.Equal(t, c.want, evicted(t, l))
		})
	}
}

// Several members of budgets on the nodes m and n: who makes way for an urgent capsule of 2 cores and priority 10. The module is the first
// word of an id; db may miss one, and web none.
func TestPreemptingKeepsBudgetsOfSeveral(t *testing.T) {
	type capsules map[string][2]int64
	for _, c := range []struct {
		name string
		m, n capsules
		want []orbit.CapsuleID
	}{
		{"who would break a budget comes back first, though it is less important", capsules{"web-0": {2, 0}, "x-0": {2, 5}}, nil, []orbit.CapsuleID{"x-0"}},
		{"the second of two members counts, and one who is more important makes way instead", capsules{"db-0": {1, 1}, "db-1": {1, 1}, "x-0": {2, 5}}, nil, []orbit.CapsuleID{"x-0"}},
		{"orbit refuses where Kubernetes breaks the budget of the second member", capsules{"db-0": {1, 1}, "db-1": {1, 1}, "x-0": {2, 10}}, nil, nil},
		{"a node where no budget is in the way comes first, whatever the priorities", capsules{"web-0": {2, 1}, "x-0": {2, 3}}, capsules{"x-1": {4, 5}}, []orbit.CapsuleID{"x-1"}},
		{"a member that comes back is in nobody's way", capsules{"web-0": {2, 5}, "x-0": {2, 0}}, capsules{"x-1": {4, 1}}, []orbit.CapsuleID{"x-0"}},
		{"of nodes where budgets are in the way the lowest victim decides", capsules{"web-0": {2, 1}, "x-0": {2, 4}}, capsules{"web-1": {2, 1}, "x-1": {2, 3}}, []orbit.CapsuleID{"x-1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			members := map[string]int{}
			for on, capsules := range map[string]capsules{"m": c.m, "n": c.n} {
				if capsules == nil {
					continue
				}
				commit(t, l, node(on, 4))
				for _, id := range slices.Sorted(maps.Keys(capsules)) {
					s := cores(capsules[id][0], int32(capsules[id][1]))
					s.Module, _, _ = strings.Cut(id, "-")
					s.Class = orbit.Batch
					members[s.Module]++
					put(t, l, id, on, s)
				}
			}
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "db", Module: "db", Expected: members["db"], Missing: 1}},
				orbit.PutBudget{Budget: orbit.Budget{ID: "web", Module: "web", Expected: members["web"]}})
			submit(t, l, "urgent", 1, cores(2, 10))
			runOut(t, 3, preemptor(l, nil))
			require.Equal(t, c.want, evicted(t, l))
		})
	}
}

// gangOn places a gang, whose members are on the nodes in turn.
func gangOn(t require.TestingT, l orbit.Ledger, id string, least int, s *orbit.Spec, on ...string) {
	g := orbit.Gang{ID: orbit.GangID(id), Roles: []orbit.Role{{Name: "r", Spec: s, Min: least}}}
	do := []orbit.Commitment{orbit.Submit{Gang: &g}}
	for i, n := range on {
		m := orbit.CapsuleID(fmt.Sprint(id, "-", i))
		g.Roles[0].Members = append(g.Roles[0].Members, m)
		do = append(do, orbit.Place{Capsule: m, Node: orbit.NodeID(n)})
	}
	commit(t, l, do...)
}

// The paragraphs on pod groups and on gang bundles, as cases: one urgent capsule of 2 cores and priority 10 comes.
func TestPreemptingGangsThatRun(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t require.TestingT, l orbit.Ledger)
		want []orbit.CapsuleID
	}{
		{"a gang gives what it has beyond its minimum, the last of those on the node", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "g", 2, cores(2, 1), "m", "m", "n", "n")
		}, []orbit.CapsuleID{"g-1"}},
		{"a gang at its minimum leaves whole", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "g", 3, cores(2, 1), "m", "m", "n")
			put(t, l, "x", "n", cores(2, 10))
		}, []orbit.CapsuleID{"g-0", "g-1", "g-2"}},
		{"orbit refuses to break a minimum: an important member keeps the gang where Kubernetes prefers its pods one by one", func(t require.TestingT, l orbit.Ledger) {
			g := orbit.Gang{ID: "g", Roles: []orbit.Role{{Name: "lead", Spec: cores(2, 10), Members: []orbit.CapsuleID{"lead"}}, {Name: "work", Spec: cores(2, 1), Members: []orbit.CapsuleID{"work"}}}}
			commit(t, l, orbit.Submit{Gang: &g}, orbit.Place{Capsule: "lead", Node: "m"}, orbit.Place{Capsule: "work", Node: "m"})
			put(t, l, "x", "n", cores(4, 10))
		}, nil},
		{"safe surplus before a whole gang", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "a", 0, cores(2, 1), "m")
			gangOn(t, l, "b", 1, cores(2, 1), "m", "n")
			put(t, l, "x", "n", cores(2, 10))
		}, []orbit.CapsuleID{"b-0"}},
		{"no gang leaves whole where single capsules are enough, though Kubernetes would take the gang, whose priority is lower", func(t require.TestingT, l orbit.Ledger) {
			s := cores(2, 2)
			s.Class = orbit.Batch
			put(t, l, "s", "m", s)
			gangOn(t, l, "g", 0, cores(2, 1), "m")
			put(t, l, "x", "n", cores(4, 10))
		}, []orbit.CapsuleID{"s"}},
		{"what several gangs can do without, before any of them whole", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "a", 1, cores(1, 1), "m", "n")
			gangOn(t, l, "b", 1, cores(1, 1), "m", "n")
			gangOn(t, l, "whole", 0, cores(2, 1), "m")
			put(t, l, "x", "n", cores(2, 10))
		}, []orbit.CapsuleID{"a-0", "b-0"}},
		{"orbit goes by priority where Volcano goes by what a gang gives of what is asked: two small gangs before one of higher priority", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "a", 0, cores(1, 1), "m")
			gangOn(t, l, "b", 0, cores(1, 1), "m")
			gangOn(t, l, "c", 0, cores(2, 2), "m")
			put(t, l, "x", "n", cores(4, 10))
		}, []orbit.CapsuleID{"a-0", "b-0"}},
		{"orbit refuses to break the budget of a gang that could only leave whole", func(t require.TestingT, l orbit.Ledger) {
			s := cores(2, 1)
			s.Module = "trainer"
			gangOn(t, l, "g", 0, s, "m", "m", "n")
			put(t, l, "x", "n", cores(2, 10))
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "trainer", Expected: 3, Missing: 2}})
		}, nil},
		{"of equal priority the single capsule goes before the gang", func(t require.TestingT, l orbit.Ledger) {
			put(t, l, "s", "m", cores(2, 1))
			gangOn(t, l, "g", 0, cores(2, 1), "m")
			put(t, l, "x", "n", cores(4, 10))
		}, []orbit.CapsuleID{"s"}},
		{"of equal priority the smaller gang goes", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "a", 0, cores(1, 1), "m", "m")
			gangOn(t, l, "b", 0, cores(2, 1), "m")
			put(t, l, "x", "n", cores(4, 10))
		}, []orbit.CapsuleID{"b-0"}},
		{"of gangs of one size the younger goes", func(t require.TestingT, l orbit.Ledger) {
			gangOn(t, l, "b", 0, cores(2, 1), "m")
			gangOn(t, l, "a", 0, cores(2, 1), "m")
			put(t, l, "x", "n", cores(4, 10))
		}, []orbit.CapsuleID{"a-0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, node("m", 4), node("n", 4))
			c.run(t, l)
			submit(t, l, "urgent", 1, cores(2, 10))
			runOut(t, 3, preemptor(l, nil))
			require.Equal(t, c.want, evicted(t, l))
		})
	}
}

// racks are nodes of 4 cores in racks of two.
func racks(t require.TestingT, l orbit.Ledger, n int) {
	for i := range 2 * n {
		p := node(fmt.Sprintf("r%d-%d", i/2, i%2), 4)
		p.Node.Labels = map[string]string{"rack": fmt.Sprint("r", i/2)}
		commit(t, l, p)
	}
}

// comes submits a gang that waits.
func comes(t require.TestingT, l orbit.Ledger, members, least int, s *orbit.Spec, levels ...string) {
	s.Class = orbit.GangClass
	g := orbit.Gang{ID: "urgent", Levels: levels, Roles: []orbit.Role{{Name: "r", Spec: s, Min: least}}}
	for i := range members {
		g.Roles[0].Members = append(g.Roles[0].Members, orbit.CapsuleID(fmt.Sprint("urgent-", i)))
	}
	commit(t, l, orbit.Submit{Gang: &g})
}

// The searches for victims that are made for single capsules do not count as searches for gangs.
func TestPreemptingForAGangBehindSingles(t *testing.T) {
	l := &orbit.MemoryLedger{}
	racks(t, l, 1)
	runningOn(t, l, "r0-0", map[string][2]int64{"low0": {4, 0}})
	runningOn(t, l, "r0-1", map[string][2]int64{"low1": {4, 0}})
	commit(t, l, node("free", 4))
	for i := range 8 {
		single := cores(1, int32(20+i))
		single.Class = orbit.GangClass
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("single-", i))}, Spec: single})
	}
	comes(t, l, 2, 2, cores(4, 9), "rack")
	runOut(t, 3, &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}})
	require.ElementsMatch(t, []orbit.CapsuleID{"low0", "low1"}, evicted(t, l))
	require.Equal(t, 2, snapshot(t, l).Gang("urgent").Total())
}

// A gang preempts whole, at its minimum, in the one rack where the victims of all members together are best; and nobody is evicted
// where no rack would do.
func TestPreemptingForAGang(t *testing.T) {
	gangs := func(l orbit.Ledger) *orbit.Engine {
		return &orbit.Engine{Name: "gangs", Ledger: l, Navigator: &nav.Preempting{Navigator: &nav.Gang{}}}
	}
	l := &orbit.MemoryLedger{}
	racks(t, l, 3)
	for i, p := range []int64{5, 5, 1, 2, 0, 10} { // the last rack has a node that does not give way
		at := fmt.Sprintf("r%d-%d", i/2, i%2)
		runningOn(t, l, at, map[string][2]int64{"a" + at: {2, p}, "b" + at: {2, p}})
	}
	comes(t, l, 4, 3, cores(2, 9), "rack")
	runOut(t, 3, gangs(l))
	require.ElementsMatch(t, []orbit.CapsuleID{"ar1-0", "br1-0", "br1-1"}, evicted(t, l), "two of priority 1 and one of 2, in rack r1")
	require.Equal(t, 3, snapshot(t, l).Gang("urgent").Total())
	causes(t, l, 0)

	l = &orbit.MemoryLedger{}
	racks(t, l, 2)
	for i := range 4 {
		at := fmt.Sprintf("r%d-%d", i/2, i%2)
		runningOn(t, l, at, map[string][2]int64{"a" + at: {2, 0}, "b" + at: {2, 9}})
	}
	comes(t, l, 3, 3, cores(2, 9), "rack")
	round := gangs(l).Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Empty(t, evicted(t, l))
	require.ErrorContains(t, round.Unplaced[0].Why, "evicting work of lower priority would not help in any domain")

	l = &orbit.MemoryLedger{}
	racks(t, l, 2)
	for i := range 4 {
		at, s := fmt.Sprintf("r%d-%d", i/2, i%2), cores(4, int32(i/2))
		s.Module = fmt.Sprint("rack", i/2)
		put(t, l, "a"+at, at, s)
	}
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "rack0", Expected: 2, Missing: 1}})
	comes(t, l, 2, 2, cores(4, 9), "rack")
	runOut(t, 3, gangs(l))
	require.ElementsMatch(t, []orbit.CapsuleID{"ar1-0", "ar1-1"}, evicted(t, l), "the rack of lower priority keeps its budget, which Kubernetes would break")

	l = &orbit.MemoryLedger{}
	racks(t, l, 2)
	gangOn(t, l, "safe", 1, cores(2, 5), "r0-0", "r0-0", "r0-1", "r0-1")
	gangOn(t, l, "whole", 0, cores(2, 1), "r1-0", "r1-0", "r1-1", "r1-1")
	comes(t, l, 3, 3, cores(2, 9), "rack")
	runOut(t, 3, gangs(l))
	require.ElementsMatch(t, []orbit.CapsuleID{"safe-0", "safe-1", "safe-3"}, evicted(t, l), "what a gang can do without before a whole gang, whatever the priority")

	l = &orbit.MemoryLedger{}
	racks(t, l, 2)
	for i, p := range []int64{3, 1, 2, 5} {
		at := fmt.Sprintf("r%d-%d", i/2, i%2)
		runningOn(t, l, at, map[string][2]int64{"a" + at: {2, p}, "b" + at: {2, 10}})
	}
	comes(t, l, 2, 2, cores(2, 9))
	runOut(t, 3, gangs(l))
	require.ElementsMatch(t, []orbit.CapsuleID{"ar0-1", "ar1-0"}, evicted(t, l), "without levels all nodes are one domain, as they are for Kubernetes: the least important of two racks")
}

// Limits: victims of a plan, a share of what is placed in an hour, classes for which nobody is evicted, and work that has not waited
// long enough. The reason says what it would take, and the work is placed when the limit allows it.
func TestPreemptingKeepsToItsLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		limit func(*nav.Preempting)
		why   string
		first int // placed in the first pass
		all   int
	}{
		{"victims of a plan", func(p *nav.Preempting) { p.Victims = 4 }, "would need 3 victims of priority 0 or less; a plan may evict 4", 1, 4},
		{"fewer victims than one takes", func(p *nav.Preempting) { p.Victims = 2 }, "would need 3 victims of priority 0 or less; a plan may evict 2", 0, 0},
		{"share of an hour", func(p *nav.Preempting) { p.Hourly = 0.4 }, "would need 3 victims of priority 0 or less", 2, 2},
		{"never", func(p *nav.Preempting) {
			p.Never = func(c *orbit.Capsule) bool { return c.Spec.Class == orbit.LatencySensitive }
		}, "0 of 4 nodes fit: 4 lack cpu", 0, 0},
		{"time", func(p *nav.Preempting) { p.After = time.Hour }, "0 of 4 nodes fit: 4 lack cpu", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := full(t, 4)
			submit(t, l, "urgent", 4, cores(3000, 10))
			e := preemptor(l, c.limit)
			placed := func() (n int) {
				for i := range 4 {
					if snapshot(t, l).Capsule(orbit.CapsuleID(fmt.Sprint("urgent-", i))).Placed() {
						n++
					}
				}
				return n
			}
			round := e.Pass(t.Context())
			require.Empty(t, round.Errors)
			require.Equal(t, c.first, placed())
			require.ErrorContains(t, round.Unplaced[len(round.Unplaced)-1].Why, c.why)
			runOut(t, 10, e)
			require.Equal(t, c.all, placed())
		})
	}
}

// Where nobody can make way the class is parked, and comes back when a node offers more.
func TestPreemptingParksWhatNobodyCanMakeWayFor(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, node("n", 4))
	put(t, l, "x", "n", cores(4, 10))
	submit(t, l, "urgent", 1, cores(2, 10))
	e := preemptor(l, nil)
	e.ParkFor = time.Hour
	round := e.Pass(t.Context())
	require.Equal(t, 1, round.Parked)
	require.ErrorContains(t, round.Unplaced[0].Why, "0 of 1 nodes fit: 1 lacks cpu; evicting work of lower priority would not help")
	require.ErrorAs(t, round.Unplaced[0].Why, new(*orbit.NoFit))
	commit(t, l, orbit.Release{Capsule: "x", Final: true})
	runOut(t, 3, e)
	require.True(t, snapshot(t, l).Capsule("urgent-0").Placed())
}

// With a Patient in it After decides what comes first: the room is claimed and free work is waited for, or others are evicted at once.
func TestPreemptingWithPatient(t *testing.T) {
	for _, first := range []string{"evict", "claim"} {
		t.Run(first, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, node("m", 4), node("n", 4))
			put(t, l, "a", "m", batchSpec(4))
			put(t, l, "b", "n", batchSpec(4))
			submit(t, l, "urgent", 1, cores(4, 10))
			p := &nav.Preempting{Navigator: &nav.Patient{Navigator: &nav.Services{}, After: 1}}
			if first == "claim" {
				p.After = 20 * time.Millisecond
			}
			e := engineOf(l, p)
			if first == "claim" {
				on := nominatedFor(t, l, e, "urgent-0")
				require.Equal(t, []orbit.NodeID{"m"}, on)
				require.Empty(t, evicted(t, l))
				time.Sleep(30 * time.Millisecond)
			}
			runOut(t, 4, e)
			require.True(t, snapshot(t, l).Capsule("urgent-0").Placed())
			require.Equal(t, []orbit.CapsuleID{map[string]orbit.CapsuleID{"evict": "b", "claim": "a"}[first]}, evicted(t, l), "the latest started, or the one whose room is claimed")
		})
	}
}

// A navigator that leaves out without a reason, or that is missing, does no harm.
func TestPreemptingOfOddNavigators(t *testing.T) {
	l := full(t, 1)
	submit(t, l, "urgent", 2, cores(3000, 10))
	_, err := (&nav.Preempting{}).Plan(t.Context(), viewOf(t, l), nil)
	require.ErrorContains(t, err, "Preempting.Navigator is nil")
	round := preemptor(l, func(p *nav.Preempting) {
		p.Navigator = nav.Func(func(_ context.Context, _ *orbit.View, pending []*orbit.Capsule) (plan orbit.Plan, err error) {
			plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{})
			for _, c := range pending {
				plan.Unplaced = append(plan.Unplaced, orbit.Unplaced{Capsule: c})
			}
			return plan, nil
		})
	}).Pass(t.Context())
	require.Empty(t, round.Errors)
	require.Equal(t, 1, round.Committed)
	require.Len(t, evicted(t, l), 3)
}
