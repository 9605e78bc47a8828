package place_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/place"
)

// hopeless is a draft of so many nodes, and so many specs that fit on none of them.
func hopeless(t testing.TB, nodes, specs int) (*orbit.Draft, []*orbit.Spec) {
	l, view, draft := &orbit.MemoryLedger{}, &orbit.View{}, &orbit.Draft{}
	propose := func(do ...orbit.Commitment) {
		_, err := l.Propose(context.Background(), orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
		require.NoError(t, err)
	}
	for from := 0; from < nodes; from += 1000 {
		var do []orbit.Commitment
		for i := from; i < min(from+1000, nodes); i++ {
			do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("node-%05d", i)), Capacity: orbit.Resources{orbit.CPU: 10}}})
		}
		propose(do...)
	}
	for i := range specs {
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: int64(11 + i)}}}
		propose(orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: spec})
	}
	require.NoError(t, view.Refresh(context.Background(), l, nil, time.Unix(0, 0)))
	draft.Sync(view)
	var out []*orbit.Spec
	for c := range view.State().Capsules() {
		out = append(out, c.Spec)
	}
	return draft, out
}

// BenchmarkNothingFits measures what it takes to find that a spec fits nowhere, and what it takes to read why. The first
// must not grow with the number of nodes.
func BenchmarkNothingFits(b *testing.B) {
	for _, read := range []bool{false, true} {
		for _, nodes := range []int{1_000, 10_000, 50_000} {
			b.Run(fmt.Sprintf("read=%v/nodes=%d", read, nodes), func(b *testing.B) {
				draft, specs := hopeless(b, nodes, 100)
				e := &place.Indexed{}
				_, err := e.Best(draft, specs[0]) // builds the index
				require.Error(b, err)
				for i := 0; b.Loop(); i++ {
					_, err := e.Best(draft, specs[i%len(specs)])
					var nofit *orbit.NoFit
					require.ErrorAs(b, err, &nofit)
					if read {
						require.Equal(b, nodes, nofit.Nodes())
					}
				}
			})
		}
	}
}
