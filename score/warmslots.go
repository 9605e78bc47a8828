package score

import "github.com/orbitsched/orbit"

// WarmSlots is the score of a scheduler of sandboxes: a node that has even one warm slot of the template goes before
// an empty one with idle capacity. In its own words, where the highest wins and ties go to the lowest CPU:
//
//	score(node, template) = 100 × warm slots of the template
//	                      +   1 × free slots
//	                      - 0.1 × CPU percent
//	                      - 1000 if the report is stale
//
// Lower is better in orbit, so the value is that number negated, and the tie is the CPU percentage. Free slots are the
// lesser of what the ledger has left ([orbit.Slots]) and what the node reports; where there is no telemetry at all, what
// the ledger has left. The template is the one that the spec starts from.
//
// The 1000 can be outweighed: 18 warm slots on a node that is stale go before 5 on one that is not. Whoever wants stale
// nodes to get no work filters them out, as nav.Warm does.
//
// It reads reports, so it has no bound over a set of nodes that would say anything: warm slots in their best case are
// without limit. An [orbit.Indexed] keeps its scores per spec.
type WarmSlots struct{}

// Score rates a node as it is before placing.
func (s WarmSlots) Score(node *orbit.NodeState, report *orbit.Report, spec *orbit.Spec) (value, tie float64) {
	warm, free := 0, node.Free()[orbit.Slots]
	if template := spec.Start.Template; template != "" {
		warm = report.Warm[template]
	}
	if report.Node != "" || !report.At.IsZero() {
		free = min(free, int64(report.FreeSlots))
	}
	return s.Rate(warm, free, report.CPUPercent, report.Stale)
}

// Rate is the formula over plain numbers, for whoever counts by himself. Every product is rounded by itself, so that the
// result is the same on every processor. A CPU percentage that is no number makes a value that is none.
func (WarmSlots) Rate(warm int, free int64, cpu float64, stale bool) (value, tie float64) {
	sum := float64(100*float64(warm)) + float64(free)
	if stale {
		sum -= 1000
	}
	return float64(0.1*cpu) - sum, cpu
}
