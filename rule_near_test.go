package orbit

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpecFormsAreStored: what a spec says in new forms is the same after JSON and after a dump, and a spec that was stored
// before these forms reads as before, with Near as one object.
func TestSpecFormsAreStored(t *testing.T) {
	spec := &Spec{
		Group: "g", Groups: []string{"h"}, Apart: []Apart{{Group: "x", Level: "rack", Labelled: true}, {Group: "y", Level: "rack"}},
		Even:   []Even{{Group: "g", Level: "zone", HonorTaints: true}, {Group: "foreign", Level: "zone", IgnoreRequire: true}},
		Nears:  []Near{{"h", NodeKey}, {"h", "zone"}, {"far", "rack"}},
		Prefer: []Preference{{Predicate: Predicate{Op: "AnyOf", Terms: [][]Predicate{{{Key: "a", Op: "Exists"}, {Key: "b", Op: "Exists"}}}}, Weight: 1}},
	}
	shared, err := spec.Share()
	require.NoError(t, err)
	require.Equal(t, Near{"h", "zone"}, shared.Near, "one by a label that names a group of the capsule")
	require.Equal(t, "h", shared.Group)
	require.Equal(t, []Near{{"far", "rack"}, {"h", NodeKey}}, shared.Nears)
	for _, stored := range []*Spec{spec, shared} {
		text, err := json.Marshal(stored)
		require.NoError(t, err)
		var read Spec
		require.NoError(t, json.Unmarshal(text, &read))
		again, err := read.Share()
		require.NoError(t, err)
		require.Same(t, shared, again)
	}
	l := &MemoryLedger{}
	commit(t, l, Submit{IDs: []CapsuleID{"a"}, Spec: spec})
	var dump bytes.Buffer
	require.NoError(t, snapshotOf(t, l).Dump(&dump))
	restored := new(State)
	require.NoError(t, restored.Restore(&dump))
	require.Same(t, shared, restored.Capsule("a").Spec)
	var old Spec
	require.NoError(t, json.Unmarshal([]byte(`{"group":"g","apart":[{"group":"g","level":"rack"}],"even":[{"group":"g","level":"zone"}],"near":{"group":"g","level":"rack"}}`), &old))
	require.Equal(t, Spec{Group: "g", Apart: []Apart{{Group: "g", Level: "rack"}}, Even: []Even{{Group: "g", Level: "zone"}}, Near: Near{"g", "rack"}}, old)
}

// TestSpecFormsDiffer: no two specs that differ in one of these forms are one class.
func TestSpecFormsDiffer(t *testing.T) {
	seen := map[*Spec]bool{}
	for _, s := range []*Spec{
		{Group: "g"}, {Group: "g", Near: Near{"g", "rack"}}, {Group: "g", Nears: []Near{{"g", "rack"}, {"g", "zone"}}}, {Group: "g", Apart: []Apart{{Group: "g", Level: "rack"}}},
		{Group: "g", Apart: []Apart{{Group: "g", Level: "rack", Labelled: true}}}, {Group: "g", Even: []Even{{Group: "g", Level: "rack"}}},
		{Group: "g", Even: []Even{{Group: "g", Level: "rack", HonorTaints: true}}}, {Group: "g", Even: []Even{{Group: "g", Level: "rack", IgnoreRequire: true}}},
	} {
		shared, err := s.Share()
		require.NoError(t, err)
		require.False(t, seen[shared], "%v", s)
		seen[shared] = true
	}
}
