package promorbit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/quotas"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/promorbit"
	"github.com/orbitsched/orbit/sim/race"
)

var ctx = context.Background()

// scrape returns all series of collectors as a scrape shows them, as name{label="value"}. Histograms and summaries have a _count
// and a _sum.
func scrape(t testing.TB, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, r.Register(c))
	}
	families, err := r.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			series := func(suffix string) string {
				if len(labels) == 0 {
					return f.GetName() + suffix
				}
				return f.GetName() + suffix + "{" + strings.Join(labels, ",") + "}"
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[series("")] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				out[series("")] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				out[series("_count")], out[series("_sum")] = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			case dto.MetricType_SUMMARY:
				out[series("_count")], out[series("_sum")] = float64(m.GetSummary().GetSampleCount()), m.GetSummary().GetSampleSum()
			}
		}
	}
	return out
}

// books are what a ledger's metrics have to be, counted anew from all records and the whole history at each scrape.
type books struct {
	scraped bool
	// The revision of the last scrape.
	last orbit.Revision
	// Since when the capsules wait that were pending at the last scrape.
	since map[string]time.Time
	// All changes since the first scrape.
	changes map[string]float64
}

// expect returns the series that a scrape of the ledger has to show now, all but those that tell times.
func (b *books) expect(t testing.TB, l *orbit.MemoryLedger) map[string]float64 {
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Verify())
	b.follow(t, l, s)
	out := map[string]float64{"orbit_ledger_readable": 1, "orbit_ledger_healthy": 1, "orbit_ledger_revision": float64(s.Revision()), "orbit_ledger_history_gaps_total": 0}
	for kind, n := range b.changes {
		out[fmt.Sprintf("orbit_ledger_changes_total{kind=%q}", kind)] = n
	}
	b.pending(s, out)
	nodes(s, out)
	waits(s, out)
	failing(s, out)
	gangs(s, out)
	for range s.Holds() {
		out["orbit_holds"]++
	}
	for n := range s.Nominations() {
		out["orbit_nominations"]++
		for _, p := range n.Parts {
			for d := range p.Room {
				out[fmt.Sprintf("orbit_resource_nominated{resource=%q}", s.DimensionName(d))] += float64(p.Room[d])
			}
			out[`orbit_resource_nominated{resource="devices"}`] += float64(p.Milli * p.Devices.Len())
		}
	}
	for budget := range s.Budgets() {
		out[fmt.Sprintf("orbit_budget_spare_capsules{budget=%q}", budget.Budget.ID)] = float64(budget.Spare())
		out[fmt.Sprintf("orbit_budget_healthy_capsules{budget=%q}", budget.Budget.ID)] = float64(budget.Healthy)
		out[fmt.Sprintf("orbit_budget_expected_capsules{budget=%q}", budget.Budget.ID)] = float64(budget.Budget.Expected)
	}
	evens(s, out)
	queues(s, out)
	return out
}

// queues works out anew what queues use, from the capsules on nodes.
func queues(s *orbit.State, out map[string]float64) {
	own := map[orbit.QueueID]map[string]int64{}
	sums := &quotas.Queues[orbit.QueueID]{All: map[orbit.QueueID]quotas.Queue[orbit.QueueID]{}, Own: func(id orbit.QueueID, resource string) *big.Rat {
		return new(big.Rat).SetInt64(own[id][resource])
	}}
	for q := range s.Queues() {
		id := q.Queue.ID
		own[id] = map[string]int64{}
		sums.All[id] = quotas.Queue[orbit.QueueID]{Parent: q.Queue.Parent, Nominal: q.Queue.Nominal, Borrow: q.Queue.Borrow, Lend: q.Queue.Lend, Weight: q.Queue.Weight}
	}
	for c := range s.Capsules() {
		takes := own[c.Spec.Queue]
		if takes == nil {
			continue
		}
		if c.Pending() {
			out[fmt.Sprintf("orbit_queue_waiting_capsules{queue=%q}", c.Spec.Queue)]++
		}
		if !c.Placed() {
			continue
		}
		for d, want := range c.Spec.Envelope.Reservation {
			takes[s.DimensionName(d)] += want
		}
		takes["device/"+s.Node(c.Node).Node.Devices.Model] += int64(c.Spec.Devices.Count * c.Spec.Devices.Milli)
		for _, x := range c.Spec.Extras {
			takes["extra/"+x.Name] += x.Amount
		}
	}
	float := func(x *big.Rat) float64 { f, _ := x.Float64(); return f }
	for id := range sums.All {
		share := math.Inf(1)
		if x := sums.Share(id); x.Rat != nil {
			share = float(x.Rat)
		}
		out[fmt.Sprintf("orbit_queue_share{queue=%q}", id)] = share
		for _, r := range sums.Divided(id) {
			nominal := new(big.Rat).SetInt64(sums.All[id].Nominal[r])
			for name, x := range map[string]*big.Rat{"used": sums.Used(id, r), "nominal": nominal, "borrowed": sums.Borrowed(id, r), "available": sums.Available(id, r)} {
				out[fmt.Sprintf("orbit_queue_%s{queue=%q,resource=%q}", name, id, r)] = float(x)
			}
		}
	}
}

// gangs counts anew what gangs lack that run.
func gangs(s *orbit.State, out map[string]float64) {
	for g := range s.Gangs() {
		lacks, all, running := 0, 0, 0
		for _, role := range g.Gang.Roles {
			placed, left := 0, 0
			for _, id := range role.Members {
				if c := s.Capsule(id); c != nil && c.Gang() == g.Gang.ID && !c.Released() {
					left++
					placed += map[bool]int{true: 1}[c.Placed()]
				}
			}
			least := left
			if role.Min > 0 {
				least = min(left, role.Min)
			}
			lacks, all, running = lacks+max(0, least-placed), all+left, running+placed
		}
		if lacks = max(lacks, min(g.Gang.Min, all)-running); running > 0 && lacks > 0 {
			out["orbit_broken_gangs"]++
			out["orbit_broken_gang_lacking_capsules"] += float64(lacks)
		}
	}
}

// evens counts anew how even groups are by the rules Even of all that is placed.
func evens(s *orbit.State, out map[string]float64) {
	domain := func(n *orbit.Node, level string) string {
		if level == orbit.NodeKey {
			return string(n.ID)
		}
		return n.Labels[level]
	}
	for c := range s.Capsules() {
		for _, e := range c.Spec.Even {
			if !c.Placed() || !c.Spec.IsIn(e.Group) { // of other groups a rule says only where the capsule may come
				continue
			}
			counts, eligible := map[string]int{}, map[string]int{}
			for o := range s.Capsules() {
				if o.Placed() && o.Spec.IsIn(e.Group) {
					counts[domain(s.Node(o.Node).Node, e.Level)]++
				}
			}
			delete(counts, "")
			for n := range s.Nodes() {
				d := domain(n.Node, e.Level)
				meets := e.IgnoreRequire || !slices.ContainsFunc(c.Spec.Require, func(p orbit.Predicate) bool { return !p.On(n.Node) })
				if len(e.Domains) > 0 {
					meets = slices.Contains(e.Domains, d)
				}
				if e.HonorTaints {
					meets = meets && n.Node.State == orbit.Ready && n.Node.Admits(c.Spec)
				}
				if n.Node.State != orbit.Lost && d != "" && meets {
					eligible[d] = counts[d]
				}
			}
			most, least := 0, 0
			for _, count := range counts {
				most = max(most, count)
			}
			if len(eligible) > 0 && len(eligible) >= e.MinDomains {
				least = slices.Min(slices.Collect(maps.Values(eligible)))
			}
			labels := fmt.Sprintf("{group=%q,level=%q}", e.Group, e.Level)
			out["orbit_even_skew_capsules"+labels] = max(out["orbit_even_skew_capsules"+labels], float64(most-least))
			out["orbit_even_excess_capsules"+labels] = max(out["orbit_even_excess_capsules"+labels], float64(most-least-e.MaxSkew))
		}
	}
}

// waits counts the placed capsules that may not begin: those with remains of their own, and those that were placed on a node after
// something left that still runs there.
func waits(s *orbit.State, out map[string]float64) {
	for c := range s.Capsules() {
		if !c.Placed() || c.Begun {
			continue
		}
		waits := c.Remains() != nil
		for r := range s.Remains(c.Node) {
			waits = waits || c.Waits && r.Left <= c.PlacedAt
		}
		if waits {
			out["orbit_placed_waiting_capsules"]++
		}
		if waits && c.PlaceTime != 0 {
			out["orbit_oldest_placed_waiting_seconds"] = max(out["orbit_oldest_placed_waiting_seconds"], time.Since(c.PlaceTime.Time()).Seconds())
		}
	}
}

// failing counts the starts that have failed within five minutes, and the nodes on which most have.
func failing(s *orbit.State, out map[string]float64) {
	for n := range s.Nodes() {
		failed, first := 0, s.Revision()
		for c := range s.Capsules() {
			for _, f := range s.Failures(c.ID).Nodes {
				if f.Node == n.Node.ID && f.At != 0 && time.Since(f.At.Time()) < 5*time.Minute && time.Until(f.At.Time()) <= 5*time.Minute {
					failed, first = failed+1, min(first, f.Revision)
				}
			}
		}
		good := 0
		for c := range s.On(n.Node.ID) {
			if c.PlacedAt > first && (c.Begun || !n.Node.Confirms) {
				good++
			}
		}
		if out["orbit_recent_failed_starts"] += float64(failed); failed > good {
			out["orbit_failing_nodes"]++
		}
	}
}

// follow counts the changes since the scrape before.
func (b *books) follow(t testing.TB, l *orbit.MemoryLedger, s *orbit.State) {
	if !b.scraped {
		b.scraped, b.changes, b.since = true, map[string]float64{}, map[string]time.Time{}
	} else if b.last < s.Revision() {
		changes, err := l.Changes(ctx, b.last)
		require.NoError(t, err)
		for _, c := range changes {
			kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", c.Do), "orbit."))
			switch do := c.Do.(type) {
			case orbit.PutNode, orbit.RemoveNode, orbit.PutBudget, orbit.RemoveBudget, orbit.PutQueue, orbit.RemoveQueue:
				kind = regexp.MustCompile("^(put|remove)").ReplaceAllString(kind, "${1}_")
			case orbit.Evict:
				if do.For == "" && do.ForGang == "" {
					kind = "move"
				}
			case orbit.Release:
				if do.Stopped {
					kind = "fail"
				} else if do.Final {
					kind = "end"
				} else if do.Hold != "" {
					kind = "release_hold"
				}
			}
			b.changes[kind]++
		}
	}
	b.last = s.Revision()
}

// pending counts what waits.
func (b *books) pending(s *orbit.State, out map[string]float64) {
	groups, since := map[string]float64{}, map[string]time.Time{}
	for _, class := range []orbit.AppClass{orbit.LatencySensitive, orbit.BestEffort, orbit.Batch, orbit.GangClass} {
		out[fmt.Sprintf("orbit_pending_capsules{class=%q}", class)] = 0
		out[fmt.Sprintf("orbit_oldest_pending_seconds{class=%q}", class)] = 0
	}
	for c := range s.Capsules() {
		if !c.Pending() {
			continue
		}
		out[fmt.Sprintf("orbit_pending_capsules{class=%q}", c.Spec.Class)]++
		for d, want := range c.Spec.Envelope.Reservation {
			out[fmt.Sprintf("orbit_resource_pending{resource=%q}", s.DimensionName(d))] += float64(want)
		}
		out[`orbit_resource_pending{resource="devices"}`] += float64(c.Spec.Devices.Count * c.Spec.Devices.Milli)
		for group := range c.Spec.MemberOf {
			groups[group]++
		}
		key := fmt.Sprint(c.ID, c.Submitted)
		switch was, ok := b.since[key]; {
		case c.SubmitTime() != 0:
			since[key] = c.SubmitTime().Time()
		case ok:
			since[key] = was
		default:
			since[key] = time.Now()
		}
		oldest := fmt.Sprintf("orbit_oldest_pending_seconds{class=%q}", c.Spec.Class)
		out[oldest] = max(out[oldest], time.Since(since[key]).Seconds())
	}
	b.since = since
	out["orbit_pending_groups"] = float64(len(groups))
	for group, n := range groups {
		out[fmt.Sprintf("orbit_group_pending_capsules{group=%q}", group)] = n
	}
}

// nodes counts what nodes have and what is taken of it, from the capsules and holds on them.
func nodes(s *orbit.State, out map[string]float64) {
	sum := func(name string, r orbit.Resources, devices float64) {
		for d, v := range r {
			out[fmt.Sprintf("orbit_resource_%s{resource=%q}", name, s.DimensionName(d))] += float64(max(0, v))
		}
		out[fmt.Sprintf(`orbit_resource_%s{resource="devices"}`, name)] += devices
	}
	on := map[orbit.NodeID]orbit.Resources{}
	users := map[orbit.NodeID]int{}
	for c := range s.Capsules() {
		if c.Placed() {
			out["orbit_placed_capsules"]++
			on[c.Node], _ = on[c.Node].Add(c.Spec.Envelope.Reservation)
			users[c.Node]++
		}
	}
	for h := range s.Holds() {
		on[h.Node], _ = on[h.Node].Add(h.Room)
		users[h.Node]++
	}
	var used orbit.Resources
	all := 0
	for n := range s.Nodes() {
		out[fmt.Sprintf("orbit_nodes{state=%q}", n.Node.State)]++
		if n.Node.State == orbit.Lost {
			continue
		}
		used, _ = used.Add(on[n.Node.ID])
		all += users[n.Node.ID]
	}
	for n := range s.Nodes() {
		if n.Node.State == orbit.Lost {
			continue
		}
		have, free := 0.0, 0.0
		for i := range n.Node.Devices.Count {
			if !n.Node.Devices.Unhealthy.Has(i) {
				have, free = have+1000, free+float64(n.DeviceFree(i))
			}
		}
		sum("capacity", n.Node.Capacity, have)
		sum("used", on[n.Node.ID], have-free)
		if n.Node.State != orbit.Ready {
			continue
		}
		left, _ := n.Node.Capacity.Sub(on[n.Node.ID])
		sum("free", left, free)
		for d := range used {
			if all > 0 && left[d] < used[d]/int64(all) {
				sum("stranded", left, free)
				break
			}
		}
	}
}

// agree compares a scrape with what is expected, times to within some seconds. Series that are zero may be missing on either side.
func agree(t testing.TB, want, got map[string]float64, within float64) bool {
	delete(got, "orbit_ledger_scrape_seconds")
	delete(want, "orbit_ledger_history_gaps_total")
	delete(got, "orbit_ledger_history_gaps_total")
	for series, v := range want {
		if strings.HasPrefix(series, "orbit_oldest") {
			assert.InDelta(t, v, got[series], within, series)
			got[series] = v
		}
	}
	for _, m := range []map[string]float64{want, got} {
		maps.DeleteFunc(m, func(_ string, v float64) bool { return v == 0 })
	}
	return assert.Equal(t, want, got)
}

// scraped is a ledger that is scraped now and then, between two proposals, and compared with a recount.
type scraped struct {
	*orbit.MemoryLedger
	t       testing.TB
	every   int
	count   int
	books   books
	metrics *promorbit.Ledger
	shown   map[string]float64
}

func (s *scraped) Propose(ctx context.Context, p orbit.Proposal) (orbit.Revision, error) {
	if s.count++; s.count%s.every == 1 {
		s.compare()
	}
	return s.MemoryLedger.Propose(ctx, p)
}

// compare scrapes the ledger.
func (s *scraped) compare() {
	got, want := scrape(s.t, s.metrics), s.books.expect(s.t, s.MemoryLedger)
	for series, v := range got {
		s.shown[series] = max(s.shown[series], v)
	}
	agree(s.t, want, got, 1e-6) // time stands still in the bubble; the rest is rounding
}

// After any history, the metrics of a ledger are what a look at all of its records and its whole history gives: in worlds with gangs,
// evictions, budgets, rules of company, nominations, holds, lost nodes, agents that confirm, and engines that fail.
func TestLedgerAddsUpInRaces(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 3
	}
	shown := map[string]float64{}
	for name, scenario := range map[string]race.Scenario{"preemption": race.Preemption, "patience": race.Patience, "liveness": (&race.Liveness{}).Race, "company": race.Company} {
		for seed := range seeds {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var ledgers []*scraped
					r := scenario(seed)
					r.Ledger = func() orbit.Ledger {
						l := &orbit.MemoryLedger{}
						ledgers = append(ledgers, &scraped{MemoryLedger: l, t: t, every: 3, metrics: &promorbit.Ledger{Ledger: l}, shown: shown})
						return ledgers[len(ledgers)-1]
					}
					require.NoError(t, r.Run(seed).Err)
					for _, l := range ledgers {
						l.compare()
						time.Sleep(time.Minute)
						l.compare()
					}
				})
			})
		}
	}
	if !testing.Short() {
		for _, series := range []string{"holds", "nominations", `resource_nominated{resource="cpu"}`, `nodes{state="cordoned"}`, "pending_groups",
			`resource_stranded{resource="cpu"}`, `ledger_changes_total{kind="evict"}`, `ledger_changes_total{kind="move"}`, `ledger_changes_total{kind="confirm"}`,
			`ledger_changes_total{kind="fail"}`, `even_skew_capsules{group="g1",level="zone"}`, `even_excess_capsules{group="g1",level="zone"}`, `pending_capsules{class="Gang"}`, "placed_waiting_capsules", "recent_failed_starts", "failing_nodes", `queue_borrowed{queue="q0",resource="cpu"}`, `queue_waiting_capsules{queue="q0"}`, `queue_share{queue="q0"}`, "oldest_placed_waiting_seconds", `oldest_pending_seconds{class="Batch"}`} {
			assert.Positive(t, shown["orbit_"+series], "no world shows %s at work", series)
		}
	}
}

// Each kind of change is counted by its name.
func TestLedgerChanges(t *testing.T) {
	l := &orbit.MemoryLedger{}
	metrics := &promorbit.Ledger{Ledger: l}
	assert.Len(t, keysWith(scrape(t, metrics), "orbit_ledger_changes_total"), 22, "counters begin at 0")
	ends := time.Now().Add(time.Hour)
	revision := func(id orbit.CapsuleID) orbit.Revision {
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		return s.Capsule(id).PlacedAt
	}
	urgent := &orbit.Spec{Priority: 5, Movable: true, Envelope: wants(10).Envelope}
	commit(t, l, orbit.PutNode{Node: node("n", 10)}, orbit.PutNode{Node: node("m", 10)}, orbit.PutNode{Node: orbit.Node{ID: "away", Confirms: true}})
	commit(t, l, orbit.RemoveNode{Node: "away"})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a", "b"}, Spec: wants(10)}, orbit.Place{Capsule: "a", Node: "n"}, orbit.Protect{Capsule: "a", For: time.Second})
	commit(t, l, orbit.Protect{Capsule: "a", Since: revision("a")})
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"u"}, Spec: urgent}, orbit.Evict{Capsule: "a", From: "n", Since: revision("a"), For: "u"}, orbit.Place{Capsule: "u", Node: "n"})
	commit(t, l, orbit.Evict{Capsule: "u", From: "n", Since: revision("u")}, orbit.Place{Capsule: "u", Node: "m"})
	commit(t, l, orbit.Nominate{Capsule: "a", Parts: []orbit.NominatedRoom{{Node: "n", Room: orbit.Resources{orbit.CPU: 1}}}, Ends: ends})
	commit(t, l, orbit.Hold{ID: "h", Node: "n", Room: orbit.Resources{orbit.CPU: 1}, Ends: ends}, orbit.Assign{Capsule: "b", Owner: "x"}, orbit.Mark{Key: "k", Value: "v"})
	commit(t, l, orbit.Release{Hold: "h"}, orbit.Release{Capsule: "b", Final: true})
	commit(t, l, orbit.Release{Capsule: "u", Stopped: true})
	commit(t, l, orbit.PutBudget{Budget: orbit.Budget{ID: "x", Module: "m"}})
	commit(t, l, orbit.RemoveBudget{Budget: "x"}, orbit.PutQueue{Queue: orbit.Queue{ID: "q"}})
	commit(t, l, orbit.RemoveQueue{Queue: "q"})
	commit(t, l, orbit.Adopt{Capsule: "found", Spec: wants(20), Node: "n"})
	commit(t, l, orbit.Respec{Capsule: "found", Since: revision("found"), Spec: wants(10)}, orbit.Respec{Capsule: "a", Spec: wants(7)})
	lost := node("n", 10)
	lost.State = orbit.Lost
	commit(t, l, orbit.PutNode{Node: lost}, orbit.Release{Capsule: "found"})
	got := scrape(t, metrics)
	for kind, want := range map[string]float64{"put_node": 4, "remove_node": 1, "submit": 2, "place": 3, "protect": 2, "evict": 1, "move": 1, "nominate": 1,
		"hold": 1, "assign": 1, "mark": 1, "release_hold": 1, "end": 1, "fail": 1, "release": 1, "put_budget": 1, "remove_budget": 1, "put_queue": 1, "remove_queue": 1, "adopt": 1, "respec": 2, "other": 0} {
		assert.Equal(t, want, got[fmt.Sprintf("orbit_ledger_changes_total{kind=%q}", kind)], kind)
	}
	assert.Len(t, keysWith(got, "orbit_ledger_changes_total"), 22)
}

// Where the history does not reach back to the scrape before, all is counted anew, and the gap is told.
func TestLedgerBehindItsHistory(t *testing.T) {
	l := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 4}}
	commit(t, l, orbit.PutNode{Node: node("n", 100)})
	metrics, b := &promorbit.Ledger{Ledger: l}, &books{}
	got := scrape(t, metrics)
	assert.Zero(t, got["orbit_ledger_history_gaps_total"])
	for i := range 20 {
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: wants(1), At: orbit.Instant(time.Now().Add(-time.Hour).UnixNano())})
	}
	got = scrape(t, metrics)
	assert.Equal(t, 1.0, got["orbit_ledger_history_gaps_total"])
	assert.Equal(t, 20.0, got[`orbit_pending_capsules{class="LatencySensitive"}`])
	assert.InDelta(t, 3600, got[`orbit_oldest_pending_seconds{class="LatencySensitive"}`], 60)
	assert.Zero(t, got[`orbit_ledger_changes_total{kind="submit"}`])
	commit(t, l, orbit.Place{Capsule: "c3", Node: "n"})
	got = scrape(t, metrics)
	assert.Equal(t, 1.0, got[`orbit_ledger_changes_total{kind="place"}`])
	delete(got, `orbit_ledger_changes_total{kind="place"}`)
	agree(t, b.expect(t, l), got, 5)
}

// What has happened to a capsule between two scrapes does not matter, nor does it whether the history shows it: it waits from its
// submission on, or else from the first scrape that has seen it pending for as long as it was pending at every scrape.
func TestLedgerAges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{Bounds: orbit.Limits{History: 8, Terminal: 1}}
		commit(t, l, orbit.PutNode{Node: node("m", 10)})
		metrics, b := &promorbit.Ledger{Ledger: l}, &books{}
		ages := func(services, batch float64) {
			t.Helper()
			got := scrape(t, metrics)
			assert.Equal(t, []float64{services, batch}, []float64{got[`orbit_oldest_pending_seconds{class="LatencySensitive"}`], got[`orbit_oldest_pending_seconds{class="Batch"}`]})
			b.scraped = false // its counts of changes are not of interest
			want := b.expect(t, l)
			maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.HasPrefix(series, "orbit_ledger_changes") })
			maps.DeleteFunc(want, func(series string, _ float64) bool {
				return strings.HasPrefix(series, "orbit_ledger_changes") || strings.HasPrefix(series, "orbit_oldest")
			})
			maps.DeleteFunc(got, func(series string, _ float64) bool { return strings.HasPrefix(series, "orbit_oldest") })
			agree(t, want, got, 0)
		}
		batch := &orbit.Spec{Class: orbit.Batch, Envelope: wants(2).Envelope}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: wants(1)})
		ages(0, 0)
		time.Sleep(time.Minute)
		commit(t, l, orbit.Place{Capsule: "a", Node: "m"})
		commit(t, l, orbit.Release{Capsule: "a", Stopped: true})
		ages(60, 0)
		for range 5 {
			commit(t, l, orbit.Mark{Key: "k", Value: "v"}, orbit.Mark{Key: "k"})
		}
		ages(60, 0)
		time.Sleep(time.Minute)
		ages(120, 0)
		commit(t, l, orbit.Release{Capsule: "a", Final: true})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: wants(1)}, orbit.Release{Capsule: "x", Final: true}) // the record of a is dropped
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: batch, At: orbit.Instant(time.Now().Add(-time.Second).UnixNano())})
		ages(0, 1)
		commit(t, l, orbit.PutNode{Node: node("m", 2)}, orbit.Place{Capsule: "a", Node: "m"})
		ages(0, 0)
		urgent := &orbit.Spec{Priority: 9, Envelope: wants(2).Envelope}
		s, err := l.Snapshot(ctx)
		require.NoError(t, err)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"u"}, Spec: urgent}, orbit.Place{Capsule: "u", Node: "m"}, orbit.Evict{Capsule: "a", From: "m", Since: s.Capsule("a").PlacedAt, For: "u"})
		ages(0, 1)
		commit(t, l, orbit.PutNode{Node: node("m", 1)}, orbit.PutNode{Node: node("o", 5)}) // less than is used on m
		ages(0, 1)
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: wants(1)})
		ages(0, 1)
		time.Sleep(time.Minute)
		ages(60, 61)
		commit(t, l, orbit.Release{Capsule: "c", Final: true})
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x2"}, Spec: wants(1)}, orbit.Release{Capsule: "x2", Final: true}, orbit.Submit{IDs: []orbit.CapsuleID{"x3"}, Spec: wants(1)}, orbit.Release{Capsule: "x3", Final: true})
		for range 5 {
			commit(t, l, orbit.Mark{Key: "k", Value: "v"}, orbit.Mark{Key: "k"})
		}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: wants(1)}) // behind the history another one of the name
		ages(0, 61)
	})
}

// The oldest is found after thousands have come and gone, and what is kept of these has a bound.
func TestLedgerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &orbit.MemoryLedger{}
		metrics := &promorbit.Ledger{Ledger: l}
		commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"old"}, Spec: wants(1)})
		scrape(t, metrics)
		time.Sleep(time.Hour)
		for i := range 20 {
			var ids []orbit.CapsuleID
			var ends []orbit.Commitment
			for j := range 200 {
				ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%d-%d", i, j)))
				ends = append(ends, orbit.Release{Capsule: ids[j], Final: true})
			}
			commit(t, l, orbit.Submit{IDs: ids, Spec: wants(1)})
			scrape(t, metrics)
			commit(t, l, ends...)
			got := scrape(t, metrics)
			assert.Equal(t, 3600.0, got[`orbit_oldest_pending_seconds{class="LatencySensitive"}`])
			assert.Equal(t, 1.0, got[`orbit_pending_capsules{class="LatencySensitive"}`])
			assert.LessOrEqual(t, metrics.Kept(), 1024+2*201)
		}
	})
}

// What is committed while a scrape reads is counted by the next one, once.
func TestLedgerAhead(t *testing.T) {
	l := &ahead{MemoryLedger: &orbit.MemoryLedger{}, t: t}
	metrics := &promorbit.Ledger{Ledger: l}
	scrape(t, metrics)
	for i := range 3 {
		commit(t, l.MemoryLedger, orbit.Mark{Key: "a", Value: fmt.Sprint(i)})
		got := scrape(t, metrics)
		assert.Equal(t, []float64{float64(i + 1), float64(i)}, []float64{got[`orbit_ledger_changes_total{kind="mark"}`], got[`orbit_ledger_changes_total{kind="submit"}`]})
		assert.Equal(t, float64(i), got[`orbit_pending_capsules{class="LatencySensitive"}`])
	}
}

// ahead submits a capsule behind the back of each reader of its changes.
type ahead struct {
	*orbit.MemoryLedger
	t testing.TB
	n int
}

func (a *ahead) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	a.n++
	commit(a.t, a.MemoryLedger, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", a.n))}, Spec: wants(1)})
	return a.MemoryLedger.Changes(ctx, after)
}

// A ledger that cannot be read is told of, and does not fail the scrape of others.
func TestLedgerUnreadable(t *testing.T) {
	assert.Equal(t, map[string]float64{"orbit_ledger_readable": 0, "orbit_ledger_healthy": 0}, scrape(t, &promorbit.Ledger{}))
	broken := &broken{MemoryLedger: &orbit.MemoryLedger{}}
	metrics := &promorbit.Ledger{Ledger: broken}
	assert.Equal(t, 1.0, scrape(t, metrics)["orbit_ledger_readable"])
	commit(t, broken.MemoryLedger, orbit.Submit{IDs: []orbit.CapsuleID{"a"}, Spec: wants(1)})
	broken.err = errors.New("down")
	assert.Equal(t, map[string]float64{"orbit_ledger_readable": 0, "orbit_ledger_healthy": 1}, scrape(t, metrics), "it does not say whether it can commit")
	silent := &promorbit.Ledger{Ledger: failed{broken}}
	broken.unread = errors.New("down, too")
	assert.Equal(t, map[string]float64{"orbit_ledger_readable": 0, "orbit_ledger_healthy": 0}, scrape(t, silent), "its health is known even if it cannot be read")
	broken.unread = nil
	broken.err = nil
	got := scrape(t, metrics)
	assert.Equal(t, 1.0, got[`orbit_pending_capsules{class="LatencySensitive"}`])
	assert.Equal(t, 1.0, got[`orbit_ledger_changes_total{kind="submit"}`], "what was committed meanwhile is counted later")
}

// silent is a ledger whose store does not answer: a read waits as long as its caller does.
type silent struct{ orbit.Ledger }

func (silent) Snapshot(ctx context.Context) (*orbit.State, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A scrape does not wait for long for a store that does not answer.
func TestLedgerSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, l := time.Now(), silent{&orbit.MemoryLedger{}}
		got := scrape(t, &promorbit.Ledger{Ledger: l}, &promorbit.Groups{Ledger: l}, &promorbit.Warm{Ledger: l})
		assert.LessOrEqual(t, time.Since(start), 3*time.Second)
		assert.Zero(t, got["orbit_ledger_readable"])
	})
}

type broken struct {
	*orbit.MemoryLedger
	err, unread error
}

func (b *broken) Snapshot(ctx context.Context) (*orbit.State, error) {
	if b.unread != nil {
		return nil, b.unread
	}
	return b.MemoryLedger.Snapshot(ctx)
}

func (b *broken) Changes(ctx context.Context, after orbit.Revision) ([]orbit.Change, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.MemoryLedger.Changes(ctx, after)
}

// Importers choose ids without bounds; series have one. Names beyond it are summed up, budgets by the smallest that is spared, and
// a name keeps its series while others come.
func TestLedgerNamesAreBounded(t *testing.T) {
	l := &orbit.MemoryLedger{Dimensions: [orbit.Dimensions]string{4: "cpu", 5: "devices"}}
	commit(t, l, orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 100, 4: 5, 5: 6}, Devices: orbit.Devices{Model: "m", Count: 1}}})
	group := func(i, members int) {
		var ids []orbit.CapsuleID
		for j := range members {
			ids = append(ids, orbit.CapsuleID(fmt.Sprintf("c%d-%d", i, j)))
		}
		commit(t, l, orbit.Submit{IDs: ids, Spec: &orbit.Spec{Group: fmt.Sprint("g", i), Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1}}}},
			orbit.PutBudget{Budget: orbit.Budget{ID: orbit.BudgetID(fmt.Sprint("b", i)), Group: fmt.Sprint("g", i), Expected: members}})
	}
	for i := range 9 {
		group(i, i+1)
	}
	metrics := &promorbit.Ledger{Ledger: l, Names: 2}
	got := scrape(t, metrics)
	assert.Equal(t, []float64{9, 8, 28, 9}, []float64{got[`orbit_group_pending_capsules{group="g8"}`], got[`orbit_group_pending_capsules{group="g7"}`],
		got[`orbit_group_pending_capsules{group="other"}`], got[`orbit_pending_groups`]})
	assert.Equal(t, []float64{-9, -8, -7, 28}, []float64{got[`orbit_budget_spare_capsules{budget="b8"}`], got[`orbit_budget_spare_capsules{budget="b7"}`],
		got[`orbit_budget_spare_capsules{budget="other"}`], got[`orbit_budget_expected_capsules{budget="other"}`]})
	assert.Equal(t, []float64{100, 5, 6, 1000}, []float64{got[`orbit_resource_capacity{resource="cpu"}`], got[`orbit_resource_capacity{resource="cpu_4"}`],
		got[`orbit_resource_capacity{resource="devices"}`], got[`orbit_resource_capacity{resource="devices_8"}`]}, "two resources of one name")
	var places []orbit.Commitment
	for i := range 2 {
		for j := range i + 1 {
			places = append(places, orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprintf("c%d-%d", i, j)), Node: "n"})
		}
	}
	commit(t, l, append(places, orbit.Submit{IDs: []orbit.CapsuleID{"gpu"}, Spec: &orbit.Spec{Devices: orbit.DeviceRequest{Count: 2, Milli: 300}}},
		orbit.PutNode{Node: orbit.Node{ID: "gpus", Devices: orbit.Devices{Model: "m", Count: 2}}},
		orbit.Nominate{Capsule: "gpu", Parts: []orbit.NominatedRoom{{Node: "gpus", Devices: 3, Milli: 300}}, Ends: time.Now().Add(time.Hour)})...)
	got = scrape(t, metrics)
	assert.Equal(t, []float64{3, 600, 600, 3000}, []float64{got[`orbit_budget_healthy_capsules{budget="other"}`], got[`orbit_resource_nominated{resource="devices_8"}`],
		got[`orbit_resource_pending{resource="devices_8"}`], got[`orbit_resource_capacity{resource="devices_8"}`]})
	group(20, 30)
	got = scrape(t, metrics)
	assert.Equal(t, []float64{9, 8, 58}, []float64{got[`orbit_group_pending_capsules{group="g8"}`], got[`orbit_group_pending_capsules{group="g7"}`],
		got[`orbit_group_pending_capsules{group="other"}`] + 3}, "series stay")
	var ends []orbit.Commitment
	for j := range 8 {
		ends = append(ends, orbit.Release{Capsule: orbit.CapsuleID(fmt.Sprintf("c7-%d", j)), Final: true})
	}
	commit(t, l, append(ends, orbit.RemoveBudget{Budget: "b7"})...)
	got = scrape(t, metrics)
	assert.Equal(t, []float64{9, 30, 25}, []float64{got[`orbit_group_pending_capsules{group="g8"}`], got[`orbit_group_pending_capsules{group="g20"}`],
		got[`orbit_group_pending_capsules{group="other"}`]}, "a series that has become free is given away")
	assert.Equal(t, -30.0, got[`orbit_budget_spare_capsules{budget="b20"}`])
}

// A rule that is kept shows how far the group is from even, and no excess; one that a node which comes back has broken shows by how much, until a move repairs
// it. Groups beyond Names are shown together, by the largest of them.
func TestLedgerEven(t *testing.T) {
	l := &orbit.MemoryLedger{}
	metrics := &promorbit.Ledger{Ledger: l, Names: 1}
	even := func(group string) *orbit.Spec {
		return &orbit.Spec{Group: group, Movable: true, Even: []orbit.Even{{Group: group, Level: "zone", MaxSkew: 1}}}
	}
	shown := func() (out [4]float64) {
		got := scrape(t, metrics)
		for i, series := range []string{`skew_capsules{group="g",level="zone"}`, `excess_capsules{group="g",level="zone"}`, `skew_capsules{group="other",level="other"}`, `excess_capsules{group="other",level="other"}`} {
			v, ok := got["orbit_even_"+series]
			if !ok {
				v = -1
			}
			out[i] = v
		}
		return out
	}
	commit(t, l, zoned("a", "a"), zoned("b", "b"), orbit.Submit{IDs: []orbit.CapsuleID{"1", "2", "3", "4"}, Spec: even("g")})
	assert.Equal(t, [4]float64{-1, -1, -1, -1}, shown(), "nothing is placed")
	commit(t, l, orbit.Place{Capsule: "1", Node: "a"}, orbit.Place{Capsule: "2", Node: "a"}, orbit.Place{Capsule: "3", Node: "b"})
	assert.Equal(t, [4]float64{1, 0, -1, -1}, shown())
	commit(t, l, zoned("c", "c"))
	assert.Equal(t, [4]float64{2, 1, -1, -1}, shown(), "a zone has come without members")
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"5"}, Spec: even("h")}, orbit.Place{Capsule: "5", Node: "c"}, orbit.Submit{IDs: []orbit.CapsuleID{"6"}, Spec: even("i")}, orbit.Place{Capsule: "6", Node: "c"})
	assert.Equal(t, [4]float64{2, 1, 1, 0}, shown())
	s, err := l.Snapshot(ctx)
	require.NoError(t, err)
	commit(t, l, orbit.Evict{Capsule: "1", From: "a", Since: s.Capsule("1").PlacedAt}, orbit.Place{Capsule: "1", Node: "c"})
	assert.Equal(t, [4]float64{0, 0, 1, 0}, shown(), "a move has repaired it")
}

// Of several rules about a group the one that is broken most counts. Those groups are shown that are furthest from their rules, and of these the least even; the
// others show together the most of each.
func TestLedgerEvenOfSeveral(t *testing.T) {
	for name, c := range map[string]struct {
		skews, bounds map[string]int // of each group
		shown         string
		want          [4]float64 // skew and excess of the group that is shown, and of the others
	}{
		"by excess, not by skew":  {map[string]int{"g": 4, "h": 2}, map[string]int{"g": 4, "h": 1}, "h", [4]float64{2, 1, 4, 0}},
		"by skew, of equal rules": {map[string]int{"g": 1, "h": 2}, map[string]int{"g": 1, "h": 2}, "h", [4]float64{2, 0, 1, 0}},
		"the most of the others":  {map[string]int{"g": 5, "h": 4, "i": 3}, map[string]int{"g": 1, "h": 4, "i": 1}, "g", [4]float64{5, 4, 4, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			l := &orbit.MemoryLedger{}
			commit(t, l, zoned("a", "a"), zoned("b", "b"))
			for group, skew := range c.skews {
				for i := range skew + 2 { // one in zone b, the others in zone a
					spec, on := &orbit.Spec{Group: group}, orbit.NodeID("a")
					if i == 0 {
						on = "b"
					}
					if i < 3 { // three rules, the first of which is the strictest
						spec.Even = []orbit.Even{{Group: group, Level: "zone", MaxSkew: c.bounds[group] + i}}
					}
					commit(t, l, orbit.Adopt{Capsule: orbit.CapsuleID(fmt.Sprint(group, i)), Spec: spec, Node: on})
				}
			}
			got := scrape(t, &promorbit.Ledger{Ledger: l, Names: 1})
			var have [4]float64
			for i, series := range []string{"skew", "excess"} {
				have[i] = got[fmt.Sprintf("orbit_even_%s_capsules{group=%q,level=\"zone\"}", series, c.shown)]
				have[2+i] = got[fmt.Sprintf("orbit_even_%s_capsules{group=\"other\",level=\"other\"}", series)]
			}
			assert.Equal(t, c.want, have)
		})
	}
}

// What is typical may be said; then nodes with less are of no use.
func TestLedgerTypical(t *testing.T) {
	l := &orbit.MemoryLedger{}
	commit(t, l, orbit.PutNode{Node: node("a", 10)}, orbit.PutNode{Node: node("b", 4)}, orbit.PutNode{Node: node("c", 3)})
	stranded := func(m *promorbit.Ledger) float64 { return scrape(t, m)[`orbit_resource_stranded{resource="cpu"}`] }
	assert.Zero(t, stranded(&promorbit.Ledger{Ledger: l}), "nothing is placed, so any room is of use")
	assert.Equal(t, 3.0, stranded(&promorbit.Ledger{Ledger: l, Typical: orbit.Resources{orbit.CPU: 4}}))
	assert.Equal(t, 7.0, stranded(&promorbit.Ledger{Ledger: l, Typical: orbit.Resources{orbit.CPU: 5}}))
	commit(t, l, orbit.Submit{IDs: []orbit.CapsuleID{"x", "y"}, Spec: wants(4)}, orbit.Place{Capsule: "x", Node: "a"}, orbit.Place{Capsule: "y", Node: "a"})
	assert.Equal(t, 5.0, stranded(&promorbit.Ledger{Ledger: l}), "2 on a and 3 on c, and placements take 4 each")
	lost, cordoned := node("a", 10), node("c", 3)
	lost.State, cordoned.State = orbit.Lost, orbit.Cordoned
	commit(t, l, orbit.PutNode{Node: lost}, orbit.PutNode{Node: cordoned})
	got := scrape(t, &promorbit.Ledger{Ledger: l})
	assert.Equal(t, []float64{1, 1, 1, 7, 0, 4, 2}, []float64{got[`orbit_nodes{state="lost"}`], got[`orbit_nodes{state="cordoned"}`], got[`orbit_nodes{state="ready"}`],
		got[`orbit_resource_capacity{resource="cpu"}`], got[`orbit_resource_used{resource="cpu"}`], got[`orbit_resource_free{resource="cpu"}`], got["orbit_placed_capsules"]})
	agree(t, (&books{}).expect(t, l), got, 5)
}

// Amounts that overflow an int64 together are added up all the same.
func TestLedgerLargeAmounts(t *testing.T) {
	l := &orbit.MemoryLedger{}
	huge := orbit.Resources{orbit.Memory: 1 << 62}
	for i := range 6 {
		commit(t, l, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprint("n", i)), Capacity: huge}},
			orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprint("c", i))}, Spec: &orbit.Spec{Envelope: orbit.Envelope{Reservation: huge}}})
	}
	metrics := &promorbit.Ledger{Ledger: l}
	for placed := range 7 {
		got := scrape(t, metrics)
		assert.Equal(t, 6*float64(1<<62), got[`orbit_resource_capacity{resource="memory"}`])
		assert.Equal(t, float64(placed)*float64(1<<62), got[`orbit_resource_used{resource="memory"}`])
		assert.Equal(t, float64(6-placed)*float64(1<<62), got[`orbit_resource_pending{resource="memory"}`])
		if placed < 6 {
			commit(t, l, orbit.Place{Capsule: orbit.CapsuleID(fmt.Sprint("c", placed)), Node: orbit.NodeID(fmt.Sprint("n", placed))})
		}
	}
}

// The names and texts of all metrics are as promlint wants them.
func TestLint(t *testing.T) {
	l := &orbit.MemoryLedger{}
	engines := &promorbit.Engines{}
	commit(t, l, orbit.PutNode{Node: node("n", 10)}, orbit.Submit{IDs: []orbit.CapsuleID{"c"}, Spec: &orbit.Spec{Group: "g", Envelope: wants(1).Envelope}},
		orbit.PutBudget{Budget: orbit.Budget{ID: "b", Group: "g"}}, orbit.Submit{IDs: []orbit.CapsuleID{"e"}, Spec: &orbit.Spec{Group: "g", Even: []orbit.Even{{Group: "g", Level: orbit.NodeKey}}}},
		orbit.Place{Capsule: "e", Node: "n"})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(&promorbit.Ledger{Ledger: l}, engines, somePools(t))
	runBusy(t, engines)
	problems, err := testutil.GatherAndLint(r)
	require.NoError(t, err)
	assert.Empty(t, problems)
}

func commit(t testing.TB, l orbit.Ledger, do ...orbit.Commitment) {
	t.Helper()
	_, err := l.Propose(ctx, orbit.Proposal{ID: orbit.NewProposalID(), Do: do})
	require.NoError(t, err)
}

func node(id orbit.NodeID, cpu int64) orbit.Node {
	return orbit.Node{ID: id, Capacity: orbit.Resources{orbit.CPU: cpu}}
}

func wants(cpu int64) *orbit.Spec {
	return &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
}

// Gangs that run below a minimum are counted, and what they lack; members that have ended are not missed.
func TestLedgerCountsBrokenGangs(t *testing.T) {
	l := &orbit.MemoryLedger{}
	metrics := &promorbit.Ledger{Ledger: l}
	requires := func(gangs, lacking float64) {
		got := scrape(t, metrics)
		require.Equal(t, []float64{gangs, lacking}, []float64{got["orbit_broken_gangs"], got["orbit_broken_gang_lacking_capsules"]})
		want := (&books{}).expect(t, l)
		require.Equal(t, []float64{want["orbit_broken_gangs"], want["orbit_broken_gang_lacking_capsules"]}, []float64{gangs, lacking})
	}
	commit(t, l, orbit.PutNode{Node: node("n", 100)}, orbit.Submit{Gang: &orbit.Gang{ID: "g", Roles: []orbit.Role{
		{Name: "boss", Spec: wants(1), Members: []orbit.CapsuleID{"b"}}, {Name: "crew", Spec: wants(2), Members: []orbit.CapsuleID{"x", "y", "z"}, Min: 2},
	}}})
	requires(0, 0)
	commit(t, l, orbit.Place{Capsule: "b", Node: "n"}, orbit.Place{Capsule: "x", Node: "n"}, orbit.Place{Capsule: "y", Node: "n"})
	requires(0, 0)
	commit(t, l, orbit.Release{Capsule: "b", Stopped: true})
	commit(t, l, orbit.Release{Capsule: "x", Stopped: true})
	requires(1, 2)
	commit(t, l, orbit.Release{Capsule: "b", Final: true})
	requires(1, 1)
	commit(t, l, orbit.Release{Capsule: "y", Stopped: true})
	requires(0, 0) // it waits as a whole
}

// failed is a ledger that can be read and commits nothing.
type failed struct{ orbit.Ledger }

func (failed) Health() error { return errors.New("no space left on device") }

// TestWaitsAndHealth: the series of what waits add up to what is pending, by engine and reason, and a ledger that can commit nothing says so.
func TestWaitsAndHealth(t *testing.T) {
	l := &orbit.MemoryLedger{}
	spec := func(module string, cpu int64) *orbit.Spec {
		return &orbit.Spec{Module: module, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: cpu}}}
	}
	_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{
		orbit.PutNode{Node: orbit.Node{ID: "n", Capacity: orbit.Resources{orbit.CPU: 4}}},
		orbit.Submit{IDs: []orbit.CapsuleID{"a", "b", "c"}, Spec: spec("web", 9)},
		orbit.Submit{IDs: []orbit.CapsuleID{"x"}, Spec: spec("web", 1), Owner: "nobody"},
	}})
	require.NoError(t, err)
	e := &orbit.Engine{Name: "services", Ledger: l, Navigator: &nav.Services{}}
	before := scrape(t, &promorbit.Ledger{Ledger: l, Engines: []*orbit.Engine{e}})
	require.InDelta(t, 3, before[`orbit_waiting_capsules{engine="services",kind="unplanned"}`], 0)
	e.Pass(ctx)
	after := scrape(t, &promorbit.Ledger{Ledger: failed{l}, Engines: []*orbit.Engine{e}})
	require.InDelta(t, 3, after[`orbit_waiting_capsules{engine="services",kind="parked"}`], 0)
	require.InDelta(t, 1, after[`orbit_waiting_capsules{engine="",kind="unowned"}`], 0)
	require.InDelta(t, 1, before["orbit_ledger_healthy"], 0)
	require.InDelta(t, 0, after["orbit_ledger_healthy"], 0)
}
