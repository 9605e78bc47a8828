package promorbit_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/promorbit"
)

// amounts names amounts of CPU and of devices of one model.
func amounts(cpu, milli int64) map[string]int64 {
	return map[string]int64{"cpu": cpu, "device/A100": milli}
}

// A queue that borrows, one that lends, and one whose quota was made smaller than what it uses.
func TestLedgerQueues(t *testing.T) {
	l := &orbit.MemoryLedger{Dimensions: [orbit.Dimensions]string{0: "cores"}}
	n := node("n", 100)
	n.Devices = orbit.Devices{Model: "A100", Count: 8}
	commit(t, l, orbit.PutNode{Node: n}, orbit.PutQueue{Queue: orbit.Queue{ID: "lab"}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "red", Parent: "lab", Nominal: amounts(10, 2000), Weight: 2}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "blue", Parent: "lab", Nominal: amounts(30, 4000)}})
	spec := wants(4)
	spec.Queue, spec.Devices = "red", orbit.DeviceRequest{Count: 2, Milli: 1000}
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c", "d"}, Spec: spec}, orbit.Place{Capsule: "a", Node: "n", Devices: 0b0011}, orbit.Place{Capsule: "b", Node: "n", Devices: 0b1100})
	metrics := &promorbit.Ledger{Ledger: l}
	got := scrape(t, metrics)
	for series, want := range map[string]float64{
		`used{queue="red",resource="cores"}`: 8, `used{queue="red",resource="device/A100"}`: 4000, `used{queue="lab",resource="device/A100"}`: 4000,
		`used{queue="blue",resource="cores"}`: 0, `nominal{queue="red",resource="device/A100"}`: 2000, `nominal{queue="lab",resource="cores"}`: 0,
		`borrowed{queue="red",resource="cores"}`: 0, `borrowed{queue="red",resource="device/A100"}`: 2000, `available{queue="red",resource="device/A100"}`: 2000,
		`available{queue="blue",resource="cores"}`: 32, `share{queue="red"}`: 1. / 6, `share{queue="blue"}`: 0, `waiting_capsules{queue="red"}`: 2,
	} {
		value, ok := got["orbit_queue_"+series]
		require.True(t, ok, series)
		assert.InDelta(t, want, value, 1e-9, series)
	}
	commit(t, l, orbit.PutQueue{Queue: orbit.Queue{ID: "blue", Parent: "lab", Nominal: amounts(30, 0)}})
	got = scrape(t, metrics)
	assert.Equal(t, []float64{-2000, 0.5}, []float64{got[`orbit_queue_available{queue="red",resource="device/A100"}`], got[`orbit_queue_share{queue="red"}`]})
	assert.Equal(t, 1.0, got[`orbit_ledger_changes_total{kind="put_queue"}`])
	commit(t, l, orbit.PutQueue{Queue: orbit.Queue{ID: "red", Parent: "lab"}})
	got = scrape(t, metrics)
	assert.True(t, math.IsInf(got[`orbit_queue_share{queue="red"}`], 1), "it borrows devices of which there are none")
	commit(t, l, orbit.RemoveQueue{Queue: "blue"})
	got = scrape(t, metrics)
	assert.NotContains(t, got, `orbit_queue_share{queue="blue"}`)
	assert.NotContains(t, got, `orbit_queue_used{queue="red",resource="cores"}`, "nothing is divided any more")
}

// Queues without series of their own add up to what all capsules of all queues use, in all trees.
func TestLedgerQueuesAddUp(outer *testing.T) {
	rapid.Check(outer, func(t *rapid.T) {
		l := &orbit.MemoryLedger{}
		do := []orbit.Commitment{orbit.PutNode{Node: node("n", 1<<40)}}
		n := rapid.IntRange(1, 8).Draw(t, "queues")
		id := func(i int) orbit.QueueID { return orbit.QueueID(fmt.Sprint("q", i)) }
		nominal, used, waiting := int64(0), int64(0), 0
		for i := range n {
			q := orbit.Queue{ID: id(i), Nominal: amounts(rapid.Int64Range(0, 20).Draw(t, "nominal"), 0)}
			nominal += q.Nominal["cpu"]
			if i > 0 {
				q.Parent = id(rapid.IntRange(0, i-1).Draw(t, "parent"))
			}
			do = append(do, orbit.PutQueue{Queue: q})
		}
		for i := range rapid.IntRange(0, 9).Draw(t, "capsules") {
			c, spec := orbit.CapsuleID(fmt.Sprint(i)), wants(rapid.Int64Range(1, 9).Draw(t, "cpu"))
			spec.Queue = id(rapid.IntRange(0, n-1).Draw(t, "queue"))
			if rapid.Bool().Draw(t, "placed") {
				do = append(do, orbit.Adopt{Capsule: c, Spec: spec, Node: "n"})
				used += spec.Envelope.Reservation[orbit.CPU]
				continue
			}
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{c}, Spec: spec})
			waiting++
		}
		_, err := l.Propose(t.Context(), orbit.Proposal{Do: do})
		require.NoError(t, err)
		state, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		metrics := &promorbit.Ledger{Ledger: l, Names: rapid.IntRange(1, 9).Draw(t, "names")}
		got, sums := scrape(outer, metrics), map[string]float64{}
		for q := range state.Queues() {
			name := fmt.Sprintf(`{queue=%q,resource="cpu"}`, q.Queue.ID)
			if _, shown := got["orbit_queue_used"+name]; shown { // it has what children use, too
				assert.EqualValues(t, q.Used()["cpu"], got["orbit_queue_used"+name])
				sums["used"] += float64(q.Own()["cpu"])
			}
			sums["nominal"] += got["orbit_queue_nominal"+name]
			sums["waiting"] += got[fmt.Sprintf("orbit_queue_waiting_capsules{queue=%q}", q.Queue.ID)]
		}
		assert.EqualValues(t, used, sums["used"]+got[`orbit_queue_used{queue="other",resource="cpu"}`])
		assert.EqualValues(t, nominal, sums["nominal"]+got[`orbit_queue_nominal{queue="other",resource="cpu"}`])
		assert.EqualValues(t, waiting, sums["waiting"]+got[`orbit_queue_waiting_capsules{queue="other"}`])
	})
}
