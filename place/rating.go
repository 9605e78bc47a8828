package place

import (
	"fmt"
	"math"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/herd"
	"github.com/orbitsched/orbit/internal/victims"
	"github.com/orbitsched/orbit/score"
)

// rater is what all placement engines share: whether a node can take a spec, how good it would be, and why not.
type rater struct {
	draft  *orbit.Draft
	score  orbit.Score
	filter Filter
	// The score as it was given, if it may draw lots.
	lots drawer
	// Which Sync of the draft it has followed.
	syncs uint64
	// Breaks ties; 0: by node id.
	seed uint64
	// The version of the filter, nil if it has none, and what it was before the last choice.
	version *FilterVersion
	at      uint64
	// Into how many parts the view divides the nodes, and at which hash the first begins.
	parts int
	from  uint64
	// Memory of the search for victims.
	victims victims.Search
}

// drawer is what a score may have that draws lots, see [orbit.Score].
type drawer interface {
	Draw(decision uint64) (drawn orbit.Score, draws bool)
}

// follow makes the rater one for the nodes of a draft. It reports whether the draft has been synced since the last
// call, and whether it is another one than then.
func (r *rater) follow(draft *orbit.Draft, rates orbit.Score, filter Filter, seed uint64, mostParts int) (synced, other bool) {
	if draft == r.draft && draft.Syncs() == r.syncs {
		return false, false
	}
	other = draft != r.draft
	if other {
		*r = rater{}
	}
	if rates == nil {
		rates = score.Spread{}
	}
	r.draft, r.syncs, r.score, r.filter, r.seed = draft, draft.Syncs(), rates, filter, seed
	r.lots, _ = rates.(drawer)
	r.parts, r.from = draft.View().Ring()
	if mostParts > 0 {
		r.parts = min(r.parts, mostParts)
	}
	return true, other
}

// look notes the version of the filter, before a choice. It reports whether that has changed.
func (r *rater) look(version *FilterVersion) (changed bool) {
	if r.filter == nil || *version == nil {
		r.version = nil
		return false
	}
	at := version.Version(r.draft.View())
	changed = at != r.at
	r.version, r.at = version, at
	return changed
}

// part returns the part of the nodes in which a hash is.
func (r *rater) part(hash uint64) int {
	if r.parts <= 1 {
		return 0
	}
	return herd.Part(r.parts, r.from, hash)
}

// node returns the node with an index as the plan leaves it, nil if there is none.
func (r *rater) node(slot int32) *orbit.NodeState { return r.draft.Node(int(slot)) }

// draw begins a decision. It reports whether the score draws lots: then nothing that was rated before counts.
func (r *rater) draw() bool {
	if r.lots == nil {
		return false
	}
	drawn, draws := r.lots.Draw(r.decision())
	if draws {
		r.score = drawn
	}
	return draws
}

// decision is a number for the next choice: the same for the same view and as many steps of the plan, and
// another for any other and with any other seed.
func (r *rater) decision() uint64 {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	return (r.seed*golden+uint64(r.draft.View().Revision()))*golden + uint64(r.draft.Checkpoint())
}

// better reports whether n with this score comes before the best so far.
func (r *rater) better(n *orbit.NodeState, value, tie float64, best *orbit.Choice) bool {
	if r.parts > 1 {
		if a, b := r.part(nodeHash(n.Node.ID)), r.part(nodeHash(best.Node.Node.ID)); a != b {
			return a < b
		}
	}
	if value != best.Value {
		return value < best.Value
	}
	if tie != best.Tie {
		return tie < best.Tie
	}
	if r.seed != 0 {
		if a, b := nodeHash(n.Node.ID), nodeHash(best.Node.Node.ID); a != b {
			return rank(r.seed, a) < rank(r.seed, b)
		}
	}
	return strings.Compare(string(n.Node.ID), string(best.Node.Node.ID)) < 0
}

// rate returns a node's score; false if the node cannot take the spec.
func (r *rater) rate(n *orbit.NodeState, spec *orbit.Spec, near *near) (value, tie float64, ok bool) {
	if n == nil || !n.Fits(spec) || !near.has(n.Node) {
		return 0, 0, false
	}
	return r.value(n, spec)
}

// value returns the score of a node on which the spec fits; false if the filter or the score excludes the node.
func (r *rater) value(n *orbit.NodeState, spec *orbit.Spec) (value, tie float64, ok bool) {
	report := r.draft.View().Report(n)
	if r.filter != nil && r.filter(n, report, spec) != "" {
		return 0, 0, false
	}
	value, tie = r.score.Score(n, report, spec)
	return value, tie, finite(value) && finite(tie)
}

// scan rates every node. The error is a *NoFit.
func (r *rater) scan(spec *orbit.Spec, near *near) (best orbit.Choice, err error) {
	for n := range r.draft.Nodes() {
		if value, tie, ok := r.rate(n, spec, near); ok && (best.Node == nil || r.better(n, value, tie, &best)) {
			best.Node, best.Value, best.Tie = n, value, tie
		}
	}
	return r.choice(best, spec)
}

// choice adds the devices to a choice, or says why there is none.
func (r *rater) choice(best orbit.Choice, spec *orbit.Spec) (orbit.Choice, error) {
	if best.Node == nil {
		return best, r.why(spec)
	}
	best.Devices = r.pickDevices(best.Node, spec)
	return best, nil
}

// pickDevices lets the score choose the instances if it wants to.
func (r *rater) pickDevices(n *orbit.NodeState, spec *orbit.Spec) orbit.DeviceSet {
	if spec.Devices.Count == 0 {
		return 0
	}
	if picker, ok := r.score.(interface {
		PickDevices(*orbit.NodeState, *orbit.Spec) (orbit.DeviceSet, bool)
	}); ok {
		if set, ok := picker.PickDevices(n, spec); ok && set&^n.DevicesFor(spec) == 0 {
			return set
		}
	}
	set, _ := n.PickDevices(spec) // it fits
	return set
}

// why says that no node takes the spec. Nodes that only the filter refuses are counted at once, because the filter may
// say something else later.
func (r *rater) why(spec *orbit.Spec) *orbit.NoFit {
	var refused map[orbit.Misfit]int
	if r.filter != nil {
		refused = r.refused(spec)
	}
	nofit := r.draft.Diagnose(spec, refused, orbit.Misfit{Why: "have a score that is no number"})
	if len(refused) > 0 && r.version != nil {
		nofit = nofit.RestsOn(r.version, r.at)
	}
	return nofit
}

// refused counts the nodes that would take the spec by why the filter refuses them.
func (r *rater) refused(spec *orbit.Spec) map[orbit.Misfit]int {
	counts, near := map[orbit.Misfit]int{}, nearIn(r.draft, spec)
	for n := range r.draft.Nodes() {
		if !n.Fits(spec) || !near.has(n.Node) {
			continue
		}
		if why := r.filter(n, r.draft.View().Report(n), spec); why != "" {
			counts[orbit.Misfit{Why: why}]++
		}
	}
	return counts
}

// near says where a spec may go because of the group whose company it asks for, and because of the rules of company.
type near struct {
	level string
	// Nil: the spec asks for no company, and may go anywhere.
	domains map[string]bool
	// The levels of rules that may close domains to the spec, and who says which are open.
	rules []string
	spec  *orbit.Spec
	draft *orbit.Draft
	// Another one when the domains may have changed.
	version nearVersion
}

type nearVersion struct{ near, rules uint64 }

// nearIn asks a draft where a spec may go.
func nearIn(draft *orbit.Draft, spec *orbit.Spec) (p near) {
	p.level = spec.Near.Level
	p.domains, p.version.near = draft.NearDomains(spec)
	if p.rules, p.version.rules = draft.RuleLevels(spec); p.rules != nil {
		p.spec, p.draft = spec, draft
	}
	return p
}

// has reports whether the spec may go to a node.
func (p *near) has(n *orbit.Node) bool { return p.reaches(n) && p.opens(n) }

// reaches reports whether a node is where the company is.
func (p *near) reaches(n *orbit.Node) bool { return p.domains == nil || p.domains[n.Labels[p.level]] }

// opens reports whether no rule closes a domain of the node.
func (p *near) opens(n *orbit.Node) bool {
	for _, level := range p.rules {
		if !p.draft.Opens(p.spec, level, n) {
			return false
		}
	}
	return true
}

// unready says why an engine cannot choose at all; nil: it can.
func unready(draft *orbit.Draft, spec *orbit.Spec) error {
	switch {
	case draft == nil || spec == nil:
		return fmt.Errorf("place: %w: Best needs a draft and a spec", orbit.ErrInvalid)
	case draft.View() == nil:
		return draft.NoFit(spec, map[orbit.Misfit]int{{Why: "were looked at; sync the draft first"}: 0})
	}
	return nil
}

// btoi makes a count of a condition.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
