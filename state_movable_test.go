package orbit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The reason of a capsule that fits nowhere says on how many nodes it lacks only what work takes that may be moved.
func TestNoFitCountsMovableWork(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *Node, spec, other *Spec)
		do     func(t *testing.T, l Ledger)
		want   int
	}{
		"movable":     {func(_ *Node, _, other *Spec) { other.Movable = true }, nil, 1},
		"not movable": {func(*Node, *Spec, *Spec) {}, nil, 0},
		"covered by a budget": {func(_ *Node, _, other *Spec) { other.Group = "web" },
			func(t *testing.T, l Ledger) {
				commit(t, l, PutBudget{Budget{ID: "b", Group: "web", Expected: 2, Missing: 1}})
			}, 1},
		"not enough":     {func(_ *Node, spec, other *Spec) { other.Movable, spec.Envelope.Reservation[CPU] = true, 11 }, nil, 0},
		"another reason": {func(n *Node, _, other *Spec) { other.Movable, n.State = true, Cordoned }, nil, 0},
		"closed by rules": {func(_ *Node, spec, other *Spec) {
			other.Movable, other.Group, spec.Apart = true, "web", []Apart{{Group: "web", Level: NodeKey}}
		}, nil, 0},
		"devices": {func(n *Node, spec, other *Spec) {
			n.Devices = Devices{Model: "gpu", Count: 2}
			other.Movable, other.Devices, spec.Devices = true, DeviceRequest{Count: 2, Milli: 1000}, DeviceRequest{Count: 1, Milli: 1000}
		}, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l, n, spec, other := &MemoryLedger{}, machine("n", 10), wants(4), wants(8)
			full := n
			c.change(&n, spec, other)
			if full.Devices = n.Devices; true {
				commit(t, l, PutNode{full})
			}
			place := Place{Capsule: "o", Node: "n"}
			if other.Devices.Count > 0 {
				place.Devices = 3
			}
			commit(t, l, Submit{IDs: []CapsuleID{"o"}, Spec: other}, place)
			commit(t, l, PutNode{n})
			if c.do != nil {
				c.do(t, l)
			}
			view, draft := &View{}, &Draft{}
			require.NoError(t, view.Refresh(t.Context(), l, nil, time.Unix(0, 0)))
			draft.Sync(view)
			nofit := draft.Diagnose(spec, nil, Misfit{Why: "fit"})
			assert.Equal(t, c.want, nofit.Movable())
			if c.want == 0 {
				assert.NotContains(t, nofit.Error(), "movable")
			} else {
				assert.Contains(t, nofit.Error(), "; on 1 of them movable work takes what is lacking")
			}
		})
	}
}

// A placement that is protected is not movable, though its spec consents.
func TestProtectedIsNotMovable(t *testing.T) {
	l, other := &MemoryLedger{Bounds: Limits{Protect: time.Hour}}, wants(8)
	other.Movable = true
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"o", "p"}, Spec: other})
	assert.False(t, snapshotOf(t, l).Movable(snapshotOf(t, l).Capsule("o")), "it is not placed")
	commit(t, l, Place{Capsule: "o", Node: "n"}, Protect{Capsule: "o", For: time.Minute})
	s := snapshotOf(t, l)
	assert.False(t, s.Movable(s.Capsule("o")))
	assert.False(t, s.FitsByMoves(s.Node("n"), wants(4)))
}
