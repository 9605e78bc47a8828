package promorbit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
)

var (
	descEvenSkew   = desc("even_skew_capsules", "How many more members of a group are in its fullest domain of a level than in the eligible domain with the fewest, by the rule Even of something placed; of several such rules, the largest. Of other groups: the largest.", "group", "level")
	descEvenExcess = desc("even_excess_capsules", "How many of them are more than MaxSkew allows: 0 while the rule is kept. Departures, lost nodes, new domains and what is adopted break it; moves repair it. Of other groups: the largest.", "group", "level")
)

// evenness says how uneven a group is (skew), and by how much that exceeds the MaxSkew of its rule (excess).
type evenness struct{ skew, excess int }

func (e *evenness) atLeast(o evenness) {
	e.skew, e.excess = max(e.skew, o.skew), max(e.excess, o.excess)
}

// collectEvens sends the evenness of each group and level for which a placed capsule has an Even rule. If there are
// more than Names, those that exceed their rules the most come first.
func (l *Ledger) collectEvens(ch chan<- prometheus.Metric, state *orbit.State) {
	rules := map[spread]*evenness{}
	for s := range state.Evens() {
		of := spread{s.Even.Group, s.Even.Level}
		if rules[of] == nil {
			rules[of] = &evenness{}
		}
		skew := s.Members - s.Fewest
		rules[of].atLeast(evenness{skew, skew - s.Even.MaxSkew})
	}
	var all []present
	for of, e := range rules {
		all = append(all, present{of.name(), int64(e.excess)<<32 + int64(e.skew)})
	}
	l.evens.show(all)
	send := func(e *evenness, labels ...string) {
		gauge(ch, descEvenSkew, float64(e.skew), labels...)
		gauge(ch, descEvenExcess, float64(e.excess), labels...)
	}
	var others *evenness
	for of, e := range rules {
		if l.evens.shown[of.name()] {
			send(e, text(of.group), text(of.level))
			continue
		}
		if others == nil {
			others = &evenness{}
		}
		others.atLeast(*e)
	}
	if others != nil {
		send(others, other, other)
	}
}
