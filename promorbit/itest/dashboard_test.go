package itest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/claim"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/promorbit"
	"github.com/orbitsched/orbit/sandbox"
	"github.com/orbitsched/orbit/telemetry"
)

const dashboard = "../dashboard.json"

// query is a query of a panel, with what Grafana replaces replaced.
type query struct {
	panel, expr, legend string
}

// board is what the tests read of a dashboard.
type board struct {
	Panels []struct {
		ID                       int
		Title, Type, Description string
		GridPos                  struct{ H, W, X, Y int }
		Targets                  []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
}

func read(t *testing.T) (b board, queries []query) {
	text, err := os.ReadFile(dashboard)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &b))
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$engine", ".*").Replace(target.Expr)
			require.NotContains(t, expr, "$", p.Title)
			queries = append(queries, query{p.Title, expr, target.LegendFormat})
		}
	}
	require.NotEmpty(t, queries)
	return b, queries
}

// world is a small cluster at work, in which every metric of the dashboard has something to show.
type world struct {
	t        *testing.T
	ledger   *orbit.MemoryLedger
	registry *prometheus.Registry
	engines  []*orbit.Engine
	pool     *claim.Pool
	slots    *claim.LedgerSource
	gateway  *sandbox.Gateway
	n        int
	// What the navigators do before they plan.
	before func()
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, ledger: &orbit.MemoryLedger{Bounds: orbit.Limits{NominatedShare: 100}}, registry: prometheus.NewRegistry(), slots: &claim.LedgerSource{}}
	metrics := &promorbit.Engines{}
	require.NoError(t, w.slots.Join(t.Context(), "slot-1", "slot-2"))
	w.pool = &claim.Pool{Name: "pool", Source: w.slots, Labels: claim.Labels{Namespace: "ns"}}
	go func() { _ = w.pool.Run(t.Context()) }()
	slots := &telemetry.Board{}
	require.NoError(t, slots.Report(orbit.Report{Node: "full", At: time.Now(), FreeSlots: 2, Warm: map[string]int{"python": 1}}))
	w.gateway = &sandbox.Gateway{Ledger: w.ledger, Board: slots}
	w.registry.MustRegister(&promorbit.Groups{Ledger: w.ledger}, &promorbit.Warm{Ledger: w.ledger, Telemetry: slots, Creates: func() map[string]uint64 { return w.gateway.Stats().Outcomes() }})
	w.registry.MustRegister(metrics, &promorbit.Ledger{Ledger: w.ledger}, &promorbit.Pools{Pools: func() []*claim.Pool { return []*claim.Pool{w.pool} }})
	for _, name := range []string{"fast", "slow"} {
		services := &nav.Services{}
		w.engines = append(w.engines, &orbit.Engine{Name: name, Ledger: w.ledger, OnRound: metrics.Round, Navigator: &owner{nav.Func(
			func(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
				if name == "slow" && w.before != nil {
					w.before()
				}
				return services.Plan(ctx, view, pending)
			}), name}})
	}
	metrics.Engines, metrics.Notes = w.engines, true
	w.commit(orbit.PutNode{Node: orbit.Node{ID: "full", Capacity: orbit.Resources{orbit.CPU: 5, orbit.Memory: 5}}},
		orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "g", Expected: 3}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "lab", Nominal: map[string]int64{"memory": 4}}},
		orbit.PutQueue{Queue: orbit.Queue{ID: "team", Parent: "lab", Nominal: map[string]int64{"memory": 2}}})
	w.scrape() // from here on groups are followed
	return w
}

// owner claims all of one module.
type owner struct {
	orbit.Navigator
	module string
}

func (o *owner) Claims(module string, _ orbit.AppClass) bool { return module == o.module }

func (w *world) commit(do ...orbit.Commitment) {
	w.t.Helper()
	_, err := w.ledger.Propose(w.t.Context(), orbit.Proposal{Do: do})
	require.NoError(w.t, err)
}

// pass runs a pass of an engine, and reports it as Run does.
func (w *world) pass(i int) { w.engines[i].OnRound(w.engines[i].Pass(w.t.Context())) }

// step lets something of everything happen: two engines race for one room, work comes and ends, waits and is nominated.
func (w *world) step() {
	w.n++
	_, _ = w.gateway.Create(w.t.Context(), "", nil) // which is refused, and counted
	id := func(kind string) orbit.CapsuleID { return orbit.CapsuleID(fmt.Sprint(kind, w.n)) }
	now := orbit.Instant(time.Now().Add(-time.Second).UnixNano())
	asks := func(cpu int64) orbit.Envelope {
		return orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu, orbit.Memory: 1}}
	}
	gang := &orbit.Gang{ID: orbit.GangID(id("gang")), Roles: []orbit.Role{{Name: "r", Spec: &orbit.Spec{Class: orbit.GangClass}, Members: []orbit.CapsuleID{id("m")}}}}
	w.commit(orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(id("n")), Capacity: orbit.Resources{orbit.CPU: 3, orbit.Memory: 4}, Labels: map[string]string{"zone": "z"}}},
		orbit.Submit{Gang: gang}, orbit.Place{Capsule: id("m"), Node: orbit.NodeID(id("n"))},
		orbit.Submit{IDs: []orbit.CapsuleID{id("sandbox")}, Spec: &orbit.Spec{Start: orbit.Start{Template: "python"}, Envelope: asks(9)}, At: now},
		orbit.Submit{IDs: []orbit.CapsuleID{id("even")}, Spec: &orbit.Spec{Group: "even", Spread: orbit.Domains{Level: "zone"}}, At: now},
		orbit.Place{Capsule: id("even"), Node: orbit.NodeID(id("n"))},
		orbit.Submit{IDs: []orbit.CapsuleID{id("ruled")}, Spec: &orbit.Spec{Group: "ruled", Even: []orbit.Even{{Group: "ruled", Level: "zone"}}}, At: now},
		orbit.Place{Capsule: id("ruled"), Node: orbit.NodeID(id("n"))},
		orbit.Submit{IDs: []orbit.CapsuleID{id("q")}, Spec: &orbit.Spec{Queue: "team", Envelope: asks(0)}, At: now},
		orbit.Submit{IDs: []orbit.CapsuleID{id("f")}, Spec: &orbit.Spec{Module: "fast", Envelope: asks(3)}, At: now},
		orbit.Submit{IDs: []orbit.CapsuleID{id("s")}, Spec: &orbit.Spec{Module: "slow", Group: "g", Envelope: asks(3)}, At: now},
		orbit.Submit{IDs: []orbit.CapsuleID{id("end")}, Spec: &orbit.Spec{Envelope: asks(1)}, At: now},
		orbit.Nominate{Capsule: id("s"), Parts: []orbit.NominatedRoom{{Node: "full", Room: orbit.Resources{orbit.CPU: 1}}}, Ends: time.Now().Add(time.Hour)})
	w.commit(orbit.Release{Capsule: id("end"), Final: true})
	if w.n <= 6 { // as many as the quota of all has room for
		w.commit(orbit.Place{Capsule: id("q"), Node: orbit.NodeID(id("n"))})
	}
	w.before = func() { w.pass(0) }
	w.pass(1)
	w.before = nil
	slot, err := w.pool.Claim(w.t.Context())
	require.NoError(w.t, err)
	require.NoError(w.t, w.slots.Return(w.t.Context(), slot))
}

// scrape returns what is exported, by family, and the series with their values.
func (w *world) scrape() (map[string]*dto.MetricFamily, map[string]string) {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	byName, series := map[string]*dto.MetricFamily{}, map[string]string{}
	for _, f := range families {
		byName[f.GetName()] = f
		var text bytes.Buffer
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(w.t, err)
		for line := range strings.Lines(text.String()) {
			if at := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") && at > 0 {
				series[line[:at]] = strings.TrimSpace(line[at:])
			}
		}
	}
	return byName, series
}

// labelsOf returns the labels that the series of a name have, nil if there are none: of a histogram and a summary also the names
// that end in _bucket, _count and _sum.
func labelsOf(families map[string]*dto.MetricFamily, name string) []string {
	f, extra := families[name], []string{"instance", "job"}
	if f == nil {
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			base, ok := strings.CutSuffix(name, suffix)
			if g := families[base]; ok && g != nil && (g.GetType() == dto.MetricType_HISTOGRAM || g.GetType() == dto.MetricType_SUMMARY && suffix != "_bucket") {
				if f = g; suffix == "_bucket" {
					extra = append(extra, "le")
				}
			}
		}
	}
	if f == nil {
		return nil
	}
	for _, l := range f.GetMetric()[0].GetLabel() {
		extra = append(extra, l.GetName())
	}
	return extra
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// Every query of the dashboard parses, and names metrics that are exported, and labels that these have.
func TestQueriesNameWhatIsExported(t *testing.T) {
	w := newWorld(t)
	w.step()
	families, _ := w.scrape()
	_, queries := read(t)
	used := map[string]bool{}
	for _, q := range queries {
		faults, names := check(families, q)
		assert.Empty(t, faults, "%s: %s", q.panel, q.expr)
		for _, name := range names {
			used[name] = true
		}
	}
	for name := range families {
		shown := slices.ContainsFunc([]string{"", "_bucket", "_count", "_sum"}, func(suffix string) bool { return used[name+suffix] })
		assert.True(t, shown, "no panel shows %s", name)
	}
}

// check says what is wrong with a query, and which metrics it names.
func check(families map[string]*dto.MetricFamily, q query) (faults, names []string) {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(q.expr)
	if err != nil {
		return []string{err.Error()}, nil
	}
	var all, grouped []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			labels := labelsOf(families, n.Name)
			if labels == nil {
				faults = append(faults, "there is no metric "+n.Name)
			}
			names, all = append(names, n.Name), append(all, labels...)
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && !slices.Contains(labels, m.Name) {
					faults = append(faults, fmt.Sprintf("%s has no label %s", n.Name, m.Name))
				}
			}
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		}
		return nil
	})
	for _, m := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
		grouped = append(grouped, m[1])
	}
	for _, label := range grouped {
		if !slices.Contains(all, label) {
			faults = append(faults, "no metric of it has a label "+label)
		}
	}
	return faults, names
}

// A query that names what there is not is found.
func TestCheckBites(t *testing.T) {
	w := newWorld(t)
	w.step()
	families, _ := w.scrape()
	for _, q := range []query{
		{expr: "orbit_pending"}, {expr: "orbit_engine_note_bucket"}, {expr: `orbit_nodes{engine="x"}`}, {expr: "sum by (class) (orbit_nodes)"},
		{expr: "sum(orbit_nodes"}, {expr: "orbit_nodes", legend: "{{grade}}"}, {expr: "rate(orbit_nodes)"},
	} {
		faults, _ := check(families, q)
		assert.NotEmpty(t, faults, q.expr)
	}
}

// Every query of the dashboard has an answer on what a working cluster has exported, with numbers, at some time.
func TestQueriesHaveAnswers(t *testing.T) {
	w := newWorld(t)
	values, last := map[string][]string{}, 0
	for range 7 {
		w.step()
		_, series := w.scrape()
		for name, v := range series {
			for len(values[name]) < last {
				values[name] = append(values[name], "_")
			}
			values[name] = append(values[name], v)
		}
		last++
	}
	load := &strings.Builder{}
	load.WriteString("load 15s\n")
	for name, list := range values {
		if !strings.Contains(name, "{") {
			name += "{}"
		}
		name = strings.Replace(name, "{", `{instance="i",job="j",`, 1)
		fmt.Fprintf(load, "  %s %s\n", strings.Replace(name, ",}", "}", 1), strings.Join(list, " "))
	}
	storage := promqltest.LoadedStorage(t, load.String())
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	_, queries := read(t)
	for _, q := range queries {
		run, err := engine.NewRangeQuery(t.Context(), storage, nil, q.expr, time.Unix(0, 0), time.Unix(int64(15*last), 0), 15*time.Second)
		require.NoError(t, err, q.expr)
		res := run.Exec(t.Context())
		require.NoError(t, res.Err, q.expr)
		matrix, err := res.Matrix()
		require.NoError(t, err, q.expr)
		numbers := 0
		for _, series := range matrix {
			for _, p := range series.Floats {
				if !math.IsNaN(p.F) {
					numbers++
				}
			}
		}
		assert.Positive(t, numbers, "%s: %s has no answer", q.panel, q.expr)
		run.Close()
	}
}

// Panels have titles and descriptions of their own, and do not overlap.
func TestPanels(t *testing.T) {
	b, _ := read(t)
	titles, ids, taken := map[string]bool{}, map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		assert.False(t, titles[p.Title] || ids[p.ID], "%d %s is there twice", p.ID, p.Title)
		titles[p.Title], ids[p.ID] = true, true
		assert.True(t, p.Type == "row" || len(p.Targets) > 0 && p.Description != "", p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				assert.Empty(t, taken[at], "%s lies over another panel", p.Title)
				taken[at] = p.Title
				assert.Less(t, at[0], 24)
			}
		}
	}
	require.Len(t, b.Templating.List, 2)
	assert.Equal(t, "label_values(orbit_engine_passes_total, engine)", b.Templating.List[1].Query)
}
