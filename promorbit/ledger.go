package promorbit

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
)

// Ledger is a collector that shows the state of a ledger at the time of a scrape, including commits of other processes.
// Set the fields before the first scrape. It may be scraped by several goroutines at a time, which take turns.
type Ledger struct {
	// Ledger is the ledger to show. Required. If it is nil or cannot be read, orbit_ledger_readable is 0, and all other
	// metrics are missing but orbit_ledger_healthy, which says what its Health says ([orbit.HealthOf]).
	Ledger orbit.Ledger
	// Engines are engines of this process on the ledger. orbit_waiting_capsules says how many capsules wait for each of
	// them, and why in a word ([orbit.WaitKind]). Nil: it has no series.
	Engines []*orbit.Engine
	// Timeout is how long a scrape waits for the ledger; default 3 s.
	Timeout time.Duration
	// Names is the largest number of series with names of their own; default 100. It applies to budgets, to groups with
	// pending members, to groups with an Even rule at a level, and to queues, each by itself. The others are summed up
	// under "other". A budget, a group or a queue keeps its series as long as it exists, so that series do not come and
	// go. A series that becomes free is given to the budget that can spare the fewest members, to the group with the most
	// pending members, to the group that exceeds its Even rule the most, or to the queue in which the most capsules wait.
	Names int
	// Typical is the demand of a typical capsule. Free capacity on nodes on which it does not fit is stranded
	// (orbit_resource_stranded). Default: the mean of all placements and holds.
	Typical orbit.Resources

	mu      sync.Mutex // guards the fields below
	backlog backlog
	budgets presentNames
	groups  presentNames
	evens   presentNames
	queues  presentNames
}

// desc describes a metric of this package.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
}

const unit = " CPU is in milli-cores, memory and disk are in bytes, devices in thousandths of a device."

var (
	descReadable      = desc("ledger_readable", "Whether the ledger could be read at this scrape (1), or not (0).")
	descHealthyLedger = desc("ledger_healthy", "Whether the ledger can commit (1), or not (0): its store answers no read or no proposal, or its disk is full; 1 for a ledger that does not say.")
	descWaits         = desc("waiting_capsules", "Pending capsules by the engine for which they wait, and by the reason in a word.", "engine", "kind")
	descScrape        = desc("ledger_scrape_seconds", "How long this scrape took to read and count the ledger's state.")
	descRevision      = desc("ledger_revision", "The ledger's revision at this scrape. Revisions rise with every commit and may have gaps.")
	descChanges       = desc("ledger_changes_total", "Changes that were committed since the first scrape, by kind. An eviction to make way is evict, one to move is move, a release for good is end, and a start that failed is fail, also if it was the last attempt.", "kind")
	descGaps          = desc("ledger_history_gaps_total", "How often the ledger's history did not reach back to the scrape before, so that changes between the two are not in orbit_ledger_changes_total. Scrape more often, or set a larger Limits.History.")
	descNodes         = desc("nodes", "Nodes by state.", "state")
	descPlaced        = desc("placed_capsules", "Capsules that are placed.")
	descPending       = desc("pending_capsules", "Capsules that wait for a place, by class.", "class")
	descOldest        = desc("oldest_pending_seconds", "How long the capsule of a class has waited that has waited longest, from Submit.At on, or else from the first scrape that has seen it pending; 0 if none waits.", "class")
	descWaiting       = desc("placed_waiting_capsules", "Placed capsules that may not begin yet, because capsules that have left have not stopped.")
	descStuck         = desc("oldest_placed_waiting_seconds", "How long ago the one of these was placed that has waited longest, by Place.At; 0 if none waits. If it rises above Engine.WaitToBegin, something does not stop, and no other node is free.")
	descFailing       = desc("failing_nodes", "Nodes on which most starts of the last five minutes have failed. Planners use them only if no other node fits.")
	descFailed        = desc("recent_failed_starts", "Capsules of which a start has failed within the last five minutes, counted once for each node on which it has.")
	descAsked         = desc("resource_pending", "What pending capsules ask for together."+unit, "resource")
	descGroups        = desc("pending_groups", "Groups with members that wait for a place.")
	descGroup         = desc("group_pending_capsules", "Members of a group that wait for a place.", "group")
	descBroken        = desc("broken_gangs", "Gangs that run below the minimum of a role or of the whole gang.")
	descLacking       = desc("broken_gang_lacking_capsules", "Members that broken gangs lack to reach the minimums of their roles and their own.")
	descCapacity      = desc("resource_capacity", "What all nodes have that are not lost; of devices, the healthy ones."+unit, "resource")
	descUsed          = desc("resource_used", "What placements and holds take on nodes that are not lost; of devices, the healthy ones."+unit, "resource")
	descFree          = desc("resource_free", "What is free on ready nodes."+unit, "resource")
	descStranded      = desc("resource_stranded", "What is free on ready nodes that have no room for a typical capsule."+unit, "resource")
	descHolds         = desc("holds", "Holds that live.")
	descNominees      = desc("nominations", "Nominations that live.")
	descClaimed       = desc("resource_nominated", "What living nominations claim together."+unit, "resource")
	descSpare         = desc("budget_spare_capsules", "How many healthy members a budget lets evictions, moves and drains take away; negative: how many are lacking already. Of other budgets: the smallest.", "budget")
	descHealthy       = desc("budget_healthy_capsules", "Healthy members of what a budget covers. Of other budgets: the sum.", "budget")
	descExpected      = desc("budget_expected_capsules", "How many members a budget expects to be healthy. Of other budgets: the sum.", "budget")
)

// Describe implements [prometheus.Collector].
func (l *Ledger) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descReadable, descHealthyLedger, descWaits, descScrape, descRevision, descChanges, descGaps, descNodes, descPlaced, descPending, descOldest, descWaiting, descStuck,
		descFailing, descFailed,
		descAsked, descGroups, descGroup, descBroken, descLacking,
		descCapacity, descUsed, descFree, descStranded, descHolds, descNominees, descClaimed, descSpare, descHealthy, descExpected,
		descEvenSkew, descEvenExcess,
		descQueueUsed, descQueueNominal, descQueueBorrowed, descQueueAvailable, descQueueShare, descQueueWaiting,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (l *Ledger) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	start := time.Now()
	state, err := l.read()
	collectHealth(ch, l.Ledger)
	if err != nil {
		gauge(ch, descReadable, 0)
		return
	}
	gauge(ch, descReadable, 1)
	l.collectWaits(ch, state)
	gauge(ch, descRevision, float64(state.Revision()))
	l.backlog.collect(ch, start)
	collectWaiting(ch, state, start)
	collectFailing(ch, state, start)
	l.collectGroups(ch)
	collectGangs(ch, state)
	l.collectBudgets(ch, state)
	l.collectEvens(ch, state)
	l.collectQueues(ch, state)
	l.collectNodes(ch, state)
	gauge(ch, descScrape, time.Since(start).Seconds())
}

// read brings the backlog up to date, and returns the ledger's state.
func (l *Ledger) read() (*orbit.State, error) {
	if l.Ledger == nil {
		return nil, orbit.ErrUnavailable
	}
	l.budgets.most, l.groups.most, l.evens.most, l.queues.most = l.Names, l.Names, l.Names, l.Names
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(l.Timeout, 3*time.Second))
	defer cancel()
	return l.backlog.follow(ctx, l.Ledger)
}

// gauge sends the present value of a gauge.
func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// counter sends the present value of a counter.
func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, value uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
}

// collectHealth sends whether the ledger can commit.
func collectHealth(ch chan<- prometheus.Metric, l orbit.Ledger) {
	healthy := 1.0
	if l == nil || orbit.HealthOf(l) != nil {
		healthy = 0
	}
	gauge(ch, descHealthyLedger, healthy)
}

// collectWaits sends how many capsules wait for each of the engines, by the reason.
func (l *Ledger) collectWaits(ch chan<- prometheus.Metric, state *orbit.State) {
	if len(l.Engines) == 0 {
		return
	}
	type series struct {
		engine string
		kind   orbit.WaitKind
	}
	count := map[series]int{}
	for _, row := range orbit.Backlog(state, l.Engines...) {
		of := series{kind: row.Kind}
		if row.Engine != nil {
			of.engine = row.Engine.Name
		}
		count[of] += len(row.Capsules)
	}
	for of, n := range count {
		gauge(ch, descWaits, float64(n), of.engine, string(of.kind))
	}
}

// collect sends the counts of changes, and the number and the longest wait of pending capsules.
func (b *backlog) collect(ch chan<- prometheus.Metric, now time.Time) {
	for kind, n := range b.changes {
		counter(ch, descChanges, n, kind)
	}
	counter(ch, descGaps, b.gaps)
	for i, class := range classes {
		gauge(ch, descPending, float64(b.count[i]), class.String())
		gauge(ch, descOldest, b.age(i, now).Seconds(), class.String())
	}
}

// collectWaiting sends how many placed capsules wait to begin, and for how long the first of them has waited.
func collectWaiting(ch chan<- prometheus.Metric, state *orbit.State, now time.Time) {
	count, oldest := 0, now
	for c := range state.Waiting() {
		if count++; c.PlaceTime != 0 && c.PlaceTime.Time().Before(oldest) {
			oldest = c.PlaceTime.Time()
		}
	}
	gauge(ch, descWaiting, float64(count))
	gauge(ch, descStuck, now.Sub(oldest).Seconds())
}

// collectFailing sends on how many nodes most starts have failed lately, and how many starts have.
func collectFailing(ch chan<- prometheus.Metric, state *orbit.State, now time.Time) {
	nodes, failed := 0, 0
	for _, starts := range state.Starts(now) {
		if failed += starts.Failed; 2*starts.Failed > starts.Of {
			nodes++
		}
	}
	gauge(ch, descFailing, float64(nodes))
	gauge(ch, descFailed, float64(failed))
}

// collectGroups sends the number of pending members of each group.
func (l *Ledger) collectGroups(ch chan<- prometheus.Metric) {
	groups := l.backlog.groups
	gauge(ch, descGroups, float64(len(groups)))
	all := make([]present, 0, len(groups))
	for group, n := range groups {
		all = append(all, present{group, int64(n)})
	}
	l.groups.show(all)
	sums := map[string]int{}
	for group, n := range groups {
		sums[l.groups.value(group)] += n
	}
	for group, n := range sums {
		gauge(ch, descGroup, float64(n), group)
	}
}

// collectBudgets sends the spare, healthy and expected members of budgets.
func (l *Ledger) collectBudgets(ch chan<- prometheus.Metric, state *orbit.State) {
	var all []present
	for b := range state.Budgets() {
		all = append(all, present{string(b.Budget.ID), -int64(b.Spare())})
	}
	l.budgets.show(all)
	type sums struct{ spare, healthy, expected int }
	of := map[string]sums{}
	for b := range state.Budgets() {
		name := l.budgets.value(string(b.Budget.ID))
		s, again := of[name]
		if spare := b.Spare(); !again || spare < s.spare {
			s.spare = spare
		}
		s.healthy += b.Healthy
		s.expected += b.Budget.Expected
		of[name] = s
	}
	for name, s := range of {
		gauge(ch, descSpare, float64(s.spare), name)
		gauge(ch, descHealthy, float64(s.healthy), name)
		gauge(ch, descExpected, float64(s.expected), name)
	}
}

// collectGangs sends how many gangs run below a minimum, and how many members these lack.
func collectGangs(ch chan<- prometheus.Metric, state *orbit.State) {
	gangs, lacking := 0, 0
	for g := range state.Broken() {
		gangs++
		for _, n := range g.Shortfall() {
			lacking += n
		}
	}
	gauge(ch, descBroken, float64(gangs))
	gauge(ch, descLacking, float64(lacking))
}

// collectNodes sends the numbers of nodes, placements, holds and nominations, and for each resource the capacity, its
// parts that are used, free, stranded and nominated, and the demand of pending capsules.
func (l *Ledger) collectNodes(ch chan<- prometheus.Metric, state *orbit.State) {
	c := countNodes(state, l.Typical)
	for i, n := range c.nodes {
		gauge(ch, descNodes, float64(n), orbit.Condition(i).String())
	}
	gauge(ch, descPlaced, float64(c.placed))
	gauge(ch, descHolds, float64(c.holds))
	nominations, claimed := 0, amounts{}
	for n := range state.Nominations() {
		nominations++
		for i := range n.Parts {
			claimed.add(&n.Parts[i].Room, n.Parts[i].Milli*n.Parts[i].Devices.Len())
		}
	}
	gauge(ch, descNominees, float64(nominations))
	for d, name := range resourceNames(state, &c, &l.backlog.asked) {
		if name == "" {
			continue
		}
		gauge(ch, descCapacity, c.capacity[d].float(), name)
		gauge(ch, descUsed, c.used[d].float(), name)
		gauge(ch, descFree, c.free[d].float(), name)
		gauge(ch, descStranded, c.stranded[d].float(), name)
		gauge(ch, descClaimed, claimed[d].float(), name)
		gauge(ch, descAsked, l.backlog.asked[d].float(), name)
	}
}

// resourceNames returns the value of the label resource for each resource and for devices. It is empty if no node has
// the resource and no pending capsule asks for it.
func resourceNames(state *orbit.State, c *census, asked *amounts) (names [orbit.Dimensions + 1]string) {
	taken := map[string]bool{}
	for d := range names {
		name := "devices"
		if d != devices {
			name = text(state.DimensionName(d))
		}
		if taken[name] { // the importer has given one name to two dimensions
			name = fmt.Sprintf("%s_%d", name, d)
		}
		taken[name] = true
		if c.capacity[d] != (wide{}) || c.used[d] != (wide{}) || asked[d] != (wide{}) {
			names[d] = name
		}
	}
	return names
}
