package promorbit

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
)

// Engines is a collector that shows the rounds of engines. Set the fields before the first scrape and the first round; the
// zero value is ready. Its methods may be called from any goroutine. Use one Engines for all engines of a process, so that
// it can say which of them won the commits to which others have lost.
type Engines struct {
	// Names is the largest number of engines with series of their own, and the largest number of notes for each of
	// them; default 100. Names that come later are summed up under "other". A name that has a series keeps it for good.
	Names int
	// Engines are engines of this process. They have their series from the start, also if there is never work for them.
	// Other engines have theirs once Round was called with a round of theirs.
	Engines []*orbit.Engine
	// Notes exports orbit_engine_note: the numbers that navigators note, which say how a navigator works. They are most
	// of all series, and of use to who writes or tunes a navigator.
	Notes bool

	once sync.Once
	all  []prometheus.Collector

	passes, proposals, placements, bets, rivals, failures *prometheus.CounterVec
	pending, unplaced, parked                             *prometheus.GaugeVec
	stages, waits                                         *prometheus.HistogramVec

	mu      sync.Mutex // guards the fields below
	engines firstNames
	// live are the engines behind the values of the label engine, for when their last passes ended.
	live map[string]*orbit.Engine
	// notes has the notes of each engine.
	notes map[string]*noted
	// makers has the engines of committed proposals, by the first bytes of the proposals' ids.
	makers map[maker]string
}

// maker is the first bytes of a proposal's id, which are the same for all proposals of one engine.
type maker [8]byte

// mostMakers bounds the number of remembered makers, because an importer may start any number of engines.
const mostMakers = 4096

var descLastPass = desc("engine_last_pass_timestamp_seconds", "When the last pass of the engine ended, idle or not, in seconds since 1970; 0: none has. An engine that runs begins a pass at least each Backoff.Max, which is 1 s by default.", "engine")

var descRunning = desc("engine_running", "1: the engine plans in this process (Engine.Running); 0: it stands by for another process, or its Run has ended or was never called.", "engine")

var descNotes = desc("engine_note", "Numbers that navigators note in their rounds: their sum, and how often they were noted.", "engine", "note")

// noted are the numbers that an engine's navigator has noted.
type noted struct {
	names firstNames
	sums  map[string]*sum
}

type sum struct {
	rounds uint64
	total  float64
}

// init makes the metrics, once.
func (m *Engines) init() {
	m.once.Do(func() {
		m.engines.most = m.Names
		m.notes, m.makers, m.live = map[string]*noted{}, map[maker]string{}, map[string]*orbit.Engine{}
		m.passes = m.counter("engine_passes_total", "Passes that were not idle.", "engine")
		m.proposals = m.counter("engine_proposals_total", "Proposals that were sent, by outcome, and those that were not sent because they do what is not for their navigator (invalid).", "engine", "outcome")
		m.placements = m.counter("engine_placements_total", "Capsules that were placed by proposals of the engine.", "engine")
		m.bets = m.counter("engine_conflicts_by_bet_total", "Proposals that lost to another commit, by the bet that was lost, or the rule that was broken: capacity, quota, budget, protection, capsule, node.", "engine", "bet")
		m.rivals = m.counter("engine_conflicts_by_rival_total", "Proposals that lost to another commit, by the engine that made that one; elsewhere: it was none of these engines; unknown: the ledger does not say.", "engine", "rival")
		m.failures = m.counter("engine_errors_total", "Errors of passes that are not the outcome of a proposal: of the navigator, of the view.", "engine")
		m.pending = m.gauge("engine_pending_capsules", "Capsules that the last pass gave to the navigator.", "engine")
		m.unplaced = m.gauge("engine_unplaced_capsules", "Capsules that the plan of the last pass has left out, by class and reason; no_fit: they fit on no node; refused: by a rule of the ledger.", "engine", "class", "reason")
		m.parked = m.gauge("engine_parked_classes", "Specs that are parked after the last pass because they fit on no node.", "engine")
		m.stages = m.histogram("engine_stage_seconds", "Time that the stages of passes took.", prometheus.ExponentialBuckets(100e-6, 4, 9), "engine", "stage")
		m.waits = m.histogram("engine_wait_seconds", "Time from Submit.At to Place.At of capsules that were placed for the first time, by class. Those without a Submit.At are left out.",
			[]float64{.001, .004, .016, .064, .25, 1, 4, 15, 60, 300, 900, 3600, 14400}, "class")
	})
}

func (m *Engines) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Engines) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.all = append(m.all, v)
	return v
}

func (m *Engines) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.all = append(m.all, v)
	return v
}

// Describe implements [prometheus.Collector].
func (m *Engines) Describe(ch chan<- *prometheus.Desc) {
	m.init()
	for _, c := range m.all {
		c.Describe(ch)
	}
	ch <- descLastPass
	ch <- descRunning
	ch <- descNotes
}

// Collect implements [prometheus.Collector].
func (m *Engines) Collect(ch chan<- prometheus.Metric) {
	m.init()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.Engines {
		if e == nil {
			continue
		}
		if name := m.engines.value(e.Name); name != other && m.live[name] == nil {
			m.begin(&orbit.Round{Engine: e.Name, By: e})
		}
	}
	for _, c := range m.all {
		c.Collect(ch)
	}
	for name, e := range m.live {
		at := 0.0
		if last := e.LastPass(); !last.IsZero() {
			at = float64(last.UnixMilli()) / 1e3
		}
		gauge(ch, descLastPass, at, name)
		running := 0.0
		if e.Running() {
			running = 1
		}
		gauge(ch, descRunning, running, name)
	}
	for engine, n := range m.notes {
		for note, s := range n.sums {
			ch <- prometheus.MustNewConstSummary(descNotes, s.rounds, s.total, nil, engine, note)
		}
	}
}

// Round counts a pass. Set it as the OnRound of each engine, or call it from an OnRound of your own:
//
//	OnRound: func(round orbit.Round) {
//		engines.Round(round)
//		log.Print(round)
//	}
//
// Placements, waits and conflicts are counted from Round.Settled and Round.State, which only an engine with an OnRound
// fills in.
func (m *Engines) Round(round orbit.Round) {
	m.init()
	m.mu.Lock()
	defer m.mu.Unlock()
	engine := m.begin(&round)
	m.passes.WithLabelValues(engine).Inc()
	m.stages.WithLabelValues(engine, "view").Observe(round.Viewing.Seconds())
	if round.Pending > 0 {
		m.stages.WithLabelValues(engine, "plan").Observe(round.Planning.Seconds())
		m.stages.WithLabelValues(engine, "propose").Observe(round.Proposing.Seconds())
	}
	for i := range round.Settled {
		m.settled(engine, &round, &round.Settled[i])
	}
	for _, note := range round.Notes {
		if m.Notes {
			m.note(engine, "", note)
		}
	}
}

// begin counts what every round says, and returns the value of the label engine. For a round that says nothing it makes the
// series of an engine that has not passed yet.
func (m *Engines) begin(round *orbit.Round) (engine string) {
	engine = m.engines.value(round.Engine)
	if round.By != nil && engine != other {
		m.live[engine] = round.By
	}
	m.passes.WithLabelValues(engine)
	m.placements.WithLabelValues(engine)
	for outcome, n := range map[string]int{"committed": round.Committed, "conflict": round.Conflicts, "infeasible": round.Infeasible,
		"invalid": round.Invalid, "unknown": round.Unknown, "failed": round.Failed} {
		m.proposals.WithLabelValues(engine, outcome).Add(float64(n))
	}
	m.pending.WithLabelValues(engine).Set(float64(round.Pending))
	m.parked.WithLabelValues(engine).Set(float64(round.Parked))
	m.leftOut(engine, round)
	return engine
}

// mostErrors is the largest number of errors of each outcome that a round keeps.
const mostErrors = 16

// leftOut counts the capsules that the plan has left out, and the errors that are not the outcome of a proposal.
func (m *Engines) leftOut(engine string, round *orbit.Round) {
	var count [len(classes)][len(reasons)]int
	for i := range round.Unplaced {
		if u := &round.Unplaced[i]; u.Capsule != nil && u.Capsule.Spec != nil {
			count[classOf(u.Capsule.Spec)][reasonOf(u.Why)]++
		}
	}
	for i, class := range classes {
		for j, reason := range reasons {
			m.unplaced.WithLabelValues(engine, class.String(), reason).Set(float64(count[i][j]))
		}
	}
	outcomes := 0
	for _, n := range []int{round.Infeasible, round.Invalid, round.Unknown, round.Failed} {
		outcomes += min(n, mostErrors)
	}
	m.failures.WithLabelValues(engine).Add(float64(max(0, len(round.Errors)-outcomes)))
}

// reasons are the values of the label reason: why plans leave capsules out.
var reasons = [...]string{"no_fit", "refused", other}

// reasonOf returns the position in reasons.
func reasonOf(why error) int {
	var nofit *orbit.NoFit
	var refused *orbit.Rejection
	switch {
	case errors.As(why, &nofit):
		return 0
	case errors.As(why, &refused):
		return 1
	}
	return 2
}

// settled counts the outcome of a proposal.
func (m *Engines) settled(engine string, round *orbit.Round, s *orbit.Settled) {
	p := &s.Proposal
	switch {
	case s.Outcome.Err == nil:
		if by := maker(p.ID[:8]); m.makers[by] != engine && !p.ID.IsZero() {
			if len(m.makers) >= mostMakers {
				clear(m.makers)
			}
			m.makers[by] = engine
		}
		if s.Outcome.Revision > p.View { // otherwise an earlier copy was committed, and was counted then
			m.placed(engine, round.State, p)
		}
	case errors.Is(s.Outcome.Err, orbit.ErrConflict):
		var lost *orbit.Rejection
		errors.As(s.Outcome.Err, &lost)
		m.bets.WithLabelValues(engine, betOf(lost)).Inc()
		m.rivals.WithLabelValues(engine, m.rivalOf(lost)).Inc()
	}
}

// placed counts the placements of a committed proposal, and how long the capsules have waited.
func (m *Engines) placed(engine string, state *orbit.State, p *orbit.Proposal) {
	for _, do := range p.Do {
		place, ok := do.(orbit.Place)
		if !ok {
			continue
		}
		m.placements.WithLabelValues(engine).Inc()
		if state == nil {
			continue
		}
		c := state.Capsule(place.Capsule)
		if c != nil && c.SubmitTime() != 0 && place.At != 0 && isFirst(c, p.ID) {
			waited := time.Duration(place.At - c.SubmitTime())
			m.waits.WithLabelValues(classes[classOf(c.Spec)].String()).Observe(max(0, waited.Seconds()))
		}
	}
}

// isFirst reports whether a proposal has placed a capsule for the first time. The capsule's record may be from before
// or after that placement.
func isFirst(c *orbit.Capsule, by orbit.ProposalID) bool {
	if c.PlacedAt == 0 {
		return true
	}
	for id := range c.Placements() {
		if id != by {
			return false
		}
	}
	return c.PlacedBy == by
}

// betOf names the bet that was lost, or the rule that was broken.
func betOf(lost *orbit.Rejection) string {
	switch {
	case lost == nil:
		return other
	case lost.Bet != nil:
		name := fmt.Sprintf("%T", lost.Bet)
		return name[strings.LastIndexByte(name, '.')+1:]
	case lost.Budget != "":
		return "budget"
	case lost.Protected != 0:
		return "protection"
	case lost.Queue != "":
		return "quota"
	case lost.Dimension != "":
		return "capacity"
	case lost.Capsule != "":
		return "capsule"
	case lost.Node != "":
		return "node"
	}
	return other
}

// rivalOf returns the name of the engine to whose commit the proposal has lost; "elsewhere" if it is none of these
// engines, and "unknown" if the ledger does not say.
func (m *Engines) rivalOf(lost *orbit.Rejection) string {
	if lost == nil || lost.TakenBy.IsZero() {
		return "unknown"
	}
	if rival, ok := m.makers[maker(lost.TakenBy[:8])]; ok {
		return rival
	}
	return "elsewhere"
}

// note adds up a number that a navigator has noted, and the numbers of a group of notes.
func (m *Engines) note(engine, prefix string, a slog.Attr) {
	var value float64
	name := prefix + a.Key
	switch a.Value.Kind() {
	case slog.KindInt64:
		value = float64(a.Value.Int64())
	case slog.KindUint64:
		value = float64(a.Value.Uint64())
	case slog.KindFloat64:
		value = a.Value.Float64()
	case slog.KindDuration:
		value = a.Value.Duration().Seconds()
	case slog.KindGroup:
		for _, inner := range a.Value.Group() {
			m.note(engine, name+".", inner)
		}
		return
	default:
		return
	}
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	n := m.notes[engine]
	if n == nil {
		n = &noted{names: firstNames{most: m.Names}, sums: map[string]*sum{}}
		m.notes[engine] = n
	}
	name = n.names.value(name)
	if n.sums[name] == nil {
		n.sums[name] = &sum{}
	}
	n.sums[name].rounds++
	n.sums[name].total += value
}
