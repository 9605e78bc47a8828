package orbit

import (
	"slices"

	"github.com/orbitsched/orbit/internal/table"
)

// A rule Apart keeps a capsule and the members of a group out of each other's domains. A rule Even lets no domain have
// many more members of a group than another. A rule Near
// lets a capsule only where a member of a group is. An Extra is an amount of a named resource, of which the capsules on a node
// take no more than the node has. All are judged on the counts after the whole proposal.

// txCounts adapts a tx to companyCounts, so that an arrival is judged on the counts after the proposal.
type txCounts struct{ *tx }

func (t txCounts) ruled(group string, yield func(string)) { t.company.ruled(group, yield) }

func (t txCounts) in(d companyDomain) kindCounts { return t.company.in(d) }

func (t txCounts) before(k companyKey) int { return t.company.before(t.tx, k) }

func (t txCounts) fewest(e *Even, scope companyScope, named bool) lowest {
	c := &t.company
	if !named && len(e.Domains) == 0 {
		for _, l := range c.lows {
			if l.group == e.Group && l.companyScope == scope {
				return l.lowest
			}
		}
	}
	low := c.fewest(e, scope, c.in)
	if !named {
		c.remember(e, scope, low)
	}
	return low
}

// judgeCompany judges all placements of the proposal by the rules of company, and the extras of capsules that grow. It
// judges them on the state after the proposal, so several placements are judged together. It judges neither adopted
// capsules nor those that get into other groups where they are ([Respec]).
func (t *tx) judgeCompany() error {
	if !t.countCompany() {
		return nil
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.grows != nil {
			if r := t.growthFault(e); r != nil {
				return t.refuseCompany(e, r)
			}
		}
		if !e.dirty || !e.arrives || e.adopted || !e.now.Placed() || !e.now.Spec.hasCompany() {
			continue
		}
		a := arrival{spec: e.now.Spec, node: t.nodeAfter(e), counted: true, awaits: t.awaits(e), nodeOf: t.describes}
		if r := a.fault(txCounts{t}); r != nil {
			return t.refuseCompany(e, r)
		}
	}
	return nil
}

// growthFault judges the extras of which a placed capsule takes more. They are in use at once, so it waits for no remains.
func (t *tx) growthFault(e *txCapsule) *Rejection {
	a := arrival{spec: e.now.Spec, node: t.nodeAfter(e), counted: true, nodeOf: t.describes}
	for _, x := range e.grows.Extras {
		x.Amount = amountOf(e.now.Spec.Extras, x.Name)
		if r := a.extraFault(txCounts{t}, &x); r != nil {
			return r
		}
	}
	return nil
}

// awaits returns the remains that end before a placed capsule begins: those of the capsule itself and, if it was placed
// to wait, those on its node. The rules do not count them against the capsule.
func (t *tx) awaits(e *txCapsule) (out []*Remains) {
	if e.now.Remains() != nil {
		out = append(out, e.now.Remains())
	}
	if s := e.now.Surge(); s != nil { // it runs beside the placement, and is the capsule itself
		out = append(out, s)
	}
	if e.now.Waits {
		for r := range t.nodes.find(e.now.Node).now.leaving {
			if r.Capsule != e.now.ID {
				out = append(out, r)
			}
		}
	}
	return out
}

// refuseCompany refuses a proposal because one of its placements breaks a rule of company. The tables do not record
// which of the counted capsules came last, so the refusal is a conflict if anything at all was committed after the
// proposal's view. An extra depends on the node alone, so there the refusal is a conflict only if the node, or a spec
// that asks for room on it, has changed.
func (t *tx) refuseCompany(e *txCapsule, fault *Rejection) error {
	t.at = slices.IndexFunc(t.p.Do, func(c Commitment) bool {
		_, places := c.(Place)
		_, respecs := c.(Respec)
		return (places || respecs) && c.subject() == e.now.ID
	})
	r := *fault
	newest := t.s.rev
	r.Capsule, r.advice = e.now.ID, "choose another domain, or wait until others have left"
	if r.Want == 0 {
		r.advice = "choose another domain"
	}
	if r.Dimension != "" {
		n := t.nodes.find(e.now.Node)
		newest, r.advice = max(n.newest(), n.asks), "choose another node, or wait until others have left"
	}
	reason := t.s.evenReason(&r, e.now.Spec, t.places)
	return t.refuse(r, newest, "capsule %q on node %q: %s", e.now.ID, e.now.Node, reason)
}

// countCompany computes the counts of the rules of company after the proposal, once. It reports whether the proposal
// may change a count or a rule; if not, the rules of company have nothing to judge. The order matters: rules that begin
// are counted before the moves, and rules that end after them, so that each move is counted under every rule that holds
// before or after.
func (t *tx) countCompany() bool {
	c := &t.company
	if c.known {
		return c.differs
	}
	c.known, c.companyTables = true, t.s.company
	if !t.changesCompany() {
		return false
	}
	all := false
	t.rulesChange(func(*Spec, int) { all = true })
	for i := range t.nodes.entries {
		all = all || t.nodes.entries[i].redescribed()
	}
	c.differs = true
	if all {
		c.own(t.s, true)
	}
	t.rulesChange(func(spec *Spec, by int) {
		if by > 0 {
			t.beginRules(spec, by)
		}
	})
	t.companyChange(c.ruled, func(k companyKey, by int) { c.move(t.s, k, by) })
	t.countEligible()
	t.rulesChange(func(spec *Spec, by int) {
		if by < 0 {
			t.endRules(spec, -by)
		}
	})
	c.settleLows()
	return true
}

// changesCompany reports whether the proposal may change a count, or a rule of company.
func (t *tx) changesCompany() bool {
	rules := t.s.company.rules.Len() > 0
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.dirty && (e.now.Spec.hasRules() || rules && (e.now.Spec.hasCompany() || e.was != nil && e.was.Spec.hasCompany())) {
			return true
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if rules && (e.stops || e.redescribed()) || e.stops && slices.ContainsFunc(e.remainsAfter(), func(r *Remains) bool { return r.Spec.hasRules() }) {
			return true
		}
	}
	return false
}

// rulesChange calls yield with each spec that has rules, and with the number of capsules and remains by which more have
// it after the proposal than before; negative if fewer do. Consecutive changes of one spec in one direction are summed
// up in one call, so yield may be called more than once for a spec.
func (t *tx) rulesChange(yield func(spec *Spec, by int)) {
	var last *Spec
	sum := 0
	note := func(spec *Spec, by int) {
		if spec == nil || !spec.hasRules() {
			return
		}
		if spec != last || (by > 0) != (sum > 0) {
			if last != nil {
				yield(last, sum)
			}
			last, sum = spec, 0
		}
		sum += by
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.dirty {
			continue
		}
		if was, now := e.was.alive(), e.alive(); was != now && (was == nil || now == nil || !was.sameRules(now)) {
			note(was, -1)
			note(now, 1)
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		was, now := e.remainsBefore(), e.remainsAfter()
		for _, r := range was {
			if !slices.Contains(now, r) {
				note(r.Spec, -1)
			}
		}
		for _, r := range now {
			if !slices.Contains(was, r) {
				note(r.Spec, 1)
			}
		}
	}
	if last != nil {
		yield(last, sum)
	}
}

// beginRules counts the rules of a spec for more capsules. For each group and level that no rule has counted before, it
// surveys the state and begins to count.
func (t *tx) beginRules(spec *Spec, more int) {
	c := &t.company
	c.begin(t.s, spec, more, func(k companyKey, count int) {
		if c.surveyed == nil {
			c.surveyed = map[companyKey]int{}
		}
		c.surveyed[k] += count
	})
}

// endRules counts the rules of a spec for fewer capsules, and drops the counts that no rule needs any more.
func (t *tx) endRules(spec *Spec, fewer int) {
	c := &t.company
	c.addRules(spec, -fewer)
	end := func(group, level string) {
		if r := c.rule(group, level); r.ended() {
			c.forget(group, level)
		}
	}
	for _, a := range spec.Apart {
		end(a.Group, a.Level)
	}
	spec.nearCounts(end)
	for i := range spec.Even {
		e := &spec.Even[i]
		end(e.Group, e.Level)
		if u, _ := c.scopes.Get(scopeUse{companyScope: spec.scope(e)}); u.rules == 0 {
			c.forgetScope(spec.scope(e))
		}
	}
}

// companyChange calls add with each key whose count the proposal changes, and the difference. A key may come more than
// once.
func (t *tx) companyChange(ruled func(string, func(string)), add func(companyKey, int)) {
	count := func(spec *Spec, n *Node, kind companyKind, by int) {
		spec.companyOf(n, kind, ruled, func(k companyKey, n int) { add(k, by*n) })
	}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.dirty {
			continue
		}
		was, now := t.nodeBefore(e), t.nodeAfter(e)
		if was == now && (now == nil || e.was.Spec == e.now.Spec) {
			continue
		}
		if was != nil {
			count(e.was.Spec, was, 0, -1)
		}
		if now != nil {
			count(e.now.Spec, now, 0, 1)
		}
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if !e.stops && !e.redescribed() {
			continue
		}
		for _, r := range e.remainsBefore() {
			count(r.Spec, e.was.Node, stopping, -1)
		}
		for _, r := range e.remainsAfter() {
			count(r.Spec, e.now.Node, stopping, 1)
		}
		if e.was == nil || e.gone || !e.redescribed() {
			continue
		}
		for c := range t.s.On(e.now.Node.ID) {
			if x := t.capsules.find(c.ID); x == nil || !x.dirty {
				count(c.Spec, e.was.Node, 0, -1)
				count(c.Spec, e.now.Node, 0, 1)
			}
		}
	}
}

// nodeBefore returns the description of the node on which a capsule was placed before the proposal; nil: on none.
func (t *tx) nodeBefore(e *txCapsule) *Node {
	if e.was == nil || !e.was.Placed() {
		return nil
	}
	return t.s.Node(e.was.Node).Node
}

// nodeAfter returns the description of the node on which a capsule is placed after the proposal; nil: on none.
func (t *tx) nodeAfter(e *txCapsule) *Node {
	if !e.now.Placed() {
		return nil
	}
	return t.describes(e.now.Node)
}

// describes returns the description of a node after the proposal, nil if there is no such node.
func (t *tx) describes(id NodeID) *Node {
	if n := t.nodes.find(id); n != nil {
		if n.gone {
			return nil
		}
		return n.now.Node
	}
	if n := t.s.Node(id); n != nil {
		return n.Node
	}
	return nil
}

// countEligible updates how many nodes make each domain eligible, for the nodes that the proposal adds, removes or
// describes anew.
func (t *tx) countEligible() {
	c := &t.company
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if !e.redescribed() {
			continue
		}
		c.scopes.Ascend(func(u scopeUse) bool {
			var was, now string
			if e.was != nil {
				was = e.was.Node.eligibleIn(u.level, u.must)
			}
			if !e.gone {
				now = e.now.Node.eligibleIn(u.level, u.must)
			}
			if was != now && was != "" {
				c.addEligible(u.companyScope, was, -1)
			}
			if was != now && now != "" {
				c.addEligible(u.companyScope, now, 1)
			}
			return true
		})
	}
}

// settleLows brings the cached minimums (lows) from the state before the proposal to the state after it, and drops
// those that are no longer known. It requires that all moves are counted.
func (c *txCompany) settleLows() {
	own := false
	for i, l := range c.lows {
		next := l
		for m := 0; m < len(c.moved) && next != nil; m++ {
			next = next.after(&c.companyTables, c.moved[m].key, c.moved[m].by)
		}
		if next == l {
			continue
		}
		if !own {
			c.lows, own = slices.Clone(c.lows), true
		}
		c.lows[i] = next
	}
	if own {
		c.lows = slices.DeleteFunc(c.lows, func(l *evenLow) bool { return l == nil })
	}
}

// remember caches the result of a scan for the eligible domain with the fewest members. It does not if the rule names
// its domains, because the cache is for all eligible domains; or if there are at most fewDomains, because a new scan is
// cheap. A full cache drops its oldest entry.
func (c *txCompany) remember(e *Even, scope companyScope, low lowest) {
	if len(e.Domains) > 0 || low.domains <= fewDomains {
		return
	}
	from := max(0, len(c.lows)-mostLows+1)
	c.lows = append(slices.Clone(c.lows[from:]), &evenLow{e.Group, scope, low})
}

// txCompany has the counts of the rules of company after a proposal. A proposal with few moves keeps them as
// differences to the tables of the state; others, and those that change rules or nodes, work on tables of their own,
// copied on write.
type txCompany struct {
	// The tables of the state before the proposal or, if owned is true, the proposal's own tables with the counts after
	// it. The field lows holds the minimums after the proposal in either case.
	companyTables
	owned bool
	// The differences of the counts to those in the tables; few, because each lookup scans all of them.
	moved []companyMoved
	// known: countCompany has run. differs: its result, true if the proposal may change a count or a rule.
	known, differs bool
	// The counts before the proposal of keys that no rule counted before it.
	surveyed map[companyKey]int
}

// in returns the counts of a domain after the proposal.
func (c *txCompany) in(d companyDomain) kindCounts {
	counts := c.companyTables.in(d)
	for i := range c.moved {
		if m := &c.moved[i]; m.key.in() == d {
			counts[m.key.kind] += m.by
		}
	}
	return counts
}

// move changes the count of a key: in the list of differences or, once that is full, in tables of the proposal's own.
func (c *txCompany) move(s *State, k companyKey, by int) {
	i := slices.IndexFunc(c.moved, func(m companyMoved) bool { return m.key == k })
	switch {
	case c.owned:
		c.add(k, by)
	case i >= 0:
		c.moved[i].by += by
	case len(c.moved) < mostMoved:
		c.moved = append(c.moved, companyMoved{k, by})
	default:
		c.own(s, false)
		c.add(k, by)
	}
}

// own gives the proposal tables that it may write to, copies of all tables of the state (all) or only of the counts,
// and applies the differences collected so far to them.
func (c *txCompany) own(s *State, all bool) {
	c.owned, c.companyTables = true, s.ownCompany(all)
	for _, m := range c.moved {
		c.add(m.key, m.by)
	}
	c.moved = c.moved[:0]
}

// before returns the count of a key before the proposal.
func (c *txCompany) before(t *tx, k companyKey) int {
	if n, ok := c.surveyed[k]; ok {
		return n
	}
	return t.s.company.in(k.in())[k.kind]
}

// fewDomains is the number of eligible domains up to which a scan for the minimum is faster than keeping the minimum up
// to date. Tests change it.
var fewDomains = 8

// companyMove adds a capsule of the spec to a node's counts, or takes one off. Kind says whether the capsule is placed
// there or still stops there; by is 1 or -1.
type companyMove struct {
	spec *Spec
	node *Node
	kind companyKind
	by   int
}

// hedgeExtras lets what a proposal frees of an extra on a node beyond what it takes there be taken still, by a capsule that there is
// not.
func (p *planSum) hedgeExtras() {
	for _, m := range p.moves {
		for x := 0; m.by < 0 && x < len(m.spec.Extras); x++ {
			name := m.spec.Extras[x].Name
			if freed := p.freed(m.node, name); freed > 0 {
				p.moves = append(p.moves, companyMove{&Spec{Extras: []Extra{{name, 1}}}, m.node, 0, freed})
			}
		}
	}
}

// freed returns how much less of an extra placed capsules take on a node after all moves.
func (p *planSum) freed(n *Node, name string) (freed int) {
	for _, m := range p.moves {
		if m.node.ID == n.ID && m.kind != stopping {
			freed -= m.by * int(amountOf(m.spec.Extras, name))
		}
	}
	return freed
}

// companyMoved is the difference by which a proposal changes the count of a key.
type companyMoved struct {
	key companyKey
	by  int
}

// mostMoved is the maximum number of keys whose counts a proposal changes without tables of its own. A placement
// changes one or two for each rule about its groups. Tests change it.
var mostMoved = 16

// redescribed reports whether the proposal lets the node join or leave, or replaces its description.
func (n *txNode) redescribed() bool {
	return n.dirty && (n.was == nil || n.gone || n.was.Node != n.now.Node)
}

// remainsBefore and restsAfter return the remains on a node before and after the proposal.
func (n *txNode) remainsBefore() []*Remains {
	if n.was == nil || n.was.remains == nil {
		return nil
	}
	return *n.was.remains
}

func (n *txNode) remainsAfter() []*Remains {
	if n.gone || n.now.remains == nil {
		return nil
	}
	return *n.now.remains
}

// publishCompany writes the counts after the proposal to the state. It requires that nothing else of the proposal is
// published yet, because counting reads the state before the proposal.
func (s *State) publishCompany(t *tx) {
	c := &t.company
	if !t.countCompany() {
		return
	}
	if c.owned {
		s.company = c.companyTables
	}
	for _, m := range c.moved {
		s.company.add(m.key, m.by)
	}
	s.company.lows = c.lows
}

// company compares the counts by which the rules of company are judged with a recount.
func (v *verifier) company() {
	want := newCompanyTables()
	add := func(spec *Spec) { want.addRules(spec, 1) }
	for c := range v.s.Capsules() {
		if !c.released {
			add(c.Spec)
		}
	}
	for n := range v.s.Nodes() {
		for r := range v.s.Remains(n.Node.ID) {
			add(r.Spec)
		}
	}
	ruled, count := want.ruled, want.add // made once, because each allocates
	for slot, c := range v.s.capsuleSlots() {
		if n := v.s.NodeByIndex(int(v.s.capsules.At(slot).node)); c.Placed() && n != nil {
			c.Spec.companyOf(n.Node, 0, ruled, count)
		}
	}
	for n := range v.s.Nodes() {
		for r := range v.s.Remains(n.Node.ID) {
			r.Spec.companyOf(n.Node, stopping, ruled, count)
		}
	}
	want.scopes.Ascend(func(u scopeUse) bool {
		v.s.surveyScope(u.companyScope, u.must, func(domain string) { want.addEligible(u.companyScope, domain, 1) })
		return true
	})
	have := &v.s.company
	if !sameTable(have.rules, want.rules, func(a, b groupRules) bool { return slices.Equal(a.byLevel, b.byLevel) }) ||
		!sameTable(have.counts, want.counts, func(a, b companyCount) bool { return a == b }) {
		v.fail("what rules Apart and Even count, or what is counted of extras, differs from the recount")
	}
	if !sameTable(have.eligible, want.eligible, func(a, b eligibleNodes) bool { return a == b }) ||
		!sameTable(have.scopes, want.scopes, func(a, b scopeUse) bool { return a.companyScope == b.companyScope && a.rules == b.rules }) {
		v.fail("the domains that rules Even count as eligible are not those that there are")
	}
	for _, l := range have.lows {
		if low := have.fewest(&Even{Group: l.group, Level: l.level}, l.companyScope, have.in); low.least != l.least || low.ties != l.ties || low.domains != l.domains {
			v.fail("group %q by %q: a scan finds that %d of %d domains have the fewest members, %d; the cache says %d of %d, with %d", l.group, l.level, low.ties, low.domains, low.least, l.ties, l.domains, l.least)
		}
	}
}

// sameTable reports whether two tables have equal entries.
func sameTable[T any](a, b table.Sorted[T], same func(a, b T) bool) bool {
	if a.Len() != b.Len() {
		return false
	}
	equal := true
	a.Ascend(func(x T) bool {
		y, ok := b.Get(x)
		equal = ok && same(x, y)
		return equal
	})
	return equal
}
