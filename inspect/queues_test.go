package inspect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
)

// cores returns a list of a queue that names only CPU, in thousandths of a core.
func cores(milli int64) map[string]int64 { return map[string]int64{"cpu": milli} }

// charge submits a capsule of a queue, and places it on the node n.
func charge(id string, queue orbit.QueueID, cpu int64) []orbit.Commitment {
	spec := asking(cpu)
	spec.Queue = queue
	return []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(id)}, Spec: spec}, orbit.Place{Capsule: orbit.CapsuleID(id), Node: "n"}}
}

// TestQueues: a queue borrows from its parent and from two siblings, of which one keeps a part for itself. Each lends in proportion
// to what it could.
func TestQueues(t *testing.T) {
	l := &orbit.MemoryLedger{}
	_, body, _ := get(t, &Handler{Ledger: l}, "api/state")
	require.Equal(t, map[string]any{"resources": []any{}, "rows": []any{}}, body["queues"])
	commit(t, l, nodeIn("n", "z", "r", 1000),
		orbit.PutQueue{Queue: orbit.Queue{ID: "lab", Nominal: cores(10)}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "night", Parent: "lab", Nominal: cores(20), Weight: 2}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "keeps", Parent: "lab", Nominal: cores(20), Lend: cores(5)}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "lends", Parent: "lab", Nominal: cores(25)}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "alone", Nominal: map[string]int64{"memory": 1 << 30, "device/A100": 8000}}})
	commit(t, l, append(charge("a", "night", 40), charge("b", "lends", 10)...)...)
	waits := asking(50)
	waits.Queue = "lends"
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"w"}, Spec: waits})
	_, body, _ = get(t, &Handler{Ledger: l}, "api/state")
	got := body["queues"].(map[string]any)
	require.Equal(t, []any{
		map[string]any{"id": "device/A100", "name": "A100", "unit": "milli"}, map[string]any{"id": "cpu", "name": "cpu", "unit": "milli"},
		map[string]any{"id": "memory", "name": "memory", "unit": "bytes"},
	}, got["resources"])
	// 20 are borrowed. Idle and lendable are 10 of lab, 5 of keeps, and 15 of lends.
	var rows []string
	for _, r := range got["rows"].([]any) {
		row := r.(map[string]any)
		rows = append(rows, fmt.Sprint(row["id"], " ", row["depth"], " ", row["share"], " ", row["waiting"], " ", row["quotas"].(map[string]any)["cpu"]))
	}
	require.Equal(t, []string{
		"alone <nil> 0 0 <nil>",
		"lab <nil> 0 0 map[available:10 has:60 most:60 nominal:10 used:50]",
		"keeps 1 0 0 map[available:25 has:20 lent:3.3333333333333335 most:75 nominal:20 used:0]",
		"lends 1 0 1 map[available:10 has:25 lent:10 most:60 nominal:25 used:10]",
		"night 1 1/6 0 map[available:10 borrowed:20 has:20 most:60 nominal:20 used:40]",
	}, rows)
	require.InDelta(t, 1000.0/6, got["rows"].([]any)[4].(map[string]any)["permille"], 0.001)
	waiting := body["waiting"].(map[string]any)["rows"].([]any)
	require.Equal(t, "lends", waiting[0].(map[string]any)["queue"])
}

// TestLentIsBorrowed: in every tree, what the queues below one and it itself lend to each other is what they borrow from each other,
// and none lends more than it has and does not use.
func TestLentIsBorrowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		do := []orbit.Commitment{nodeIn("n", "z", "r", 1<<40)}
		n := rapid.IntRange(1, 9).Draw(t, "queues")
		id := func(i int) orbit.QueueID { return orbit.QueueID(fmt.Sprint("q", i)) }
		for i := range n {
			q := orbit.Queue{ID: id(i), Nominal: cores(rapid.Int64Range(0, 20).Draw(t, "nominal"))}
			if i > 0 {
				q.Parent = id(rapid.IntRange(0, i-1).Draw(t, "parent"))
			}
			if rapid.Bool().Draw(t, "keeps") {
				q.Lend = cores(rapid.Int64Range(0, 20).Draw(t, "lend"))
			}
			do = append(do, orbit.PutQueue{Queue: q})
		}
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
		require.NoError(t, err)
		for i := range rapid.IntRange(0, 12).Draw(t, "capsules") {
			spec := asking(rapid.Int64Range(1, 20).Draw(t, "cpu"))
			spec.Queue = id(rapid.IntRange(0, n-1).Draw(t, "queue"))
			var err error
			if c := orbit.CapsuleID(fmt.Sprint(i)); rapid.Bool().Draw(t, "adopt") { // more than the quota allows, perhaps
				_, err = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Adopt{Capsule: c, Spec: spec, Node: "n"}}})
			} else {
				_, err = l.Propose(t.Context(), orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: spec}, orbit.Place{Capsule: c, Node: "n"}}})
			}
			if err != nil {
				require.ErrorIs(t, err, orbit.ErrConflict, "the quota is used up")
			}
		}
		state, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		rows := makeQueues(state).Rows
		require.Len(t, rows, n)
		for _, parent := range rows {
			at, ok := parent.Quotas["cpu"]
			if !ok {
				continue
			}
			q, _ := state.Queue(parent.ID)
			own := q.Own()["cpu"]
			within := float64(max(0, own-at.Nominal)) - float64(at.Borrowed) + at.Lent // what is borrowed below, less what comes from above, with what goes there
			lent, could := 0.0, float64(max(0, at.Nominal-own))
			for _, r := range rows {
				c := r.Quotas["cpu"]
				require.LessOrEqual(t, c.Lent, float64(max(0, c.Has-c.Used))+1e-9)
				if r.Parent == parent.ID {
					within += float64(c.Borrowed)
					lent += c.Lent
				}
			}
			require.LessOrEqual(t, lent, within+1e-9)
			require.GreaterOrEqual(t, lent+could, within-1e-9)
		}
	})
}

// TestManyQueues: of more queues than are listed, those in which work waits are, and each listed queue comes after those above it.
func TestManyQueues(t *testing.T) {
	l := &orbit.MemoryLedger{}
	do := []orbit.Commitment{orbit.PutQueue{Queue: orbit.Queue{ID: "all", Nominal: cores(1)}}}
	for i := range 30 {
		team := orbit.QueueID(fmt.Sprint("team", i))
		do = append(do, orbit.PutQueue{Queue: orbit.Queue{ID: team, Parent: "all", Nominal: cores(1)}})
		for k := range 10 {
			do = append(do, orbit.PutQueue{Queue: orbit.Queue{ID: orbit.QueueID(fmt.Sprint(team, "-", k)), Parent: team, Nominal: cores(1)}})
		}
	}
	spec := asking(9)
	spec.Queue = "team29-7"
	commit(t, l, append(do, orbit.Submit{IDs: []orbit.CapsuleID{"w"}, Spec: spec})...)
	state, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	got := makeQueues(state)
	require.Len(t, got.Rows, mostRows)
	require.Equal(t, 331-mostRows, got.More)
	depth, found := map[orbit.QueueID]int{"": -1}, false
	for _, r := range got.Rows {
		above, ok := depth[r.Parent]
		require.True(t, ok, r.ID)
		require.Equal(t, above+1, r.Depth)
		depth[r.ID] = r.Depth
		found = found || r.ID == "team29-7"
	}
	require.True(t, found)
}
