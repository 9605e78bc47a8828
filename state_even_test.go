package orbit

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The reason of a capsule that waits for a rule Even names the domains that count for the rule although no node there takes
// work. It does not name domains that hold nothing back.
func TestEvenNamesTheDomainsThatTakeNothing(t *testing.T) {
	cordoned, tainted, lost := Node{State: Cordoned}, Node{Taints: []Taint{{Key: "k", Effect: "NoSchedule"}}}, Node{State: Lost}
	for _, c := range []struct {
		name string
		even Even
		as   map[NodeID]Node // state and taints of nodes
		in   map[NodeID]int  // members; each node is in the zone of its name
		want string
	}{
		{"a cordoned zone", Even{}, map[NodeID]Node{"c": cordoned}, map[NodeID]int{"a": 1, "b": 1}, "rule Even of group web counts zone c, where no node takes such work; with HonorTaints it leaves out what is cordoned or tainted"},
		{"two zones", Even{}, map[NodeID]Node{"b": cordoned, "c": tainted}, map[NodeID]int{"a": 2, "b": 1, "c": 1}, "rule Even of group web counts zone b, c, where no node takes such work; with HonorTaints it leaves out what is cordoned or tainted"},
		{"a cordoned zone with as many", Even{}, map[NodeID]Node{"b": cordoned, "c": cordoned}, map[NodeID]int{"a": 2, "b": 1, "c": 2}, "rule Even of group web counts zone b, where no node takes such work; with HonorTaints it leaves out what is cordoned or tainted"},
		{"a cordoned zone that the rule leaves out", Even{HonorTaints: true}, map[NodeID]Node{"c": cordoned}, map[NodeID]int{"a": 2, "b": 1}, ""},
		{"none is cordoned", Even{}, nil, map[NodeID]int{"a": 1, "b": 1}, ""},
		{"one that takes work has as few", Even{}, map[NodeID]Node{"b": cordoned}, map[NodeID]int{"a": 1}, ""},
		{"a lost zone does not count", Even{}, map[NodeID]Node{"c": lost}, map[NodeID]int{"a": 2, "b": 1}, ""},
		{"a zone that the rule leaves out", Even{Domains: []string{"a", "b"}}, map[NodeID]Node{"c": cordoned}, map[NodeID]int{"a": 2, "b": 1}, ""},
		{"too few zones", Even{MinDomains: 4}, map[NodeID]Node{"c": cordoned}, map[NodeID]int{"a": 1, "b": 1}, ""},
		{"within the skew", Even{MaxSkew: 2}, map[NodeID]Node{"c": cordoned}, map[NodeID]int{"a": 1, "b": 1}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &MemoryLedger{}
			c.even.Group, c.even.Level, c.even.MaxSkew = "web", "zone", max(c.even.MaxSkew, 1)
			spec := &Spec{Group: "web", Even: []Even{c.even}, Envelope: Envelope{Reservation: Resources{CPU: 1}}}
			for id := range map[NodeID]bool{"a": true, "b": true, "c": true} {
				n := Node{ID: id, Labels: map[string]string{"zone": string(id)}, Capacity: Resources{CPU: 9}}
				commit(t, l, PutNode{n})
				for i := range c.in[id] {
					m := CapsuleID(string(id) + string(rune('0'+i)))
					commit(t, l, Submit{IDs: []CapsuleID{m}, Spec: &Spec{Group: "web", Envelope: spec.Envelope}}, Place{Capsule: m, Node: id})
				}
				n.State, n.Taints = c.as[id].State, c.as[id].Taints
				commit(t, l, PutNode{n})
			}
			view, draft := &View{}, &Draft{}
			require.NoError(t, view.Refresh(context.Background(), l, nil, time.Unix(0, 0)))
			draft.Sync(view)
			nofit := draft.Diagnose(spec, nil, Misfit{Why: "fit"})
			require.Equal(t, c.want, nofit.Idle())
			if c.want != "" {
				require.Contains(t, nofit.Error(), "; "+c.want)
			}
			require.Equal(t, c.want, view.State().IdleDomains(spec, 1))
			commit(t, l, Submit{IDs: []CapsuleID{"next"}, Spec: spec})
			_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{Place{Capsule: "next", Node: "a"}}})
			require.NoError(t, view.Refresh(context.Background(), l, nil, time.Unix(0, 0)))
			draft.Sync(view)
			if c.want != "" { // the receipts name the domains, too, those of the ledger and those of the draft
				require.ErrorContains(t, err, "; "+c.want)
				require.ErrorContains(t, draft.Place(view.State().Capsule("next"), Choice{Node: view.State().Node("a")}), "; "+c.want)
			} else if err != nil {
				require.NotContains(t, err.Error(), "no node takes")
			}
		})
	}
}
