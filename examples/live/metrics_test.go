package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// sum adds up what a metric says in all its series, or in those with a label's value.
func sum(all map[string]*dto.MetricFamily, name, label, value string) (total float64) {
	for _, m := range all[name].GetMetric() {
		is := label == ""
		for _, l := range m.GetLabel() {
			is = is || l.GetName() == label && l.GetValue() == value
		}
		if is {
			total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return total
}

// TestMetricsAddUp scrapes the metrics of a cluster that has been at work and holds them against the ledger's own recount.
func TestMetricsAddUp(t *testing.T) {
	s := start(t, "127.0.0.1:0")
	time.Sleep(3 * time.Second) // of work; nothing depends on how much was done
	s.end()
	require.NoError(t, s.c.commit(t.Context(), orbit.PutNode{Node: orbit.Node{ID: "d", Labels: map[string]string{"zone": "d"}}})) // mail has nothing there
	w := httptest.NewRecorder()
	s.c.mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(w.Body)
	require.NoError(t, err)

	state, err := s.c.ledger.Snapshot(t.Context())
	require.NoError(t, err)
	require.NoError(t, state.Verify())
	used, capacity, placed := int64(0), int64(0), 0
	for n := range state.Nodes() {
		use := n.Used()
		used, capacity, placed = used+use[orbit.CPU], capacity+n.Node.Capacity[orbit.CPU], placed+n.Capsules
	}
	require.Positive(t, placed)
	require.EqualValues(t, placed, sum(all, "orbit_placed_capsules", "", ""))
	require.EqualValues(t, state.PendingCount(), sum(all, "orbit_pending_capsules", "", ""))
	require.EqualValues(t, state.NodeCount(), sum(all, "orbit_nodes", "", ""))
	require.EqualValues(t, used, sum(all, "orbit_resource_used", "resource", "cpu"))
	require.EqualValues(t, capacity, sum(all, "orbit_resource_capacity", "resource", "cpu"))
	require.EqualValues(t, state.Revision(), sum(all, "orbit_ledger_revision", "", ""))
	for b := range state.Budgets() {
		require.EqualValues(t, b.Spare(), sum(all, "orbit_budget_spare_capsules", "budget", string(b.Budget.ID)))
	}
	counts := map[string]int{"d": 0}
	for c := range state.Capsules() {
		if c.Placed() && c.Spec.Group == "mail" {
			counts[state.Node(c.Node).Node.Labels["zone"]]++
		}
	}
	most := slices.Max(slices.Collect(maps.Values(counts)))
	require.Greater(t, most, 5)
	require.EqualValues(t, most, sum(all, "orbit_even_skew_capsules", "group", "mail"))
	require.EqualValues(t, most-5, sum(all, "orbit_even_excess_capsules", "group", "mail"), "the rule is broken, as zone d is empty")
	require.EqualValues(t, s.c.committed.Load(), sum(all, "orbit_engine_proposals_total", "outcome", "committed"))
	require.EqualValues(t, s.c.lost.Load(), sum(all, "orbit_engine_proposals_total", "outcome", "conflict"))
}
