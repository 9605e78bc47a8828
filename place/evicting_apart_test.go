package place

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/cputime"
	"github.com/orbitsched/orbit/internal/scale"
)

// away is a spec of so much CPU and a priority, apart from group "web" by a level.
func away(cpu int64, priority int32, level string) *orbit.Spec {
	s := wants(cpu)
	s.Priority, s.Apart = priority, []orbit.Apart{{Group: "web", Level: level}}
	return s
}

// strict makes the rules of a spec ask for the label.
func strict(s *orbit.Spec) *orbit.Spec {
	for i := range s.Apart {
		s.Apart[i].Labelled = true
	}
	return s
}

// web is a spec of the group "web".
func web(cpu int64, priority int32) *orbit.Spec {
	s := wants(cpu)
	s.Priority, s.Group = priority, "web"
	return s
}

// run submits a capsule and places it on a node.
func run(t *testing.T, l orbit.Ledger, id orbit.CapsuleID, on orbit.NodeID, spec *orbit.Spec) {
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: on})
}

// begun lets the agents of nodes say that what is on them has begun.
func begun(t *testing.T, l orbit.Ledger, ids ...orbit.CapsuleID) {
	for _, id := range ids {
		c := snapshotOf(t, l).Capsule(id)
		commit(t, l, orbit.Confirm{Capsule: id, Since: c.PlacedAt, Begun: true})
	}
}

// inRack describes a node in a rack, which may confirm.
func inRack(id orbit.NodeID, rack string, cpu int64, confirms bool) orbit.PutNode {
	n := labelled(machine(id, cpu), "rack", rack)
	n.Confirms = confirms
	return orbit.PutNode{Node: n}
}

// taken has both engines choose for a capsule "urgent" of a spec, commits the choice, and returns it; no victims: there is none.
func taken(t *testing.T, l orbit.Ledger, spec *orbit.Spec) (node orbit.NodeID, victims []orbit.CapsuleID, why error) {
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: spec})
	for i, e := range []BestEvictor{&Exhaustive{}, &Indexed{}} {
		v, _ := viewOf(t, l, nil)
		a := &asker{BestEvictor: e}
		a.draft.Sync(v)
		got, err := a.BestEvicting(&a.draft, v.State().Capsule("urgent"))
		if err != nil {
			require.ErrorAs(t, err, new(*orbit.NoFit))
			require.True(t, i == 0 || why != nil && why.Error() == err.Error(), "%v and %v", why, err)
			why = err
			continue
		}
		require.NoError(t, why)
		at := got.Choice.Node.Node.ID
		require.True(t, i == 0 || node == at)
		node, victims = at, idsOf(got.Victims)
		require.NoError(t, got.On(&a.draft, v.State().Capsule("urgent")))
		p := a.draft.Propose()
		reduced, err := v.State().Judge(p)
		require.NoError(t, err)
		require.Equal(t, p.Do, reduced.Do, "the referee spares none")
		if i == 1 {
			commit(t, l, p.Do...)
			require.Equal(t, node, snapshotOf(t, l).Capsule("urgent").Node)
		}
	}
	return node, victims, why
}

// padded is a ledger with so many nodes that take nobody that Indexed searches by its index.
func padded(t *testing.T) *orbit.MemoryLedger {
	l := &orbit.MemoryLedger{}
	var pad []orbit.Commitment
	for i := range 2 * scanBelow {
		n := machine(orbit.NodeID(fmt.Sprintf("z%03d", i)), 10)
		n.Labels = map[string]string{"rack": fmt.Sprint("z", i)}
		n.Taints = []orbit.Taint{{Key: "k", Effect: "NoSchedule"}}
		pad = append(pad, orbit.PutNode{Node: n})
	}
	commit(t, l, pad...)
	return l
}

// planners are both engines, each with a plan of its own.
type planners struct {
	*testing.T
	*orbit.MemoryLedger
	all []*asker
}

// plan begins a plan on the ledger's newest state.
func (p *planners) plan() {
	for _, a := range p.all {
		require.NoError(p, a.view.Refresh(p.Context(), p.MemoryLedger, nil, time.Unix(1000, 0)))
		a.draft.Sync(&a.view)
	}
}

// find requires that both find this node and these victims for "urgent"; no node: that both find nothing.
func (p *planners) find(node orbit.NodeID, want ...orbit.CapsuleID) {
	p.Helper()
	for _, a := range p.all {
		got, err := a.BestEvicting(&a.draft, a.view.State().Capsule("urgent"))
		if node == "" {
			require.ErrorAs(p, err, new(*orbit.NoFit), "%T", a.BestEvictor)
			continue
		}
		require.NoError(p, err, "%T", a.BestEvictor)
		require.Equal(p, node, got.Choice.Node.Node.ID, "%T", a.BestEvictor)
		require.Equal(p, want, idsOf(got.Victims), "%T", a.BestEvictor)
	}
}

// replace has both plans evict a victim for "top", which takes its place.
func (p *planners) replace(victim orbit.CapsuleID) {
	for _, a := range p.all {
		v := a.view.State().Capsule(victim)
		e := Eviction{Choice: orbit.Choice{Node: a.draft.Node(a.view.State().Node(v.Node).Index())}, Victims: []*orbit.Capsule{v}}
		require.NoError(p, e.On(&a.draft, a.view.State().Capsule("top")))
		a.draft.Propose()
	}
}

// TestEvictingAfterOthersLeft: who is in the way in a rack is found anew whenever somebody has left it, in the plan or before it, a node has joined it,
// or a protection has ended, also on nodes that have not changed themselves.
func TestEvictingAfterOthersLeft(t *testing.T) {
	for name, check := range map[string]func(t *testing.T, p *planners){
		"the plan has evicted one of them": func(t *testing.T, p *planners) {
			run(t, p, "w", "m", web(10, 1))
			p.plan()
			p.find("m", "w", "x")
			p.replace("w")
			p.find("n", "x")
		},
		"the plan has evicted one of them, and taken back very much": func(t *testing.T, p *planners) {
			run(t, p, "w", "m", web(10, 1))
			p.plan()
			p.find("m", "w", "x")
			p.replace("w")
			for _, a := range p.all {
				_, cursor, _ := a.draft.Changed(0)
				for all := false; !all; _, _, all = a.draft.Changed(cursor) {
					start := a.draft.Checkpoint()
					require.NoError(t, a.draft.Hold(orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{1}, Ends: time.Unix(2000, 0)}))
					a.draft.Rollback(start)
				}
			}
			p.find("n", "x")
		},
		"the plan has evicted the one that may not make way": func(t *testing.T, p *planners) {
			run(t, p, "w", "m", web(10, 7))
			p.plan()
			p.find("")
			p.replace("w")
			p.find("n", "x")
		},
		"one has left": func(t *testing.T, p *planners) {
			run(t, p, "w", "m", web(10, 7))
			p.plan()
			p.find("")
			commit(t, p, orbit.Release{Capsule: "w", Final: true}, orbit.Place{Capsule: "top", Node: "m"})
			p.plan()
			p.find("n", "x")
		},
		"a node has joined with another": func(t *testing.T, p *planners) {
			run(t, p, "w", "m", web(10, 1))
			p.plan()
			p.find("m", "w", "x")
			commit(t, p, inRack("o", "r", 1, false))
			run(t, p, "y", "o", web(1, 3))
			p.plan()
			p.find("m", "y", "w", "x")
		},
		"a protection has ended, by a rule by node": func(t *testing.T, p *planners) {
			commit(t, p, orbit.Release{Capsule: "x", Final: true}, orbit.Place{Capsule: "top", Node: "n"}, orbit.Release{Capsule: "urgent", Final: true},
				orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: away(8, 5, orbit.NodeKey)}, orbit.Submit{IDs: []orbit.CapsuleID{"w"}, Spec: web(1, 1)},
				orbit.Place{Capsule: "w", Node: "m"}, orbit.Protect{Capsule: "w", For: time.Minute})
			p.plan()
			p.find("")
			commit(t, p, orbit.Protect{Capsule: "w", Since: snapshotOf(t, p).Capsule("w").PlacedAt})
			p.plan()
			p.find("m", "w")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &planners{t, padded(t), []*asker{{BestEvictor: &Exhaustive{}}, {BestEvictor: &Indexed{}}}}
			top := wants(10)
			top.Priority = 9
			commit(t, p, inRack("m", "r", 10, false), inRack("n", "r", 10, false), orbit.Submit{IDs: []orbit.CapsuleID{"top"}, Spec: top},
				orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: away(8, 5, "rack")})
			run(t, p, "x", "n", web(8, 0))
			check(t, p)
		})
	}
}

// TestEvictingWhomARuleKeepsOff has who makes way by a rule of company, case by case. The nodes are padded with some that take nobody, so that
// Indexed searches by its index.
func TestEvictingWhomARuleKeepsOff(t *testing.T) {
	gang := func(id orbit.GangID, minimum int, spec *orbit.Spec, on map[orbit.CapsuleID]orbit.NodeID) []orbit.Commitment {
		g := orbit.Gang{ID: id, Roles: []orbit.Role{{Name: "r", Spec: spec, Min: minimum}}}
		var places []orbit.Commitment
		for _, m := range []orbit.CapsuleID{"m1", "m2", "m3"} {
			if on[m] != "" {
				g.Roles[0].Members = append(g.Roles[0].Members, m)
				places = append(places, orbit.Place{Capsule: m, Node: on[m]})
			}
		}
		return append([]orbit.Commitment{orbit.Submit{Gang: &g}}, places...)
	}
	for _, c := range []struct {
		name  string
		build func(t *testing.T, l orbit.Ledger)
		spec  *orbit.Spec
		node  orbit.NodeID
		want  []orbit.CapsuleID
	}{
		{"by node: one on the node, though there is room for both", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false))
			run(t, l, "w", "n", web(1, 0))
			run(t, l, "x", "n", wants(1))
		}, away(1, 5, orbit.NodeKey), "n", []orbit.CapsuleID{"w"}},
		{"by node: what it gives back counts", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false))
			run(t, l, "w", "n", web(4, 0))
			run(t, l, "x", "n", wants(3))
			run(t, l, "y", "n", wants(3))
		}, away(4, 5, orbit.NodeKey), "n", []orbit.CapsuleID{"w"}},
		{"by node: others beside it, where it does not give back enough", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false))
			run(t, l, "w", "n", web(4, 0))
			run(t, l, "x", "n", wants(3))
			run(t, l, "y", "n", wants(3))
		}, away(5, 5, orbit.NodeKey), "n", []orbit.CapsuleID{"w", "y"}},
		{"by rack: all of the rack, on several nodes, and no more", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false), inRack("o", "r", 10, false))
			run(t, l, "w", "n", web(1, 1))
			run(t, l, "x", "m", web(1, 2))
			run(t, l, "y", "n", wants(1))
			run(t, l, "z", "m", wants(1))
		}, away(10, 5, "rack"), "o", []orbit.CapsuleID{"x", "w"}},
		{"the rule is that of those who run", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false))
			run(t, l, "w", "n", away(1, 0, "rack"))
		}, web(10, 5), "m", []orbit.CapsuleID{"w"}},
		{"two rules by two levels, one capsule that breaks both", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 1, false))
			db := away(1, 0, orbit.NodeKey)
			db.Group = "web"
			run(t, l, "w", "n", db)
			run(t, l, "x", "m", web(1, 0))
		}, func() *orbit.Spec {
			s := away(2, 5, "rack")
			s.Group = "web"
			return s
		}(), "n", []orbit.CapsuleID{"w", "x"}},
		{"one of them is of equal priority", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false))
			run(t, l, "w", "n", web(1, 0))
			run(t, l, "x", "m", web(1, 5))
		}, away(1, 5, "rack"), "", nil},
		{"one of them is protected", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false))
			run(t, l, "w", "n", web(1, 0))
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: web(1, 0)}, orbit.Place{Capsule: "x", Node: "m"}, orbit.Protect{Capsule: "x", For: time.Minute})
		}, away(1, 5, "rack"), "", nil},
		{"a budget keeps one of them", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false))
			run(t, l, "w", "n", web(1, 0))
			run(t, l, "x", "m", web(1, 0))
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 2, Missing: 1}})
		}, away(1, 5, "rack"), "", nil},
		{"a budget leaves only the rack with one of them", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false), inRack("o", "s", 10, false))
			run(t, l, "w", "n", web(1, 0))
			run(t, l, "x", "m", web(1, 0))
			run(t, l, "y", "o", web(1, 4))
			commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "web", Expected: 3, Missing: 1}})
		}, away(1, 5, "rack"), "o", []orbit.CapsuleID{"y"}},
		{"a node without the label takes nobody whose rule asks for it", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, orbit.PutNode{Node: machine("n", 10)})
			run(t, l, "w", "n", web(1, 0))
		}, strict(away(1, 5, "rack")), "", nil},
		{"on a node without the label the rule does not hold, and a victim makes room alone", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, orbit.PutNode{Node: machine("n", 10)})
			run(t, l, "w", "n", web(9, 0))
			run(t, l, "x", "n", web(1, 0))
		}, away(9, 5, "rack"), "n", []orbit.CapsuleID{"w"}},
		{"a member of a gang elsewhere, beyond its minimum", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false), inRack("o", "s", 3, false))
			commit(t, l, gang("g", 1, web(1, 0), map[orbit.CapsuleID]orbit.NodeID{"m1": "n", "m2": "o"})...)
		}, away(10, 5, "rack"), "m", []orbit.CapsuleID{"m1"}},
		{"a whole gang, where it needs the member", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false), inRack("o", "s", 3, false))
			commit(t, l, gang("g", 2, web(1, 0), map[orbit.CapsuleID]orbit.NodeID{"m1": "n", "m2": "o"})...)
		}, away(10, 5, "rack"), "m", []orbit.CapsuleID{"m1", "m2"}},
		{"more members than the gang can do without, some on the node", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false), inRack("o", "s", 3, false))
			commit(t, l, gang("g", 2, web(1, 0), map[orbit.CapsuleID]orbit.NodeID{"m1": "n", "m2": "m", "m3": "o"})...)
		}, away(9, 5, "rack"), "m", []orbit.CapsuleID{"m1", "m2", "m3"}},
		{"no whole gang of which one is protected", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "r", 10, false), inRack("o", "s", 3, false))
			commit(t, l, append(gang("g", 2, web(1, 0), map[orbit.CapsuleID]orbit.NodeID{"m1": "n", "m2": "o"}), orbit.Protect{Capsule: "m2", For: time.Minute})...)
		}, away(10, 5, "rack"), "", nil},
		{"a member beyond the minimum that was found with another spec, not one that started later; another is protected", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("o", "s", 1, false))
			commit(t, l, gang("g", 2, wants(1), map[orbit.CapsuleID]orbit.NodeID{"m1": "n", "m2": "n", "m3": "o"})[0])
			commit(t, l, orbit.Adopt{Capsule: "m1", Spec: web(1, 0), Node: "n"})
			commit(t, l, orbit.Place{Capsule: "m2", Node: "n"}, orbit.Place{Capsule: "m3", Node: "o"}, orbit.Protect{Capsule: "m3", For: time.Minute})
		}, away(2, 5, orbit.NodeKey), "n", []orbit.CapsuleID{"m1"}},
		{"one that has begun on the node: the newcomer waits there until it has stopped", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, true))
			run(t, l, "w", "n", web(1, 0))
			begun(t, l, "w")
		}, away(1, 5, orbit.NodeKey), "n", []orbit.CapsuleID{"w"}},
		{"one that has begun on another node of the rack: there nobody waits for it, so only its own node is left", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("a", "r", 10, true), inRack("n", "r", 10, true))
			run(t, l, "w", "n", web(1, 0))
			begun(t, l, "w")
		}, away(1, 5, "rack"), "n", []orbit.CapsuleID{"w"}},
		{"two that have begun on two nodes of the rack", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("m", "r", 10, true), inRack("n", "r", 10, true))
			run(t, l, "w", "n", web(1, 0))
			run(t, l, "x", "m", web(1, 0))
			begun(t, l, "w", "x")
		}, away(1, 5, "rack"), "", nil},
		{"two that are placed there and have not begun", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("m", "r", 10, true), inRack("n", "r", 9, true))
			run(t, l, "w", "n", web(1, 0))
			run(t, l, "x", "m", web(1, 0))
		}, away(10, 5, "rack"), "m", []orbit.CapsuleID{"w", "x"}},
		{"what has left and still runs on another node of the rack", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("m", "r", 10, true), inRack("n", "r", 10, true))
			run(t, l, "w", "n", web(1, 0))
			begun(t, l, "w")
			run(t, l, "x", "m", web(1, 0))
			commit(t, l, orbit.Release{Capsule: "w", Final: true})
		}, away(1, 5, "rack"), "n", []orbit.CapsuleID{"x"}},
		{"what has left and still runs closes the node by itself: it opens by itself", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, true))
			run(t, l, "w", "n", web(1, 0))
			begun(t, l, "w")
			commit(t, l, orbit.Release{Capsule: "w", Final: true})
		}, away(1, 5, orbit.NodeKey), "", nil},
		{"one that has begun where nobody confirms any more", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, true))
			run(t, l, "w", "n", web(1, 0))
			begun(t, l, "w")
			commit(t, l, inRack("n", "r", 10, false))
		}, away(1, 5, orbit.NodeKey), "", nil},
		{"a rule Even closes the node, and stays closed whoever leaves", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "s", 10, false))
			m := machine("m", 10)
			m.Labels = map[string]string{"rack": "s"}
			m.Cordon(true)
			run(t, l, "w", "n", web(1, 0))
			commit(t, l, orbit.PutNode{Node: m})
		}, func() *orbit.Spec {
			s := web(1, 5)
			s.Even = []orbit.Even{{Group: "web", Level: "rack"}}
			return s
		}(), "", nil},
		{"a rule Even closes the node, and stays closed though its member would have to leave", func(t *testing.T, l orbit.Ledger) {
			commit(t, l, inRack("n", "r", 10, false), inRack("m", "s", 1, false))
			both := web(1, 0)
			both.Groups = []string{"set"}
			run(t, l, "w", "n", both)
		}, func() *orbit.Spec {
			s := away(2, 5, "rack")
			s.Group, s.Even = "set", []orbit.Even{{Group: "set", Level: "rack"}}
			return s
		}(), "", nil},
		{"victims whose leaving would break its rule Even", func(t *testing.T, l orbit.Ledger) {
			m := labelled(labelled(machine("m", 1), "zone", "b"), "rack", "r")
			commit(t, l, orbit.PutNode{Node: labelled(labelled(machine("n", 10), "zone", "a"), "rack", "r")}, orbit.PutNode{Node: m})
			set, db := wants(1), wants(1)
			set.Group, db.Group, db.Groups = "set", "set", []string{"web"}
			run(t, l, "s", "n", set)
			run(t, l, "w", "m", db)
		}, func() *orbit.Spec {
			s := away(2, 5, "rack")
			s.Group, s.Even = "set", []orbit.Even{{Group: "set", Level: "zone"}}
			return s
		}(), "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := padded(t)
			c.build(t, l)
			node, got, why := taken(t, l, c.spec)
			require.Equal(t, c.node, node, "%v", why)
			require.Equal(t, c.want, got)
		})
	}
}

// TestEvictingByRulesOpensFewNodes: where every node or every rack has somebody whom a rule keeps off, Indexed looks at the capsules of a node or two for each
// preemption. How many bounds it computes depends on the number of nodes only for the first one of a class, and by rack for the first one of each view.
func TestEvictingByRulesOpensFewNodes(t *testing.T) {
	scale.Sequential(t)
	scale.Long(t)
	const perRack, urgent = 40, 100
	for _, c := range []struct {
		level string
		order string
		nodes int
	}{
		{orbit.NodeKey, "room", 10_000}, {orbit.NodeKey, "full", 10_000}, {orbit.NodeKey, "full, and who is in the way came first", 10_000},
		{"rack", "room", 10_000}, {"rack", "full", 2_000},
	} {
		t.Run(fmt.Sprint(c.nodes, " nodes, by ", c.level, ", ", c.order), func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			other := wants(9)
			first := c.order == "full, and who is in the way came first"
			for i := range c.nodes {
				id := orbit.NodeID(fmt.Sprintf("n%05d", i))
				fill := 3
				if c.order == "room" {
					fill = 1
				}
				n := labelled(machine(id, 40), "rack", fmt.Sprint("r", i/perRack))
				do := []orbit.Commitment{orbit.PutNode{Node: n}, orbit.Submit{IDs: names(fmt.Sprint(id, "-"), fill), Spec: other}}
				for _, x := range names(fmt.Sprint(id, "-"), fill) {
					do = append(do, orbit.Place{Capsule: x, Node: id})
				}
				w := orbit.CapsuleID("web-" + id)
				way := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{w}, Spec: web(5, 0)}, orbit.Place{Capsule: w, Node: id}}
				if c.level != orbit.NodeKey && i%perRack > 3 {
					way = nil
				}
				if first {
					do = append(append(do[:1:1], way...), do[1:]...)
				} else {
					do = append(do, way...)
				}
				commit(t, l, do...)
			}
			commit(t, l, orbit.Submit{IDs: names("urgent", urgent), Spec: away(12, 1, c.level)})
			v, refresh := viewOf(t, l, nil)
			e := draftFor(&Indexed{})
			for pass := range 2 {
				refresh()
				e.Sync(v)
				var first, rest time.Duration
				for i, id := range names("urgent", urgent)[pass*urgent/2 : (pass+1)*urgent/2] {
					u := v.State().Capsule(id)
					took := cputime.Of(func() {
						got, err := e.engine.BestEvicting(&e.Draft, u)
						require.NoError(t, err)
						require.NoError(t, got.On(&e.Draft, u))
					})
					if i == 0 {
						first = took
					} else {
						rest += took / (urgent/2 - 1)
					}
					// In the room that an earlier proposal of the plan has left over the ledger may spare a victim.
					if _, err := l.Propose(t.Context(), e.Propose()); !errors.Is(err, orbit.ErrConflict) {
						require.NoError(t, err)
					}
				}
				noted := map[string]int64{}
				for _, n := range e.engine.Notes() {
					noted[n.Key] = n.Value.Int64()
				}
				t.Logf("pass %d: %d preemptions, opened %d, bounded %d, read %d; the first %v, each later one %v of %s",
					pass, noted["evicting"], noted["opened"], noted["bounded"], noted["read"], first, rest, cputime.Name)
				require.LessOrEqual(t, noted["opened"], int64(2*urgent))
				anew := 1 // the bounds of all nodes
				if c.level == orbit.NodeKey {
					anew -= pass
				}
				require.LessOrEqual(t, noted["bounded"], int64(anew*2*c.nodes+(urgent/2+2)*(blockNodes+2)))
			}
		})
	}
}
