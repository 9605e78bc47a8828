package orbit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// What tests draw has few domains and short proposals, and what is done with many is to be tested too.
func init() { fewDomains, mostMoved, builderPiece = 0, 3, 3 }

// What the model says of company: who is kept apart from whom, and how even groups are.

func (n modelNode) domain(level string) string {
	if level == NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// members counts the members of a group that are placed in a domain.
func (m *model) members(group, level, domain string) (count int) {
	for _, c := range m.capsules {
		count += btoi(c.node != "" && slices.Contains(modelGroupsOf(c.spec), group) && m.nodes[c.node].domain(level) == domain)
	}
	return count
}

// apartFrom reports whether a spec has to be apart from another one by a level.
func apartFrom(s, other *Spec, level string) bool {
	return slices.ContainsFunc(s.Apart, func(a Apart) bool {
		return a.Level == level && slices.Contains(modelGroupsOf(other), a.Group)
	})
}

// clash reports whether two specs on two nodes break a rule Apart of either.
func clash(s *Spec, on modelNode, other *Spec, at modelNode) bool {
	for _, a := range slices.Concat(s.Apart, other.Apart) {
		if d := on.domain(a.Level); d != "" && d == at.domain(a.Level) && (apartFrom(s, other, a.Level) || apartFrom(other, s, a.Level)) {
			return true
		}
	}
	return false
}

// arrivals are those that the proposal places, and has not found running.
func (r *modelRound) arrivals() (out []CapsuleID) {
	for id := range r.wishes.placed {
		if c := r.now.capsules[id]; c.node != "" && !c.adopted {
			out = append(out, id)
		}
	}
	return out
}

// crowded refuses arrivals by the rules Apart of all that is there, and still runs there.
func (r *modelRound) crowded() (out []*refusal) {
	for _, id := range r.arrivals() {
		c := r.now.capsules[id]
		n := r.now.nodes[c.node]
		bad := slices.ContainsFunc(c.spec.Apart, func(a Apart) bool { return a.Labelled && n.domain(a.Level) == "" })
		for other, k := range r.now.capsules {
			bad = bad || other != id && k.node != "" && clash(c.spec, n, k.spec, r.now.nodes[k.node])
			if rest := k.remains; rest != nil && other != id && (!c.waits || rest.node != c.node) {
				bad = bad || clash(c.spec, n, rest.spec, r.now.nodes[rest.node])
			}
		}
		if bad {
			out = append(out, lostTo(r.was.rev))
		}
		if short := slices.ContainsFunc(c.spec.Extras, func(x Extra) bool {
			return r.now.taken(c.node, x.Name, func(other CapsuleID, left bool) bool { return !left || other != id && !c.waits }) > modelAmount(n.Extras, x.Name)
		}); short {
			out = append(out, lostTo(max(r.was.nodes[c.node].newest(), r.asked[c.node].spec)))
		}
	}
	return out
}

// taken adds up what is taken of an extra on a node by those that count: who is placed there, and who has left and still runs there.
func (m *model) taken(node NodeID, name string, counts func(id CapsuleID, left bool) bool) (sum int64) {
	for id, c := range m.capsules {
		if c.node == node && counts(id, false) {
			sum += modelAmount(c.spec.Extras, name)
		}
		if c.remains != nil && c.remains.node == node && counts(id, true) {
			sum += modelAmount(c.remains.spec.Extras, name)
		}
	}
	return sum
}

// modelAmount is how much there is of a name.
func modelAmount(extras []Extra, name string) (sum int64) {
	for _, x := range extras {
		if x.Name == name {
			sum += x.Amount
		}
	}
	return sum
}

// extrasOver reports whether what is placed on a node takes more of an extra than the node has.
func (m *model) extrasOver(n modelNode) bool {
	return slices.ContainsFunc([]string{"ip", "key"}, func(name string) bool {
		return m.taken(n.ID, name, func(_ CapsuleID, left bool) bool { return !left }) > modelAmount(n.Extras, name)
	})
}

// shortWith reports whether the node of a victim has too little of an extra that both take for a newcomer, those that stay, and the victim.
func (r *modelRound) shortWith(e Evict, newcomer *Spec, over func(CapsuleID) bool, back map[CapsuleID]bool) bool {
	newcomers, victim, n := r.newcomers(), r.was.capsules[e.Capsule], r.now.nodes[e.From]
	for _, x := range victim.spec.Extras {
		sum := x.Amount + r.now.taken(e.From, x.Name, func(id CapsuleID, left bool) bool {
			if left {
				runsOn := id == e.Capsule || back[id]
				return !n.Confirms && (!runsOn || r.now.capsules[id].remains.since != r.was.capsules[id].placedAt)
			}
			_, comes := newcomers[id]
			_, grows := r.grows[id]
			return !comes || over(id) || grows
		})
		for id, grow := range r.grows {
			if r.now.capsules[id].node == e.From && !over(id) {
				sum -= modelAmount(grow.Extras, x.Name)
			}
		}
		for id := range back {
			if was := r.was.capsules[id]; was.node == e.From {
				sum += modelAmount(was.spec.Extras, x.Name)
			}
		}
		if modelAmount(newcomer.Extras, x.Name) > 0 && sum > modelAmount(n.Extras, x.Name) {
			return true
		}
	}
	return false
}

// eligible are the domains that are compared by a rule of a spec.
func (m *model) eligible(s *Spec, e Even) map[string]bool {
	out := map[string]bool{}
	for _, n := range m.nodes {
		meets := e.IgnoreRequire || !slices.ContainsFunc(s.Require, func(p Predicate) bool { return !p.On(&n.Node) })
		if len(e.Domains) > 0 {
			meets = slices.Contains(e.Domains, n.domain(e.Level))
		}
		if e.HonorTaints {
			meets = meets && n.State == Ready && !modelKeptOff(n.Node, s, "NoSchedule", "NoExecute")
		}
		if meets && n.State != Lost && n.domain(e.Level) != "" {
			out[n.domain(e.Level)] = true
		}
	}
	return out
}

// least is the fewest members in an eligible domain.
func (m *model) least(s *Spec, e Even) int {
	domains := m.eligible(s, e)
	if len(domains) == 0 || len(domains) < e.MinDomains {
		return 0
	}
	least := len(m.capsules)
	for d := range domains {
		least = min(least, m.members(e.Group, e.Level, d))
	}
	return least
}

// uneven refuses arrivals by their rules Even.
func (r *modelRound) uneven() (out []*refusal) {
	for _, id := range r.arrivals() {
		c := r.now.capsules[id]
		for _, e := range c.spec.Even {
			d := r.now.nodes[c.node].domain(e.Level)
			count := r.now.members(e.Group, e.Level, d)
			if d == "" || len(e.Domains) > 0 && !slices.Contains(e.Domains, d) ||
				count > r.now.least(c.spec, e)+max(1, e.MaxSkew) && (count > r.was.members(e.Group, e.Level, d) || !slices.Contains(modelGroupsOf(c.spec), e.Group)) {
				out = append(out, lostTo(r.was.rev))
			}
		}
	}
	return out
}

// modelNearsOf are the rules Near of a spec, sorted and each once.
func modelNearsOf(s *Spec) []Near {
	all := slices.DeleteFunc(append([]Near{s.Near}, s.Nears...), func(r Near) bool { return r.Group == "" })
	slices.SortFunc(all, func(a, b Near) int { return strings.Compare(a.Group+"/"+a.Level, b.Group+"/"+b.Level) })
	return slices.Compact(all)
}

// lonely refuses arrivals by their rules Near.
func (r *modelRound) lonely() (out []*refusal) {
	for _, id := range r.arrivals() {
		c := r.now.capsules[id]
		for _, rule := range modelNearsOf(c.spec) {
			here, others, d := 0, 0, r.now.nodes[c.node].domain(rule.Level)
			for other, k := range r.now.capsules {
				if other != id && k.node != "" && slices.Contains(modelGroupsOf(k.spec), rule.Group) {
					at := r.now.nodes[k.node].domain(rule.Level)
					here += btoi(at == d)
					others += btoi(at != "")
				}
			}
			if d == "" || here == 0 && (others > 0 || !slices.Contains(modelGroupsOf(c.spec), rule.Group)) {
				out = append(out, lostTo(r.was.rev))
			}
		}
	}
	return out
}

// keptOff are the newcomers that outrank a victim and may not be where they are if it stays.
func (r *modelRound) keptOff(e Evict, over func(CapsuleID) bool, back map[CapsuleID]bool) (out []CapsuleID) {
	victim := r.was.capsules[e.Capsule].spec
	for id := range r.newcomers() {
		c := r.now.capsules[id]
		spec := c.spec
		if grow, grows := r.grows[id]; grows {
			spec = &grow
		}
		if over(id) && (clash(victim, r.now.nodes[e.From], spec, r.now.nodes[c.node]) || c.node == e.From && r.shortWith(e, spec, over, back)) {
			out = append(out, id)
		}
	}
	return out
}

// modelOwnEvens are the rules Even of a spec about groups that it is in.
func modelOwnEvens(s *Spec) []Even {
	return slices.DeleteFunc(slices.Clone(s.Even), func(e Even) bool { return !slices.Contains(modelGroupsOf(s), e.Group) })
}

// ruleText writes a rule Even.
func ruleText(e Even) string {
	return fmt.Sprint(e.Group+e.Level, max(1, e.MaxSkew), e.MinDomains, sorted(e.Domains), e.HonorTaints, e.IgnoreRequire)
}

// skewed says which domains have too many, in no order.
func (m *model) skewed() (out []string) {
	seen := map[string]bool{}
	for _, c := range m.capsules {
		if c.node == "" {
			continue
		}
		for _, e := range modelOwnEvens(c.spec) {
			for _, n := range m.nodes {
				d := n.domain(e.Level)
				text := fmt.Sprintf("%s %v %q %d %d", string(c.spec.clone().appendKey(nil)), ruleText(e), d, m.members(e.Group, e.Level, d), m.least(c.spec, e))
				if d != "" && m.members(e.Group, e.Level, d) > m.least(c.spec, e)+max(1, e.MaxSkew) && !seen[text] {
					seen[text] = true
					out = append(out, text)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// evens says how many members the fullest domain and the one with the fewest have by each rule of something placed, sorted.
func (m *model) evens() (out []string) {
	for _, c := range m.capsules {
		for _, e := range modelOwnEvens(c.spec) {
			if c.node == "" {
				continue
			}
			most := 0
			for _, n := range m.nodes {
				if d := n.domain(e.Level); d != "" {
					most = max(most, m.members(e.Group, e.Level, d))
				}
			}
			rule := ruleText(e)
			out = append(out, fmt.Sprintf("%s %s %d %d", string(c.spec.clone().appendKey(nil)), rule, most, m.least(c.spec, e)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// skew compares what the state says of skew with the model.
func (d *duel) skew(t *rapid.T) {
	var rules []string
	for s := range d.snapshot().Evens() {
		rules = append(rules, fmt.Sprintf("%s %s %d %d", s.Spec.key, ruleText(s.Even), s.Members, s.Fewest))
	}
	slices.Sort(rules)
	if want := d.model.evens(); !slices.Equal(slices.Compact(rules), want) { // a spec may have a rule twice
		t.Fatalf("rules: %q, not %q", rules, want)
	}
	d.count["even"] += len(rules)
	var have []string
	for s := range d.snapshot().Skewed() {
		have = append(have, fmt.Sprintf("%s %v %q %d %d", s.Spec.key, ruleText(s.Even), s.Domain, s.Members, s.Fewest))
	}
	slices.Sort(have)
	want := d.model.skewed()
	if !slices.Equal(have, slices.Compact(want)) {
		t.Fatalf("skewed: %q, not %q", have, want)
	}
	d.count["skewed"] += len(have)
}

// company draws rules of company.
func (s *scribe) company(spec *Spec) {
	levels := []string{"rack", "rack", NodeKey}
	if spec.Group == "" && s.social {
		spec.Group = pickOne(s, modelGroups)
	}
	for s.chance(4) { // no ledger judges it
		spec.PreferCompany = append(spec.PreferCompany, Company{pickOne(s, modelGroups), pickOne(s, levels), pickOne(s, []float64{5, -0.1})})
	}
	for _, name := range []string{"key", "ip"} {
		if s.chance(3) {
			spec.Extras = append(spec.Extras, Extra{name, rapid.Int64Range(1, 3).Draw(s.T, "amount")})
		}
	}
	for s.chance(3) {
		spec.Apart = append(spec.Apart, Apart{Group: pickOne(s, modelGroups), Level: pickOne(s, levels), Labelled: s.chance(3)})
	}
	groups := modelGroupsOf(spec)
	if s.chance(4) {
		groups = append(groups, pickOne(s, modelGroups))
	}
	for s.chance(4) {
		spec.Nears = append(spec.Nears, Near{pickOne(s, modelGroups), pickOne(s, levels)})
	}
	for _, group := range groups {
		if s.chance(3) {
			continue
		}
		e := Even{Group: group, Level: pickOne(s, levels), MaxSkew: pickOne(s, []int{0, 1, 2}), MinDomains: pickOne(s, []int{0, 0, 2, 3}), HonorTaints: s.chance(3), IgnoreRequire: s.chance(3)}
		if s.chance(3) {
			e.Domains = pickOne(s, [][]string{{"r0"}, {"r0", "r1"}, {"r1", "r2"}, {"n0", "n2"}})
		}
		spec.Even = append(spec.Even, e)
	}
}

// extras draws what a node has.
func (s *scribe) extras() (out []Extra) {
	for _, name := range []string{"ip", "key"} {
		if !s.chance(5) {
			out = append(out, Extra{name, rapid.Int64Range(0, 4).Draw(s.T, "amount")})
		}
	}
	return out
}

// companyDrafts are of what rules of company decide about, and of what changes them.
var companyDrafts = []draft{
	draftChange, draftChange, draftSubmit, draftSubmit, draftSubmit, draftPlace, draftPlace, draftPlace, draftPlace, draftPlace, draftGang, draftAdopt,
	draftRelease, draftUnrule, draftMove, draftMove, draftEvict, draftEvict, draftEmpty, draftRespec, draftRespec, draftRespec, draftConfirm, draftConfirm, draftConfirm,
	func(s *scribe) []Commitment { return []Commitment{PutNode{s.node(pickOne(s, modelNodes))}} },
	func(s *scribe) []Commitment { return []Commitment{Submit{Gang: s.gang()}} },
}

// draftUnrule ends all that have a rule about a group.
func draftUnrule(s *scribe) (out []Commitment) {
	group := pickOne(s, modelGroups)
	for c := range s.view.Capsules() {
		rules := slices.ContainsFunc(c.Spec.Apart, func(a Apart) bool { return a.Group == group }) ||
			slices.ContainsFunc(c.Spec.Even, func(e Even) bool { return e.Group == group })
		if rules && !c.Released() {
			out = append(out, Release{Capsule: c.ID, Final: true})
		}
	}
	return out
}

// TestCompanyAgainstModel is TestLedgerAgainstModel with rules of company in most specs.
func TestCompanyAgainstModel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "by a rule", "apart", "uneven", "unlabelled", "extras", "lonely", "skewed", "even", "committed") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{}, false)
			d.company = true
			d.drafts = companyDrafts
			d.gather(t)
			actions := d.actions()
			actions["skew"] = d.skew
			t.Repeat(actions)
			d.lookBack(t)
			for k, n := range d.count {
				total[k] += n
			}
		})
	}
}

// gather fills a world with little work that has much room and rules of company.
func (d *duel) gather(t *rapid.T) {
	s := &scribe{T: t, view: d.snapshot(), social: true}
	for i, id := range modelNodes {
		n := Node{ID: id, Confirms: s.chance(2), Capacity: Resources{8, 8, 8, 8, 8, 8, 8, 8}, Labels: map[string]string{"rack": fmt.Sprint("r", i/2)}}
		if s.chance(4) {
			n.Labels = map[string]string{}
		}
		n.Devices.Count, n.Devices.Model, n.Extras = 3, "A100", s.extras()
		d.send(t, Proposal{Do: []Commitment{PutNode{n}}})
	}
	for range 4 {
		s.view = d.snapshot()
		d.send(t, Proposal{Do: s.follow(draftSubmit(s))})
	}
	d.serve(t)
	for i := range d.views {
		d.views[i] = d.snapshot()
	}
}

// ruled reports whether a rule of company is why.
func ruled(r *Rejection) bool { return r.Group != "" || r.Dimension == "key" || r.Dimension == "ip" }

// countCompany counts refusals by rules of company.
func (d *duel) countCompany(r *Rejection) {
	d.count["by a rule"] += btoi(r.Group != "")
	d.count["apart"] += btoi(r.Group != "" && r.Domain != "" && r.Free == 0 && r.Want > 0)
	d.count["lonely"] += btoi(r.Group != "" && r.Domain != "" && r.Want == 0)
	d.count["uneven"] += btoi(r.Group != "" && r.Free > 0)
	d.count["extras"] += btoi(ruled(r) && r.Group == "")
	d.count["unlabelled"] += btoi(r.Group != "" && r.Domain == "")
}

// TestDraftKeepsCompany: what a draft takes the ledger commits, if it commits the earlier proposals of the plan; what the draft refuses for a rule of
// company the ledger refuses, if others take the extras that the earlier proposals free. The draft counts what the ledger counts, also after a rollback, and says of each node what Place says.
func TestDraftKeepsCompany(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	for total := range scale.Reach(t, "taken", "refused", "proposed", "rolled back", "moved", "kept") {
		rapid.Check(t, func(t *rapid.T) {
			d := newDuel(Limits{}, false)
			d.company = true
			d.gather(t)
			for range rapid.IntRange(0, 15).Draw(t, "before") {
				d.propose(t, 1)
			}
			view, _ := viewOf(t, d.ledger, nil)
			p := &companyPlan{scribe: &scribe{T: t, view: view.State(), social: true}, count: total, sent: view.State()}
			p.draft.Sync(view)
			t.Repeat(map[string]func(*rapid.T){
				"place": p.place, "place more": p.place, "move": p.move, "propose": p.propose, "rollback": p.rollback, "": p.check,
			})
		})
	}
}

// companyPlan is a plan in the making, and what a ledger makes of it.
type companyPlan struct {
	*scribe
	draft  Draft
	sent   *State // after the proposals of the plan
	count  map[string]int
	serial int
	mark   struct {
		at, log int
		sent    *State
	}
}

func (p *companyPlan) making() Proposal {
	return Proposal{View: p.sent.rev, Do: slices.Clone(p.draft.log[p.draft.open:])}
}

func (p *companyPlan) place(t *rapid.T) {
	p.T = t
	c := p.some((*Capsule).Pending)
	if c.Spec == nil || c.Gang() != "" || p.chance(4) {
		p.serial++
		c = &Capsule{ID: CapsuleID(fmt.Sprint("new", p.serial)), Spec: p.spec()}
		if p.draft.Add(Submit{IDs: []CapsuleID{c.ID}, Spec: c.Spec}) != nil {
			return
		}
	}
	n := p.view.Node(pickOne(p.scribe, modelNodes))
	if n == nil {
		return
	}
	n = p.draft.Node(n.Index())
	set, ok := n.PickDevices(c.Spec)
	misfit, before := p.draft.verdictsOn(c.Spec).misfit(n), p.making()
	err := p.draft.Place(c, Choice{Node: n, Devices: set})
	if err == nil {
		do := p.making()
		_, judged := p.sent.With(do)
		if r, _ := judged.(*Rejection); r != nil && !ruled(r) { //nolint:errorlint // With returns nothing else
			return // a later step places what is moved; a node that does not confirm lets nothing wait
		}
		if judged != nil {
			t.Fatalf("the draft takes %v: %v", do, judged)
		}
		after := do.Do[len(do.Do)-1].(Place).After
		p.count["taken"]++
		p.count["after"] += btoi(after)
		if c.stops() == nil && !after && misfit != (Misfit{}) {
			t.Fatalf("Misfit says %v of what Place takes: %v", misfit, do)
		}
		return
	}
	if r := err.(*Rejection); !ruled(r) || !ok { //nolint:errorlint // a draft returns nothing else
		return
	}
	p.count["refused"]++
	if planned := c.Spec.Near.Group != "" && c.Spec.Near.Level != NodeKey; !planned && misfit == (Misfit{}) && !strings.Contains(err.Error(), "an earlier step") {
		t.Fatalf("Misfit says nothing of what Place refuses: %v", err)
	}
	for _, after := range []bool{false, n.Node.Confirms} {
		do := before
		do.Do = append(slices.Clone(before.Do), Place{Capsule: c.ID, Node: n.Node.ID, Devices: set, After: after})
		if _, judged := p.sent.With(do); judged == nil {
			t.Fatalf("the draft refuses %v: %v", do, err)
		}
	}
}

func (p *companyPlan) move(t *rapid.T) {
	p.T = t
	c := p.some((*Capsule).Placed)
	if c.Node == "" || c.Gang() != "" || p.draft.Evict(Evict{Capsule: c.ID}) != nil {
		return
	}
	start := p.draft.Checkpoint()
	for _, id := range modelNodes {
		n := p.view.Node(id)
		if n == nil {
			continue
		}
		set, _ := p.draft.Node(n.Index()).PickDevices(c.Spec)
		if p.draft.Place(c, Choice{Node: n, Devices: set}) != nil {
			continue
		}
		if _, err := p.sent.With(p.making()); err == nil {
			p.count["moved"]++
			return
		}
		break
	}
	p.draft.Rollback(start - 1)
}

func (p *companyPlan) propose(t *rapid.T) {
	do := p.draft.Propose()
	if len(do.Do) == 0 {
		return
	}
	do.View, do.If = p.sent.rev, nil
	next, err := p.sent.With(do)
	if r, _ := err.(*Rejection); r != nil && !ruled(r) { //nolint:errorlint // With returns nothing else
		t.Skip("another rule than those of company")
	}
	if err != nil {
		t.Fatalf("%v is not committed: %v", do, err)
	}
	p.sent = p.keep(next)
	p.count["proposed"]++
	if p.chanceOf(t, 2) {
		p.mark.at, p.mark.log, p.mark.sent = p.draft.Checkpoint(), len(p.draft.log), p.sent
	}
}

// keep returns the state in which other capsules have taken what the last proposal has freed of each extra.
func (p *companyPlan) keep(next *State) *State {
	for n := range next.Nodes() {
		for _, name := range []string{"key", "ip"} {
			taken := func(s *State) int {
				return s.company.in(companyDomain{extraGroup(name), NodeKey, string(n.Node.ID)})[membersPlaced]
			}
			freed := int64(taken(p.sent) - taken(next))
			if freed <= 0 || n.Node.State == Lost { // where nothing can be adopted, and nothing placed
				continue
			}
			p.serial++
			p.count["kept"]++
			kept, err := next.With(Proposal{View: next.rev, Do: []Commitment{Adopt{Capsule: CapsuleID(fmt.Sprint("kept", p.serial)), Node: n.Node.ID, Spec: &Spec{Extras: []Extra{{name, freed}}}}}})
			require.NoError(p.T, err)
			next = kept
		}
	}
	return next
}

func (p *companyPlan) chanceOf(t *rapid.T, n int) bool { p.T = t; return p.chance(n) }

func (p *companyPlan) rollback(t *rapid.T) {
	if p.mark.sent == nil {
		p.mark.sent = p.view
	}
	p.count["rolled back"] += btoi(len(p.draft.log) > p.mark.log)
	p.draft.Rollback(p.mark.at)
	p.sent = p.mark.sent
}

// check compares what the draft counts with what the ledger counts.
func (p *companyPlan) check(t *rapid.T) {
	state := p.sent
	if do := p.making(); len(do.Do) > 0 {
		next, err := state.With(do)
		if err != nil {
			return
		}
		state = next
	}
	if !p.draft.rules.owned {
		return
	}
	var rules []companyRule
	p.view.company.rules.Ascend(func(g groupRules) bool {
		rules = append(rules, g.byLevel...)
		return true
	})
	for _, rule := range rules {
		if now := state.company.rule(rule.group, rule.level); now.apart+now.even == 0 {
			continue // the plan ends it
		}
		extra := rule.group == extraGroup("key") || rule.group == extraGroup("ip")
		counts := func(c *companyTables) (out []companyCount) {
			c.counts.Ascend(func(n companyCount) bool {
				if n.group == rule.group && n.level == rule.level && (!extra || p.view.Node(NodeID(n.domain)).Node.State != Lost) { // what is kept there is not in the ledger
					out = append(out, n)
				}
				return true
			})
			return out
		}
		if have, want := counts(&p.draft.rules.companyTables), counts(&state.company); !slices.Equal(have, want) {
			t.Fatalf("the draft counts %v, the ledger %v", have, want)
		}
	}
}

// TestRecipesOfCompany: one for one on a full cluster with Apart per node, by one proposal of an orchestrator and by one of a draft: who comes after waits
// until who was there has stopped. Without that it is refused.
func TestRecipesOfCompany(t *testing.T) {
	apart := cpuSpec(4)
	apart.Group, apart.Movable = "db", true
	apart.Apart = []Apart{{Group: "db", Level: NodeKey}}
	n := cpuNode("n", 8)
	n.Node.Confirms = true
	c := newCourt(t, n, submitOf(apart, "old"), placeOn("old", "n"))
	s := c.now()
	c.commits(Confirm{Capsule: "old", Since: s.Capsule("old").PlacedAt, Ready: true})
	s = c.now()
	swap := func(place Commitment) error {
		return s.Check(Proposal{View: s.rev, Do: []Commitment{Release{Capsule: "old", Final: true}, submitOf(apart, "new"), place}})
	}
	var r *Rejection
	require.ErrorAs(t, swap(placeOn("new", "n")), &r)
	require.Equal(t, "db", r.Group)
	require.Equal(t, "n", r.Domain)
	require.NoError(t, swap(Place{Capsule: "new", Node: "n", After: true}))

	var d Draft
	view, _ := viewOf(t, c.MemoryLedger, nil)
	d.Sync(view)
	require.NoError(t, d.Release(Release{Capsule: "old", Final: true}))
	require.NoError(t, d.Add(submitOf(apart, "new")))
	require.NoError(t, d.Place(&Capsule{ID: "new", Spec: apart}, Choice{Node: view.State().Node("n")}))
	next, err := s.With(d.Propose())
	require.NoError(t, err)
	require.True(t, next.Capsule("new").Waits)
}
