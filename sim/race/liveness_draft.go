package race

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// liveDraft is all that is drawn from a seed before a world is played. Shrinking takes parts of it away.
type liveDraft struct {
	seed    uint64
	engines []liveEngine
	events  []Event
	faults  Faults
	// bursts are the times in which every proposal of one engine fails.
	bursts []liveBurst
	within time.Duration
	// telemetry says that nodes report; a report is fresh for staleLive.
	telemetry bool
	// nested says that each rack is in one row, and each row in one zone.
	nested bool
	// history is the limit of the ledger's history, in changes; 0: the default.
	history int
	groups  []liveGroup
	// queues is the number of queues below the cohort; 0: there are no queues.
	queues int
	// starts and stops are Config.Starts and Config.Stops.
	starts, stops time.Duration
}

// liveEngine is an engine and its navigator.
type liveEngine struct {
	name, kind string
	// anchored wraps the navigator in a nav.Anchor; selfMatch sets its SelfMatch.
	anchored, selfMatch bool
	// patient wraps it in a nav.Patient.
	patient bool
	// preempting wraps it in a nav.Preempting.
	preempting bool
	// fair wraps all of that in a nav.Fair.
	fair bool
	// filter gives the placement engine liveFilter.
	filter bool
	// allowStale sets AllowStale of a sandbox.Warm.
	allowStale bool
	// repair is Repair of a nav.Gang.
	repair time.Duration
	// assigned says that the engine takes only work that is assigned to it.
	assigned  bool
	maxPlan   int
	placement int
	// specs are the specs of its work outside groups.
	specs []*orbit.Spec
}

// String describes the engine for a story.
func (e *liveEngine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.name, e.kind)
	for _, flag := range []struct {
		on   bool
		text string
	}{{e.anchored, "in an Anchor"}, {e.selfMatch, "SelfMatch"}, {e.patient, "in a Patient"}, {e.preempting, "in a Preempting"}, {e.fair, "in a Fair"}, {e.filter, "with a filter"}, {e.allowStale, "AllowStale"}, {e.assigned, "assigned work only"}} {
		if flag.on {
			b.WriteString(", " + flag.text)
		}
	}
	if e.repair > 0 {
		fmt.Fprintf(&b, ", Repair %v", e.repair)
	}
	if e.maxPlan > 0 {
		fmt.Fprintf(&b, ", MaxPlan %d", e.maxPlan)
	}
	return b.String()
}

// liveGroup is a co-location group, and the specs of its members.
type liveGroup struct {
	name, engine string
	specs        []*orbit.Spec
}

// liveRest is the kind of events at which the world comes to rest and is judged.
const liveRest = "rest"

// liveBurst is a time in which every proposal of one engine has the same fault. It finds lost wake-ups: a plan puts
// classes aside because its own proposals take the room, and then all these proposals fail and the room stays free.
type liveBurst struct {
	engine   string
	what     string
	from, to time.Duration
}

// staleLive is the age at which a report becomes stale.
const staleLive = 1500 * time.Millisecond

var liveLevels = []string{"rack", "row", "zone"}

// one returns one of the values.
func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// lucky reports true with a chance of so many percent.
func lucky(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// drawLive draws the world of a seed.
func drawLive(seed uint64) liveDraft {
	r := rand.New(rand.NewPCG(seed, 0x11fe))
	d := liveDraft{seed: seed, telemetry: lucky(r, 60), nested: lucky(r, 60)}
	if lucky(r, 15) {
		d.history = 100 + r.IntN(30) // the proposals of events have fewer commitments than that
	}
	d.starts, d.stops = time.Duration(r.IntN(20))*time.Millisecond, time.Duration(1+r.IntN(300))*time.Millisecond
	d.drawEngines(r)
	d.drawGroups(r)
	d.drawEvents(r)
	d.drawFaults(r)
	d.drawExtras(rand.New(rand.NewPCG(seed, 0xe47a)))
	d.drawRules(rand.New(rand.NewPCG(seed, 0x4a11)))
	if r := rand.New(rand.NewPCG(seed, 0x510e)); d.faults != (Faults{}) {
		d.faults.Slow = one(r, 0, 0, 0.1, 0.3)
	}
	d.drawFacts(rand.New(rand.NewPCG(seed, 0xfac7)))
	d.drawQueues(rand.New(rand.NewPCG(seed, 0x90e0)))
	return d
}

// drawExtras lets some specs ask for an extra. It has random numbers of its own.
func (d *liveDraft) drawExtras(r *rand.Rand) {
	for i := range d.engines {
		if e := &d.engines[i]; e.kind == "services" || e.kind == "batch" {
			for _, s := range e.specs {
				if lucky(r, 20) {
					s.Extras = []orbit.Extra{{Name: "ip", Amount: 1 + r.Int64N(2)}}
				}
			}
		}
	}
}

// drawRules lets some specs of gangs take an extra, or have a rule of company about the members of all gangs. All rules
// Even of a world are by the same level, because a nav.Gang may miss seats if they are not. It has random numbers of its
// own.
func (d *liveDraft) drawRules(r *rand.Rand) {
	levels := append([]string{orbit.NodeKey}, liveLevels...)
	level := one(r, levels...)
	for i := range d.engines {
		e := &d.engines[i]
		if e.kind != "gang" {
			continue
		}
		if e.repair = one(r, 0, 0, 100*time.Millisecond); lucky(r, 40) {
			continue
		}
		for _, s := range e.specs {
			if s.Groups = []string{s.Module}; lucky(r, 50) {
				s.Groups = append(s.Groups, "gangs")
			}
			if lucky(r, 25) {
				s.Extras = []orbit.Extra{{Name: "ip", Amount: 1 + r.Int64N(2)}}
			}
			if lucky(r, 25) {
				s.Apart = []orbit.Apart{{Group: one(r, s.Module, s.Module, "gangs"), Level: one(r, levels...), Labelled: lucky(r, 50)}}
			}
			if s.IsIn("gangs") && lucky(r, 40) {
				s.Even = []orbit.Even{{Group: "gangs", Level: level, MaxSkew: r.IntN(3), MinDomains: one(r, 0, 0, 0, 2), HonorTaints: lucky(r, 50), IgnoreRequire: lucky(r, 50)}}
			}
		}
	}
}

// drawEngines draws the engines that take part: often one or two, sometimes all six.
func (d *liveDraft) drawEngines(r *rand.Rand) {
	kinds := []string{"services", "batch", "gang", "warm", "more", "keeper"}
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds[:one(r, 1, 1, 1, 2, 2, 3, 6)] {
		e := liveEngine{name: kind, kind: kind, placement: r.IntN(4)}
		e.assigned = kind == "warm" || kind == "more" || kind == "keeper"
		if kind == "more" {
			e.kind = one(r, "services", "batch")
		}
		e.anchored = (lucky(r, 60) && kind != "gang" || lucky(r, 10)) && kind != "keeper"
		e.selfMatch = e.anchored && lucky(r, 30)
		e.filter = d.telemetry && lucky(r, 40) && kind != "gang"
		e.allowStale = lucky(r, 20)
		e.patient = lucky(r, 20) && kind != "keeper"
		e.preempting = lucky(r, 25) && kind != "keeper" && kind != "warm"
		if lucky(r, 15) {
			e.maxPlan = 1 + r.IntN(6)
			if kind == "gang" || kind == "warm" { // gangs that fit nowhere, and forks of pending parents, are never put aside, and fill plans
				e.maxPlan += 12
			}
		}
		for range 2 + r.IntN(4) {
			e.specs = append(e.specs, e.drawSpec(r))
		}
		d.engines = append(d.engines, e)
	}
}

// class returns the class of the engine's work.
func (e *liveEngine) class(r *rand.Rand) orbit.AppClass {
	switch e.kind {
	case "batch":
		return orbit.Batch
	case "gang":
		return orbit.GangClass
	}
	return one(r, orbit.LatencySensitive, orbit.BestEffort)
}

// drawSpec draws a spec. In most cases it fits on most nodes, at times on none.
func (e *liveEngine) drawSpec(r *rand.Rand) *orbit.Spec {
	s := &orbit.Spec{Module: fmt.Sprintf("%s-%d", e.name, r.IntN(1000)), Class: e.class(r), Priority: one[int32](r, 0, 0, 0, 0, 1, 2), Movable: true}
	want := &s.Envelope.Reservation
	want[orbit.CPU] = one[int64](r, 1, 1, 2, 2, 3, 4, 5, 6, 8, 11)
	if lucky(r, 30) {
		want[orbit.Memory] = between(r, 1, 8)
	}
	if lucky(r, 15) {
		s.Devices = orbit.DeviceRequest{Count: 1 + r.IntN(2), Milli: one(r, 300, 500, 1000)}
		if lucky(r, 50) {
			s.Devices.Models = []string{"A"}
		}
	}
	switch r.IntN(10) {
	case 0:
		s.Require = []orbit.Predicate{{Key: "disk", Op: "In", Values: []string{"ssd"}}}
	case 1:
		s.Require = []orbit.Predicate{{Key: "disk", Op: "NotIn", Values: []string{"ssd"}}}
	case 2:
		s.Require = []orbit.Predicate{{Key: "big", Op: "Exists"}}
	}
	if e.kind == "warm" {
		want[orbit.Slots] = one[int64](r, 0, 1, 1, 1, 2)
		want[orbit.CPU] = r.Int64N(3)
		s.Start.Template = one(r, "", "t1", "t1", "t2")
		if lucky(r, 15) {
			s.Start.Volumes = []string{one(r, "v1", "v2")}
		}
	}
	return s
}

// drawGroups draws groups of up to eight specs, whose members have to be near their group at one to three levels.
func (d *liveDraft) drawGroups(r *rand.Rand) {
	for g := range one(r, 0, 1, 2, 3, 4, 6) {
		e := &d.engines[r.IntN(len(d.engines))]
		if e.kind == "gang" || e.kind == "keeper" {
			continue
		}
		group := liveGroup{name: fmt.Sprint("g", g), engine: e.name}
		levels := slices.Clone(liveLevels)
		r.Shuffle(len(levels), func(i, j int) { levels[i], levels[j] = levels[j], levels[i] })
		levels = levels[:1+r.IntN(len(levels))]
		for range one(r, 1, 1, 2, 3, 5, 8) {
			s := e.drawSpec(r)
			s.Group, s.Near = group.name, orbit.Near{Group: group.name, Level: one(r, levels...)}
			switch r.IntN(25) {
			case 0:
				s.Near = orbit.Near{}
			case 1:
				s.Near.Group = one(r, "g0", "g1", "g2")
			case 6:
				s.Groups = []string{one(r, "g0", "g1", "g2", "all")}
			case 2, 3, 4, 5:
				s.Require = append(s.Require, orbit.Predicate{Key: "rare", Op: "Exists"})
			}
			group.specs = append(group.specs, s)
		}
		d.groups = append(d.groups, group)
	}
}

// drawEvents draws the events: first nodes join, then events of all kinds follow, with rests in between.
func (d *liveDraft) drawEvents(r *rand.Rand) {
	add := func(at time.Duration, kind string) {
		d.events = append(d.events, Event{At: at, kind: kind, id: len(d.events)})
	}
	for range one(r, 1, 1, 2, 2, 3, 4, 5) {
		add(0, "join")
	}
	at := time.Duration(0)
	for range 1 + r.IntN(8) {
		kinds := d.drawKinds(r)
		for range 1 + r.IntN(one(r, 3, 8, 16)) {
			switch {
			case lucky(r, 30): // at the same time, so that one view shows both events
			case lucky(r, 40):
				at += time.Duration(r.IntN(5000)) * time.Microsecond
			default:
				at += time.Duration(r.IntN(300)) * time.Millisecond
			}
			kind := one(r, kinds...)
			if add(at, kind); kind != "group" && kind != "submit" || !lucky(r, 25) {
				continue
			}
			at += time.Duration(r.IntN(one(r, 40, 40, 400, 2000))) * time.Millisecond
			if add(at, "abandon"); lucky(r, 50) { // the work ends while it is planned or proposed, and no other event wakes the engine
				break
			}
		}
		at += time.Duration(r.IntN(200)) * time.Millisecond
		add(at, liveRest)
	}
}

// drawKinds returns the kinds of events to choose from. The more likely a kind is in this world, the more often the
// list has it. In half of the times when gangs take part, it has more of theirs.
func (d *liveDraft) drawKinds(r *rand.Rand) (kinds []string) {
	if slices.ContainsFunc(d.engines, func(e liveEngine) bool { return e.kind == "gang" }) && lucky(r, 50) {
		kinds = append(kinds, "gang", "gang", "gang", "finish", "finish", "short", "short", "short", "again", "grow", "grow", "replace", "replace")
		kinds = slices.Repeat(kinds, one(r, 1, 2, 4))
	}
	for _, k := range liveKinds {
		for range k.weight * one(r, 0, 1, 1, 2) {
			kinds = append(kinds, k.name)
		}
	}
	return append(kinds, "submit", "group", "group", "end")
}

// drawFaults draws the chances of faults, which are 0 in some worlds, and the bursts.
func (d *liveDraft) drawFaults(r *rand.Rand) {
	if lucky(r, 30) {
		return
	}
	f := &d.faults
	f.Longest = 32 * time.Millisecond
	for _, p := range []*float64{&f.Conflict, &f.Unavailable, &f.Unknown, &f.Dropped, &f.Late, &f.Reports, &f.Plan} {
		*p = one(r, 0, 0, 0.02, 0.1)
	}
	f.Delay, f.Holds = one(r, 0, 0.2, 0.6), one(r, 0, 0, 0.3, 0.8)
	for i := range d.engines {
		if lucky(r, 25) {
			from := time.Duration(r.Int64N(int64(d.events[len(d.events)-1].At) + 1))
			d.bursts = append(d.bursts, liveBurst{
				engine: d.engines[i].name, what: one(r, faultConflict, faultUnavailable, faultDropped, faultUnknown),
				from: from, to: from + time.Duration(r.IntN(3000))*time.Millisecond,
			})
		}
	}
}

// engine returns the engine of this name, nil if it does not take part.
func (w *livePlay) engine(name string) *liveEngine {
	for i := range w.Schedulers {
		if w.Schedulers[i].Name == name {
			return w.Schedulers[i].live
		}
	}
	return nil
}

// between returns a whole number from low to high, both included.
func between(r *rand.Rand, low, high int64) int64 { return low + r.Int64N(high-low+1) }
