package itest

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// alerts returns the rules in alerts.yaml by their names. Reading them checks what Prometheus checks.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	groups, errs := rulefmt.ParseFile("../alerts.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, errs)
	rules := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules[r.Alert] = r
		}
	}
	require.NotEmpty(t, rules)
	return rules
}

var alertLabel = regexp.MustCompile(`\$labels\.(\w+)`)

// Every alert names metrics that are exported, and labels that these have.
func TestAlertsNameWhatIsExported(t *testing.T) {
	w := newWorld(t)
	w.step()
	families, _ := w.scrape()
	for name, rule := range alerts(t) {
		faults, _ := check(families, query{panel: name, expr: rule.Expr, legend: alertLabel.ReplaceAllString(rule.Annotations["summary"], "{{$1}}")})
		assert.Empty(t, faults, "%s: %s", name, rule.Expr)
		assert.NotEmpty(t, rule.Annotations["description"], name)
		assert.NotEmpty(t, rule.Labels["severity"], name)
	}
}

// Every alert fires on what it is for, and not on a constellation in order.
func TestAlertsFire(t *testing.T) {
	const at = 3600
	pass := func(instance string, seconds int) string {
		return fmt.Sprintf("\n  orbit_engine_last_pass_timestamp_seconds{engine=\"e\",instance=%q} %dx60", instance, seconds)
	}
	run := func(instance string, n int) string {
		return fmt.Sprintf("\n  orbit_engine_running{engine=\"e\",instance=%q} %dx60", instance, n)
	}
	series := map[string]struct{ well, sick []string }{
		"OrbitLedgerNotHealthy":    {[]string{"orbit_ledger_healthy 1x60"}, []string{"orbit_ledger_healthy 0x60"}},
		"OrbitWorkWaitsTooLong":    {[]string{`orbit_oldest_pending_seconds{class="Batch"} 30x60`}, []string{`orbit_oldest_pending_seconds{class="Batch"} 3000x60`}},
		"OrbitProposalsInfeasible": {[]string{`orbit_engine_proposals_total{engine="e",outcome="infeasible"} 7x60`}, []string{`orbit_engine_proposals_total{engine="e",outcome="infeasible"} 0+1x60`}},
		"OrbitBudgetWithoutSpare":  {[]string{`orbit_budget_spare_capsules{budget="b"} 1x60`}, []string{`orbit_budget_spare_capsules{budget="b"} 0x60`}},
		"OrbitEngineMakesNoPasses": {
			// The second instance stands by: it has made no pass yet, or none since it gave up the lease.
			[]string{pass("a", at-5) + run("a", 1), pass("a", at-5) + run("a", 1) + pass("b", 0) + run("b", 0), pass("a", at-5) + run("a", 1) + pass("b", at-3000) + run("b", 0)},
			[]string{pass("a", at-90) + run("a", 1), pass("a", 0) + run("a", 1), pass("a", at-90) + run("a", 1) + pass("b", at-5) + run("b", 1)},
		},
		"OrbitEngineRunsNowhere": {
			[]string{run("a", 1), run("a", 1) + run("b", 0), run("a", 1) + run("b", 1)},
			[]string{run("a", 0), run("a", 0) + run("b", 0)},
		},
	}
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for name, rule := range alerts(t) {
		require.Contains(t, series, name)
		for _, line := range slices.Concat(series[name].well, series[name].sick) {
			fires := slices.Contains(series[name].sick, line)
			storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.TrimSpace(line)+"\n")
			q, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, time.Unix(at, 0))
			require.NoError(t, err)
			found, err := q.Exec(t.Context()).Vector()
			require.NoError(t, err)
			assert.Equal(t, fires, len(found) > 0, "%s on %s", name, line)
			q.Close()
		}
	}
}
