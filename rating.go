package orbit

import "math"

// rater is what all placement engines share: whether a node can take a spec, how good it would be, and why not.
type rater struct {
	books  *workset
	score  Score
	filter Filter
	// The score as it was given, if it may draw lots.
	lots drawer
}

// drawer is what a score may have that draws lots, see [Score].
type drawer interface {
	Draw(decision uint64) (drawn Score, draws bool)
}

// newRater fills in the default score.
func newRater(books *workset, score Score, filter Filter) rater {
	if score == nil {
		score = SpreadScore{}
	}
	lots, _ := score.(drawer)
	return rater{books, score, filter, lots}
}

// draw begins a decision. It reports whether the score draws lots: then nothing that was rated before counts.
func (r *rater) draw() bool {
	if r.lots == nil {
		return false
	}
	drawn, draws := r.lots.Draw(r.books.decision())
	if draws {
		r.score = drawn
	}
	return draws
}

// rate returns a node's score; false if the node cannot take the spec.
func (r *rater) rate(n *NodeState, spec *Spec, near *peers) (value, tie float64, ok bool) {
	if n == nil || !n.Fits(spec) || !near.has(n.Node) {
		return 0, 0, false
	}
	return r.rateFit(n, spec)
}

// rateFit is rate for a node that fits, as far as the ledger knows.
func (r *rater) rateFit(n *NodeState, spec *Spec) (value, tie float64, ok bool) {
	report := r.books.view.Report(n)
	if r.filter != nil && r.filter(n, report, spec) != "" {
		return 0, 0, false
	}
	value, tie = r.score.Score(n, report, spec)
	return value, tie, finite(value) && finite(tie)
}

// scan rates every node. The error is a *NoFit.
func (r *rater) scan(spec *Spec, near *peers) (best Choice, err error) {
	for _, n := range r.books.nodes {
		if value, tie, ok := r.rate(n, spec, near); ok && (best.Node == nil || r.books.better(n, value, tie, &best)) {
			best.Node, best.Value, best.Tie = n, value, tie
		}
	}
	return r.choice(best, spec, near)
}

// choice adds the devices to a choice, or says why there is none.
func (r *rater) choice(best Choice, spec *Spec, near *peers) (Choice, error) {
	if best.Node == nil {
		return best, r.why(spec, near)
	}
	best.Devices = r.pickDevices(best.Node, spec)
	return best, nil
}

// pickDevices lets the score choose the instances if it wants to.
func (r *rater) pickDevices(n *NodeState, spec *Spec) DeviceSet {
	if spec.Devices.Count == 0 {
		return 0
	}
	if picker, ok := r.score.(interface {
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
func (r *rater) why(spec *Spec, near *peers) *NoFit {
	counts := map[misfit]int{}
	for _, n := range r.books.nodes {
		if n != nil {
			counts[r.misfit(n, spec, near)]++
		}
	}
	return noFit(counts, spec, &r.books.view.state.names)
}

// misfit says why a node cannot be chosen.
func (r *rater) misfit(n *NodeState, spec *Spec, near *peers) misfit {
	m := n.misfit(spec)
	if m != (misfit{}) {
		return m
	}
	m.kind = filtered
	switch {
	case !near.has(n.Node):
		m.why = near.missing()
	case r.filter != nil:
		m.why = r.filter(n, r.books.view.Report(n), spec)
	}
	if m.why == "" {
		m.why = "have a score that is no number"
	}
	return m
}

// notSynced is the answer of an engine that has seen no view.
func notSynced() *NoFit { return &NoFit{Reasons: []Reason{{Why: "were looked at; call Sync first"}}} }

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
