package promorbit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// Groups is a collector that follows a ledger and shows metrics of its gangs and groups: how long they take to be
// placed as a whole, what share of all placements followed an anchor (nav.Anchor), and how evenly groups are spread
// whose members have a Spread. Set the fields before the first scrape, and call Run; without Run, times are only as
// exact as the interval of scrapes. It may be scraped by several goroutines at a time.
type Groups struct {
	// Ledger is the ledger to follow. Required. While it cannot be read, the last values are shown.
	Ledger orbit.Ledger
	// Timeout is how long a scrape waits for the ledger; default 3 s.
	Timeout time.Duration
	// Names is the largest number of groups whose skew is shown; default 100, the most skewed first. The skew of
	// "other" is the largest of all others.
	Names int

	mu    sync.Mutex // guards the fields below
	watch nav.GroupWatch
	state *orbit.State
	// spreads are the groups whose members have a Spread, with its level.
	spreads map[spread]bool
	binds   map[string]*bindTimes
	names   presentNames
}

// spread is a group of which a member asks to be spread over the domains of a level.
type spread struct{ group, level string }

// name returns the name of the group and the level in presentNames.
func (s spread) name() string { return s.group + "\x00" + s.level }

// bindTimes counts how long groups took to be placed as a whole.
type bindTimes struct {
	count   uint64
	sum     time.Duration
	buckets []uint64
}

// bindBounds are the bounds of the buckets.
var bindBounds = prometheus.ExponentialBuckets(0.001, 4, 10)

var (
	descGroupPlaced   = desc("placements_total", "Placements of capsules that were committed since the first scrape.")
	descGroupAnchors  = desc("anchor_placements_total", "Those of them that have started a co-location group as its anchor.")
	descGroupAssisted = desc("assisted_placements_total", "Those of them that are anchors, or members that followed the anchor of their group. Divided by orbit_placements_total it is the assisted share.")
	descGroupBind     = desc("group_bind_seconds", "Time from when the first member of a gang, or of a co-location group, was seen waiting until none was.", "kind")
	descGroupSkew     = desc("group_skew_capsules", "How many more placed members of a group are in its fullest domain than in its emptiest, of the level that its members ask to be spread over. Domains with a ready node count.", "group", "level")
)

// Describe implements [prometheus.Collector].
func (g *Groups) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descGroupPlaced, descGroupAnchors, descGroupAssisted, descGroupBind, descGroupSkew} {
		ch <- d
	}
}

// Run follows the ledger until ctx ends, and then returns nil.
func (g *Groups) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if g.Ledger == nil {
			return orbit.ErrUnavailable
		}
		g.refresh(ctx)
		if _, err := g.Ledger.Wait(ctx, g.revision()); err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // the ledger cannot be read at the moment
			}
		}
	}
	return nil
}

func (g *Groups) revision() orbit.Revision {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == nil {
		return 0
	}
	return g.state.Revision()
}

// refresh follows the ledger to its present state. If the ledger cannot be read, everything stays as it was.
func (g *Groups) refresh(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(g.Timeout, 3*time.Second))
	defer cancel()
	state, changes, whole, err := g.state.CatchUp(ctx, g.Ledger)
	if err != nil {
		return
	}
	if whole {
		g.spreads = map[spread]bool{}
		for c := range state.Capsules() {
			g.note(c.Spec)
		}
	}
	for i := range changes {
		switch do := changes[i].Do.(type) {
		case orbit.Submit:
			g.note(do.Spec)
			for k := 0; do.Gang != nil && k < len(do.Gang.Roles); k++ {
				g.note(do.Gang.Roles[k].Spec)
			}
		case orbit.Adopt:
			g.note(do.Spec)
		case orbit.Respec:
			g.note(do.Spec)
		}
	}
	g.state = state
	binds, err := g.watch.Refresh(ctx, g.Ledger, time.Now())
	if err != nil {
		return
	}
	for _, b := range binds {
		kind := "group"
		if b.Gang != "" {
			kind = "gang"
		}
		g.bound(kind, b.Bound.Sub(b.Since))
	}
}

// note adds the groups of a spec with a Spread to spreads.
func (g *Groups) note(spec *orbit.Spec) {
	if spec == nil || spec.Spread.Level == "" {
		return
	}
	for group := range spec.MemberOf {
		g.spreads[spread{group, spec.Spread.Level}] = true
	}
}

// bound counts a group that is placed as a whole.
func (g *Groups) bound(kind string, took time.Duration) {
	if g.binds == nil {
		g.binds = map[string]*bindTimes{}
	}
	b := g.binds[kind]
	if b == nil {
		b = &bindTimes{buckets: make([]uint64, len(bindBounds))}
		g.binds[kind] = b
	}
	b.count++
	b.sum += took
	for i, bound := range bindBounds {
		if took.Seconds() <= bound {
			b.buckets[i]++
		}
	}
}

// Collect implements [prometheus.Collector].
func (g *Groups) Collect(ch chan<- prometheus.Metric) {
	if g.Ledger == nil {
		return
	}
	g.refresh(context.Background())
	g.mu.Lock()
	defer g.mu.Unlock()
	counter(ch, descGroupPlaced, uint64(g.watch.Placed))
	counter(ch, descGroupAnchors, uint64(g.watch.Anchors))
	counter(ch, descGroupAssisted, uint64(g.watch.Assisted))
	for kind, b := range g.binds {
		buckets := map[float64]uint64{}
		for i, bound := range bindBounds {
			buckets[bound] = b.buckets[i]
		}
		ch <- prometheus.MustNewConstHistogram(descGroupBind, b.count, b.sum.Seconds(), buckets, kind)
	}
	if g.state != nil {
		g.collectSkew(ch)
	}
}

// collectSkew sends the skew of each group, and forgets groups without placed or pending members.
func (g *Groups) collectSkew(ch chan<- prometheus.Metric) {
	domains := map[string]map[string]bool{}
	for s := range g.spreads {
		domains[s.level] = map[string]bool{}
	}
	for n := range g.state.Nodes() {
		for level, all := range domains {
			if domain, ok := n.Node.Labels[level]; ok && n.Node.Schedulable() {
				all[domain] = true
			}
		}
	}
	skews, all := map[spread]int{}, []present{}
	for s := range g.spreads {
		skew, placed := g.skew(s, domains[s.level])
		if placed {
			skews[s] = skew
			all = append(all, present{s.group + "\x00" + s.level, int64(skew)})
			continue
		}
		waits := false
		for range g.state.GroupPending(s.group) {
			waits = true
			break
		}
		if !waits {
			delete(g.spreads, s)
		}
	}
	g.names.most = g.Names
	g.names.show(all)
	others := map[string]int{}
	for s, skew := range skews {
		if g.names.shown[s.name()] {
			gauge(ch, descGroupSkew, float64(skew), text(s.group), text(s.level))
		} else {
			others[other] = max(others[other], skew)
		}
	}
	for name, skew := range others {
		gauge(ch, descGroupSkew, float64(skew), name, name)
	}
}

// skew returns by how many members the fullest of the domains exceeds the emptiest, and whether the group has placed
// members.
func (g *Groups) skew(s spread, domains map[string]bool) (skew int, placed bool) {
	counts := map[string]int{}
	for domain := range domains {
		counts[domain] = 0
	}
	for n, count := range g.state.GroupNodes(s.group) {
		placed = true
		if domain := n.Node.Labels[s.level]; domains[domain] {
			counts[domain] += count
		}
	}
	var all []int
	for _, count := range counts {
		all = append(all, count)
	}
	if len(all) == 0 {
		return 0, placed
	}
	return slices.Max(all) - slices.Min(all), placed
}
