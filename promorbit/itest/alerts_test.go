package itest

import (
	"fmt"
	"log/slog"
	"regexp"
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
	series := map[string]struct{ well, sick string }{
		"OrbitLedgerNotHealthy":    {"orbit_ledger_healthy 1", "orbit_ledger_healthy 0"},
		"OrbitWorkWaitsTooLong":    {`orbit_oldest_pending_seconds{class="Batch"} 30`, `orbit_oldest_pending_seconds{class="Batch"} 3000`},
		"OrbitProposalsInfeasible": {`orbit_engine_proposals_total{engine="e",outcome="infeasible"} 7x60`, `orbit_engine_proposals_total{engine="e",outcome="infeasible"} 0+1x60`},
		"OrbitBudgetWithoutSpare":  {`orbit_budget_spare_capsules{budget="b"} 1`, `orbit_budget_spare_capsules{budget="b"} 0`},
		"OrbitEngineMakesNoPasses": {fmt.Sprintf(`orbit_engine_last_pass_timestamp_seconds{engine="e"} %d`, at-5), `orbit_engine_last_pass_timestamp_seconds{engine="e"} 0`},
	}
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	for name, rule := range alerts(t) {
		require.Contains(t, series, name)
		for line, fires := range map[string]bool{series[name].well: false, series[name].sick: true} {
			if !strings.Contains(line, "x60") {
				line += "x60"
			}
			storage := promqltest.LoadedStorage(t, "load 1m\n  "+line+"\n")
			q, err := engine.NewInstantQuery(t.Context(), storage, nil, rule.Expr, time.Unix(at, 0))
			require.NoError(t, err)
			found, err := q.Exec(t.Context()).Vector()
			require.NoError(t, err)
			assert.Equal(t, fires, len(found) > 0, "%s on %s", name, line)
			q.Close()
		}
	}
}
