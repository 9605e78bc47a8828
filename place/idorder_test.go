package place

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// numbering is an idOrder, and beside it who has which number.
type numbering struct {
	order  idOrder
	ledger orbit.MemoryLedger
	known  map[orbit.NodeID]uint64
	// Ran out of numbers so often.
	outs int
}

func (g *numbering) renumber(t require.TestingT) {
	g.known = map[orbit.NodeID]uint64{}
	g.order.renumber(snapshotOf(t, &g.ledger), func(n *orbit.NodeState, number uint64) { g.known[n.Node.ID] = number })
}

func (g *numbering) join(t require.TestingT, id orbit.NodeID) {
	if snapshotOf(t, &g.ledger).Node(id) == nil {
		commit(t, &g.ledger, orbit.PutNode{Node: machine(id, 1)})
	}
	was, there := g.known[id]
	number, ok := g.order.number(id)
	if !ok {
		require.False(t, there)
		g.outs++
		g.renumber(t)
		return
	}
	require.True(t, !there || number == was, "a node keeps its number")
	g.known[id] = number
}

func (g *numbering) leave(t require.TestingT, id orbit.NodeID) {
	if _, there := g.known[id]; there {
		commit(t, &g.ledger, orbit.RemoveNode{Node: id})
		g.order.drop(id)
		delete(g.known, id)
	}
}

// check: numbers are in the order of ids, and no two are the same.
func (g *numbering) check(t require.TestingT) {
	var ids []orbit.NodeID
	for n := range snapshotOf(t, &g.ledger).Nodes() {
		ids = append(ids, n.Node.ID)
	}
	slices.Sort(ids)
	require.Len(t, g.known, len(ids))
	for i := 1; i < len(ids); i++ {
		require.Less(t, g.known[ids[i-1]], g.known[ids[i]], "%q and %q", ids[i-1], ids[i])
	}
}

// Whoever joins and leaves, numbers are in the order of ids.
func TestNumbersKeepTheOrderOfIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &numbering{}
		for range rapid.IntRange(0, 20).Draw(t, "nodes") {
			g.join0(t)
		}
		g.renumber(t)
		id := rapid.StringMatching("[abz]{1,5}")
		t.Repeat(map[string]func(*rapid.T){
			"join":      func(t *rapid.T) { g.join(t, orbit.NodeID(id.Draw(t, "id"))) },
			"join more": func(t *rapid.T) { g.join(t, orbit.NodeID(id.Draw(t, "id"))) },
			"leave":     func(t *rapid.T) { g.leave(t, orbit.NodeID(id.Draw(t, "id"))) },
			"first":     func(t *rapid.T) { g.join(t, orbit.NodeID(fmt.Sprintf("a%03d", 500-len(g.known)))) },
			"last":      func(t *rapid.T) { g.join(t, orbit.NodeID(fmt.Sprintf("zz%03d", 500+len(g.known)))) },
			"":          func(t *rapid.T) { g.check(t) },
		})
	})
}

// join0 lets a node join before there are numbers.
func (g *numbering) join0(t *rapid.T) {
	id := orbit.NodeID(rapid.StringMatching("[abz]{1,5}").Draw(t, "id"))
	if snapshotOf(t, &g.ledger).Node(id) == nil {
		commit(t, &g.ledger, orbit.PutNode{Node: machine(id, 1)})
	}
}

// Nodes that always join directly after the same one use up the numbers between it and the next. That is noticed,
// and numbering all anew makes room. Those that join at the end do not use them up.
func TestNumbersRunOut(t *testing.T) {
	g := &numbering{}
	commit(t, &g.ledger, orbit.PutNode{Node: machine("a", 1)}, orbit.PutNode{Node: machine("c", 1)})
	g.renumber(t)
	for i := range 300 {
		g.join(t, orbit.NodeID(fmt.Sprintf("b%03d", 999-i)))
		g.check(t)
	}
	require.Greater(t, g.outs, 3)
	require.Less(t, g.outs, 10)
	g.outs = 0
	for i := range 300 {
		g.join(t, orbit.NodeID(fmt.Sprintf("d%03d", i)))
		g.check(t)
	}
	require.Zero(t, g.outs)
}

// The same by way of an index: it goes by id among equal nodes, whoever joins where.
func TestIndexedWhenNumbersRunOut(t *testing.T) {
	l, spec := &orbit.MemoryLedger{}, wants(1)
	put := []orbit.Commitment{orbit.PutNode{Node: machine("a", 0)}, orbit.Submit{IDs: []orbit.CapsuleID{"k"}, Spec: spec}}
	for i := range 30 {
		put = append(put, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprint("c", i)), 1)})
	}
	commit(t, l, put...)
	spec = snapshotOf(t, l).Capsule("k").Spec
	v, refresh := viewOf(t, l, nil)
	e := draftFor(&Indexed{Score: strange{
		score: func(*orbit.NodeState, *orbit.Report, *orbit.Spec) (value, tie float64) { return 0, 0 },
		bound: func(*orbit.Spec, *orbit.Node) func(least, most *score.Extent) (value, tie float64) {
			return func(_, _ *score.Extent) (value, tie float64) { return 0, 0 }
		},
	}})
	rebuilds := int64(0)
	for i := range 150 {
		newest := orbit.NodeID(fmt.Sprintf("b%03d", 999-i))
		commit(t, l, orbit.PutNode{Node: machine(newest, 1)})
		refresh()
		e.Sync(v)
		last := orbit.NodeID("")
		for n := range 1 + 40*btoi(i%10 == 0) {
			choice, err := e.best(spec)
			if err != nil {
				require.Equal(t, i+31, n)
				break
			}
			require.True(t, n > 0 || choice.Node.Node.ID == newest)
			require.Less(t, last, choice.Node.Node.ID)
			last = choice.Node.Node.ID
			e.take(&orbit.Capsule{ID: orbit.CapsuleID(last), Spec: spec}, choice)
		}
		for _, note := range e.engine.Notes() {
			if note.Key == "rebuilds" && i > 0 {
				rebuilds += note.Value.Int64()
			}
		}
	}
	require.NotZero(t, rebuilds)
}
