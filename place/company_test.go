package place

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/score"
)

// fussy is Spread that prefers every second node, which its bounds know nothing of. A search rates others before it finds one, and keeps these.
type fussy struct{ score.Spread }

func (f fussy) Score(n *orbit.NodeState, r *orbit.Report, s *orbit.Spec) (value, tie float64) {
	value, tie = f.Spread.Score(n, r, s)
	if id := n.Node.ID; id[len(id)-1]%2 == 0 {
		value += 0.001
	}
	return value, tie
}

// Rules by a label with many values, which may divide the nodes, or be too many for that: a rack that closes, and one that opens again while a search is under way, count
// for nodes that have been rated before.
func TestIndexedKeepsCompanyByRack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		racks, beside := rapid.SampledFrom([]int{70, 100, 150, 250}).Draw(t, "racks"), rapid.Bool().Draw(t, "beside each other")
		var nodes []orbit.Commitment
		for i := range 2 * racks {
			rack := i % racks
			if beside {
				rack = i / 2
			}
			cpu := rapid.SampledFrom([]int64{2, 3, 3, 5, 9}).Draw(t, "cpu")
			n := orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%03d", i)), Capacity: orbit.Resources{orbit.CPU: cpu}, Labels: map[string]string{"rack": fmt.Sprint("r", rack)}}
			nodes = append(nodes, orbit.PutNode{Node: n})
		}
		commit(t, l, nodes...)
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}, Group: "set"}
		if rapid.Bool().Draw(t, "apart") {
			spec.Apart = []orbit.Apart{{Group: "set", Level: "rack"}}
		} else {
			var few []string
			for i := range rapid.IntRange(2, 12).Draw(t, "domains") {
				few = append(few, fmt.Sprint("r", i/2+i%2*64)) // kinds of nodes that are 64 apart share a bit
			}
			spec.Even = []orbit.Even{{Group: "set", Level: "rack", Domains: few}}
		}
		var ids []orbit.CapsuleID
		for i := range 60 {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%02d", i)))
		}
		commit(t, l, orbit.Submit{IDs: ids, Spec: spec})
		by := rapid.SampledFrom([]orbit.Score{fussy{}, score.Spread{}, score.Func(fussy{}.Score)}).Draw(t, "score")
		engines := []*drafted[orbit.PlacementEngine]{draftFor[orbit.PlacementEngine](&Exhaustive{Score: by}), draftFor[orbit.PlacementEngine](&Indexed{Score: by})}
		v, _ := viewOf(t, l, nil)
		for _, e := range engines {
			e.Sync(v)
		}
		spec = v.State().Capsule(ids[0]).Spec
		var marks [][]int
		for _, id := range ids {
			if len(marks) > 0 && rapid.IntRange(0, 3).Draw(t, "back") == 0 {
				at := rapid.IntRange(0, len(marks)-1).Draw(t, "to")
				for i, e := range engines {
					e.Rollback(marks[at][i])
				}
				marks = marks[:at]
			}
			marks = append(marks, []int{engines[0].Checkpoint(), engines[1].Checkpoint()})
			want, refused := engines[0].best(spec)
			got, err := engines[1].best(spec)
			require.Equal(t, refused == nil, err == nil, "%v, %v", refused, err)
			if err != nil {
				continue
			}
			require.Equal(t, want.Node.Node.ID, got.Node.Node.ID)
			for i, choice := range []orbit.Choice{want, got} {
				require.NoError(t, engines[i].Place(v.State().Capsule(id), choice))
			}
		}
	})
}
