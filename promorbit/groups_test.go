package promorbit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/promorbit"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

func zoned(id orbit.NodeID, zone string) orbit.PutNode {
	n := node(id, 10)
	n.Labels = map[string]string{"zone": zone}
	return orbit.PutNode{Node: n}
}

// The skew of a group is that of its domains with a ready node: an empty zone counts, a lost one does not.
func TestGroupsSkew(t *testing.T) {
	l := &orbit.MemoryLedger{}
	metrics := &promorbit.Groups{Ledger: l}
	spec := &orbit.Spec{Group: "g", Spread: orbit.Domains{Level: "zone"}, Envelope: wants(1).Envelope}
	commit(t, l, zoned("a", "a"), zoned("b", "b"), zoned("c", "c"), orbit.Submit{IDs: []orbit.CapsuleID{"1", "2", "3"}, Spec: spec})
	skew := func() (float64, bool) {
		v, ok := scrape(t, metrics)[`orbit_group_skew_capsules{group="g",level="zone"}`]
		return v, ok
	}
	_, ok := skew()
	assert.False(t, ok, "nothing is placed")
	commit(t, l, orbit.Place{Capsule: "1", Node: "a"}, orbit.Place{Capsule: "2", Node: "a"}, orbit.Place{Capsule: "3", Node: "b"})
	got, _ := skew()
	assert.Equal(t, 2.0, got)
	lost := zoned("c", "c").Node
	lost.State = orbit.Lost
	commit(t, l, orbit.PutNode{Node: lost})
	got, _ = skew()
	assert.Equal(t, 1.0, got)
	for i, at := range []orbit.NodeID{"a", "a", "b"} {
		commit(t, l, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprint(i + 1)), From: at, Final: true})
	}
	_, ok = skew()
	assert.False(t, ok, "the group has ended")
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"4"}, Spec: wants(1)}, orbit.Place{Capsule: "4", Node: "a"})
	skew()
	own := *spec
	own.Group = "h"
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	commit(t, l, orbit.Respec{Capsule: "4", Since: s.Capsule("4").PlacedAt, Spec: &own})
	_, ok = scrape(t, metrics)[`orbit_group_skew_capsules{group="h",level="zone"}`]
	assert.True(t, ok, "a capsule has joined a group that is to be spread")
}

// Groups beyond Names are shown together, by the most skewed of them.
func TestGroupsNamesAreBounded(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, zoned("a", "a"), zoned("b", "b"))
	for i := range 5 {
		spec := &orbit.Spec{Group: fmt.Sprint("g", i), Spread: orbit.Domains{Level: "zone"}}
		var do []orbit.Commitment
		for k := range i + 1 {
			id := orbit.CapsuleID(fmt.Sprint(i, "-", k))
			do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{id}, Spec: spec}, orbit.Place{Capsule: id, Node: "a"})
		}
		commit(t, l, do...)
	}
	got := scrape(t, &promorbit.Groups{Ledger: l, Names: 2})
	assert.Equal(t, 5.0, got[`orbit_group_skew_capsules{group="g4",level="zone"}`])
	assert.Equal(t, 4.0, got[`orbit_group_skew_capsules{group="g3",level="zone"}`])
	assert.Equal(t, 3.0, got[`orbit_group_skew_capsules{group="other",level="other"}`])
	assert.NotContains(t, got, `orbit_group_skew_capsules{group="g2",level="zone"}`)
}

// With Run, the time that a gang took is that between its submission and its placement, however far apart scrapes are; and members that
// followed an anchor are counted as assisted.
func TestGroupsBindLatencyAndAssistedShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		metrics := &promorbit.Groups{Ledger: l}
		run, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- metrics.Run(run) }()
		gang := &orbit.Gang{ID: "gang", Roles: []orbit.Role{{Name: "r", Spec: wants(1), Members: []orbit.CapsuleID{"m1", "m2"}}}}
		near := &orbit.Spec{Group: "near", Near: orbit.Near{Group: "near", Level: "zone"}}
		commit(t, l, zoned("a", "a"), orbit.Submit{Gang: gang}, orbit.Submit{IDs: []orbit.CapsuleID{"n1", "n2", "n3"}, Spec: near})
		synctest.Wait()
		time.Sleep(3 * time.Second)
		commit(t, l, orbit.Place{Capsule: "m1", Node: "a"}, orbit.Place{Capsule: "m2", Node: "a"})
		commit(t, l, orbit.Place{Capsule: "n1", Node: "a", Note: nav.AnchorNote})
		commit(t, l, orbit.Place{Capsule: "n2", Node: "a"}, orbit.Place{Capsule: "n3", Node: "a"})
		synctest.Wait()
		time.Sleep(time.Minute)
		got := scrape(t, metrics)
		assert.Equal(t, 3.0, got[`orbit_group_bind_seconds_sum{kind="gang"}`])
		assert.Equal(t, 1.0, got[`orbit_group_bind_seconds_count{kind="gang"}`])
		assert.Equal(t, 1.0, got[`orbit_group_bind_seconds_count{kind="group"}`])
		assert.Equal(t, 5.0, got["orbit_placements_total"])
		assert.Equal(t, 1.0, got["orbit_anchor_placements_total"])
		assert.Equal(t, 3.0, got["orbit_assisted_placements_total"])
		stop()
		require.NoError(t, <-ended)
	})
	require.ErrorIs(t, (&promorbit.Groups{}).Run(t.Context()), orbit.ErrUnavailable)
}

// The deficit shows when fewer warm slots are free than the reserve, before any capsule waits, and nodes that have not reported lately
// have none.
func TestWarmDeficit(t *testing.T) {
	l, b := &orbit.MemoryLedger{}, &telemetry.Board{Stale: time.Hour}
	metrics := &promorbit.Warm{Ledger: l, Telemetry: b, Reserve: 3}
	commit(t, l, orbit.PutNode{Node: node("a", 10)}, orbit.PutNode{Node: node("silent", 10)})
	report := func(warm int) {
		require.NoError(t, b.Report(orbit.Report{Node: "a", At: time.Now(), FreeSlots: 8, Warm: map[string]int{"python": warm}}))
	}
	report(4)
	got := scrape(t, metrics)
	assert.Equal(t, 4.0, got[`orbit_warm_slots{template="python"}`])
	assert.Equal(t, 0.0, got[`orbit_warm_deficit_slots{template="python"}`])
	assert.Equal(t, 8.0, got["orbit_sandbox_slots"])
	assert.Equal(t, 1.0, got["orbit_stale_nodes"])
	report(2)
	assert.Equal(t, 1.0, scrape(t, metrics)[`orbit_warm_deficit_slots{template="python"}`])
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"1", "2"}, Spec: &orbit.Spec{Start: orbit.Start{Template: "python"}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"3"}, Spec: &orbit.Spec{Start: orbit.Start{Template: "go"}}})
	got = scrape(t, metrics)
	assert.Equal(t, 3.0, got[`orbit_warm_deficit_slots{template="python"}`])
	assert.Equal(t, 2.0, got[`orbit_warm_pending_capsules{template="python"}`])
	assert.Equal(t, 4.0, got[`orbit_warm_deficit_slots{template="go"}`])
	got = scrape(t, &promorbit.Warm{Ledger: l, Telemetry: b, Names: 1})
	assert.Equal(t, 2.0, got[`orbit_warm_slots{template="other"}`]+got[`orbit_warm_slots{template="python"}`])

	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&promorbit.Warm{Ledger: l, Telemetry: b, Creates: func() map[string]uint64 { return map[string]uint64{"warm": 1} }}, &promorbit.Groups{Ledger: l})
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// At saturation the deficits show: where no warm slot is left, while all reports are stale, and while no node has reported
// at all since the board was restarted.
func TestWarmDeficitAtSaturation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := &orbit.MemoryLedger{}, &telemetry.Board{}
		metrics := &promorbit.Warm{Ledger: l, Telemetry: b, Reserve: 3, ReserveSlots: 10}
		commit(t, l, orbit.PutNode{Node: node("a", 10)})
		report := func(free int, warm map[string]int) {
			require.NoError(t, b.Report(orbit.Report{Node: "a", At: time.Now(), FreeSlots: free, Warm: warm, Templates: []string{"python", "go"}}))
		}
		deficits := func() [3]any {
			got := scrape(t, metrics)
			return [3]any{got[`orbit_warm_deficit_slots{template="python"}`], got[`orbit_warm_deficit_slots{template="go"}`], got["orbit_sandbox_deficit_slots"]}
		}
		report(12, map[string]int{"python": 3, "go": 1})
		assert.Equal(t, [3]any{0.0, 2.0, 0.0}, deficits())
		report(7, nil) // a node may leave out what it has none of
		assert.Equal(t, [3]any{3.0, 3.0, 3.0}, deficits())
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"1", "2"}, Spec: &orbit.Spec{Start: orbit.Start{Template: "go"}}})
		assert.Equal(t, [3]any{3.0, 5.0, 5.0}, deficits())
		report(7, map[string]int{"python": 9})
		time.Sleep(time.Minute)
		assert.Equal(t, [3]any{3.0, 5.0, 12.0}, deficits(), "all reports are stale")
		b.Forget("a")
		metrics.Telemetry = &telemetry.Board{}
		assert.Equal(t, [3]any{3.0, 5.0, 12.0}, deficits(), "no node has reported")
		b = &telemetry.Board{}
		metrics.Telemetry = b
		require.NoError(t, b.Report(orbit.Report{Node: "a", At: time.Now(), FreeSlots: 20, Templates: []string{"rust"}}))
		got := scrape(t, metrics)
		assert.NotContains(t, got, `orbit_warm_deficit_slots{template="python"}`, "no node has it any more")
		assert.Equal(t, 3.0, got[`orbit_warm_deficit_slots{template="rust"}`])
	})
}

// What became of a gateway's creates is counted, refusals by their reason.
func TestWarmCountsCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := &orbit.MemoryLedger{}, &telemetry.Board{}
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "a", Capacity: orbit.Resources{orbit.Slots: 3}}})
		require.NoError(t, b.Report(orbit.Report{Node: "a", At: time.Now(), FreeSlots: 3, Warm: map[string]int{"python": 1}, Templates: []string{"python"}}))
		gateway := &sandbox.Gateway{Ledger: l, Board: b}
		metrics := &promorbit.Warm{Ledger: l, Telemetry: b, Creates: func() map[string]uint64 { return gateway.Stats().Outcomes() }}
		for i := range 5 {
			spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.Slots: 1}}, Start: orbit.Start{Template: "python"}}
			_, err := gateway.Create(t.Context(), orbit.CapsuleID(fmt.Sprint("c", i)), spec)
			require.Equal(t, i < 3, err == nil, "%v", err)
		}
		time.Sleep(time.Hour)
		_, err := gateway.Create(t.Context(), "late", &orbit.Spec{Start: orbit.Start{Template: "python"}})
		require.ErrorIs(t, err, sandbox.ErrAllStale)
		_, err = gateway.Create(t.Context(), "", &orbit.Spec{Start: orbit.Start{Template: "python"}})
		require.Error(t, err)
		got := scrape(t, metrics)
		for outcome, n := range map[string]float64{"warm": 1, "cold": 2, "no_slot": 2, "all_stale": 1, "failed": 1, "no_node": 0, "broken_promise": 0} {
			assert.Equal(t, n, got[fmt.Sprintf("orbit_sandbox_creates_total{outcome=%q}", outcome)], outcome)
		}
	})
}
