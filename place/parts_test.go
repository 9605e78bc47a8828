package place

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/score"
)

// bestByParts goes through all nodes for the best of the first part in which the spec fits, or with one part of all.
func bestByParts(d *orbit.Draft, spec *orbit.Spec, oneOnly bool) (best orbit.NodeID) {
	least, leastPart := 0.0, 0
	for n := range d.Nodes() {
		value, _ := score.BestFit{}.Score(n, nil, spec)
		part := d.View().Part(n)
		if oneOnly {
			part = 0
		}
		if n.Fits(spec) && (best == "" || part < leastPart || part == leastPart && value < least) {
			best, least, leastPart = n.Node.ID, value, part
		}
	}
	return best
}

// While proposals lose to others, the best node of the first part is chosen in which the spec fits. Before that and after it,
// and by an engine that divides into one part at most, the best of all nodes is.
func TestTheFirstPartWithRoomComesFirst(t *testing.T) {
	l := &orbit.MemoryLedger{}
	for i := range 300 {
		commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("n%03d", i)), int64(1000+i*i))})
	}
	commit(t, l, orbit.Submit{IDs: names("c", 1), Spec: wants(900)})
	v, _ := viewOf(t, l, nil)
	spec := v.State().Capsule("c0000").Spec
	for _, passes := range []struct{ lose, win, parts int }{{0, 0, 1}, {1, 0, 2}, {9, 0, 8}, {0, 100, 1}} {
		for range passes.lose {
			v.NoteOutcomes(10, 5)
		}
		for range passes.win {
			v.NoteOutcomes(10, 0)
		}
		parts, _ := v.Parts()
		require.Equal(t, passes.parts, parts)
		for _, engine := range []orbit.PlacementEngine{
			&Exhaustive{Score: score.BestFit{}}, &Indexed{Score: score.BestFit{}}, &Sampled{Score: score.BestFit{}, Enough: 300},
			&Exhaustive{Score: score.BestFit{}, MostParts: 1}, &Indexed{Score: score.BestFit{}, MostParts: 1}, &Sampled{Score: score.BestFit{}, Enough: 300, MostParts: 1},
		} {
			e, other := draftFor(engine), 0
			e.Sync(v)
			for i := range 250 {
				got, err := e.best(spec)
				require.NoError(t, err)
				require.Equal(t, bestByParts(&e.Draft, spec, mostParts(engine) == 1), got.Node.Node.ID, "%T, %d parts", engine, parts)
				if bestByParts(&e.Draft, spec, true) != got.Node.Node.ID {
					other++
				}
				e.take(&orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("p", i)), Spec: spec}, got)
			}
			require.Equal(t, parts > 1 && mostParts(engine) == 0, other > 100, "%T, %d parts: %d choices of another node than the best", engine, parts, other)
		}
	}
}

func mostParts(e orbit.PlacementEngine) int {
	switch e := e.(type) {
	case *Exhaustive:
		return e.MostParts
	case *Indexed:
		return e.MostParts
	case *Sampled:
		return e.MostParts
	}
	return 0
}

// A search in parts looks at more nodes, because most of the best are in other parts, but not at many more; also where the
// first part is full.
func TestPartsCostLittleToSearch(t *testing.T) {
	looked := func(lost int) (each int) {
		l := &orbit.MemoryLedger{}
		for i := range 4000 {
			commit(t, l, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprintf("n%04d", i)), int64(1000+i*7919%4000))})
		}
		specs := []*orbit.Spec{wants(900), wants(901)}
		for i, s := range specs {
			commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: s})
		}
		v, _ := viewOf(t, l, nil)
		for i := range specs {
			specs[i] = v.State().Capsule(orbit.CapsuleID(fmt.Sprint("c", i))).Spec
		}
		for range 9 {
			v.NoteOutcomes(1, lost)
		}
		e := draftFor(&Indexed{Score: score.BestFit{}})
		e.Sync(v)
		for i := range 1200 {
			before := e.engine.frontier.counts.boxes + e.engine.frontier.counts.rated
			spec := specs[0]
			if i >= 1000 { // now search anew for each
				spec = specs[i%2]
			}
			got, err := e.best(spec)
			require.NoError(t, err)
			if i >= 1000 {
				each += e.engine.frontier.counts.boxes + e.engine.frontier.counts.rated - before
			}
			e.take(&orbit.Capsule{ID: orbit.CapsuleID(fmt.Sprint("p", i)), Spec: spec}, got)
		}
		require.Zero(t, e.engine.stats.ranked+e.engine.stats.scanned, "the index is searched")
		return each / 200
	}
	whole, divided := looked(0), looked(1)
	t.Logf("a choice looks at %d boxes and nodes, in 8 parts at %d", whole, divided)
	require.Less(t, divided, 4*whole)
}

// What spreading costs is bounded by rank, whatever the score: hashes know nothing of it, so with 8 parts each better node is in
// another part with a chance of 7/8. So the chance that more than k nodes are better is (7/8)^(k+1): 23% for 10, 2% for 28 and
// 0.1% for 50.
func TestPartsCostRankByTheirNumberAlone(t *testing.T) {
	scale.Long(t)
	const worlds, nodes = 600, 200
	above := map[int]int{10: 0, 28: 0, 50: 0}
	for world := range worlds {
		l := &orbit.MemoryLedger{}
		var do []orbit.Commitment
		for i := range nodes { // one core each more, and BestFit rounds to less than that
			do = append(do, orbit.PutNode{Node: machine(orbit.NodeID(fmt.Sprint(world, "-", i)), int64(1000*(i+1)))})
		}
		commit(t, l, append(do, orbit.Submit{IDs: names("c", 1), Spec: wants(900)})...)
		v, _ := viewOf(t, l, nil)
		for range 9 {
			v.NoteOutcomes(1, 1)
		}
		e := draftFor(&Indexed{Score: score.BestFit{CPUMax: 50_000}})
		e.Sync(v)
		got, err := e.best(v.State().Capsule("c0000").Spec)
		require.NoError(t, err)
		better := int(got.Node.Node.Capacity[orbit.CPU]/1000 - 1)
		for k := range above {
			if better > k {
				above[k]++
			}
		}
	}
	t.Log("choices for which more nodes were better:", above)
	require.Less(t, above[10], worlds*36/100)
	require.Greater(t, above[10], worlds*10/100, "they do spread")
	require.Less(t, above[28], worlds*5/100)
	require.Less(t, above[50], worlds*2/100)
}
