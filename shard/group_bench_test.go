package shard

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// benchNames returns the names of n schedulers.
func benchNames(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("s", i))
	}
	return out
}

// BenchmarkGroupsFromScratch measures the first Step, which assigns 50,000 mixed nodes to 8 schedulers.
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

// BenchmarkGroupsStep measures a Step after 10 nodes have changed, of 1,000 and of 50,000.
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
					n.Cordon(i%2 == 0)
					do = append(do, orbit.PutNode{Node: n})
				}
				commit(b, ledger, do...)
				b.StartTimer()
				require.Empty(b, g.Step(context.Background()).Errors)
			}
		})
	}
}

// BenchmarkGroupsSchedulerJoins measures the Step that gives a ninth scheduler its share of 50,000 mixed nodes.
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

// partitionBench is a ledger of 50,000 nodes in 8 groups, and the partition ledger of one of them.
type partitionBench struct {
	*testing.B
	ledger      *orbit.MemoryLedger
	partition   *PartitionLedger
	own, others []orbit.NodeID
	next        int
}

// batch is the number of proposals in one call.
const partitionBatch = 1000

func newLensBench(b *testing.B) *partitionBench {
	w := &partitionBench{B: b, ledger: benchLedger(b, 50_000)}
	g := &Groups{Ledger: w.ledger, Schedulers: benchNames(8)}
	g.Step(context.Background())
	w.partition = &PartitionLedger{Ledger: w.ledger, Scheduler: "s0"}
	for n := range snapshot(b, w.partition).Nodes() {
		if !n.Node.Schedulable() {
			w.others = append(w.others, n.Node.ID)
		} else {
			w.own = append(w.own, n.Node.ID)
		}
	}
	return w
}

// place returns proposals that place new capsules on different nodes.
func (w *partitionBench) place(nodes []orbit.NodeID) (out []orbit.Proposal) {
	var ids []orbit.CapsuleID
	for range partitionBatch {
		w.next++
		ids = append(ids, orbit.CapsuleID(fmt.Sprint("c", w.next)))
	}
	commit(w, w.ledger, orbit.Submit{IDs: ids, Spec: &orbit.Spec{Module: "m"}})
	for i, id := range ids {
		node := nodes[(w.next+i)*7919%len(nodes)]
		out = append(out, orbit.Proposal{ID: orbit.NewProposalID(), View: 1 << 60, Do: []orbit.Commitment{orbit.Place{Capsule: id, Node: node}},
			If: []orbit.Precondition{orbit.NodeFreeOf{Node: node}}})
	}
	return out
}

// compare measures the ledger and the partition ledger in turns, so that both meet the same load of the machine.
func (w *partitionBench) compare(unit string, prepare func(orbit.Ledger), run func(orbit.Ledger)) {
	took := [2]time.Duration{}
	for w.Loop() {
		for i, to := range []orbit.Ledger{w.ledger, w.partition} {
			prepare(to)
			start := time.Now()
			run(to)
			took[i] += time.Since(start)
		}
	}
	for i, name := range []string{"ledger", "partition"} {
		w.ReportMetric(float64(took[i].Nanoseconds())/float64(w.N)/partitionBatch, name+"-ns/"+unit)
	}
	w.ReportMetric(0, "ns/op")
}

// BenchmarkPartitionLedgerPlacement measures what a partition ledger adds to each placement, in batches of proposals
// with one placement.
func BenchmarkPartitionLedgerPlacement(b *testing.B) {
	w := newLensBench(b)
	var batch []orbit.Proposal
	w.compare("placement", func(to orbit.Ledger) {
		batch = w.place(w.own)
		snapshot(b, to)
	}, func(to orbit.Ledger) {
		for _, o := range to.(orbit.Batcher).ProposeBatch(context.Background(), batch) {
			if o.Err != nil {
				b.Fatal(o.Err)
			}
		}
	})
}

// BenchmarkPartitionLedgerChange measures what a partition ledger adds to reading a change of another scheduler.
func BenchmarkPartitionLedgerChange(b *testing.B) {
	w := newLensBench(b)
	views := map[orbit.Ledger]*orbit.View{w.ledger: {}, w.partition: {}}
	refresh := func(to orbit.Ledger) {
		require.NoError(b, views[to].Refresh(context.Background(), to, nil, time.Now()))
	}
	w.compare("change", func(to orbit.Ledger) {
		refresh(to)
		w.ledger.ProposeBatch(context.Background(), w.place(w.others))
	}, refresh)
}
