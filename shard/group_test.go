package shard

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/lease"
)

// machines are the sizes of nodes: all alike, of one shape, of all shapes, and extreme.
var machines = map[string][]orbit.Resources{
	"alike": {{8, 16}},
	"shape": {{1, 2}, {2, 4}, {4, 8}, {16, 32}},
	"mixed": {{8, 16}, {64, 16, 3}, {4, 256}, {8, 16, 100, 7, 1, 1, 1, 1}, {}},
	"huge":  {{math.MaxInt64, 1}, {1, math.MaxInt64}, {math.MaxInt64 - 1, math.MaxInt64}, {3}, {}},
}

// shardWorld is a constellation with leases, Groups, and partition ledgers that answer handoffs.
type shardWorld struct {
	t          *rapid.T
	ledger     *orbit.MemoryLedger
	leases     *lease.Keeper
	groups     *Groups
	terms      map[string]lease.Term
	partitions map[string]*PartitionLedger
	sizes      []orbit.Resources
	holds      int
	ids        []string
	names      []string
}

var slashedNames = []string{"a", "b/c", "group/a", " d%2F"}

func newShardWorld(t *rapid.T, kind string) *shardWorld {
	w := &shardWorld{t: t, ledger: &orbit.MemoryLedger{}, terms: map[string]lease.Term{}, partitions: map[string]*PartitionLedger{}, sizes: machines[kind]}
	if rapid.IntRange(0, 3).Draw(t, "short history") == 0 {
		w.ledger.Bounds.History = 8
	}
	w.leases = &lease.Keeper{Ledger: w.ledger, Prefix: LeasePrefix, Terms: -1}
	w.groups = &Groups{Ledger: w.ledger, Leases: w.leases, Tolerance: rapid.SampledFrom([]float64{0, 0.001, 0.5}).Draw(t, "tolerance"), Patience: -1}
	w.groups.By = rapid.SampledFrom([]Rule{nil, ByHash, AtRandom(7), func(*orbit.Node, []string) string { return "a" }}).Draw(t, "by")
	w.names = slashedNames
	for i := range 12 {
		w.ids = append(w.ids, fmt.Sprintf("n/%d", i))
	}
	return w
}

func (w *shardWorld) live() (out []string) {
	for _, name := range w.names {
		if _, ok := w.terms[name]; ok {
			out = append(out, name)
		}
	}
	return out
}

func (w *shardWorld) act(what string) {
	t := w.t
	id := orbit.NodeID(rapid.SampledFrom(w.ids).Draw(t, "node"))
	name := rapid.SampledFrom(w.names).Draw(t, "scheduler")
	n := snapshot(t, w.ledger).Node(id)
	try := func(do ...orbit.Commitment) { _, _ = w.ledger.Propose(context.Background(), orbit.Proposal{Do: do}) }
	switch what {
	case "put":
		put := orbit.Node{ID: id, Capacity: rapid.SampledFrom(w.sizes).Draw(t, "size")}
		put.Cordon(rapid.IntRange(0, 4).Draw(t, "drained") == 0)
		if len(w.sizes) > 4 && rapid.Bool().Draw(t, "devices") {
			put.Devices = orbit.Devices{Model: "m", Count: 4, Unhealthy: 2}
		}
		try(orbit.PutNode{Node: put})
	case "use":
		if n == nil {
			return
		}
		w.holds++
		try(use(fmt.Sprint(w.holds), id, orbit.Resources{n.Node.Capacity[0] / 2, n.Node.Capacity[1] / 2}))
	case "free":
		for h := range snapshot(t, w.ledger).Holds() {
			if h.Node == id {
				try(orbit.Release{Hold: h.ID})
			}
		}
	case "leave":
		try(orbit.RemoveNode{Node: id})
	case "die":
		if term, ok := w.terms[name]; ok {
			require.NoError(t, w.leases.Resign(context.Background(), term))
			delete(w.terms, name)
			delete(w.partitions, name)
		}
	case "come":
		if _, ok := w.terms[name]; !ok {
			term, err := w.leases.Acquire(context.Background(), name, "me")
			require.NoError(t, err)
			w.terms[name] = term
			w.partitions[name] = &PartitionLedger{Ledger: w.ledger, Scheduler: name}
		}
	case "answer":
		if l := w.partitions[name]; l != nil {
			snapshot(t, l)
		}
	case "scribble": // set malformed marks
		kind := rapid.SampledFrom(markOrder[:]).Draw(t, "mark")
		try(orbit.Mark{Key: kind.key(string(id)), Value: rapid.SampledFrom(append(slices.Clone(w.names), "", "who?")).Draw(t, "value")})
	case "restart":
		w.groups = &Groups{Ledger: w.ledger, Leases: w.leases, Tolerance: w.groups.Tolerance, By: w.groups.By, Patience: -1}
	case "step":
		w.step()
	}
}

// step checks everything that holds after a Step.
func (w *shardWorld) step() {
	t, ctx := w.t, context.Background()
	before := snapshot(t, w.ledger)
	r := w.groups.Step(ctx)
	for range 20 { // a node that arrives in one Step may be moved on in the next
		if r.Ended+r.Cancelled == 0 {
			break
		}
		before = snapshot(t, w.ledger)
		r = w.groups.Step(ctx)
	}
	require.Zero(t, r.Ended+r.Cancelled)
	require.Empty(t, r.Errors)
	require.Zero(t, r.Conflicts)
	state, live := snapshot(t, w.ledger), w.live()
	if len(live) == 0 {
		return
	}
	for n := range state.Nodes() {
		owner, _ := state.Mark("group/" + string(n.Node.ID))
		require.True(t, slices.Contains(live, owner) || !n.Node.Schedulable(), "%s is owned by %q of %q", n.Node.ID, owner, live)
	}
	for _, kind := range markOrder {
		for key := range state.Marks(string(kind)) {
			id, _ := kind.id(key)
			require.NotNil(t, state.Node(orbit.NodeID(id)), "mark %s of a node that has left", key)
		}
	}
	m := modelOf(state, live, cmpOr(w.groups.Tolerance, 0.1))
	why, ok := m.improvable(before)
	require.False(t, ok, "%s; %v", why, r)
	require.InDelta(t, m.excess(m.owner), w.groups.excessNow(), 1e-9)
	require.Equal(t, m.excess(m.owner) < 1e-18, r.Balanced, "%v", r)
	total := 0
	for _, g := range r.Groups {
		total += g.Nodes
	}
	require.Equal(t, len(m.nodes), total, "%v", r)

	again := w.groups.Step(ctx)
	require.Empty(t, again.Moved, "a second step moves")
	require.Zero(t, again.Grouped+again.Cleared+again.Cancelled+again.Ended, "%v, then %v", r, again)
	fresh := &Groups{Ledger: w.ledger, Leases: w.leases, Tolerance: w.groups.Tolerance, By: w.groups.By, Patience: -1}
	other := fresh.Step(ctx)
	require.Empty(t, other.Moved, "another Groups moves")
	require.Zero(t, other.Grouped+other.Cleared+other.Cancelled+other.Ended, "%v, then %v", r, other)
	require.Equal(t, again.Groups, other.Groups)
	require.Equal(t, again.Waiting, other.Waiting)
	require.NoError(t, w.groups.table.faults())
}

func cmpOr(a, b float64) float64 {
	if a == 0 {
		return b
	}
	return a
}

// excessNow returns the excess after the last Step.
func (g *Groups) excessNow() float64 {
	return newBalance(g.table.alive(), &g.table.all, g.table.largest.value(), max(g.tolerance(), 0)).excess
}

// faults compares the table with one that is made anew.
func (t *table) faults() error {
	other := table{ledger: t.ledger, leases: t.leases, schedulers: t.schedulers}
	if err := other.follow(context.Background()); err != nil {
		return err
	}
	switch {
	case other.all != t.all:
		return fmt.Errorf("all is %v, want %v", t.all, other.all)
	case *other.largest.value() != *t.largest.value():
		return fmt.Errorf("largest is %v, want %v", t.largest.value(), other.largest.value())
	case len(other.members) != len(t.members) || len(other.due) != len(t.due) || len(other.groups) != len(t.groups):
		return fmt.Errorf("%d members, %d due, %d groups; want %d, %d, %d", len(t.members), len(t.due), len(t.groups),
			len(other.members), len(other.due), len(other.groups))
	}
	for name, g := range other.groups {
		if mine := t.groups[name]; mine == nil || mine.sum != g.sum || mine.nodes != g.nodes || mine.live != g.live || len(mine.held) != len(g.held) || len(mine.cells) != len(g.cells) || mine.fresh != g.fresh {
			return fmt.Errorf("group %q is %+v, want %+v", name, mine, g)
		}
	}
	return nil
}

// TestGroupsProperty: after any sequence of joins, leaves, drains, deaths and returns, with handoffs at any stage and
// malformed marks, a Step leaves every schedulable node with one living owner, no mark of a node that has left, and
// groups that no single move brings closer to balance. A second Step moves nothing, nor does another Groups that starts
// from the ledger alone.
func TestGroupsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"alike", "shape", "mixed", "huge"}).Draw(t, "machines")
		w := newShardWorld(t, kind)
		w.act("come")
		for range rapid.IntRange(3, 12).Draw(t, "nodes") {
			w.act("put")
		}
		actions := []string{"put", "put", "use", "use", "free", "leave", "die", "come", "come", "answer", "answer", "scribble", "restart", "step"}
		for range rapid.IntRange(1, 40).Draw(t, "actions") {
			w.act(rapid.SampledFrom(actions).Draw(t, "action"))
		}
		w.step()
		for range 3 { // handoffs end
			for _, l := range w.partitions {
				snapshot(t, l)
			}
			w.step()
		}
		if kind == "alike" || kind == "shape" {
			w.checkShape()
		}
	})
}

// checkShape: if all nodes have one shape and nothing is used, no excess is left.
func (w *shardWorld) checkShape() {
	state := snapshot(w.t, w.ledger)
	for range state.Holds() {
		return
	}
	if live := w.live(); len(live) > 0 {
		m := modelOf(state, live, cmpOr(w.groups.Tolerance, 0.1))
		require.Less(w.t, m.excess(m.owner), 1e-18, "nodes of one shape are not in balance")
	}
}

// regroup makes a ledger with drawn owners, and returns the model before the Step and the Step.
func regroup(t *rapid.T, sizes []orbit.Resources, schedulers, nodes int, used, unassigned bool) (*model, *model, Regrouping) {
	ledger := &orbit.MemoryLedger{}
	names := []string{"a", "b", "c", "d"}[:schedulers]
	owners := slices.Clone(names)
	if unassigned {
		owners = append(owners, "", "gone")
	}
	var do []orbit.Commitment
	for i := range nodes {
		id := fmt.Sprintf("n%d", i)
		size := rapid.SampledFrom(sizes).Draw(t, "size")
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: size}},
			orbit.Mark{Key: "group/" + id, Value: rapid.SampledFrom(owners).Draw(t, "owner")})
		if used && size != (orbit.Resources{}) && rapid.Bool().Draw(t, "used") {
			do = append(do, use(id, orbit.NodeID(id), size))
		}
	}
	if len(do) > 0 {
		commit(t, ledger, do...)
	}
	g := &Groups{Ledger: ledger, Schedulers: names, Tolerance: rapid.SampledFrom([]float64{0.0001, 0.1, 0.4}).Draw(t, "tolerance")}
	before := modelOf(snapshot(t, ledger), names, g.Tolerance)
	r := g.Step(context.Background())
	require.Empty(t, r.Errors)
	return before, modelOf(snapshot(t, ledger), names, g.Tolerance), r
}

// balanceMoves counts the moves that balance needed.
func balanceMoves(r Regrouping) (n int) {
	for _, m := range r.Moved {
		if m.Why == ForBalance {
			n++
		}
	}
	return n
}

// TestGroupsLeastMovesAlike: if all nodes are alike, the number of moves is the least possible.
func TestGroupsLeastMovesAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after, r := regroup(t, machines["alike"], rapid.IntRange(1, 4).Draw(t, "schedulers"), rapid.IntRange(0, 7).Draw(t, "nodes"), false, true)
		require.Equal(t, before.least(0), balanceMoves(r))
		require.Less(t, after.excess(after.owner), 1e-18)
	})
}

// TestGroupsFewMoves: for any nodes the number of moves is close to the least that brings the groups as close to
// balance. There is no proof of a bound. More than twice as many occurred once in thousands of cases (5 moves instead
// of 2), more than three times as many in none of 120,000. If some nodes had no owner there may be two more, because
// these are assigned before the moves are known.
func TestGroupsFewMoves(t *testing.T) {
	for _, kind := range []string{"shape", "mixed", "huge"} {
		for i, what := range []string{"all owned", "some without an owner"} {
			t.Run(kind+", "+what, func(t *testing.T) {
				moves, least := 0, 0
				rapid.Check(t, func(t *rapid.T) {
					s := rapid.IntRange(2, 4).Draw(t, "schedulers")
					nodes := rapid.IntRange(2, 10-s).Draw(t, "nodes")
					before, after, r := regroup(t, machines[kind], s, nodes, rapid.Bool().Draw(t, "used"), i > 0)
					fewest := before.least(after.excess(after.owner))
					require.LessOrEqual(t, balanceMoves(r), 3*fewest+2*i, "%v", r)
					moves, least = moves+balanceMoves(r), least+fewest
				})
				t.Logf("%d moves, %d needed", moves, least)
			})
		}
	}
}

// TestGroupsMovesInAll: over many cases together the number of moves is hardly more than the least.
func TestGroupsMovesInAll(t *testing.T) {
	scale.Long(t)
	rng, moves, least := rand.New(rand.NewPCG(1, 2)), 0, 0
	names := []string{"a", "b", "c", "d"}
	for range scale.WithRace(500, scale.Of(1000, 3000)) {
		ledger := &orbit.MemoryLedger{}
		var do []orbit.Commitment
		for i := range 6 {
			id := fmt.Sprint("n", i)
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id), Capacity: machines["mixed"][rng.IntN(4)]}},
				orbit.Mark{Key: "group/" + id, Value: names[rng.IntN(4)]})
			if rng.IntN(3) == 0 {
				do = append(do, use(id, orbit.NodeID(id), orbit.Resources{1 + rng.Int64N(4), 1 + rng.Int64N(16)}))
			}
		}
		commit(t, ledger, do...)
		g := &Groups{Ledger: ledger, Schedulers: names, Tolerance: []float64{0.01, 0.2, 0.6}[rng.IntN(3)]}
		before := modelOf(snapshot(t, ledger), names, g.Tolerance)
		moves += balanceMoves(g.Step(context.Background()))
		after := modelOf(snapshot(t, ledger), names, g.Tolerance)
		least += before.least(after.excess(after.owner))
	}
	t.Logf("%d moves, %d needed", moves, least)
	assert.LessOrEqual(t, 50*moves, 51*least)
}

// TestGroupsNewNodesFirst: if assigning new nodes is enough for balance, no other node is moved.
func TestGroupsNewNodesFirst(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	do := fleet(45, orbit.Resources{8, 16})
	for i := range 30 {
		do = append(do, orbit.Mark{Key: fmt.Sprintf("group/n%02d", i), Value: []string{"a", "b", "c"}[i%3]})
	}
	commit(t, ledger, do...)
	g := &Groups{Ledger: ledger, Schedulers: []string{"a", "b", "c"}, By: func(*orbit.Node, []string) string { return "b" }, Tolerance: 0.01}
	r := g.Step(context.Background())
	assert.Equal(t, 15, r.Grouped)
	assert.Empty(t, r.Moved)
	assert.True(t, r.Balanced)
}

// TestBalanceBound: no node gains more than the bound of its shape, and scan finds a node with at least nine tenths of
// the best gain.
func TestBalanceBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		groups := []*group{newGroup("a"), newGroup("b")}
		all, most := tally{}, largest{}
		for i := range 2 + rng.IntN(30) {
			m := &member{}
			for d := range 3 {
				m.load[d] = rng.Int64N(20)
				m.load[kinds+d] = rng.Int64N(m.load[d] + 1)
			}
			all.add(&m.load)
			most.add(&m.load)
			groups[min(1, i%5)].count(m, false)
		}
		b := newBalance(groups, &all, most.value(), rng.Float64()/2)
		for from := range 2 {
			best, found := 0.0, step{}
			for _, c := range groups[from].cells {
				for _, m := range c.members {
					gain := b.gain(from, 1-from, &m.load, nothing)
					require.LessOrEqual(t, gain, b.bound(from, 1-from, &c.shape)+1e-12)
					best = max(best, gain)
				}
			}
			b.scan(from, 1-from, false, &found)
			require.GreaterOrEqual(t, found.gain, 0.9*best-1e-12)
		}
	}
}

// TestGroupsFromScratch: new groups are in balance with every rule, without moves.
func TestGroupsFromScratch(t *testing.T) {
	for name, by := range map[string]Rule{"lightest": nil, "hash": ByHash, "random": AtRandom(1), "all to one": func(*orbit.Node, []string) string { return "b" }} {
		t.Run(name, func(t *testing.T) {
			ledger := &orbit.MemoryLedger{}
			commit(t, ledger, fleet(99, orbit.Resources{8, 16})...)
			g := &Groups{Ledger: ledger, Schedulers: []string{"a", "b", "c"}, By: by, Tolerance: 0.01}
			r := g.Step(context.Background())
			assert.Equal(t, 99, r.Grouped)
			assert.Empty(t, r.Moved)
			assert.True(t, r.Balanced)
			for _, group := range r.Groups {
				assert.Equal(t, 33, group.Nodes)
			}
		})
	}
}

// TestGroupsRuleAlone: with a negative tolerance the rule's choices stay.
func TestGroupsRuleAlone(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	commit(t, ledger, fleet(10, orbit.Resources{8})...)
	g := &Groups{Ledger: ledger, Schedulers: []string{"b", "a", "b"}, By: func(n *orbit.Node, of []string) string {
		assert.Equal(t, []string{"a", "b"}, of)
		return of[0]
	}, Tolerance: -1}
	r := g.Step(context.Background())
	assert.Equal(t, 10, r.Grouped)
	assert.Equal(t, []Group{{Scheduler: "a", Nodes: 10, Worst: "cpu", Off: 1}, {Scheduler: "b", Worst: "cpu", Off: -1}}, r.Groups)
	assert.False(t, r.Balanced)
	assert.Contains(t, r.String(), "10 nodes grouped")
	assert.Contains(t, r.String(), "out of balance")
}

// TestGroupsExhausted: if the nodes of one group are full and those of the other are empty, nodes are exchanged, and
// each group keeps its share of the capacity.
func TestGroupsExhausted(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	do := fleet(40, orbit.Resources{8, 16})
	for i := range 40 {
		id := fmt.Sprintf("n%02d", i)
		owner := "a"
		if i >= 20 {
			owner = "b"
		}
		do = append(do, orbit.Mark{Key: "group/" + id, Value: owner})
		if i < 20 {
			do = append(do, use(id, orbit.NodeID(id), orbit.Resources{8, 16}))
		}
	}
	commit(t, ledger, do...)
	g := &Groups{Ledger: ledger, Schedulers: []string{"a", "b"}}
	r := g.Step(context.Background())
	assert.True(t, r.Balanced, "%v", r)
	assert.Len(t, r.Moved, 14, "8 that are free one way, all but 2 of what they leave behind the other way")
	for _, group := range r.Groups {
		assert.LessOrEqual(t, math.Abs(group.Off), 0.1+1e-6)
	}
}

// TestGroupsDevices: nodes with devices are divided too.
func TestGroupsDevices(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	for i := range 16 {
		n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%02d", i)), Capacity: orbit.Resources{8}}
		if i < 4 {
			n.Devices = orbit.Devices{Model: "m", Count: 8}
		}
		do = append(do, orbit.PutNode{Node: n}, orbit.Mark{Key: "group/" + string(n.ID), Value: string("abcd"[i/4])})
	}
	commit(t, ledger, do...)
	g := &Groups{Ledger: ledger, Schedulers: []string{"a", "b", "c", "d"}}
	r := g.Step(context.Background())
	assert.True(t, r.Balanced, "%v %v", r, r.Groups)
	m := modelOf(snapshot(t, ledger), g.Schedulers, 0.1)
	assert.Less(t, m.excess(m.owner), 1e-18)
	has := map[string]int{}
	for i, n := range m.nodes {
		has[m.owner[i]] += n.Node.Devices.Count
	}
	assert.NotContains(t, has, "")
	for _, n := range has {
		assert.LessOrEqual(t, n, 14)
	}
}

// TestGroupsLongID: a node whose id is too long for a mark is reported, and does not affect the others.
func TestGroupsLongID(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	long := orbit.NodeID(strings.Repeat("x", 250))
	commit(t, ledger, orbit.PutNode{Node: orbit.Node{ID: long}}, orbit.PutNode{Node: orbit.Node{ID: "n"}})
	g := &Groups{Ledger: ledger, Schedulers: []string{"a"}}
	r := g.Step(context.Background())
	require.Len(t, r.Errors, 1)
	assert.ErrorIs(t, r.Errors[0], ErrKey)
	assert.Equal(t, 1, r.Grouped)
	assert.Equal(t, 1, r.Ungrouped)
}

// TestGroupsNoScheduler: without a living scheduler nothing is done. With more schedulers than nodes some have none.
func TestGroupsNoScheduler(t *testing.T) {
	ledger := &orbit.MemoryLedger{}
	leases := &lease.Keeper{Ledger: ledger, Prefix: LeasePrefix}
	commit(t, ledger, fleet(2, orbit.Resources{8})...)
	g := &Groups{Ledger: ledger, Leases: leases}
	r := g.Step(context.Background())
	assert.Equal(t, 2, r.Ungrouped)
	assert.False(t, r.Balanced)
	for _, name := range []string{"a", "b", "c"} {
		_, err := leases.Acquire(context.Background(), name, "me")
		require.NoError(t, err)
	}
	r = g.Step(context.Background())
	assert.Equal(t, 2, r.Grouped)
	assert.Zero(t, r.Ungrouped)
	assert.True(t, r.Balanced)
}

// TestGroupsRun: Run calls Hook only after Steps that did something, and does a Step when nodes join.
func TestGroupsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := &orbit.MemoryLedger{}
		commit(t, ledger, fleet(4, orbit.Resources{8})...)
		var told []Regrouping
		ctx, cancel := context.WithCancel(t.Context())
		g := &Groups{Ledger: ledger, Schedulers: []string{"a", "b"}, Every: time.Second, Hook: func(r Regrouping) { told = append(told, r) }}
		done := make(chan error)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, told, 1)
		assert.Equal(t, 4, told[0].Grouped)
		commit(t, ledger, fleet(6, orbit.Resources{8})[4:]...)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, told, 2)
		assert.Equal(t, 2, told[1].Grouped)
		cancel()
		require.NoError(t, <-done)
	})
}

// TestGroupsFields: an error says which field is missing.
func TestGroupsFields(t *testing.T) {
	for _, g := range []*Groups{{}, {Ledger: &orbit.MemoryLedger{}}, {Schedulers: []string{"a"}},
		{Ledger: &orbit.MemoryLedger{}, Schedulers: []string{"a"}, Tolerance: math.NaN()}} {
		assert.ErrorIs(t, g.Run(context.Background()), orbit.ErrInvalid)
		assert.Len(t, g.Step(context.Background()).Errors, 1)
	}
}
