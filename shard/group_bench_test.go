package shard

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim"
)

// benchNodes is a constellation of mixed machines.
func benchLedger(b *testing.B, nodes int) *orbit.MemoryLedger {
	ledger := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 1 << 20}}
	var do []orbit.Commitment
	for _, n := range sim.Constellation(sim.Fleet{Seed: 1, Nodes: nodes}) {
		do = append(do, orbit.PutNode{Node: n})
	}
	commit(b, ledger, do...)
	return ledger
}

// benchNames are so many schedulers.
func benchNames(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("s", i))
	}
	return out
}

// BenchmarkGroupsFromScratch: the first Step, which gives 50,000 mixed nodes to 8 schedulers.
func BenchmarkGroupsFromScratch(b *testing.B) {
	for name, by := range map[string]Rule{"lightest": nil, "hash": ByHash} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				g := &Groups{Ledger: benchLedger(b, 50_000), Schedulers: benchNames(8), By: by}
				b.StartTimer()
				r := g.Step(context.Background())
				require.Equal(b, 50_000, r.Grouped)
				require.True(b, r.Balanced)
			}
		})
	}
}

// BenchmarkGroupsStep: a Step after 10 nodes have changed, of 1,000 and of 50,000.
func BenchmarkGroupsStep(b *testing.B) {
	for _, nodes := range []int{1_000, 50_000} {
		b.Run(fmt.Sprint("nodes=", nodes), func(b *testing.B) {
			ledger := benchLedger(b, nodes)
			g := &Groups{Ledger: ledger, Schedulers: benchNames(8)}
			g.Step(context.Background())
			g.Step(context.Background())
			var all []orbit.Node
			for n := range snapshot(b, ledger).Nodes() {
				all = append(all, *n.Node)
			}
			i := 0
			for b.Loop() {
				b.StopTimer()
				var do []orbit.Commitment
				for range 10 {
					i++
					n := all[i*7919%len(all)]
					n.Unschedulable = i%2 == 0
					do = append(do, orbit.PutNode{Node: n})
				}
				commit(b, ledger, do...)
				b.StartTimer()
				require.Empty(b, g.Step(context.Background()).Errors)
			}
		})
	}
}

// BenchmarkGroupsSchedulerJoins: a ninth scheduler comes, and is given its part of 50,000 mixed nodes.
func BenchmarkGroupsSchedulerJoins(b *testing.B) {
	moved := 0
	for b.Loop() {
		b.StopTimer()
		g := &Groups{Ledger: benchLedger(b, 50_000), Schedulers: benchNames(8)}
		g.Step(context.Background())
		g.Step(context.Background())
		g.Schedulers = benchNames(9)
		g.table.state = nil
		b.StartTimer()
		r := g.Step(context.Background())
		require.True(b, r.Balanced)
		moved = len(r.Moved)
	}
	b.ReportMetric(float64(moved), "moves")
}

// BenchmarkLens: what a lens costs beside the ledger alone, on 50,000 nodes of which it sees an eighth: for each
// change that others make, and for each placement of its own, one proposal each.
func BenchmarkLens(b *testing.B) {
	ledger := benchLedger(b, 50_000)
	g := &Groups{Ledger: ledger, Schedulers: benchNames(8)}
	g.Step(context.Background())
	lens := &Lens{Ledger: ledger, Scheduler: "s0"}
	own, others := []orbit.NodeID{}, []orbit.NodeID{}
	for n := range snapshot(b, lens).Nodes() {
		if n.Node.Unschedulable {
			others = append(others, n.Node.ID)
		} else {
			own = append(own, n.Node.ID)
		}
	}
	spec := &orbit.Spec{Module: "m"}
	next := 0
	proposals := func(b *testing.B, nodes []orbit.NodeID, n int) (out []orbit.Proposal) {
		var ids []orbit.CapsuleID
		for range n {
			next++
			ids = append(ids, orbit.CapsuleID(fmt.Sprint("c", next)))
		}
		commit(b, ledger, orbit.Submit{IDs: ids, Spec: spec})
		for i, id := range ids {
			node := nodes[(next+i)*7919%len(nodes)]
			out = append(out, orbit.Proposal{ID: orbit.NewProposalID(), View: 1 << 60, Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}},
				If: []orbit.Precondition{orbit.NodeFreeOf{Node: node}}})
		}
		return out
	}
	const batch = 1000
	for name, to := range map[string]interface {
		orbit.Ledger
		orbit.Batcher
	}{"ledger": ledger, "lens": lens} {
		b.Run("placement/"+name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				ps := proposals(b, own, batch)
				snapshot(b, to)
				b.StartTimer()
				for _, o := range to.ProposeBatch(context.Background(), ps) {
					if o.Err != nil {
						b.Fatal(o.Err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/placement")
		})
		b.Run("change/"+name, func(b *testing.B) {
			var view orbit.View
			require.NoError(b, view.Refresh(context.Background(), to, nil, view.Now()))
			for b.Loop() {
				b.StopTimer()
				ledger.ProposeBatch(context.Background(), proposals(b, others, batch))
				b.StartTimer()
				require.NoError(b, view.Refresh(context.Background(), to, nil, view.Now()))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/change")
		})
	}
}
