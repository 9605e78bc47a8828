package sandbox

import "github.com/orbitsched/orbit"

// WarmFirst is the score for sandboxes that keeps the promise of [WarmSlots] whatever sizes nodes have: a node that can
// start the capsule warm goes before all nodes that must boot it cold. The nodes are first divided into three ranks, by
// the terms of WarmSlots for warm slots and staleness alone:
//
//	100 × warm slots - 1000 if stale   above 0: it starts warm;   0: it boots cold;   below 0: not to be trusted
//
// Within a rank nodes are ordered by the value of WarmSlots. So a stale node comes after every fresh one, however empty
// it is, unless it has ten warm slots, which put it level with a fresh node that has none, or more.
//
// The value is that of WarmSlots, at least -2^39; it is lowered by 2^40 in the first rank and raised by as much in the
// last one. It is exact to 0.0003. The tie is the CPU percentage.
type WarmFirst struct{}

// Score rates a node as it is before placing.
func (s WarmFirst) Score(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	warm, free := slotsOf(node, report, spec)
	return s.Rate(warm, free, report.CPUPercent, report.Stale)
}

// Rate returns the score of plain numbers, as [WarmSlots.Rate] does.
func (WarmFirst) Rate(warm int, free int64, cpu float64, stale bool) (value, tie float64) {
	const ranks, most = 1 << 40, 1 << 39
	value, tie = WarmSlots{}.Rate(warm, free, cpu, stale)
	value = max(-most, value)
	switch malus, _ := (WarmSlots{}).Rate(warm, 0, 0, stale); {
	case malus < 0:
		value -= ranks
	case malus > 0:
		value += ranks
	}
	return value, tie
}

// WarmSlots is a score for sandboxes: a node with even one warm slot of the template goes before an empty one with idle
// capacity, unless it has a hundred free slots less. [WarmFirst] has no such exception. The score by its own
// definition, where the highest wins and ties go to the lowest CPU:
//
//	score(node, template) = 100 × warm slots of the template
//	                      +   1 × free slots
//	                      - 0.1 × CPU percent
//	                      - 1000 if the report is stale
//
// Lower is better in orbit, so the value is that number negated, and the tie is the CPU percentage. Free slots are the
// lesser of what the ledger has left ([orbit.Slots]) and what the node reports; without telemetry, what the ledger has
// left. The template is the one that the spec starts from.
//
// WarmSlots reads reports, so it has no useful bound over a set of nodes: the best case of warm slots is unlimited. A
// place.Indexed caches its scores per spec.
type WarmSlots struct{}

// Score rates a node as it is before placing.
//
// The 1000 can be outweighed: 18 warm slots on a stale node go before 5 on a fresh one. To give stale nodes no work at
// all, filter them out, as Warm does.
func (s WarmSlots) Score(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	warm, free := slotsOf(node, report, spec)
	return s.Rate(warm, free, report.CPUPercent, report.Stale)
}

// slotsOf returns how many warm slots of the spec's template, and how many free slots, a node has.
func slotsOf(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (warm int, free int64) {
	free = node.Free()[orbit.Slots]
	if template := spec.Start.Template; template != "" {
		warm = report.Warm[template]
	}
	if report.Node != "" || !report.At.IsZero() {
		free = min(free, int64(report.FreeSlots))
	}
	return warm, free
}

// Rate returns the score of plain numbers, for callers that count by themselves. Every product is rounded on its own,
// so that the result is the same on every processor. If the CPU percentage is NaN, so is the value.
func (WarmSlots) Rate(warm int, free int64, cpu float64, stale bool) (value, tie float64) {
	sum := float64(100*float64(warm)) + float64(free)
	if stale {
		sum -= 1000
	}
	return float64(0.1*cpu) - sum, cpu
}
