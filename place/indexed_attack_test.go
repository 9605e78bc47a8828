package place

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

// attackWorld is 100 nodes, of 1,000 cpu and more, and one spec for each module.
func attackWorld(t *testing.T, modules ...string) (*orbit.MemoryLedger, *orbit.View, func(), []*orbit.Spec) {
	l := &orbit.MemoryLedger{}
	for i := range 100 {
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), int64(1000+i))})
	}
	var specs []*orbit.Spec
	for i, m := range modules {
		commit(t, l, orbit.Submit{IDs: names(fmt.Sprint(m, "-"), 10), Spec: ofModule(m, int64(3+i))})
		specs = append(specs, snapshotOf(t, l).Capsule(orbit.CapsuleID(fmt.Sprint(m, "-0000"))).Spec)
	}
	v, refresh := viewOf(t, l, nil)
	return l, v, refresh, specs
}

// touchy is a score whose bound panics when it is told to.
type touchy struct {
	score.Spread
	calls, at *int
}

func (s touchy) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	bound := s.Spread.Bound(spec, like)
	return func(least, most *score.Extent) (value, tie float64) {
		if *s.calls++; *s.calls == *s.at || *s.at < 0 && spec.Module == "bad" {
			panic("touchy")
		}
		return bound(least, most)
	}
}

// panics reports whether f does.
func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// A bound that panics, for one spec or at one moment, fails that call and no other.
func TestIndexedAfterABoundHasPanicked(t *testing.T) {
	for at := -1; at < 200; at++ {
		l, v, _, specs := attackWorld(t, "bad", "good")
		calls, trigger := 0, at
		e, plain := draftFor(&Indexed{Score: touchy{calls: &calls, at: &trigger}}), draftFor(&Exhaustive{})
		e.Sync(v)
		plain.Sync(v)
		for i := range 5 {
			for j, spec := range specs {
				var got orbit.Choice
				var err error
				if panics(func() { got, err = e.best(spec) }) {
					continue
				}
				require.NoError(t, err, "after %d calls", at)
				want, err := plain.best(spec)
				require.NoError(t, err)
				require.Equal(t, want.Node.Node.ID, got.Node.Node.ID, "after %d calls", at)
				c := snapshotOf(t, l).Capsule(orbit.CapsuleID(fmt.Sprintf("%s-%04d", spec.Module, i)))
				require.NotNil(t, c, j)
				plain.take(c, want)
				e.take(c, got)
			}
		}
	}
}

// A score that panics once, while scores are kept per spec, fails that call and no other.
func TestRankingAfterAScoreHasPanicked(t *testing.T) {
	for _, at := range []int{1, 50, 100, 101, 102, 103} {
		l, v, _, specs := attackWorld(t, "m")
		calls := 0
		e, plain := draftFor(&Indexed{Score: score.Func(func(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
			if calls++; calls == at {
				panic("touchy")
			}
			return score.Spread{}.Score(n, r, s)
		})}), draftFor(&Exhaustive{})
		e.Sync(v)
		plain.Sync(v)
		for i := range 5 {
			var got orbit.Choice
			var err error
			if panics(func() { got, err = e.best(specs[0]) }) {
				got, err = e.best(specs[0])
			}
			require.NoError(t, err)
			want, err := plain.best(specs[0])
			require.NoError(t, err)
			require.Equal(t, want.Node.Node.ID, got.Node.Node.ID, "panic at call %d", at)
			c := snapshotOf(t, l).Capsule(orbit.CapsuleID(fmt.Sprintf("m-%04d", i)))
			plain.take(c, want)
			e.take(c, got)
		}
	}
}

// A choice among the few nodes of a host needs no tree, although its spec divides the nodes anew. Nodes that change before
// the tree is built anew are in the old tree at points of their old kinds.
func TestNodesChangeBeforeTheTreeIsBuiltAnew(t *testing.T) {
	const nodes = maxKinds + 12 // so many that the label host makes too many kinds
	described := func(i int) orbit.Node {
		n := labelled(machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), int64(4+i%3)), "host", fmt.Sprint("h", i))
		if i%7 < 2 {
			n.Labels["disk"] = "ssd"
		}
		if i%10 == 0 {
			n.Labels["zone"] = "a"
		}
		return n
	}
	for cordoned := range nodes {
		l := &orbit.MemoryLedger{}
		for i := range nodes {
			commit(t, l, orbit.PutNode{Node: described(i)})
		}
		var specs []*orbit.Spec
		for i, required := range [][]orbit.Predicate{predicates("zone in (a)"), predicates("disk", "host in (h1)")} {
			s, id := wants(1), orbit.CapsuleID(fmt.Sprint(i))
			s.Require = required
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
			specs = append(specs, snapshotOf(t, l).Capsule(id).Spec)
		}
		v, refresh := viewOf(t, l, nil)
		e := draftFor(&Indexed{})
		e.Sync(v)
		agree(t, v, e, specs...)
		n := described(cordoned)
		n.Cordon(true)
		commit(t, l, orbit.PutNode{Node: n})
		refresh()
		e.Sync(v)
		agree(t, v, e, specs...)
	}
}

// A placement closes its zone by a rule, and changes the node. The node is an exception to the bounds, because the spec
// prefers it by a label with many values. When the zone opens again, the node is still the best of it.
func TestPreferredNodeOfAZoneThatOpensAgain(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range maxKinds + 12 {
		n := labelled(machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), 10), "host", fmt.Sprint("h", i))
		n.Labels["zone"] = string("xy"[i%2])
		commit(t, l, orbit.PutNode{Node: n})
	}
	s := wants(1)
	s.Group, s.Spread = "g", orbit.Domains{Level: "zone"}
	s.Even = []orbit.Even{{Group: "g", Level: "zone", MaxSkew: 1}}
	s.Prefer = []orbit.Preference{{Predicate: predicates("host in (h0)")[0], Weight: 100}}
	commit(t, l, orbit.Submit{IDs: names("k", 6), Spec: s})
	v, _ := viewOf(t, l, nil)
	e := draftFor(&Indexed{})
	e.Sync(v)
	var chosen []orbit.NodeID
	for _, id := range names("k", 6) {
		c := v.State().Capsule(id)
		choice, err := e.best(c.Spec)
		require.NoError(t, err)
		chosen = append(chosen, choice.Node.Node.ID)
		e.take(c, choice)
	}
	require.Equal(t, []orbit.NodeID{"n000", "n001", "n000", "n003", "n000", "n005"}, chosen)
}

// Labels that no node carries divide nothing; when a node brings one, it does.
func TestLabelsThatNobodyCarries(t *testing.T) {
	l, v, refresh, _ := attackWorld(t)
	ask := func(e *drafted[orbit.PlacementEngine], id string) (orbit.Choice, error) {
		e.Sync(v)
		return e.best(snapshotOf(t, l).Capsule(orbit.CapsuleID(id)).Spec)
	}
	for i := range 300 {
		spec := ofModule("m", 3)
		spec.Require = []orbit.Predicate{{Key: fmt.Sprint("job-", i), Op: "DoesNotExist"}}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("x", i))}, Spec: spec})
	}
	refresh()
	indexed := &Indexed{}
	e, plain := draftFor[orbit.PlacementEngine](indexed), draftFor[orbit.PlacementEngine](&Exhaustive{})
	for i := range 300 {
		_, err := ask(e, fmt.Sprint("x", i))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, indexed.index.nodes.builds, 2, "the nodes are divided once for all of them")
	for i := range 10 {
		node := machine("n000", 1000)
		node.Labels = map[string]string{fmt.Sprint("job-", i): "yes"}
		commit(t, l, orbit.PutNode{Node: node})
		refresh()
		for _, id := range []string{fmt.Sprint("x", i), "x299"} {
			got, err := ask(e, id)
			require.NoError(t, err)
			want, err := ask(plain, id)
			require.NoError(t, err)
			require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
		}
	}
}

// Kinds that have no nodes any more are forgotten in time.
func TestKindsAreForgotten(t *testing.T) {
	l, v, refresh, specs := attackWorld(t, "m")
	e := draftFor(&Indexed{})
	for i := range 1000 {
		node := machine("n050", 1000)
		node.Devices = orbit.Devices{Model: fmt.Sprint("model-", i), Count: 1}
		commit(t, l, orbit.PutNode{Node: node})
		refresh()
		e.Sync(v)
		_, err := e.best(specs[0])
		require.NoError(t, err)
		require.Less(t, len(e.engine.index.nodes.kinds.like), 3*maxKinds)
	}
}

// The largest numbers mean all there are.
func TestSampledWithTheLargestNumbers(t *testing.T) {
	l, v, _, specs := attackWorld(t, "m")
	for _, sampled := range []*Sampled{{Enough: math.MaxInt}, {Remember: math.MaxInt}, {Enough: math.MaxInt, Remember: math.MaxInt}} {
		e, plain := draftFor(sampled), draftFor(&Exhaustive{})
		e.Sync(v)
		plain.Sync(v)
		for i := range 10 {
			want, err := plain.best(specs[0])
			require.NoError(t, err)
			got, err := e.best(specs[0])
			require.NoError(t, err)
			c := snapshotOf(t, l).Capsule(orbit.CapsuleID(fmt.Sprintf("m-%04d", i)))
			if sampled.Enough > 0 {
				require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
			}
			plain.take(c, want)
			e.take(c, got)
		}
	}
}

// toggled is a score with a version that may be set to anything.
type toggled struct{ version *uint64 }

func (s toggled) Score(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) (value, tie float64) {
	return math.Abs(float64(n.Index()) - float64(*s.version)), 0
}

func (s toggled) Version() uint64 { return *s.version }

// Terms whose versions change against each other have changed.
func TestVersionsDoNotCancelOut(t *testing.T) {
	_, v, _, specs := attackWorld(t, "m")
	a, b := uint64(1), uint64(2)
	sum := score.WeightedSum{{Weight: 1, Score: toggled{&a}}, {Weight: 10, Score: toggled{&b}}}
	e, plain := draftFor(&Indexed{Score: sum}), draftFor(&Exhaustive{Score: sum})
	e.Sync(v)
	plain.Sync(v)
	for range 2 {
		got, err := e.best(specs[0])
		require.NoError(t, err)
		want, err := plain.best(specs[0])
		require.NoError(t, err)
		require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
		a, b = b, a
	}
}

// Labels with many values are listed. Their nodes move from one value to another, are changed by the plan while a search
// continues, and may come to have few values: choices stay those of Exhaustive, and few values divide the nodes again.
func TestLabelsWithManyValues(t *testing.T) {
	l := &orbit.MemoryLedger{}
	var was [600]int
	zoned := func(zone func(i int) int) {
		var do []orbit.Commitment
		for i := range was {
			if was[i] == zone(i)+1 {
				continue
			}
			was[i] = zone(i) + 1
			do = append(do, orbit.PutNode{Node: labelled(machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), 6), "zone", fmt.Sprint("z", zone(i)))})
		}
		commit(t, l, do...)
	}
	specs := map[string]*orbit.Spec{"required": wants(1), "preferred": wants(2), "spread": wants(3), "excluded": wants(2)}
	specs["required"].Require = predicates("zone in (z1, z2)")
	specs["preferred"].Prefer = []orbit.Preference{{Predicate: predicates("zone in (z1, z2)")[0], Weight: 5}}
	specs["spread"].Spread = orbit.Domains{Level: "zone", Names: []string{"z1", "z2"}}
	specs["excluded"].Require = predicates("zone notin (z1)")
	for name, spec := range specs {
		commit(t, l, orbit.Submit{IDs: names(name, 8), Spec: spec})
	}
	view, refresh := viewOf(t, l, nil)
	indexed, plain := draftFor(&Indexed{}), draftFor(&Exhaustive{})
	for _, zone := range []func(i int) int{
		func(i int) int { return i / 2 },                      // many zones
		func(i int) int { return (i + 10*(i/590)) / 2 % 300 }, // the last ones are in the first zones now
		func(i int) int { return i % 3 },                      // few
		func(i int) int { return i / 2 },
	} {
		zoned(zone)
		refresh()
		indexed.Sync(view)
		plain.Sync(view)
		for _, name := range []string{"required", "preferred", "spread", "excluded"} {
			for _, id := range names(name, 8) { // one spec after another, so that searches continue
				c := view.State().Capsule(id)
				want, err := plain.best(c.Spec)
				require.NoError(t, err)
				got, err := indexed.best(c.Spec)
				require.NoError(t, err)
				require.Equal(t, want.Node.Node.ID, got.Node.Node.ID, "%s, with zone %d for node 100", id, zone(100))
				plain.take(c, want)
				indexed.take(c, got)
			}
		}
		require.Equal(t, zone(100) > 2, indexed.engine.index.nodes.kinds.leavesOut("zone"))
	}
}

// A label that comes when nodes are divided by as many labels as they may be still counts in what specs prefer.
func TestOneLabelMoreThanNodesAreDividedBy(t *testing.T) {
	l := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for i := range 600 {
		n := labelled(machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), 6), "zone", fmt.Sprint("z", i/10))
		for k := range maxKeys {
			n.Labels[fmt.Sprintf("key-%02d", k)] = "v"
		}
		do = append(do, orbit.PutNode{Node: n})
	}
	commit(t, l, do...)
	for k := range maxKeys {
		spec := wants(1)
		spec.Prefer = []orbit.Preference{{Predicate: predicates(fmt.Sprintf("key-%02d in (v)", k))[0], Weight: 5}}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("before-", k))}, Spec: spec})
	}
	prefers, spreads := wants(1), wants(1)
	prefers.Prefer = []orbit.Preference{{Predicate: predicates("zone in (z30)")[0], Weight: 5}}
	spreads.Spread = orbit.Domains{Level: "zone", Names: []string{"z30", "z31"}}
	for name, spec := range map[string]*orbit.Spec{"prefers": prefers, "spreads": spreads} {
		commit(t, l, orbit.Submit{IDs: names(name, 30), Spec: spec})
		view, _ := viewOf(t, l, nil)
		indexed, plain := draftFor(&Indexed{}), draftFor(&Exhaustive{})
		indexed.Sync(view)
		plain.Sync(view)
		for k := range maxKeys {
			_, err := indexed.best(view.State().Capsule(orbit.CapsuleID(fmt.Sprint("before-", k))).Spec)
			require.NoError(t, err)
		}
		for _, id := range names(name, 30) {
			c := view.State().Capsule(id)
			want, err := plain.best(c.Spec)
			require.NoError(t, err)
			got, err := indexed.best(c.Spec)
			require.NoError(t, err)
			require.Equal(t, want.Node.Node.ID, got.Node.Node.ID, name)
			plain.take(c, want)
			indexed.take(c, got)
		}
	}
}

// Specs that speak of ever new labels, which no node carries, fill no memory, and a label that comes later counts.
func TestEverNewLabels(t *testing.T) {
	scale.Long(t)
	l, v, refresh, _ := attackWorld(t)
	e, plain := draftFor(&Indexed{}), draftFor(&Exhaustive{})
	choose := func(label string) {
		id := orbit.CapsuleID(fmt.Sprint("c-", label, "-", v.Revision()))
		spec := ofModule("m", 3)
		spec.Prefer = []orbit.Preference{{Predicate: predicates(label + " in (yes)")[0], Weight: 5}}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec})
		refresh()
		e.Sync(v)
		plain.Sync(v)
		want, err := plain.best(v.State().Capsule(id).Spec)
		require.NoError(t, err)
		got, err := e.best(v.State().Capsule(id).Spec)
		require.NoError(t, err)
		require.Equal(t, want.Node.Node.ID, got.Node.Node.ID, label)
	}
	for i := range maxAbsent + 4*maxLeftOut {
		choose(fmt.Sprint("job-", i))
		x := &e.engine.index.nodes
		k := &x.kinds
		require.LessOrEqual(t, len(k.keys)+len(k.absent)+len(k.leftOut)+len(x.labels.byKey), maxKeys+maxAbsent+2*maxLeftOut+4)
	}
	for _, label := range []string{"job-7", fmt.Sprint("job-", maxAbsent+5), fmt.Sprint("job-", maxAbsent+4*maxLeftOut-1)} {
		commit(t, l, orbit.PutNode{Node: labelled(machine("n050", 1000), label, "yes")})
		choose(label)
		choose(label)
	}
}

// vague is Spread with a bound that says nothing while it is told so.
type vague struct {
	score.Spread
	now *bool
}

func (s vague) Bound(spec *orbit.Spec, like *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
	bound := s.Spread.Bound(spec, like)
	return func(least, most *score.Extent) (value, tie float64) {
		if *s.now {
			return -1e300, -1e300
		}
		return bound(least, most)
	}
}

// A spec whose search did not converge once is searched for again when the tree has been built anew, and not before.
func TestSearchesThatDivergeAreTriedAgain(t *testing.T) {
	for _, seeds := range [][]uint64{{1}, {1, 2}} {
		l := &orbit.MemoryLedger{}
		const nodes = 1000
		var do []orbit.Commitment
		for i := range nodes {
			do = append(do, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("n%05d", i)), int64(1000+i))})
		}
		commit(t, l, do...)
		commit(t, l, orbit.Submit{IDs: names("c", 6*nodes), Spec: wants(1)})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"other"}, Spec: wants(2)})
		now := false
		var all []*sharer
		for _, seed := range seeds {
			all = append(all, &sharer{Indexed: Indexed{Seed: seed, Score: vague{now: &now}}})
		}
		at := 0
		place := func(n int) (ranked int) {
			for range n / 100 {
				for _, s := range all {
					s.sync(t, l)
					for range 100 / len(all) {
						require.NoError(t, s.draft.PlaceBest(&s.Indexed, s.view.State().Capsule(orbit.CapsuleID(fmt.Sprintf("c%04d", at)))))
						_, err := l.Propose(t.Context(), s.draft.Propose())
						require.NoError(t, err)
						at++
					}
					ranked += s.stats.ranked
				}
			}
			return ranked
		}
		ask := func(s *sharer) { // for another spec, which the index follows
			s.sync(t, l)
			_, err := s.Best(&s.draft, s.view.State().Capsule("other").Spec)
			require.NoError(t, err)
		}
		for range 2 { // until they share an index
			for _, s := range all {
				ask(s)
			}
		}
		now = true
		require.Equal(t, 100, place(100))
		now = false
		require.Equal(t, 100, place(100), "the tree is the same")
		for at < 5*nodes {
			place(100)
			ask(all[at/100%len(all)])
		}
		require.Zero(t, place(200))
	}
}

// Of labels that come with one node, and of which only one can divide the nodes, it is the same one each time.
func TestLabelsThatComeTogetherAreNoticedInOrder(t *testing.T) {
	node := &orbit.Node{Labels: map[string]string{"one": "v", "other": "v"}}
	for range 100 {
		k := nodeKinds{absent: map[string]bool{"one": true, "other": true}}
		for i := range maxKeys - 1 {
			k.keys = append(k.keys, fmt.Sprintf("key-%02d", i))
		}
		k.notice(node)
		require.True(t, k.leavesOut("other"))
		require.False(t, k.leavesOut("one"))
	}
}
