package nav_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// BenchmarkGang plans 300 gangs of a leader and eight workers, of ten different shapes, in racks of 20 nodes and blocks
// of 10 racks that are half full, through ledger and loop; each round ends them again. Gangs/s is what plans alone
// take; full is the same where five members fit on one rack of each block, and so no gang;
// anywhere has gangs without levels.
func BenchmarkGang(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 50_000} {
		racks := []string{"rack", "block"}
		b.Run(fmt.Sprintf("nodes=%d/racks", nodes), func(b *testing.B) { benchGangs(b, nodes, false, racks) })
		b.Run(fmt.Sprintf("nodes=%d/full", nodes), func(b *testing.B) { benchGangs(b, nodes, true, racks) })
		b.Run(fmt.Sprintf("nodes=%d/anywhere", nodes), func(b *testing.B) { benchGangs(b, nodes, false, nil) })
	}
}

const benchedGangs = 300

func benchGangs(b *testing.B, nodes int, full bool, levels []string) {
	l := &orbit.MemoryLedger{}
	var do []orbit.Commitment
	load := spec(0, 0)
	load.Envelope.Reservation = orbit.Resources{orbit.CPU: 8_000, orbit.Memory: 32 << 30}
	for i := range nodes {
		id := orbit.NodeID(fmt.Sprint("n", i))
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: 32_000, orbit.Memory: 128 << 30},
			Labels: map[string]string{"rack": fmt.Sprint("r", i/20), "block": fmt.Sprint("b", i/200)}}})
		loads := (i * 7919 % 5)
		if full {
			loads = 4
			if i%200 < 5 {
				loads = 3
			}
		}
		for k := range loads {
			c := orbit.CapsuleID(fmt.Sprint("load", i, "-", k))
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: load}, orbit.Place{Capsule: c, Node: id})
		}
		if len(do) > 1000 {
			commit(b, l, do...)
			do = nil
		}
	}
	commit(b, l, append(do, orbit.Mark{Key: "k", Value: "v"})...)
	e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}, MaxPlan: 10 * benchedGangs}
	round := 0
	var planning, gangs float64
	for b.Loop() {
		round++
		b.StopTimer()
		submitBench(b, l, round, levels)
		b.StartTimer()
		r := e.Pass(context.Background())
		b.StopTimer()
		require.Empty(b, r.Errors)
		require.Zero(b, r.Conflicts)
		if !full {
			require.Greater(b, r.Committed, benchedGangs*9/10)
		} else {
			require.Zero(b, r.Committed)
		}
		if round > 1 { // the first one builds the tables
			planning += r.Planning.Seconds()
			gangs += benchedGangs
		}
		endBench(b, l, round)
		b.StartTimer()
	}
	if gangs > 0 {
		b.ReportMetric(gangs/planning, "gangs/s")
		b.ReportMetric(planning/gangs*benchedGangs*1e3, "ms/plan")
	}
}

func submitBench(b *testing.B, l orbit.Ledger, round int, levels []string) {
	for i := range benchedGangs {
		id := fmt.Sprint("g", round, "-", i)
		worker, leader := gangSpec(int64(4_500+i%10*400)), gangSpec(1_000)
		worker.Envelope.Reservation[orbit.Memory] = int64(8+i%10) << 30
		g := &orbit.Gang{ID: orbit.GangID(id), Levels: levels, Roles: []orbit.Role{
			{Name: "leader", Spec: leader, Members: []orbit.CapsuleID{orbit.CapsuleID(id + "/l")}}, {Name: "worker", Spec: worker}}}
		for k := range 8 {
			g.Roles[1].Members = append(g.Roles[1].Members, orbit.CapsuleID(fmt.Sprint(id, "/", k)))
		}
		if i%3 == 0 {
			g.Roles = g.Roles[1:]
		}
		commit(b, l, orbit.Submit{Gang: g})
	}
}

func endBench(b *testing.B, l orbit.Ledger, round int) {
	for i := range benchedGangs {
		g := snapshot(b, l).Gang(orbit.GangID(fmt.Sprint("g", round, "-", i)))
		var do []orbit.Commitment
		for _, r := range g.Gang.Roles {
			for _, m := range r.Members {
				do = append(do, orbit.Release{Capsule: m, Final: true})
			}
		}
		commit(b, l, do...)
	}
}

// BenchmarkGangWaiting is a pass of an engine in which one gang of eight that fits has come beside so many gangs that
// wait, on 1,000 nodes.
func BenchmarkGangWaiting(b *testing.B) {
	for _, waiting := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint("waiting=", waiting), func(b *testing.B) {
			l := &orbit.MemoryLedger{}
			racked(b, l, 25, 40, 32)
			submit := func(id string, cpu int64) {
				role := orbit.Role{Name: "w", Spec: gangSpec(cpu)}
				for k := range 8 {
					role.Members = append(role.Members, orbit.CapsuleID(fmt.Sprint(id, "/", k)))
				}
				commit(b, l, orbit.Submit{Gang: &orbit.Gang{ID: orbit.GangID(id), Levels: []string{"rack"}, Roles: []orbit.Role{role}}})
			}
			for i := range waiting {
				submit(fmt.Sprint("waits", i), 33)
			}
			e := orbit.Engine{Ledger: l, Navigator: &nav.Gang{}}
			for range waiting*8/1000 + 2 { // all have been planned
				require.Zero(b, e.Pass(b.Context()).Committed)
			}
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				id := fmt.Sprint("fits", i)
				submit(id, 1)
				b.StartTimer()
				require.Equal(b, 1, e.Pass(b.Context()).Committed)
				b.StopTimer()
				for k := range 8 {
					commit(b, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint(id, "/", k)), Final: true})
				}
				for range 3 { // what the last pass has given back is held again
					e.Pass(b.Context())
				}
				b.StartTimer()
			}
		})
	}
}
