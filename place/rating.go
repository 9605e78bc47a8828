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

// pick is a node and all that it is compared by. Order is how many of its set are in its domain (Spec.Spread). Value is what counts: the node's own,
// which is its score and what the company on the node itself adds, and what the company in its domains adds. Where rounding makes two values equal, own decides, so
// nodes of one domain always come in the order of own.
type pick struct {
	node            *orbit.NodeState
	order           int
	value, own, tie float64
}

// better reports whether a comes before b.
func (r *rater) better(a, b *pick) bool {
	if a.order != b.order {
		return a.order < b.order
	}
	if r.parts > 1 {
		if a, b := r.part(nodeHash(a.node.Node.ID)), r.part(nodeHash(b.node.Node.ID)); a != b {
			return a < b
		}
	}
	switch {
	case a.value != b.value:
		return a.value < b.value
	case a.own != b.own:
		return a.own < b.own
	case a.tie != b.tie:
		return a.tie < b.tie
	}
	if r.seed != 0 {
		if a, b := nodeHash(a.node.Node.ID), nodeHash(b.node.Node.ID); a != b {
			return rank(r.seed, a) < rank(r.seed, b)
		}
	}
	return strings.Compare(string(a.node.Node.ID), string(b.node.Node.ID)) < 0
}

// rate rates a node; false if the node cannot take the spec.
func (r *rater) rate(n *orbit.NodeState, spec *orbit.Spec, near *near) (p pick, ok bool) {
	if n == nil || !n.Fits(spec) || !near.has(n.Node) {
		return p, false
	}
	if p, ok = r.own(n, spec, near); ok {
		near.company.weigh(&p)
	}
	return p, ok
}

// own rates a node on which the spec fits, without the company in its domains; false if the filter or the score excludes the node.
func (r *rater) own(n *orbit.NodeState, spec *orbit.Spec, near *near) (p pick, ok bool) {
	report := r.draft.View().Report(n)
	if r.filter != nil && r.filter(n, report, spec) != "" {
		return p, false
	}
	p.node = n
	p.own, p.tie = r.score.Score(n, report, spec)
	if len(near.company.own) > 0 {
		p.own += near.company.onNode(n.Node)
	}
	p.value = p.own
	return p, finite(p.own) && finite(p.tie)
}

// scan rates every node. The error is a *NoFit.
func (r *rater) scan(spec *orbit.Spec, near *near) (orbit.Choice, error) {
	best := r.bestOfAll(spec, near)
	return r.choice(&best, spec)
}

// bestOfAll rates every node.
func (r *rater) bestOfAll(spec *orbit.Spec, near *near) (best pick) {
	for n := range r.draft.Nodes() {
		if p, ok := r.rate(n, spec, near); ok && (best.node == nil || r.better(&p, &best)) {
			best = p
		}
	}
	return best
}

// choice adds the devices to what was picked, or says why nothing was.
func (r *rater) choice(best *pick, spec *orbit.Spec) (orbit.Choice, error) {
	if best.node == nil {
		return orbit.Choice{}, r.why(spec)
	}
	return orbit.Choice{Node: best.node, Value: best.value, Tie: best.tie, Devices: r.pickDevices(best.node, spec)}, nil
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
	// What the spec wishes of the nodes where it may go. A search for victims does not read it.
	company company
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

// choiceIn asks a draft where a spec may go, and what it wishes of the company there.
func choiceIn(draft *orbit.Draft, spec *orbit.Spec) near {
	p := nearIn(draft, spec)
	if spec.Spread.Level != "" || len(spec.PreferCompany) > 0 {
		p.company = companyIn(draft, spec)
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
