package place

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// A capsule that has to be on the node of a member costs a look at the nodes of the members, however many other nodes
// there are; and if there is no member, none.
func TestIndexedFindsNodesOfCompany(t *testing.T) {
	l := &orbit.MemoryLedger{}
	var nodes []orbit.Commitment
	for i := range 5000 {
		nodes = append(nodes, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%04d", i)), Capacity: orbit.Resources{orbit.CPU: 4}}})
	}
	commit(t, l, nodes...)
	member, near, none := wants(2), wants(1), wants(1)
	member.Group, near.Nears, none.Nears = "db", []orbit.Near{{Group: "db", Level: orbit.NodeKey}}, []orbit.Near{{Group: "absent", Level: orbit.NodeKey}}
	for i, at := range []orbit.NodeID{"n0007", "n1234", "n4321"} {
		id := orbit.CapsuleID(fmt.Sprint("db", i))
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: member}, orbit.Place{Capsule: id, Node: at})
	}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c", "d", "e", "f", "g"}, Spec: near}, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: none})
	v, _ := viewOf(t, l, nil)
	var draft orbit.Draft
	e := &Indexed{}
	draft.Sync(v)
	for i, id := range []orbit.CapsuleID{"a", "b", "c", "d", "e", "f", "g", "x"} {
		err := draft.PlaceBest(e, v.State().Capsule(id))
		require.Equal(t, i < 6, err == nil, "%s: %v", id, err)
	}
	for _, note := range e.Notes() {
		switch note.Key {
		case "rated":
			require.LessOrEqual(t, note.Value.Int64(), int64(7*3))
		case "boxes", "ranked", "scanned":
			require.Zero(t, note.Value.Int64(), note.Key)
		}
	}
}
