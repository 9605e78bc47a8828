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

// Warm is a collector that shows how many slots nodes have, and how many warm ones for each template, and how many are
// lacking, so that an autoscaler can act before the last one is taken. It also shows what became of creates. Set the fields before the first scrape. It may be scraped by several goroutines at a time, which take turns.
//
// A template has series while a node names it in its last report, however old that is, or a capsule waits that starts
// from it; so at saturation, with no warm slot left, the deficit shows.
type Warm struct {
	// Ledger is the ledger in which sandboxes wait. Required.
	Ledger orbit.Ledger
	// Telemetry is where nodes report their slots, such as a telemetry.Board. Required.
	Telemetry orbit.Telemetry
	// Reserve is how many warm slots of each template should be free beyond those for pending capsules; default 0. With
	// a reserve the deficit shows before the last slot is taken. Creates of a sandbox.Gateway never wait, so without a
	// reserve no deficit shows for them.
	Reserve int
	// ReserveSlots is how many slots should be free beyond those for pending capsules, warm or not; default 0.
	ReserveSlots int
	// Creates, if set, returns how many creates of sandboxes have had each outcome so far, such as the Outcomes of the
	// Stats of a sandbox.Gateway. It is called once in each scrape, perhaps by several goroutines at a time.
	Creates func() map[string]uint64
	// Names is the largest number of templates with series of their own; default 100. The others are summed up under "other".
	Names int
	// Timeout is how long a scrape waits for the ledger; default 3 s.
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
	descSlotDeficit = desc("sandbox_deficit_slots", "How many sandbox slots are lacking: for the capsules that wait and for the reserve; 0: none.")
	descCreates     = desc("sandbox_creates_total", "Creates of sandboxes, by outcome; those that booted warm or cold, and those that were refused, by reason.", "outcome")
	descStale       = desc("stale_nodes", "Nodes whose last report is too old to go by, or whose lease has run out.")
)

// Describe implements [prometheus.Collector].
func (w *Warm) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descWarmFree, descWarmPending, descWarmDeficit, descFreeSlots, descSlotDeficit, descCreates, descStale} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (w *Warm) Collect(ch chan<- prometheus.Metric) {
	w.collectCreates(ch)
	if w.Ledger == nil || w.Telemetry == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(w.Timeout, 3*time.Second))
	defer cancel()
	if err := w.view.Refresh(ctx, w.Ledger, w.Telemetry, time.Now()); err != nil {
		return // orbit_ledger_readable of the collector Ledger shows that
	}
	s := w.supply()
	waiting, needed := map[string]int{}, int64(0)
	for _, c := range w.view.State().Pending() {
		if template := c.Spec.Start.Template; template != "" {
			waiting[template]++
			needed += max(1, c.Spec.Envelope.Reservation[orbit.Slots])
		}
	}
	gauge(ch, descFreeSlots, float64(s.slots))
	gauge(ch, descSlotDeficit, float64(max(0, needed+int64(max(0, w.ReserveSlots))-int64(s.slots))))
	gauge(ch, descStale, float64(s.stale))
	w.collectTemplates(ch, s.free, waiting)
}

// supply is what nodes have to offer. free has every known template, also those without a free warm slot.
type supply struct {
	slots, stale int
	free         map[string]int
}

// supply adds up the reports of all nodes. The caller must hold the lock.
func (w *Warm) supply() supply {
	s := supply{free: map[string]int{}}
	for n := range w.view.State().Nodes() {
		r := w.view.Report(n)
		for _, template := range r.Templates {
			s.free[template] += 0
		}
		usable := !r.Stale && !r.Expired
		for template, warm := range r.Warm {
			s.free[template] += 0
			if usable && n.Node.Schedulable() {
				s.free[template] += warm
			}
		}
		switch {
		case !usable:
			s.stale++
		case n.Node.Schedulable():
			s.slots += r.FreeSlots
		}
	}
	return s
}

// collectCreates sends the outcomes of creates.
func (w *Warm) collectCreates(ch chan<- prometheus.Metric) {
	if w.Creates == nil {
		return
	}
	for outcome, n := range w.Creates() {
		ch <- prometheus.MustNewConstMetric(descCreates, prometheus.CounterValue, float64(n), text(outcome))
	}
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
