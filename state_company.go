package orbit

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit/internal/table"
)

// companyTables are the counts that a state keeps for the rules of company. A group is counted by a level only while a
// rule about both exists: a capsule that is not released for good, or remains, have the rule. So groups without rules
// cost nothing.
type companyTables struct {
	rules  table.Sorted[groupRules]
	counts table.Sorted[companyCount]
	// The scopes of the rules Even, and for each scope and domain the number of nodes, not Lost, that make the domain
	// eligible.
	scopes   table.Sorted[scopeUse]
	eligible table.Sorted[eligibleNodes]
	// The minimums of the rules Even that were judged last, so that not every arrival scans all domains. States share
	// the list: it is replaced, never written to.
	lows []*evenLow
}

// evenLow caches, for the rules Even with this group and scope that name no domains, the fewest members of an eligible
// domain (least) and how many domains have so few (ties). The domain that it names had the fewest when it was scanned,
// and may have more by now.
type evenLow struct {
	group string
	companyScope
	lowest
}

// mostLows is the maximum number of cached minimums in a state.
const mostLows = 16

// after returns the cached minimum as it is after a proposal that changes the count of a key by the given amount, while
// the tables still have the count before it. It returns nil if no domain with the minimum is left, because then only a
// scan of all domains finds the new one.
func (l *evenLow) after(c *companyTables, k companyKey, by int) *evenLow {
	if k.group != l.group || k.level != l.level || k.kind != membersPlaced {
		return l
	}
	if _, eligible := c.eligible.Get(eligibleNodes{companyScope: l.companyScope, domain: k.domain}); !eligible {
		return l
	}
	next, was := *l, c.in(k.in())[membersPlaced]
	next.ties -= btoi(was == l.least)
	switch now := was + by; {
	case now < l.least:
		next.least, next.ties = now, 1
	case now == l.least:
		next.ties++
	}
	if next.ties == 0 {
		return nil
	}
	return &next
}

// companyRule counts the capsules and remains that have a rule about a group by a level: a rule Apart (or an extra), a
// rule Even, and a rule Near.
type companyRule struct {
	group, level      string
	apart, even, near int
}

// ended reports whether nothing has the rule any more.
func (r *companyRule) ended() bool { return r.apart == 0 && r.even == 0 && r.near == 0 }

// groupRules are the rules about a group, ordered by level. The slice is replaced, never written to.
type groupRules struct {
	group   string
	byLevel []companyRule
}

// find returns the position of the rule by a level, or the position at which it would be inserted and false.
func (g *groupRules) find(level string) (int, bool) {
	return slices.BinarySearchFunc(g.byLevel, level, func(r companyRule, level string) int { return cmp.Compare(r.level, level) })
}

// companyCount has the counts of a group in one domain, by kind.
type companyCount struct {
	companyDomain
	of kindCounts
}

// scopeUse counts the capsules and remains that have a rule Even with this scope, and has what a node must meet.
type scopeUse struct {
	companyScope
	must  eligibility
	rules int
}

// eligibleNodes counts the nodes that make one domain eligible for a scope.
type eligibleNodes struct {
	companyScope
	domain string
	nodes  int
}

func (a eligibleNodes) less(b eligibleNodes) bool {
	if a.companyScope != b.companyScope {
		return a.companyScope.less(b.companyScope)
	}
	return a.domain < b.domain
}

// companyDegree is the degree of the B-trees. It is smaller than that of other tables, because each proposal that moves
// a member writes to copied nodes of the tree (copy-on-write), and small ones are cheaper to copy.
const companyDegree = 8

func newCompanyTables() companyTables {
	return companyTables{
		rules:    table.NewSorted(companyDegree, func(a, b groupRules) bool { return a.group < b.group }),
		counts:   table.NewSorted(companyDegree, func(a, b companyCount) bool { return a.less(b.companyDomain) }),
		scopes:   table.NewSorted(companyDegree, func(a, b scopeUse) bool { return a.less(b.companyScope) }),
		eligible: table.NewSorted(companyDegree, eligibleNodes.less),
	}
}

// clone returns copies of all tables, which share their contents copy-on-write. The cached minimums are left out.
func (c *companyTables) clone() companyTables {
	return companyTables{rules: c.rules.Clone(), counts: c.counts.Clone(), scopes: c.scopes.Clone(), eligible: c.eligible.Clone()}
}

// ownCompany returns copies of the tables that may be written to: of all of them, or of the counts alone. The cached
// minimums are left out. It locks the state's fork mutex, because cloning a B-tree writes to the original too.
func (s *State) ownCompany(all bool) companyTables {
	s.fork.Lock()
	defer s.fork.Unlock()
	if all {
		return s.company.clone()
	}
	own := s.company
	own.counts, own.lows = own.counts.Clone(), nil
	return own
}

// ruled calls yield with each level of a rule about the group.
func (c *companyTables) ruled(group string, yield func(level string)) {
	if c.rules.Len() == 0 {
		return
	}
	g, _ := c.rules.Get(groupRules{group: group})
	for i := range g.byLevel {
		yield(g.byLevel[i].level)
	}
}

// rule returns how many capsules and remains have a rule about the group by the level.
func (c *companyTables) rule(group, level string) companyRule {
	g, _ := c.rules.Get(groupRules{group: group})
	if i, ok := g.find(level); ok {
		return g.byLevel[i]
	}
	return companyRule{group: group, level: level}
}

// in returns the counts of a domain; all are zero if the group is not counted by its level.
func (c *companyTables) in(d companyDomain) kindCounts {
	n, _ := c.counts.Get(companyCount{companyDomain: d})
	return n.of
}

// add changes the count of a key, and drops the record of a domain in which nothing is counted any more.
func (c *companyTables) add(k companyKey, by int) {
	n, _ := c.counts.Get(companyCount{companyDomain: k.in()})
	n.companyDomain = k.in()
	if n.of[k.kind] += by; n.of == (kindCounts{}) {
		c.counts.Delete(n)
		return
	}
	c.counts.ReplaceOrInsert(n)
}

// forget drops the counts of a group by a level about which no rule is left.
func (c *companyTables) forget(group, level string) {
	var gone []companyCount
	c.counts.AscendGreaterOrEqual(companyCount{companyDomain: companyDomain{group: group, level: level}}, func(n companyCount) bool {
		if n.group == group && n.level == level {
			gone = append(gone, n)
		}
		return n.group == group && n.level == level
	})
	for _, n := range gone {
		c.counts.Delete(n)
	}
}

// forgetScope drops the eligible domains of a scope that no rule has any more.
func (c *companyTables) forgetScope(scope companyScope) {
	var gone []eligibleNodes
	c.eligible.AscendGreaterOrEqual(eligibleNodes{companyScope: scope}, func(n eligibleNodes) bool {
		if n.companyScope == scope {
			gone = append(gone, n)
		}
		return n.companyScope == scope
	})
	for _, n := range gone {
		c.eligible.Delete(n)
	}
}

// members yields each domain of a level in which members of the group are placed, with their number, in the order of
// the domains. It yields nothing if the group is not counted by that level.
func (c *companyTables) members(group, level string, yield func(domain string, count int) bool) {
	c.counts.AscendGreaterOrEqual(companyCount{companyDomain: companyDomain{group: group, level: level}}, func(n companyCount) bool {
		return n.group == group && n.level == level && (n.of[membersPlaced] == 0 || yield(n.domain, n.of[membersPlaced]))
	})
}

// survey counts the members of a group by a level about which there was no rule before. It reads the nodes on which
// members are placed, and all nodes for remains.
func (s *State) survey(group, level string, yield func(k companyKey, count int)) {
	for n, count := range s.GroupNodes(group) {
		if d := n.Node.domain(level); d != "" {
			yield(companyKey{group, level, membersPlaced, d}, count)
		}
	}
	for i := range s.NodeBound() {
		n := s.NodeByIndex(i)
		if n == nil || n.remains == nil || n.Node.domain(level) == "" {
			continue
		}
		for _, r := range *n.remains {
			if r.Spec.IsIn(group) {
				yield(companyKey{group, level, membersStopping, n.Node.domain(level)}, 1)
			}
		}
	}
}

// begin counts the rules of a spec for more capsules, and surveys each group that was not counted by a rule's level
// before. It calls surveyed with each count that a survey finds.
func (c *companyTables) begin(s *State, spec *Spec, more int, surveyed func(k companyKey, count int)) {
	begin := func(group, level string) {
		if r := c.rule(group, level); r.ended() {
			s.survey(group, level, func(k companyKey, count int) {
				c.add(k, count)
				surveyed(k, count)
			})
		}
	}
	for _, a := range spec.Apart {
		begin(a.Group, a.Level)
		c.addRule(companyRule{group: a.Group, level: a.Level, apart: more})
	}
	spec.nearCounts(func(group, level string) {
		begin(group, level)
		c.addRule(companyRule{group: group, level: level, near: more})
	})
	for i := range spec.Even {
		e := &spec.Even[i]
		begin(e.Group, e.Level)
		scope := spec.scope(e)
		if u, _ := c.scopes.Get(scopeUse{companyScope: scope}); u.rules == 0 {
			s.surveyScope(scope, spec.eligibility(e), func(domain string) { c.addEligible(scope, domain, 1) })
		}
		c.addEven(spec, e, more)
	}
	c.addRules(&Spec{Extras: spec.Extras}, more) // no survey: whatever takes an extra counts as a rule about it
}

// surveyScope calls yield with the domain of each node that makes a domain eligible for a scope which no rule had
// before.
func (s *State) surveyScope(scope companyScope, must eligibility, yield func(domain string)) {
	for i := range s.NodeBound() {
		if n := s.NodeByIndex(i); n != nil {
			if d := n.Node.eligibleIn(scope.level, must); d != "" {
				yield(d)
			}
		}
	}
}

// addEligible changes the number of nodes that make a domain eligible.
func (c *companyTables) addEligible(scope companyScope, domain string, by int) {
	e, _ := c.eligible.Get(eligibleNodes{companyScope: scope, domain: domain})
	e.companyScope, e.domain = scope, domain
	if e.nodes += by; e.nodes == 0 {
		c.eligible.Delete(e)
		return
	}
	c.eligible.ReplaceOrInsert(e)
}

// fewest scans for the eligible domain with the fewest placed members, by the counts that in returns.
func (c *companyTables) fewest(e *Even, scope companyScope, in func(companyDomain) kindCounts) (low lowest) {
	look := func(domain string) {
		switch n := in(companyDomain{e.Group, e.Level, domain})[membersPlaced]; {
		case low.domains == 0 || n < low.least:
			low.domain, low.least, low.ties = domain, n, 1
		case n == low.least:
			low.ties++
		}
		low.domains++
	}
	if len(e.Domains) > 0 {
		for _, domain := range e.Domains {
			if _, ok := c.eligible.Get(eligibleNodes{companyScope: scope, domain: domain}); ok {
				look(domain)
			}
		}
		return low
	}
	c.eligible.AscendGreaterOrEqual(eligibleNodes{companyScope: scope}, func(n eligibleNodes) bool {
		if n.companyScope != scope {
			return false
		}
		look(n.domain)
		return true
	})
	return low
}

// addRules changes the number of capsules and remains that have the rules of the spec. It neither surveys a group for
// its first rule nor drops the counts after its last: begin and endRules do.
func (c *companyTables) addRules(spec *Spec, by int) {
	for _, a := range spec.Apart {
		c.addRule(companyRule{group: a.Group, level: a.Level, apart: by})
	}
	for i := range spec.Extras {
		c.addRule(companyRule{group: extraGroup(spec.Extras[i].Name), level: NodeKey, apart: by})
	}
	spec.nearCounts(func(group, level string) { c.addRule(companyRule{group: group, level: level, near: by}) })
	for i := range spec.Even {
		c.addEven(spec, &spec.Even[i], by)
	}
}

// addRule adds to the numbers of capsules and remains that have a rule about a group by a level.
func (c *companyTables) addRule(more companyRule) {
	g, _ := c.rules.Get(groupRules{group: more.group})
	g.group, g.byLevel = more.group, slices.Clone(g.byLevel)
	i, ok := g.find(more.level)
	if !ok {
		g.byLevel = slices.Insert(g.byLevel, i, companyRule{group: more.group, level: more.level})
	}
	r := &g.byLevel[i]
	r.apart, r.even, r.near = r.apart+more.apart, r.even+more.even, r.near+more.near
	if r.ended() {
		g.byLevel = slices.Delete(g.byLevel, i, i+1)
	}
	if len(g.byLevel) == 0 {
		c.rules.Delete(g)
		return
	}
	c.rules.ReplaceOrInsert(g)
}

// addEven changes the number of capsules and remains that have a rule Even of a spec.
func (c *companyTables) addEven(spec *Spec, e *Even, by int) {
	c.addRule(companyRule{group: e.Group, level: e.Level, even: by})
	u, _ := c.scopes.Get(scopeUse{companyScope: spec.scope(e)})
	u.companyScope, u.must = spec.scope(e), spec.eligibility(e)
	if u.rules += by; u.rules == 0 {
		c.scopes.Delete(u)
	} else {
		c.scopes.ReplaceOrInsert(u)
	}
}

// tableCounts adapts companyTables to companyCounts, for arrivals that are judged on a state or on a copy of its
// tables.
type tableCounts struct{ *companyTables }

func (c tableCounts) before(companyKey) int { return 0 }
func (c tableCounts) fewest(e *Even, scope companyScope, _ bool) lowest {
	return c.companyTables.fewest(e, scope, c.in)
}

// From here on the file has the queries of a state about the rules of company.

// verdicts tells which domains the rules of company close to a spec, and caches the answers.
type verdicts struct {
	spec   *Spec
	levels []string
	// A level has domains other than single nodes, or a rule compares the node with others: a rule Even, or a rule Near of
	// which the spec may be the first member.
	wide bool
	at   companyCounts
	// known: why a domain (level and name) is closed; empty: it is open. lowest: for each rule Even the domain with the
	// fewest members.
	known  map[[2]string]string
	lowest map[*Even]lowest
	// For each level, how often one of its domains may have opened.
	opened map[string]uint64
}

// The methods of companyCounts. They read from v.at; fewest scans once for each rule and caches the result.
func (v *verdicts) ruled(group string, yield func(string)) { v.at.ruled(group, yield) }
func (v *verdicts) in(d companyDomain) kindCounts          { return v.at.in(d) }
func (v *verdicts) before(k companyKey) int                { return v.at.before(k) }
func (v *verdicts) fewest(e *Even, scope companyScope, named bool) lowest {
	l, known := v.lowest[e]
	if !known || named {
		l = v.at.fewest(e, scope, named)
		if v.lowest == nil {
			v.lowest = map[*Even]lowest{}
		}
		v.lowest[e] = l
	}
	return l
}

// why returns the reason why the domain of a node by a level is closed, as a text that completes "nodes ..."; empty: it
// is open.
func (v *verdicts) why(level string, n *Node) string {
	key := [2]string{level, n.domain(level)}
	if level != NodeKey {
		if why, known := v.known[key]; known {
			return why
		}
	}
	why := ""
	if r := (&arrival{spec: v.spec, node: n, only: level, brief: true}).fault(v); r != nil {
		why = r.advice
	}
	if level != NodeKey {
		if v.known == nil {
			v.known = map[[2]string]string{}
		}
		v.known[key] = why
	}
	return why
}

// misfit returns the reason why the rules close a node to the spec; the zero value: they do not. It accepts nil
// verdicts, which close nothing.
func (v *verdicts) misfit(n *NodeState) Misfit {
	if v != nil {
		for _, level := range v.levels {
			if why := v.why(level, n.Node); why != "" {
				return Misfit{Why: why}
			}
		}
	}
	return Misfit{}
}

// update drops the cached answers that a change of the count of key k outdates. By is 1 or -1.
func (v *verdicts) update(k companyKey, by int) {
	delete(v.known, [2]string{k.level, k.domain})
	opens := by < 0 || v.nears(k)
	for i := range v.spec.Even {
		e := &v.spec.Even[i]
		l, known := v.lowest[e]
		if !known || e.Group != k.group || e.Level != k.level || k.kind != membersPlaced {
			continue
		}
		if by == 1 && v.at.in(k.in())[k.kind] > l.least+1 { // the domain was not among the fewest before
			continue
		}
		if l.ties--; by == 1 && l.ties > 0 {
			v.lowest[e] = l
			continue
		}
		delete(v.lowest, e)
		clear(v.known)
		opens = true
	}
	if opens {
		v.opened[strings.TrimPrefix(k.level, anyDomainOf(""))]++
	}
}

// nears reports whether a change of a count of members concerns a rule Near of the spec. If it decides whether there is a
// first member in any domain of the level, all domains of the level are outdated.
func (v *verdicts) nears(k companyKey) (concerned bool) {
	if k.kind != membersPlaced {
		return false
	}
	for near, planned := range v.spec.nears {
		if planned || near.Group != k.group {
			continue
		}
		if k.level == anyDomainOf(near.Level) {
			clear(v.known)
			return true
		}
		concerned = concerned || k.level == near.Level
	}
	return concerned
}

// snapshot returns a copy of the verdicts that later steps of the draft do not change, for a NoFit that is read later.
// Nil for nil.
func (v *verdicts) snapshot(d *Draft) *verdicts {
	if v == nil {
		return nil
	}
	tables := d.rules.companyTables
	if d.rules.owned {
		tables = d.rules.clone()
	}
	return &verdicts{spec: v.spec, levels: v.levels, at: tableCounts{&tables}, known: maps.Clone(v.known)}
}

// verdictsOn returns the verdicts on a spec by the given counts. The rules of the spec must be counted in these tables.
// It returns nil if no rule concerns the spec.
func (c *companyTables) verdictsOn(spec *Spec, at companyCounts) *verdicts {
	v, levels := &verdicts{spec: spec, at: at}, map[string]bool{}
	for group := range spec.MemberOf {
		c.ruled(group, func(level string) { levels[level] = levels[level] || c.rule(group, level).apart > 0 })
	}
	for _, a := range spec.Apart {
		levels[a.Level] = true
	}
	levels[NodeKey] = levels[NodeKey] || len(spec.Extras) > 0
	for i := range spec.Even {
		levels[spec.Even[i].Level], v.wide = true, true
	}
	for near, planned := range spec.nears {
		if !planned {
			levels[near.Level], v.wide = true, true
		}
	}
	for level, matters := range levels {
		if matters {
			v.levels, v.wide = append(v.levels, level), v.wide || level != NodeKey
		}
	}
	slices.Sort(v.levels)
	if len(v.levels) == 0 {
		return nil
	}
	return v
}

// CompanyMisfit returns a function that tells why the rules of company close a node to capsules of the spec. The text
// completes "nodes ..."; empty: the node is open. CompanyMisfit returns nil if no rule concerns the spec. Only one goroutine
// at a time may call the function.
func (s *State) CompanyMisfit(spec *Spec) func(n *NodeState) string {
	if spec == nil || !spec.hasCompany() {
		return nil
	}
	tables := s.company
	if spec.hasRules() {
		tables = s.ownCompany(true)
		tables.begin(s, spec, 1, func(companyKey, int) {})
	}
	v := tables.verdictsOn(spec, tableCounts{&tables})
	if v == nil {
		return nil
	}
	return func(n *NodeState) string { return v.misfit(n).Why }
}

// Skewed yields each domain in which there are more members than a rule Even of a placed member allows. Departures,
// lost nodes, new domains and [Adopt] can leave a group so uneven. To repair it, move a member from such a domain to a
// domain with the fewest; the number of moves is least if the next member always comes from the domain that is furthest
// above its fewest. While there are fewer eligible domains than MinDomains, no move repairs it. Skewed reads the
// capsules on all nodes that have members of groups with rules Even.
func (s *State) Skewed() iter.Seq[Skew] {
	return s.uneven(func(spec *Spec, e Even, least int, yield func(Skew) bool) (on bool) {
		on = true
		s.company.members(e.Group, e.Level, func(domain string, count int) bool {
			if count > least+e.MaxSkew {
				on = yield(Skew{spec, e, domain, count, least})
			}
			return on
		})
		return on
	})
}

// Evens yields each rule Even of a placed member of its group, whether it is kept or broken, with the domain that has the most
// members. Domain is empty and Members 0 if no member is in a domain. If Members is more than Fewest + MaxSkew, Skewed
// yields that domain too. Evens costs as much as Skewed.
func (s *State) Evens() iter.Seq[Skew] {
	return s.uneven(func(spec *Spec, e Even, least int, yield func(Skew) bool) bool {
		most := Skew{Spec: spec, Even: e, Fewest: least}
		s.company.members(e.Group, e.Level, func(domain string, count int) bool {
			if count > most.Members {
				most.Domain, most.Members = domain, count
			}
			return true
		})
		return yield(most)
	})
}

// uneven calls look with each rule Even of a placed member of its group and the fewest members of its eligible domains, until look
// returns false.
func (s *State) uneven(look func(spec *Spec, e Even, least int, yield func(Skew) bool) bool) iter.Seq[Skew] {
	return func(yield func(Skew) bool) {
		for _, spec := range s.evenSpecs() {
			for _, e := range spec.Even {
				if !spec.IsIn(e.Group) {
					continue
				}
				low := s.company.fewest(&e, spec.scope(&e), s.company.in)
				if low.domains < e.MinDomains {
					low.least = 0
				}
				if !look(spec, e, low.least, yield) {
					return
				}
			}
		}
	}
}

// evenSpecs returns the specs of placed capsules that have rules Even about groups of their own, ordered by key, and
// perhaps some with other rules Even. It finds them on the nodes of the groups with such rules.
func (s *State) evenSpecs() (specs []*Spec) {
	seen, known := map[NodeID]bool{}, map[*Spec]bool{}
	s.company.rules.Ascend(func(g groupRules) bool {
		if !slices.ContainsFunc(g.byLevel, func(r companyRule) bool { return r.even > 0 }) {
			return true
		}
		for n := range s.GroupNodes(g.group) {
			if seen[n.Node.ID] {
				continue
			}
			seen[n.Node.ID] = true
			for c := range s.On(n.Node.ID) {
				if len(c.Spec.Even) > 0 && !known[c.Spec] {
					known[c.Spec] = true
					specs = append(specs, c.Spec)
				}
			}
		}
		return true
	})
	slices.SortFunc(specs, func(a, b *Spec) int { return cmp.Compare(a.key, b.key) })
	return specs
}

// Overcommitted yields the nodes on which more is taken of a resource, a device instance or an extra than the node has,
// ordered by id. This happens where [Adopt] has found more than fits, and where a node's capacity has shrunk.
// Overcommitted reads every node.
func (s *State) Overcommitted() iter.Seq[*NodeState] {
	return func(yield func(*NodeState) bool) {
		for n := range s.Nodes() {
			if (n.overcommitted() || s.lacksExtras(n)) && !yield(n) {
				return
			}
		}
	}
}

// ExtraFree returns how much of an extra ([Extra]) is free on a node: what the node has, less what the capsules placed
// there take, less what capsules take that have left the node and still run there. It is negative where more is taken
// than the node has.
func (s *State) ExtraFree(n *NodeState, name string) int64 {
	if n == nil || n.Node == nil {
		return 0
	}
	return s.company.extraFree(n.Node, name)
}

func (c *companyTables) extraFree(n *Node, name string) int64 {
	taken := c.in(companyDomain{extraGroup(name), NodeKey, string(n.ID)})
	return amountOf(n.Extras, name) - int64(taken[membersPlaced]) - int64(taken[membersStopping])
}

// lacksExtras reports whether the capsules placed on a node take more of an extra than the node has. It reads them only
// if some rule of company exists.
func (s *State) lacksExtras(n *NodeState) (over bool) {
	if n.Capsules == 0 || s.company.rules.Len() == 0 {
		return false
	}
	taken := map[string]int64{}
	for c := range s.On(n.Node.ID) {
		for _, x := range c.Spec.Extras {
			taken[x.Name] += x.Amount
		}
	}
	for name, amount := range taken {
		over = over || amount > amountOf(n.Node.Extras, name)
	}
	return over
}
