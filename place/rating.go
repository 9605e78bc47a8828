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

// rater decides, for all placement engines, whether a node can take a spec, how good the node is, and why a node cannot
// take it.
type rater struct {
	draft  *orbit.Draft
	score  orbit.Score
	filter Filter
	// The score as it was given, if it may choose at random (as [score.Random] does); score is then the one that was drawn
	// last.
	lots drawer
	// The number of the Sync of the draft that the rater has followed.
	syncs uint64
	// Breaks ties; 0: the lowest node id wins.
	seed uint64
	// The function that returns the version of the filter, nil if it has none; and the version at the last choice.
	version *FilterVersion
	at      uint64
	// The number of parts into which the view divides the nodes, and the hash at which the first part begins.
	parts int
	from  uint64
	// The choices since the last Sync of nodes outside all domains over which their specs are spread.
	unspread int
	// The search for victims, kept for its buffers.
	victims victims.Search
}

// drawer is the optional method of a score that draws lots, see [orbit.Score].
type drawer interface {
	Draw(decision uint64) (drawn orbit.Score, draws bool)
}

// sync prepares the rater for the nodes of a draft. It reports whether this is the first call since a Sync, and
// whether the draft is another one than that of the last call.
func (r *rater) sync(draft *orbit.Draft, rates orbit.Score, filter Filter, seed uint64, mostParts int) (synced, other bool) {
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
	r.draft, r.syncs, r.score, r.filter, r.seed, r.unspread = draft, draft.Syncs(), rates, filter, seed, 0
	r.lots, _ = rates.(drawer)
	r.parts, r.from = draft.View().Parts()
	if mostParts > 0 {
		r.parts = min(r.parts, mostParts)
	}
	return true, other
}

// readVersion asks for the version of the filter, before a choice. It reports whether the version has changed since the last
// choice.
func (r *rater) readVersion(version *FilterVersion) (changed bool) {
	if r.filter == nil || *version == nil {
		r.version = nil
		return false
	}
	at := version.Version(r.draft.View())
	changed = at != r.at
	r.version, r.at = version, at
	return changed
}

// part returns the part of the nodes to which a hash belongs.
func (r *rater) part(hash uint64) int {
	if r.parts <= 1 {
		return 0
	}
	return herd.Part(r.parts, r.from, hash)
}

// node returns the node with an index as the plan leaves it, or nil if there is none.
func (r *rater) node(slot int32) *orbit.NodeState { return r.draft.Node(int(slot)) }

// draw begins a choice. It reports whether the score draws lots for it: then no earlier rating may be used.
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

// decision returns a number for the next choice. It is the same for the same seed, revision of the view and number of
// steps in the plan, and differs if exactly one of them does.
func (r *rater) decision() uint64 {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	return (r.seed*golden+uint64(r.draft.View().Revision()))*golden + uint64(r.draft.Checkpoint())
}

// pick is a node with all that comparisons use. Order is the number of members of the spec's set in the domain of the
// node (Spec.Spread). Own is the score of the node plus what company on the node itself adds. Value is own plus what
// company in the domains of the node adds. Where rounding makes two values equal, own decides, so nodes of one domain
// always come in the order of own.
type pick struct {
	node  *orbit.NodeState
	order int
	// The node is a last resort (orbit.Draft.LastResort).
	last            bool
	value, own, tie float64
}

// better reports whether a comes before b: by last resorts, order, part, value, own, tie, the position on the ring of
// hashes, and the id.
func (r *rater) better(a, b *pick) bool {
	if a.last != b.last {
		return b.last
	}
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

// rate rates a node; false: the node cannot take the spec.
func (r *rater) rate(n *orbit.NodeState, spec *orbit.Spec, near *near) (p pick, ok bool) {
	if n == nil || !n.Fits(spec) || !near.has(n.Node) {
		return p, false
	}
	if p, ok = r.own(n, spec, near); ok {
		near.company.weigh(&p)
	}
	return p, ok
}

// own rates a node on which the spec fits, without the company in its domains; false: the filter or the score excludes
// the node. A score excludes a node by a value or tie that is NaN or infinite.
func (r *rater) own(n *orbit.NodeState, spec *orbit.Spec, near *near) (p pick, ok bool) {
	report := r.draft.View().Report(n)
	if r.filter != nil && r.filter(n, report, spec) != "" {
		return p, false
	}
	p.node, p.last = n, r.draft.LastResort(n, spec)
	p.own, p.tie = r.score.Score(n, report, spec)
	if len(near.company.own) > 0 {
		p.own += near.company.onNode(n.Node)
	}
	p.value = p.own
	return p, finite(p.own) && finite(p.tie)
}

// scan chooses by rating every node. The error is a *NoFit.
func (r *rater) scan(spec *orbit.Spec, near *near) (orbit.Choice, error) {
	best := r.bestOfAll(spec, near)
	return r.choice(&best, spec)
}

// bestOfAll rates every node and returns the best; its node is nil if no node takes the spec.
func (r *rater) bestOfAll(spec *orbit.Spec, near *near) (best pick) {
	for n := range r.draft.Nodes() {
		if p, ok := r.rate(n, spec, near); ok && (best.node == nil || r.better(&p, &best)) {
			best = p
		}
	}
	return best
}

// choice completes a pick by the devices, or returns the reason why there is none.
func (r *rater) choice(best *pick, spec *orbit.Spec) (orbit.Choice, error) {
	if best.node == nil {
		return orbit.Choice{}, r.why(spec)
	}
	r.unspread += btoi(best.order == lastOrder)
	return orbit.Choice{Node: best.node, Value: best.value, Tie: best.tie, Devices: r.pickDevices(best.node, spec)}, nil
}

// pickDevices chooses the device instances: by the score, if it has a method for that and chooses as many as the spec
// asks for, all open to it, on which the capsule need not wait; else by the rule of the node.
func (r *rater) pickDevices(n *orbit.NodeState, spec *orbit.Spec) orbit.DeviceSet {
	if spec.Devices.Count == 0 {
		return 0
	}
	if picker, ok := r.score.(interface {
		PickDevices(*orbit.NodeState, *orbit.Spec) (orbit.DeviceSet, bool)
	}); ok {
		if set, ok := picker.PickDevices(n, spec); ok && set&^n.DevicesFor(spec) == 0 && set.Len() == spec.Devices.Count && !n.Waits(spec, set) {
			return set
		}
	}
	set, _ := n.PickDevices(spec) // no error: the spec fits
	return set
}

// why returns the error for a spec that no node takes. Other reasons are counted when the error is read, but nodes that
// only the filter refuses are counted now, because the filter may answer differently later.
func (r *rater) why(spec *orbit.Spec) *orbit.NoFit {
	var refused map[orbit.Misfit]int
	if r.filter != nil {
		refused = r.refused(spec)
	}
	nofit := r.draft.Diagnose(spec, refused, orbit.Misfit{Why: "have a score that is no number"})
	if len(refused) > 0 && r.version != nil {
		nofit = nofit.DependsOn(r.version, r.at)
	}
	return nofit
}

// refused counts the nodes that only the filter keeps from taking the spec, by the reason that the filter gives.
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

// near says in which domains a spec may be placed: because of the group that it must be near (Spec.Near), and because
// of the rules of company (Apart, Even).
type near struct {
	level string
	// The domains of level with a member of the group; nil: the spec need not be near a group.
	domains map[string]bool
	// The levels of rules that may close domains to the spec; and the draft that answers, for the spec, which domains
	// are open.
	rules []string
	spec  *orbit.Spec
	draft *orbit.Draft
	// It changes whenever the domains may have changed, or which of them are open.
	version nearVersion
	// The preferences of the spec about company. A search for victims does not read them.
	company company
}

type nearVersion struct{ near, rules uint64 }

// nearIn asks a draft where a spec may be placed.
func nearIn(draft *orbit.Draft, spec *orbit.Spec) (p near) {
	p.level = spec.Near.Level
	p.domains, p.version.near = draft.NearDomains(spec)
	if p.rules, p.version.rules = draft.RuleLevels(spec); p.rules != nil {
		p.spec, p.draft = spec, draft
	}
	return p
}

// choiceIn asks a draft where a spec may be placed, and reads its preferences about company there.
func choiceIn(draft *orbit.Draft, spec *orbit.Spec) near {
	p := nearIn(draft, spec)
	if spec.Spread.Level != "" || len(spec.PreferCompany) > 0 {
		p.company = companyIn(draft, spec)
	}
	return p
}

// has reports whether Near and the rules of company allow a node to the spec. Free capacity and requirements are not
// considered.
func (p *near) has(n *orbit.Node) bool { return p.reaches(n) && p.opens(n) }

// reaches reports whether a node is in a domain with a member of the group that the spec must be near.
func (p *near) reaches(n *orbit.Node) bool { return p.domains == nil || p.domains[n.Labels[p.level]] }

// opens reports whether no rule closes a domain of the node.
func (p *near) opens(n *orbit.Node) bool {
	for _, level := range p.rules {
		if !p.draft.DomainOpen(p.spec, level, n) {
			return false
		}
	}
	return true
}

// unready returns why a placement engine cannot choose, or nil if it can.
func unready(draft *orbit.Draft, spec *orbit.Spec) error {
	switch {
	case draft == nil || spec == nil:
		return fmt.Errorf("place: %w: Best needs a draft and a spec", orbit.ErrInvalid)
	case draft.View() == nil:
		return draft.NoFit(spec, map[orbit.Misfit]int{{Why: "were looked at; sync the draft first"}: 0})
	}
	return nil
}

// btoi returns 1 for true and 0 for false.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// finite reports whether x is a number that can be compared.
func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
