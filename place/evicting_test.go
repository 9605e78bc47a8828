package place

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// fullWorld is a ledger whose nodes are nearly full of capsules of many priorities, and urgent capsules that wait.
type fullWorld struct {
	*rand.Rand
	t      require.TestingT
	ledger *orbit.MemoryLedger
	serial int
	nodes  int
	// What may be in it.
	gangs, devices, nominations, budgets, company, even, failures bool
	specs                                                         []*orbit.Spec
}

func newFullWorld(t require.TestingT, seed uint64, nodes int) *fullWorld {
	w := &fullWorld{Rand: rand.New(rand.NewPCG(seed, 1)), t: t, ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 90}}, nodes: nodes}
	return w
}

func (w *fullWorld) node(i int) orbit.NodeID { return orbit.NodeID(fmt.Sprintf("n%03d", i)) }

func (w *fullWorld) build(fill int) {
	var do []orbit.Commitment
	for i := range w.nodes {
		n := labelled(machine(w.node(i), 4+w.Int64N(5)), "zone", []string{"x", "y"}[w.IntN(2)])
		n.Capacity[orbit.Memory] = 4 + w.Int64N(5)
		if w.devices {
			n.Devices = orbit.Devices{Model: []string{"A", "B"}[w.IntN(2)], Count: w.IntN(4)}
			n.Devices.Unhealthy = orbit.DeviceSet(w.IntN(3)) & (1<<n.Devices.Count - 1)
		}
		n.Cordon(w.IntN(12) == 0)
		if w.company && w.IntN(12) > 0 {
			n.Labels["rack"] = fmt.Sprint("r", i%(1+w.nodes/3))
		}
		do = append(do, orbit.PutNode{Node: n})
	}
	commit(w.t, w.ledger, do...)
	for range fill {
		w.arrive()
	}
	for range 6 {
		w.newClass()
	}
	w.putBudgets()
}

// putBudgets lets so many of each module be missing.
func (w *fullWorld) putBudgets() {
	members := w.members()
	for _, module := range []string{"a", "b", "c"} {
		if w.budgets {
			commit(w.t, w.ledger, orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(module), Module: module, Expected: members[module], Missing: w.IntN(4)}})
		}
	}
}

// members counts what is placed of each module.
func (w *fullWorld) members() map[string]int {
	placed := map[string]int{}
	for c := range snapshotOf(w.t, w.ledger).Capsules() {
		placed[c.Spec.Module] += btoi(c.Placed() && c.Spec.Module != "")
	}
	return placed
}

// newClass adds a spec of urgent capsules.
func (w *fullWorld) newClass() {
	spec := w.spec(int32(2 + w.IntN(4)))
	spec.Module = "urgent"
	if w.IntN(3) == 0 {
		spec.Require = []orbit.Predicate{{Key: "zone", Op: "In", Values: []string{"x"}}}
	}
	w.specs = append(w.specs, spec)
}

func (w *fullWorld) spec(priority int32) *orbit.Spec {
	s := wants(1 + w.Int64N(4))
	s.Envelope.Reservation[orbit.Memory] = w.Int64N(3)
	s.Priority = priority
	if w.budgets {
		s.Module = []string{"", "a", "b", "c"}[w.IntN(4)]
	}
	if w.company {
		w.keepCompany(s)
	}
	if w.devices && w.IntN(2) == 0 {
		s.Devices = orbit.DeviceRequest{Count: 1 + w.IntN(2), Milli: []int{300, 500, 1000}[w.IntN(3)]}
	}
	return s
}

// keepCompany puts a spec into groups, and gives it rules about groups.
func (w *fullWorld) keepCompany(s *orbit.Spec) {
	group := func() string { return fmt.Sprint("g", w.IntN(3)) }
	if w.IntN(2) == 0 {
		s.Group = group()
	}
	if w.IntN(4) == 0 {
		s.Groups = []string{group()}
	}
	for range []int{0, 0, 0, 1, 2}[w.IntN(5)] {
		s.Apart = append(s.Apart, orbit.Apart{Group: group(), Level: []string{orbit.NodeKey, "rack"}[w.IntN(2)]})
	}
	if w.even && s.Group != "" && w.IntN(6) == 0 {
		s.Even = []orbit.Even{{Group: s.Group, Level: []string{orbit.NodeKey, "rack", "zone"}[w.IntN(3)], MaxSkew: 1 + w.IntN(2)}}
	}
}

func (w *fullWorld) id(prefix string) orbit.CapsuleID {
	w.serial++
	return orbit.CapsuleID(fmt.Sprintf("%s%04d", prefix, w.serial))
}

// arrive places a capsule or a gang, or does nothing if it does not fit where it is to go.
func (w *fullWorld) arrive() {
	s := snapshotOf(w.t, w.ledger)
	place := func(id orbit.CapsuleID, spec *orbit.Spec) orbit.Commitment {
		n := s.Node(w.node(w.IntN(w.nodes)))
		set, _ := n.PickDevices(spec)
		return orbit.Place{Capsule: id, Node: n.Node.ID, Devices: set}
	}
	spec := w.spec(int32(w.IntN(4)))
	if w.IntN(8) == 0 { // it runs there, whatever else does
		set := orbit.DeviceSet(1<<spec.Devices.Count - 1)
		_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Adopt{Capsule: w.id("f"), Spec: spec, Node: w.node(w.IntN(w.nodes)), Devices: set}}})
		return
	}
	if !w.gangs || w.IntN(3) > 0 {
		id := w.id("c")
		do := []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, place(id, spec)}
		if w.IntN(6) == 0 {
			do = append(do, orbit.Protect{Capsule: id, For: time.Second})
		}
		_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: do})
		return
	}
	g := orbit.Gang{ID: orbit.GangID(w.id("g"))}
	var do []orbit.Commitment
	for r := range 1 + w.IntN(2) {
		role := orbit.Role{Name: fmt.Sprint(r), Spec: spec}
		for range 1 + w.IntN(3) {
			role.Members = append(role.Members, w.id("m"))
			do = append(do, place(role.Members[len(role.Members)-1], spec))
		}
		role.Min = w.IntN(len(role.Members) + 1)
		g.Roles = append(g.Roles, role)
		spec = w.spec(int32(w.IntN(4)))
	}
	if w.IntN(3) == 0 {
		g.Min = 1 + w.IntN(len(do))
	}
	_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: append([]orbit.Commitment{orbit.Submit{Gang: &g}}, do...)})
}

// urgent submits a capsule that waits, a member of a gang now and then, and may nominate room for it.
func (w *fullWorld) urgent() orbit.CapsuleID {
	id, spec := w.id("u"), w.specs[w.IntN(len(w.specs))]
	if w.gangs && w.IntN(4) == 0 {
		commit(w.t, w.ledger, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID("of " + id), Roles: []orbit.Role{{Name: "r", Spec: spec, Members: []orbit.CapsuleID{id}}}}})
		return id
	}
	commit(w.t, w.ledger, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec})
	for w.failures && w.IntN(3) > 0 { // it has run there, whatever else did, and has failed
		_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Adopt{Capsule: id, Node: w.node(w.IntN(w.nodes)), Devices: orbit.DeviceSet(1<<spec.Devices.Count - 1)}}})
		_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Release{Capsule: id, Stopped: true, At: orbit.Instant(time.Unix(1000, 0).UnixNano())}}})
	}
	if w.nominations && w.IntN(2) == 0 {
		room := orbit.NominatedRoom{Node: w.node(w.IntN(w.nodes)), Room: orbit.Resources{orbit.CPU: 1 + w.Int64N(spec.Envelope.Reservation[orbit.CPU])}}
		_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{
			orbit.Nominate{Capsule: id, Parts: []orbit.NominatedRoom{room}, Ends: time.Unix(1<<40, 0)}}})
	}
	return id
}

// churn ends some capsules, lets others come, and changes some nodes.
func (w *fullWorld) churn() {
	w.newClass()
	if w.IntN(2) == 0 {
		w.putBudgets()
	}
	for range 1 + w.IntN(12) {
		switch w.IntN(4) {
		case 2:
			for c := range snapshotOf(w.t, w.ledger).Protections() {
				commit(w.t, w.ledger, orbit.Protect{Capsule: c.ID, Since: c.PlacedAt})
				break
			}
		case 0:
			for c := range snapshotOf(w.t, w.ledger).On(w.node(w.IntN(w.nodes))) {
				_, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: true}}})
				break
			}
		case 1:
			n := *snapshotOf(w.t, w.ledger).Node(w.node(w.IntN(w.nodes))).Node
			n.Cordon(n.Schedulable() && w.IntN(3) == 0)
			n.Devices.Unhealthy ^= 1 << min(n.Devices.Count, 1) >> 1
			if w.IntN(3) == 0 { // below what is in use, perhaps
				n.Capacity[orbit.CPU] = w.Int64N(n.Capacity[orbit.CPU] + 3)
			}
			commit(w.t, w.ledger, orbit.PutNode{Node: n})
		default:
			w.arrive()
		}
	}
}

// dumbVictims has the referee find out who must leave for a node: all on it are evicted that may, and all elsewhere that have to be apart from the
// capsule, in order of importance, and it spares whom it can. It looks at no gang, no device and no nomination.
func dumbVictims(s *orbit.State, c *orbit.Capsule, n *orbit.NodeState) (out []*orbit.Capsule, ok bool) {
	var all []*orbit.Capsule
	for v := range s.Capsules() {
		if v.Placed() && v.Spec.Priority < c.Spec.Priority && s.Protected(v.ID) == 0 && (v.Node == n.Node.ID || dumbApart(s.Node(v.Node).Node, n.Node, v.Spec, c.Spec)) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *orbit.Capsule) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.PlacedAt, b.PlacedAt), cmp.Compare(a.ID, b.ID))
	})
	p := orbit.Proposal{View: s.Revision()}
	for _, v := range all {
		p.Do = append(p.Do, orbit.Evict{Capsule: v.ID, From: v.Node, Since: v.PlacedAt, For: c.ID})
	}
	p.Do = append(p.Do, orbit.Place{Capsule: c.ID, Node: n.Node.ID})
	reduced, err := s.Judge(p)
	for _, do := range reduced.Do {
		if e, is := do.(orbit.Evict); is {
			out = append(out, s.Capsule(e.Capsule))
		}
	}
	return out, err == nil
}

// dumbApart reports whether a rule of one of two specs keeps the other off, if they are on these nodes.
func dumbApart(a, b *orbit.Node, x, y *orbit.Spec) bool {
	for range 2 {
		for _, rule := range x.Apart {
			in, at := a.Labels[rule.Level], b.Labels[rule.Level]
			if rule.Level == orbit.NodeKey {
				in, at = string(a.ID), string(b.ID)
			}
			if in != "" && in == at && (y.Group == rule.Group || slices.Contains(y.Groups, rule.Group)) {
				return true
			}
		}
		a, b, x, y = b, a, y, x
	}
	return false
}

// dumbKeyOf is what nodes are compared by.
func dumbKeyOf(node orbit.NodeID, out []*orbit.Capsule) string {
	highest, sum, start := int64(math.MinInt32)-1, int64(0), orbit.Revision(math.MaxInt64)
	for _, v := range out {
		highest = max(highest, int64(v.Spec.Priority))
		sum += int64(v.Spec.Priority) + 1<<31
	}
	for _, v := range out {
		if int64(v.Spec.Priority) == highest {
			start = min(start, v.PlacedAt)
		}
	}
	return fmt.Sprintf("%020d %020d %05d %020d %s", highest+1<<32, sum, len(out), math.MaxInt64-int64(start), node)
}

func idsOf(capsules []*orbit.Capsule) (ids []orbit.CapsuleID) {
	for _, c := range capsules {
		ids = append(ids, c.ID)
	}
	return ids
}

// TestVictimsAreWhomTheRefereeWouldNotSpare: Exhaustive evicts those on a node whom the referee does not spare if all that may leave
// it are named, and chooses the node where these are best.
func TestVictimsAreWhomTheRefereeWouldNotSpare(t *testing.T) {
	for seen := range scale.Reach(t, "evicted", "on another node", "by a rule, on the node") {
		rapid.Check(t, func(rt *rapid.T) { evictsAsTheRefereeSpares(rt, seen) })
	}
}

func evictsAsTheRefereeSpares(rt *rapid.T, seen map[string]int) {
	w := newFullWorld(rt, rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 8).Draw(rt, "nodes"))
	w.company = rapid.Bool().Draw(rt, "company")
	w.build(rapid.IntRange(0, 60).Draw(rt, "capsules"))
	id := w.urgent()
	v, _ := viewOf(rt, w.ledger, nil)
	c, d := v.State().Capsule(id), &orbit.Draft{}
	d.Sync(v)
	var want []*orbit.Capsule
	best, node := "", orbit.NodeID("")
	for n := range v.State().Nodes() {
		if out, ok := dumbVictims(v.State(), c, n); ok && (best == "" || dumbKeyOf(n.Node.ID, out) < best) {
			best, want, node = dumbKeyOf(n.Node.ID, out), out, n.Node.ID
		}
	}
	got, err := (&Exhaustive{}).BestEvicting(d, c)
	if best == "" {
		require.ErrorAs(rt, err, new(*orbit.NoFit))
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, node, got.Choice.Node.Node.ID)
	require.Equal(rt, idsOf(want), idsOf(got.Victims))
	seen["evicted"] += len(want)
	for _, v := range want {
		seen["on another node"] += btoi(v.Node != node)
		seen["by a rule, on the node"] += btoi(v.Node == node && dumbApart(got.Choice.Node.Node, got.Choice.Node.Node, v.Spec, c.Spec))
	}
}

// asker is an engine that looks for victims, on a draft of its own.
type asker struct {
	draft orbit.Draft
	view  orbit.View
	BestEvictor
}

// BestEvictor is what engines have that look for victims.
type BestEvictor interface {
	BestEvicting(*orbit.Draft, *orbit.Capsule) (Eviction, error)
}

// evictions counts what tests have seen.
type evictions map[string]int

func (seen evictions) count(e Eviction) {
	nodes := map[orbit.NodeID]bool{}
	for _, v := range e.Victims {
		seen["evicted"]++
		nodes[v.Node] = true
		if v.Gang() != "" && len(e.Victims) == 1 {
			seen["member beyond the minimum"]++
		}
	}
	gangs := 0
	for _, v := range e.Victims {
		gangs += btoi(v.Gang() != "")
		seen["elsewhere"] += btoi(v.Node != e.Choice.Node.Node.ID && v.Gang() == "")
		seen["member elsewhere"] += btoi(v.Node != e.Choice.Node.Node.ID && v.Gang() != "")
	}
	if len(nodes) > 1 && gangs > 1 {
		seen["whole gang"]++
	}
}

// One engine that is asked on a draft of fewer nodes than the one before forgets the others.
func TestEvictingOnAnotherDraft(t *testing.T) {
	engine := &Indexed{}
	for _, nodes := range []int{70, 3, 40} {
		l := &orbit.MemoryLedger{}
		for i := range nodes {
			id := orbit.NodeID(fmt.Sprint("n", i))
			c := orbit.CapsuleID(fmt.Sprint("c", i))
			commit(t, l, orbit.PutNode{Node: machine(id, 1000)}, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: wants(1000)}, orbit.Place{Capsule: c, Node: id})
		}
		urgent := wants(900)
		urgent.Priority = 5
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: urgent})
		v, _ := viewOf(t, l, nil)
		var d orbit.Draft
		d.Sync(v)
		e, err := engine.BestEvicting(&d, v.State().Capsule("urgent"))
		require.NoError(t, err)
		require.Len(t, e.Victims, 1)
		require.NotNil(t, v.State().Node(e.Choice.Node.Node.ID))
	}
}

// TestIndexedEvictsAsExhaustive: with gangs whole and at their minimums, devices, labels, nominations and budgets, Indexed chooses the node and
// the victims that Exhaustive chooses, call by call, while plans are made and the world changes. What they choose the ledger
// commits, and spares nobody of it unless an earlier proposal of the plan has left room on the node.
func TestIndexedEvictsAsExhaustive(t *testing.T) {
	for seen := range scale.Reach(t, "none", "evicted", "elsewhere", "whole gang", "member beyond the minimum") {
		rapid.Check(t, func(rt *rapid.T) { indexedEvictsAsExhaustive(rt, seen) })
	}
}

func indexedEvictsAsExhaustive(rt *rapid.T, seen evictions) {
	w := newFullWorld(rt, rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(20, 150).Draw(rt, "nodes"))
	w.gangs, w.devices, w.nominations = rapid.Bool().Draw(rt, "gangs"), rapid.Bool().Draw(rt, "devices"), rapid.Bool().Draw(rt, "nominations")
	w.budgets, w.company, w.even = rapid.Bool().Draw(rt, "budgets"), rapid.Bool().Draw(rt, "company"), rapid.Bool().Draw(rt, "even")
	w.failures = rapid.Bool().Draw(rt, "failures")
	w.build(w.nodes * rapid.IntRange(3, 9).Draw(rt, "capsules"))
	plain, fast := &asker{BestEvictor: &Exhaustive{}}, &asker{BestEvictor: &Indexed{}}
	if rapid.Bool().Draw(rt, "filter") {
		f := func(n *orbit.NodeState, _ *orbit.Report, _ *orbit.Spec) string {
			return []string{"", "", "", "is odd"}[n.Capsules%4]
		}
		plain.BestEvictor, fast.BestEvictor = &Exhaustive{Filter: f}, &Indexed{Filter: f}
	}
	for range 6 {
		var ids []orbit.CapsuleID
		for range 1 + w.IntN(5) {
			ids = append(ids, w.urgent())
		}
		for _, a := range []*asker{plain, fast} {
			require.NoError(rt, a.view.Refresh(context.Background(), w.ledger, nil, time.Unix(1000, 0)))
			a.draft.Sync(&a.view)
		}
		var proposals []orbit.Proposal
		for _, id := range ids {
			c := plain.view.State().Capsule(id)
			want, err := plain.BestEvicting(&plain.draft, c)
			got, other := fast.BestEvicting(&fast.draft, c)
			if err != nil {
				require.EqualError(rt, other, err.Error())
				seen["none"]++
				continue
			}
			require.NoError(rt, other)
			require.Equal(rt, want.Choice.Node.Node.ID, got.Choice.Node.Node.ID, "%v and %v", idsOf(want.Victims), idsOf(got.Victims))
			require.Equal(rt, []any{idsOf(want.Victims), want.Choice.Devices, want.Highest}, []any{idsOf(got.Victims), got.Choice.Devices, got.Highest})
			starts := []int{plain.draft.Checkpoint(), fast.draft.Checkpoint()}
			require.NoError(rt, want.On(&plain.draft, c))
			require.NoError(rt, got.On(&fast.draft, c))
			seen.count(want)
			plain.draft.Propose()
			if p := fast.draft.Propose(); w.IntN(3) > 0 {
				proposals = append(proposals, p)
			} else {
				plain.draft.Rollback(starts[0])
				fast.draft.Rollback(starts[1])
			}
		}
		left := map[orbit.NodeID]bool{} // where evictions may have left room that the plan has not counted on
		for _, p := range proposals {
			s, on := snapshotOf(rt, w.ledger), p.Do[len(p.Do)-1].(orbit.Place).Node
			reduced, err := s.Judge(p)
			require.NoError(rt, err, "%v", p.Do)
			if !left[on] {
				require.Equal(rt, p.Do, reduced.Do)
			}
			for _, do := range p.Do[:len(p.Do)-1] {
				left[do.(orbit.Evict).From] = true
			}
			_, err = w.ledger.Propose(context.Background(), p)
			require.NoError(rt, err)
		}
		w.churn()
	}
}

// TestEvictingOpensFewNodes: on 4,000 nodes that are full, Indexed looks at the capsules of a node or two for each preemption, and
// after a commit lists those of the nodes that have changed; at all of them once.
func TestEvictingOpensFewNodes(t *testing.T) {
	const nodes, urgent = 4000, 100
	l := &orbit.MemoryLedger{}
	for i := range nodes {
		id := orbit.NodeID(fmt.Sprintf("n%04d", i))
		do := []orbit.Commitment{orbit.PutNode{Node: machine(id, 40)}, orbit.Submit{IDs: names(fmt.Sprint(id, "-"), 4), Spec: wants(9)}}
		for _, c := range names(fmt.Sprint(id, "-"), 4) {
			do = append(do, orbit.Place{Capsule: c, Node: id})
		}
		commit(t, l, do...)
	}
	spec := wants(30)
	spec.Priority = 1
	commit(t, l, orbit.Submit{IDs: names("urgent", urgent), Spec: spec})
	v, refresh := viewOf(t, l, nil)
	e := draftFor(&Indexed{})
	noted := func(key string) (n int64) {
		for _, note := range e.engine.Notes() {
			if note.Key == key {
				n = note.Value.Int64()
			}
		}
		return n
	}
	for pass := range 2 {
		refresh()
		e.Sync(v)
		for _, id := range names("urgent", urgent)[pass*urgent/2 : (pass+1)*urgent/2] {
			c := v.State().Capsule(id)
			got, err := e.engine.BestEvicting(&e.Draft, c)
			require.NoError(t, err)
			require.Len(t, got.Victims, 3)
			require.NoError(t, got.On(&e.Draft, c))
			commit(t, l, e.Propose().Do...)
		}
		require.EqualValues(t, urgent/2, noted("evicting"))
		require.LessOrEqual(t, noted("opened"), int64(2*urgent))
		if pass == 0 {
			require.LessOrEqual(t, noted("read"), int64(nodes+2*urgent))
			require.LessOrEqual(t, noted("bounded"), int64(nodes/blockNodes+1+(urgent/2+2)*(blockNodes+2)))
		} else {
			require.LessOrEqual(t, noted("read"), int64(2*urgent))
			require.LessOrEqual(t, noted("bounded"), int64(3*urgent))
		}
	}
}

// asksBoth has Exhaustive and Indexed choose for a capsule on drafts of the ledger's state, and returns their common choice.
func asksBoth(t *testing.T, l orbit.Ledger, fast *asker, id orbit.CapsuleID) Eviction {
	plain := &asker{BestEvictor: &Exhaustive{}}
	for _, a := range []*asker{plain, fast} {
		require.NoError(t, a.view.Refresh(context.Background(), l, nil, time.Unix(1000, 0)))
		a.draft.Sync(&a.view)
	}
	want, err := plain.BestEvicting(&plain.draft, plain.view.State().Capsule(id))
	require.NoError(t, err)
	got, err := fast.BestEvicting(&fast.draft, fast.view.State().Capsule(id))
	require.NoError(t, err)
	require.Equal(t, want.Choice.Node.Node.ID, got.Choice.Node.Node.ID)
	require.Equal(t, idsOf(want.Victims), idsOf(got.Victims))
	return got
}

// A device that is unhealthy takes no work once it is free: the capsule on the healthy device makes way, though it is more important.
func TestEvictingDoesNotUseUnhealthyDevices(t *testing.T) {
	l := &orbit.MemoryLedger{}
	n := machine("n", 10)
	n.Devices = orbit.Devices{Model: "A", Count: 2}
	of := func(priority int32) *orbit.Spec {
		s := wants(1)
		s.Priority, s.Devices = priority, orbit.DeviceRequest{Count: 1, Milli: 1000}
		return s
	}
	commit(t, l, orbit.PutNode{Node: n}, orbit.Submit{IDs: []orbit.CapsuleID{"low"}, Spec: of(0)}, orbit.Place{Capsule: "low", Node: "n", Devices: 2},
		orbit.Submit{IDs: []orbit.CapsuleID{"mid"}, Spec: of(1)}, orbit.Place{Capsule: "mid", Node: "n", Devices: 1})
	n.Devices.Unhealthy = 2
	commit(t, l, orbit.PutNode{Node: n}, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: of(2)})
	e := asksBoth(t, l, &asker{BestEvictor: &Indexed{}}, "urgent")
	require.Equal(t, []orbit.CapsuleID{"mid"}, idsOf(e.Victims))
	require.Equal(t, orbit.DeviceSet(1), e.Choice.Devices)
}

// A class that is asked for first after a node has changed sees that node as it is, although its block was measured before.
func TestEvictingSeesNodesThatHaveChanged(t *testing.T) {
	const nodes = 2 * blockNodes
	l, fast := &orbit.MemoryLedger{}, &asker{BestEvictor: &Indexed{}}
	of := func(cpu int64, priority int32) *orbit.Spec {
		s := wants(cpu)
		s.Priority = priority
		return s
	}
	fill := func(i int, name string, cpu int64, priority int32) {
		id := orbit.CapsuleID(fmt.Sprint(name, i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: of(cpu, priority)}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprintf("n%03d", i))})
	}
	for i := range nodes {
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), 10)})
	}
	for i := nodes - 1; i >= 0; i-- { // what runs on the nodes of the first block has started last
		fill(i, "small", 2, 0)
		fill(i, "large", 8, 3)
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"first"}, Spec: of(9, 5)}, orbit.Submit{IDs: []orbit.CapsuleID{"second"}, Spec: of(8, 5)})
	require.Len(t, asksBoth(t, l, fast, "first").Victims, 2)
	commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint("large", nodes-1)), Final: true})
	fill(nodes-1, "mild", 8, 0)
	e := asksBoth(t, l, fast, "second")
	require.Equal(t, orbit.NodeID(fmt.Sprintf("n%03d", nodes-1)), e.Choice.Node.Node.ID)
	require.EqualValues(t, 0, e.Highest)
}

// Of two capsules on one node of which either would be enough, the newer one makes way, and by it the node is compared with others.
func TestEvictingComparesByTheNewestThatIsEnough(t *testing.T) {
	l := &orbit.MemoryLedger{}
	run := func(name string, on int, priority int32) {
		s, id := wants(5), orbit.CapsuleID(name)
		s.Priority = priority
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s}, orbit.Place{Capsule: id, Node: orbit.NodeID(fmt.Sprintf("n%03d", on))})
	}
	for i := range 3 * scanBelow {
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), 10)})
		if i > 1 {
			run(fmt.Sprint("a", i), i, 9)
			run(fmt.Sprint("b", i), i, 9)
		}
	}
	run("important", 1, 9)
	run("older", 0, 0)
	run("between", 1, 0)
	run("newer", 0, 0)
	urgent := wants(5)
	urgent.Priority = 1
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: urgent})
	require.Equal(t, []orbit.CapsuleID{"newer"}, idsOf(asksBoth(t, l, &asker{BestEvictor: &Indexed{}}, "urgent").Victims))
}

// Where a filter excludes every node, each of them is looked at once.
func TestEvictingLooksAtExcludedNodesOnce(t *testing.T) {
	const nodes = 3 * blockNodes
	l := &orbit.MemoryLedger{}
	for i := range nodes {
		n := orbit.NodeID(fmt.Sprintf("n%03d", i))
		c := orbit.CapsuleID(fmt.Sprint("c", i))
		commit(t, l, orbit.PutNode{Node: machine(n, 10)}, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: wants(10)}, orbit.Place{Capsule: c, Node: n})
	}
	urgent := wants(5)
	urgent.Priority = 1
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: urgent})
	v, _ := viewOf(t, l, nil)
	var d orbit.Draft
	d.Sync(v)
	looked := 0
	engine := &Indexed{Filter: func(*orbit.NodeState, *orbit.Report, *orbit.Spec) string {
		if looked++; looked > 100*nodes {
			panic("it goes on for ever")
		}
		return "is reserved"
	}}
	_, err := engine.BestEvicting(&d, v.State().Capsule("urgent"))
	require.ErrorAs(t, err, new(*orbit.NoFit))
	require.LessOrEqual(t, looked, 2*nodes)
}

// refuseBoth has Exhaustive and Indexed choose for a capsule for which nobody can make way, and returns the refusal of a budget that
// their errors wrap; nil: they wrap none.
func refuseBoth(t *testing.T, v *orbit.View, fast *asker, id orbit.CapsuleID) *orbit.Rejection {
	t.Helper()
	var refusals [2]*orbit.Rejection
	plain := &asker{BestEvictor: &Exhaustive{}}
	plain.draft.Sync(v)
	for i, a := range []*asker{plain, fast} {
		_, err := a.BestEvicting(&a.draft, v.State().Capsule(id))
		require.ErrorAs(t, err, new(*orbit.NoFit))
		_ = errors.As(err, &refusals[i])
	}
	require.Equal(t, refusals[0], refusals[1])
	return refusals[1]
}

// A budget is named for as long as it keeps victims on their nodes: each time that a capsule is asked for, and no more once something
// else keeps it from being placed, for this class and for one that is asked for first then.
func TestEvictingNamesABudgetWhileItIsInTheWay(t *testing.T) {
	const nodes = 2 * scanBelow
	l := &orbit.MemoryLedger{}
	member := wants(10)
	member.Module = "m"
	for i := range nodes {
		n, c := orbit.NodeID(fmt.Sprintf("n%03d", i)), orbit.CapsuleID(fmt.Sprint("c", i))
		commit(t, l, orbit.PutNode{Node: machine(n, 10)}, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: member}, orbit.Place{Capsule: c, Node: n})
	}
	for i, id := range []orbit.CapsuleID{"urgent", "again", "other"} {
		s := wants(5 + int64(i/2))
		s.Priority = 5
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: s})
	}
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "m", Expected: nodes}})
	v, refresh := viewOf(t, l, nil)
	fast := &asker{BestEvictor: &Indexed{}}
	fast.draft.Sync(v)
	for _, id := range []orbit.CapsuleID{"urgent", "urgent", "again", "urgent"} {
		require.NotNil(t, refuseBoth(t, v, fast, id), id)
	}
	var do []orbit.Commitment
	for i := range nodes {
		n := machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), 10)
		n.Cordon(true)
		do = append(do, orbit.PutNode{Node: n})
	}
	commit(t, l, do...)
	refresh()
	fast.draft.Sync(v)
	for _, id := range []orbit.CapsuleID{"urgent", "urgent", "other"} {
		require.Nil(t, refuseBoth(t, v, fast, id), id)
	}
}

// A plan that is rolled back and goes on otherwise, by as many steps, is another plan: what a budget kept on its node in the first one may
// leave in the second.
func TestEvictingAfterARollback(t *testing.T) {
	const nodes = 2 * scanBelow
	l := &orbit.MemoryLedger{}
	member, other := wants(5), wants(5)
	member.Module = "m"
	start := func(id orbit.CapsuleID, spec *orbit.Spec, on orbit.NodeID) {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: on})
	}
	for i := range nodes {
		n := orbit.NodeID(fmt.Sprintf("n%03d", i))
		commit(t, l, orbit.PutNode{Node: machine(n, 5)})
		start(orbit.CapsuleID(fmt.Sprint("c", i)), member, n)
	}
	x := machine("x", 10)
	commit(t, l, orbit.PutNode{Node: x})
	start("member", member, "x")
	start("other", other, "x")
	x.Cordon(true)
	urgent := wants(5)
	urgent.Priority = 5
	commit(t, l, orbit.PutNode{Node: x}, orbit.Submit{IDs: []orbit.CapsuleID{"urgent"}, Spec: urgent},
		orbit.PutBudget{Budget: orbit.Budget{ID: "b", Module: "m", Expected: nodes + 1, Missing: 1}})
	v, _ := viewOf(t, l, nil)
	fast := &asker{BestEvictor: &Indexed{}}
	fast.draft.Sync(v)
	mark := fast.draft.Checkpoint()
	require.NoError(t, fast.draft.Release(orbit.Release{Capsule: "member", Final: true}))
	_, err := fast.BestEvicting(&fast.draft, v.State().Capsule("urgent"))
	require.ErrorAs(t, err, new(*orbit.Rejection))
	fast.draft.Rollback(mark)
	require.NoError(t, fast.draft.Release(orbit.Release{Capsule: "other", Final: true}))
	e, err := fast.BestEvicting(&fast.draft, v.State().Capsule("urgent"))
	require.NoError(t, err)
	require.Len(t, e.Victims, 1)
}

// TestEvictionSearchesAreDropped: there is a search for each spec that has asked. The sum of the memory that they take is kept, so that a
// plan does not add it up; once it is too much, the searches that were not used for longest go.
func TestEvictionSearchesAreDropped(t *testing.T) {
	const specs = 40
	l := &orbit.MemoryLedger{}
	for _, id := range names("n", 2*scanBelow) {
		c := orbit.CapsuleID("on-" + string(id))
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(id), 40)}, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: wants(30)}, orbit.Place{Capsule: c, Node: orbit.NodeID(id)})
	}
	urgent := names("urgent", specs)
	for i, id := range urgent {
		spec := wants(20)
		spec.Module, spec.Priority = fmt.Sprint("m", i), 1
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec})
	}
	indexed := &Indexed{}
	fast, e := &asker{BestEvictor: indexed}, &indexed.evictions
	weighed := func() (bytes int) {
		for _, s := range e.searches {
			was := s.bytes
			e.weigh(s)
			require.Equal(t, was, s.bytes)
			bytes += s.bytes
		}
		require.Equal(t, bytes, e.bytes)
		return bytes
	}
	for _, id := range urgent {
		asksBoth(t, l, fast, id)
	}
	require.Len(t, e.searches, specs)
	require.Greater(t, weighed(), specs<<10)
	for _, s := range e.searches { // as if there were very many nodes
		s.renewed = make([]uint32, 0, mostEvictBytes/4/(specs-2))
		e.weigh(s)
	}
	require.Greater(t, e.bytes, mostEvictBytes)
	asksBoth(t, l, fast, urgent[3])
	require.Less(t, weighed(), mostEvictBytes)
	kept := map[string]bool{}
	for class := range e.searches {
		kept[class.spec.Module] = true
	}
	for i := range urgent {
		require.Equal(t, i == 3 || i >= specs/2, kept[fmt.Sprint("m", i)], "the search of spec %d", i)
	}
	for _, id := range urgent {
		asksBoth(t, l, fast, id)
	}
	indexed.forget()
	require.Zero(t, weighed())
}
