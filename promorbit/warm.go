package promorbit

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
)

// Warm is a collector that shows how many warm slots nodes have for each template, and how many are lacking, so that an
// autoscaler can act before the last one is taken. Set the fields before the first scrape. It may be scraped by several
// goroutines at a time, which take turns.
type Warm struct {
	// Ledger is the ledger in which sandboxes wait. Required.
	Ledger orbit.Ledger
	// Telemetry is where nodes report their slots, such as a telemetry.Board. Required.
	Telemetry orbit.Telemetry
	// Reserve is how many warm slots of each template should be free beyond those for pending capsules; default 0. With
	// a reserve the deficit shows before the last slot is taken.
	Reserve int
	// Names is the largest number of templates with series of their own; default 100. The others are summed up under "other".
	Names int
	// Timeout is how long a scrape waits for the ledger; default 5 s.
	Timeout time.Duration

	mu    sync.Mutex // guards the fields below
	view  orbit.View
	names presentNames
}

var (
	descWarmFree    = desc("warm_slots", "Warm slots of a template that are free on nodes that take new work and have reported lately.", "template")
	descWarmPending = desc("warm_pending_capsules", "Capsules that wait for a place and start from a template.", "template")
	descWarmDeficit = desc("warm_deficit_slots", "How many warm slots of a template are lacking: for the capsules that wait and for the reserve; 0: none.", "template")
	descFreeSlots   = desc("sandbox_slots", "Free sandbox slots, warm or not, of nodes that take new work and have reported lately.")
	descStale       = desc("stale_nodes", "Nodes whose last report is too old to go by, or whose lease has run out.")
)

// Describe implements [prometheus.Collector].
func (w *Warm) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descWarmFree, descWarmPending, descWarmDeficit, descFreeSlots, descStale} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (w *Warm) Collect(ch chan<- prometheus.Metric) {
	if w.Ledger == nil || w.Telemetry == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(w.Timeout, 5*time.Second))
	defer cancel()
	if err := w.view.Refresh(ctx, w.Ledger, w.Telemetry, time.Now()); err != nil {
		return // orbit_ledger_readable of the collector Ledger shows that
	}
	free, waiting := map[string]int{}, map[string]int{}
	slots, stale := 0, 0
	for n := range w.view.State().Nodes() {
		switch r := w.view.Report(n); {
		case r.Stale || r.Expired:
			stale++
		case n.Node.Schedulable():
			slots += r.FreeSlots
			for template, n := range r.Warm {
				free[template] += n
			}
		}
	}
	for _, c := range w.view.State().Pending() {
		if template := c.Spec.Start.Template; template != "" {
			waiting[template]++
		}
	}
	gauge(ch, descFreeSlots, float64(slots))
	gauge(ch, descStale, float64(stale))
	w.collectTemplates(ch, free, waiting)
}

// collectTemplates sends, for each template, the free warm slots, the pending capsules and the deficit.
func (w *Warm) collectTemplates(ch chan<- prometheus.Metric, free, waiting map[string]int) {
	templates := maps.Clone(free)
	maps.Copy(templates, waiting)
	lacking := func(template string) int { return max(0, waiting[template]+max(0, w.Reserve)-free[template]) }
	var all []present
	for template := range templates {
		all = append(all, present{template, int64(lacking(template))})
	}
	w.names.most = w.Names
	w.names.show(all)
	sums := map[string][3]int{}
	for template := range templates {
		name := w.names.value(template)
		sum := sums[name]
		sums[name] = [3]int{sum[0] + free[template], sum[1] + waiting[template], sum[2] + lacking(template)}
	}
	for name, sum := range sums {
		gauge(ch, descWarmFree, float64(sum[0]), name)
		gauge(ch, descWarmPending, float64(sum[1]), name)
		gauge(ch, descWarmDeficit, float64(sum[2]), name)
	}
}
