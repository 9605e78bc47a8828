package whatif_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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

// at is a node in a zone, "" for none, with so much room.
func at(id, zone string, cpu int64) orbit.PutNode {
	n := orbit.Node{ID: orbit.NodeID(id), Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: map[string]string{}}
	if zone != "" {
		n.Labels["zone"] = zone
	}
	return orbit.PutNode{Node: n}
}

// member is a member of group db that has no rules, takes so much, and is placed.
func member(id, node string, cpu int64) []orbit.Commitment {
	spec := wants(cpu, 0)
	spec.Group = "db"
	return []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: spec}, orbit.Place{Capsule: orbit.CapsuleID(id), Node: orbit.NodeID(node)}}
}

func even(e orbit.Even) *orbit.Spec {
	s := wants(2, 5)
	e.Group, s.Group = "db", "db"
	s.Even = []orbit.Even{e}
	return s
}

// TestFixesUnderRules: where rules of company close nodes, the fixes are those that break no rule.
func TestFixesUnderRules(t *testing.T) {
	apart := wants(2, 5)
	apart.Group, apart.Apart = "db", []orbit.Apart{{Group: "db", Level: "zone"}}
	racks := even(orbit.Even{Level: "zone"})
	racks.Apart = []orbit.Apart{{Group: "db", Level: "rack"}}
	keeper := wants(1, 0)
	keeper.Apart = []orbit.Apart{{Group: "db", Level: "zone"}}
	plain := wants(2, 5)
	plain.Group = "db"
	ssd := even(orbit.Even{Level: "zone"})
	ssd.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
	rack := func(p orbit.PutNode, rack string) orbit.PutNode { p.Node.Labels["rack"] = rack; return p }
	disk := func(p orbit.PutNode) orbit.PutNode { p.Node.Labels["disk"] = "ssd"; return p }
	until := func(s int64) time.Time { return time.Unix(s, 0) }
	held := func(id, node string, cpu, ends int64) orbit.Hold {
		return orbit.Hold{ID: orbit.HoldID(id), Node: orbit.NodeID(node), Room: orbit.Resources{orbit.CPU: cpu}, Ends: until(ends)}
	}
	for _, c := range []struct {
		name string
		spec *orbit.Spec
		do   []orbit.Commitment
		with [][]orbit.Commitment
		want string
	}{
		{"each zone has one that must be apart", apart, []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 4)}, [][]orbit.Commitment{member("a", "a1", 1), member("b", "b1", 1)},
			"evict \"b\", which has a lower priority: then node b1 takes it; move \"a\" to node b1: then node a1 takes it; add a node in a new zone: one like b1"},
		{"what runs keeps members away", plain, []orbit.Commitment{at("a1", "a", 4), orbit.Submit{IDs: []orbit.CapsuleID{"k"}, Spec: keeper}, orbit.Place{Capsule: "k", Node: "a1"}}, nil,
			"evict \"k\", which has a lower priority: then node a1 takes it; add a node in a new zone: one like a1"},
		{"the zone with the fewest has no room", even(orbit.Even{Level: "zone"}), []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 1)}, [][]orbit.Commitment{member("a", "a1", 1)},
			"move \"a\" to node b1: then node a1 takes it; ask for 0.001 cores less: then node b1 takes it; add a node in zone b: one like a1"},
		{"the zone with the fewest has no room, but a kind of node", even(orbit.Even{Level: "zone"}), []orbit.Commitment{at("a1", "a", 3), at("b1", "b", 4)},
			[][]orbit.Commitment{member("a", "a1", 1), {orbit.Submit{IDs: []orbit.CapsuleID{"filler"}, Spec: wants(3, 9)}, orbit.Place{Capsule: "filler", Node: "b1"}}},
			"move \"a\" to node b1: then node a1 takes it; ask for 0.001 cores less: then node b1 takes it; add a node like b1"},
		{"too few zones, and each has its share", even(orbit.Even{Level: "zone", MinDomains: 3}), []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 4)}, [][]orbit.Commitment{member("a", "a1", 1), member("b", "b1", 1)},
			"add a node in a new zone: one like b1"},
		{"a declared zone has no node", even(orbit.Even{Level: "zone", MinDomains: 3, Domains: []string{"a", "b", "c"}}), []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 4)},
			[][]orbit.Commitment{member("a", "a1", 1), member("b", "b1", 1)}, "add a node in zone c: one like b1"},
		{"no declared zone is left", even(orbit.Even{Level: "zone", MinDomains: 3, Domains: []string{"a", "b"}}), []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 4)},
			[][]orbit.Commitment{member("a", "a1", 1), member("b", "b1", 1)}, ""},
		{"no node has the label", even(orbit.Even{Level: "zone"}), []orbit.Commitment{at("n", "", 4)}, nil, "add a node in a new zone: one like n"},
		{"two rules, of which one opens no rack", racks, []orbit.Commitment{rack(at("a1", "a", 9), "r1"), rack(at("b1", "b", 4), "r2")}, [][]orbit.Commitment{member("a", "a1", 1), member("b", "b1", 1)},
			"evict \"b\", which has a lower priority: then node b1 takes it; move \"a\" to node b1: then node a1 takes it; add a node in a new rack: one like b1"},
		{"two rules, and both close", racks, []orbit.Commitment{rack(at("a1", "a", 4), "r1"), rack(at("b1", "b", 1), "r1")}, [][]orbit.Commitment{member("a", "a1", 1)},
			"add a node in a new rack and in zone b: one like a1"},
		{"who makes way is in a zone that is open", even(orbit.Even{Level: "zone"}), []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 2), orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: wants(1, 0)},
			orbit.Place{Capsule: "low", Node: "b1"}}, [][]orbit.Commitment{member("a", "a1", 1)},
			`evict "low", which has a lower priority: then node b1 takes it; move "a" to node b1: then node a1 takes it; ask for 0.001 cores less: then node b1 takes it; add a node like b1`},
		{"the hold that ends first is in a closed zone", even(orbit.Even{Level: "zone"}), []orbit.Commitment{at("a1", "a", 3), at("b1", "b", 2), held("first", "a1", 2, 1), held("then", "b1", 1, 2)}, [][]orbit.Commitment{member("a", "a1", 1)},
			`wait for hold "then" until 1970-01-01T00:00:02Z: then node b1 takes it; ask for 0.001 cores less: then node b1 takes it; add a node like b1`},
		{"a smaller change would help but for the rule", ssd, []orbit.Commitment{at("a1", "a", 9), at("b1", "b", 1), disk(at("b2", "b", 0))}, [][]orbit.Commitment{member("a", "a1", 1)},
			"ask for 0.001 cores less and drop the requirement disk in (ssd): then node b1 takes it; add a node with at least 0.002 cores, labelled like b2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, c.do...)
			for _, do := range c.with {
				commit(t, l, do...)
			}
			state := snapshot(t, l)
			e, err := whatif.Explain(context.Background(), state, c.spec)
			require.NoError(t, err)
			var got []string
			for i := range e.Fixes {
				f := &e.Fixes[i]
				got = append(got, f.String())
				fork := &orbit.MemoryLedger{Start: state}
				_, err := fork.Propose(t.Context(), f.Proposal("new"))
				require.NoError(t, err, f.String())
				for skew := range snapshot(t, fork).Skewed() {
					require.Fail(t, "a fix breaks a rule", "%s: %+v", f, skew)
				}
			}
			require.Equal(t, c.want, strings.Join(got, "; "), fmt.Sprint(e))
		})
	}
}

// TestAddedNodesAreMinimal compares with brute force over all copies of members in all domains by which rules go: there is a fix that adds a node exactly
// if one of them takes the capsule, and none of those differs in fewer domains from its like, or is in fewer new ones, or is smaller where these are equal. Only
// where no node is large enough are the copies as large as what is asked for.
func TestAddedNodesAreMinimal(t *testing.T) {
	for seen := range scale.Reach(t, "none", "alike", "elsewhere", "new", "two", "larger") {
		rapid.Check(t, func(t *rapid.T) {
			for range worlds {
				minimalAdd(t, seen)
			}
		})
	}
}

func minimalAdd(t *rapid.T, seen map[string]int) {
	state, spec := world(t), drawSpec(t)
	if spec.Apart == nil && spec.Even == nil {
		drawRules(t, spec)
	}
	e, err := whatif.Explain(context.Background(), state, spec)
	require.NoError(t, err)
	if e.Fits > 0 {
		return
	}
	larger := false
	best := bruteAdd(t, state, e.Spec, larger)
	if best == nil && e.TooLarge != "" {
		larger = true
		best = bruteAdd(t, state, e.Spec, larger)
	}
	at := slices.IndexFunc(e.Fixes, func(f whatif.Fix) bool { return f.Add != nil })
	if at < 0 {
		require.Nil(t, best, "%v", e)
		seen["none"]++
		return
	}
	f := &e.Fixes[at]
	got := added{moved: len(f.In), size: sizeOf(f.Add, e.Spec)}
	for _, d := range f.In {
		if d.New {
			got.fresh++
		}
	}
	require.NotNil(t, best, "%v", e)
	require.Equal(t, *best, got, "%v", e)
	require.Equal(t, larger, f.Like == "", "%v", e)
	if larger {
		seen["larger"]++
	}
	seen[[]string{"alike", "elsewhere", "two"}[min(got.moved, 2)]]++
	seen["new"] += got.fresh
	for _, rule := range e.Spec.Even {
		for _, d := range f.In {
			require.True(t, len(rule.Domains) == 0 || rule.Level != d.Level || slices.Contains(rule.Domains, d.Domain), "%v", e)
		}
	}
}

// added is how much a node differs from its like, and how large it is.
type added struct {
	moved, fresh int
	size         float64
}

func (a added) compare(b added) int {
	return cmp.Or(cmp.Compare(a.moved, b.moved), cmp.Compare(a.fresh, b.fresh), cmp.Compare(a.size, b.size))
}

func sizeOf(n *orbit.Node, spec *orbit.Spec) (size float64) {
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			size += float64(n.Capacity[d]) / float64(want)
		}
	}
	return size
}

// bruteAdd tries all copies of members in all domains, with as much as the spec asks for if they are to be larger, and returns how little one has to differ; nil: none takes a capsule of the spec.
func bruteAdd(t *rapid.T, state *orbit.State, spec *orbit.Spec, larger bool) (best *added) {
	view, draft := &orbit.View{}, &orbit.Draft{}
	require.NoError(t, view.Refresh(context.Background(), &orbit.MemoryLedger{Start: state}, nil, time.Now()))
	draft.Sync(view)
	ruled, _ := draft.RuleLevels(spec)
	levels := slices.Clone(ruled)
	for near := range spec.AllNear {
		levels = append(levels, near.Level)
	}
	slices.Sort(levels)
	levels = slices.Compact(levels)
	for n := range state.Nodes() {
		places := []orbit.Node{*n.Node}
		if larger {
			of := &places[0]
			of.Capacity, of.Extras, of.Devices = spec.Envelope.Reservation, spec.Extras, orbit.Devices{Model: n.Node.Devices.Model, Count: spec.Devices.Count}
		}
		for _, level := range levels {
			if level == orbit.NodeKey {
				continue
			}
			for _, p := range places {
				for _, domain := range []string{"0", "1", "z0", "z1", "z2", "z3", "fresh"} {
					is := level == "zone" == strings.HasPrefix(domain, "z")
					if is && domain != p.Labels[level] || domain == "fresh" {
						q := p
						q.Labels = maps.Clone(p.Labels)
						q.Labels[level] = domain
						places = append(places, q)
					}
				}
			}
		}
		for _, p := range places {
			a := added{size: sizeOf(&p, spec)}
			for level, domain := range p.Labels {
				if domain == n.Node.Labels[level] {
					continue
				}
				if a.moved++; !isKnown(state, spec, level, domain) {
					a.fresh++
				}
			}
			p.ID, p.State = "other", orbit.Ready
			if (best == nil || a.compare(*best) < 0) && takesCopy(state, spec, p) {
				best = &a
			}
		}
	}
	return best
}

// isKnown reports whether a node is in the domain, or the spec names it.
func isKnown(state *orbit.State, spec *orbit.Spec, level, domain string) bool {
	for n := range state.Nodes() {
		if n.Node.Labels[level] == domain {
			return true
		}
	}
	for _, p := range spec.Require {
		if strings.Contains(p.String(), level+" in ("+domain+")") {
			return true
		}
	}
	return slices.ContainsFunc(spec.Even, func(e orbit.Even) bool { return e.Level == level && slices.Contains(e.Domains, domain) })
}

// takesCopy reports whether the ledger would place a capsule of the spec on a node that joins.
func takesCopy(state *orbit.State, spec *orbit.Spec, n orbit.Node) bool {
	joined, err := state.With(orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: n}, orbit.Submit{IDs: []orbit.CapsuleID{"new"}, Spec: spec}}})
	if err != nil {
		return false
	}
	devices, _ := joined.Node(n.ID).PickDevices(spec)
	p := orbit.Proposal{Do: []orbit.Commitment{orbit.Place{Capsule: "new", Node: n.ID, Devices: devices}}}
	if spec.Near.Group != "" && spec.Near.Level != orbit.NodeKey && !slices.ContainsFunc(slices.Collect(state.Nodes()), func(m *orbit.NodeState) bool {
		members := 0
		for at, count := range state.GroupNodes(spec.Near.Group) {
			if at.Node.ID == m.Node.ID {
				members = count
			}
		}
		return members > 0 && m.Node.Labels[spec.Near.Level] == n.Labels[spec.Near.Level]
	}) {
		return false
	}
	return joined.Check(p) == nil
}
