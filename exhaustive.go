package orbit

import "math"

// Exhaustive is the reference [PlacementEngine]: one call of the score for each feasible node. It is what
// faster engines must agree with, choice by choice, and fast enough for some hundreds of nodes. The zero
// value works. Give each of several navigators another Seed: with the same one they all prefer the same among
// equal nodes, and lose half of their bets there.
type Exhaustive struct {
	// Nil: SpreadScore.
	Score  Score
	Filter Filter
	// Breaks ties; 0: by node id.
	Seed uint64

	books workset
}

// Filter takes nodes out of the choice for what the ledger does not know: it returns why, completing
// "n nodes ..." as in "have a stale report", or "" to keep the node. Like a [Score] it must be a pure
// function of what it sees.
type Filter func(node *NodeState, report *Report, spec *Spec) string

// Sync implements [PlacementEngine].
func (e *Exhaustive) Sync(view *View) { e.books.sync(view, e.Seed) }

// Mark implements [PlacementEngine].
func (e *Exhaustive) Mark() int { return len(e.books.undo) }

// Rollback implements [PlacementEngine].
func (e *Exhaustive) Rollback(mark int) { e.books.rollback(mark) }

// Reserve implements [PlacementEngine].
func (e *Exhaustive) Reserve(c *Capsule, choice Choice) Proposal { return e.books.reserve(c, choice) }

// Best implements [PlacementEngine].
func (e *Exhaustive) Best(spec *Spec) (Choice, error) {
	score := e.Score
	if score == nil {
		score = SpreadScore{}
	}
	if e.books.view == nil {
		return Choice{}, &NoFit{Reasons: []Reason{{Why: "were looked at; call Sync first"}}}
	}
	near := e.books.peers(spec)
	var best Choice
	for _, n := range e.books.nodes {
		if n == nil || !n.Fits(spec) || !near.has(n) {
			continue
		}
		report := e.books.view.Report(n)
		if e.Filter != nil && e.Filter(n, report, spec) != "" {
			continue
		}
		value, tie := score.Score(n, report, spec)
		if !finite(value) || !finite(tie) {
			continue
		}
		if best.Node == nil || e.books.better(n, value, tie, &best) {
			best.Node, best.Value, best.Tie = n, value, tie
		}
	}
	if best.Node == nil {
		return best, e.why(spec, near)
	}
	best.Devices = pickDevices(score, best.Node, spec)
	return best, nil
}

// pickDevices lets the score choose the instances if it wants to.
func pickDevices(score Score, n *NodeState, spec *Spec) DeviceSet {
	if spec.Devices.Count == 0 {
		return 0
	}
	if picker, ok := score.(interface {
		PickDevices(*NodeState, *Spec) (DeviceSet, bool)
	}); ok {
		if set, ok := picker.PickDevices(n, spec); ok {
			return set
		}
	}
	set, _ := n.PickDevices(spec.Devices) // it fits
	return set
}

// why counts the nodes by what they fail on.
func (e *Exhaustive) why(spec *Spec, near *peers) *NoFit {
	counts := map[misfit]int{}
	for _, n := range e.books.nodes {
		if n == nil {
			continue
		}
		m := n.misfit(spec)
		if m == (misfit{}) {
			m = misfit{kind: filtered}
			switch {
			case !near.has(n):
				m.why = near.missing()
			case e.Filter != nil:
				m.why = e.Filter(n, e.books.view.Report(n), spec)
			}
			if m.why == "" {
				m.why = "have a score that is no number"
			}
		}
		counts[m]++
	}
	return noFit(counts, spec, &e.books.view.state.names)
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
