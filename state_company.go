package orbit

import (
	"cmp"
	"iter"
	"slices"

	"github.com/google/btree"
)

// companyTables are what a state keeps for the rules of company. A group is counted by the levels of the rules about it that some capsule
// has which has not been released for good, or that some remains have: other groups cost nothing.
type companyTables struct {
	rules  *btree.BTreeG[groupRules]
	counts *btree.BTreeG[companyCount]
	// What rules Even go by, and how many nodes that are not Lost make each domain eligible.
	scopes   *btree.BTreeG[scopeUse]
	eligible *btree.BTreeG[eligibleNodes]
	// The fewest members by the rules Even that were judged last, so that not every arrival looks through all domains. States share the list: it is
	// replaced, never written to.
	lows []*evenLow
}

// evenLow says how few members of a group an eligible domain has, and how many domains have so few, for rules Even that name no domains. Its domain may
// have more by now.
type evenLow struct {
	group string
	companyScope
	lowest
}

// mostLows is how many of them a state keeps.
const mostLows = 16

// after returns the record once a proposal counts so many more of a key than the tables do; nil if the last domain with so few has grown, because then the
// domains have to be looked through.
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

// companyRule says how many there are that have a rule about a group by a level.
type companyRule struct {
	group, level string
	apart, even  int
}

// groupRules are the rules about a group in the order of their levels. They are replaced, never written to.
type groupRules struct {
	group   string
	byLevel []companyRule
}

// find returns where the rule by a level is, or would be.
func (g *groupRules) find(level string) (int, bool) {
	return slices.BinarySearchFunc(g.byLevel, level, func(r companyRule, level string) int { return cmp.Compare(r.level, level) })
}

// companyCount says how many there are in a domain.
type companyCount struct {
	companyDomain
	of kindCounts
}

// scopeUse says how many rules Even go by a scope, and which requirements it has.
type scopeUse struct {
	companyScope
	require []Predicate
	rules   int
}

func (s companyScope) less(o companyScope) bool {
	return cmp.Or(cmp.Compare(s.level, o.level), cmp.Compare(s.require, o.require)) < 0
}

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

// companyDegree is smaller than that of other tables, because each proposal that moves a member writes to copies of its own.
const companyDegree = 8

func newCompanyTables() companyTables {
	return companyTables{
		rules:    btree.NewG(companyDegree, func(a, b groupRules) bool { return a.group < b.group }),
		counts:   btree.NewG(companyDegree, func(a, b companyCount) bool { return a.less(b.companyDomain) }),
		scopes:   btree.NewG(companyDegree, func(a, b scopeUse) bool { return a.less(b.companyScope) }),
		eligible: btree.NewG(companyDegree, eligibleNodes.less),
	}
}

func (c *companyTables) clone() companyTables {
	return companyTables{rules: c.rules.Clone(), counts: c.counts.Clone(), scopes: c.scopes.Clone(), eligible: c.eligible.Clone()}
}

// ownCompany returns tables that may be written to: all of them, or only the counts.
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

// rule returns how many there are that have a rule about the group by the level.
func (c *companyTables) rule(group, level string) companyRule {
	g, _ := c.rules.Get(groupRules{group: group})
	if i, ok := g.find(level); ok {
		return g.byLevel[i]
	}
	return companyRule{group: group, level: level}
}

// in returns how many there are in a domain, if the group is counted by its level.
func (c *companyTables) in(d companyDomain) kindCounts {
	n, _ := c.counts.Get(companyCount{companyDomain: d})
	return n.of
}

// add changes the count of a key.
func (c *companyTables) add(k companyKey, by int) {
	n, _ := c.counts.Get(companyCount{companyDomain: k.in()})
	n.companyDomain = k.in()
	if n.of[k.kind] += by; n.of == (kindCounts{}) {
		c.counts.Delete(n)
		return
	}
	c.counts.ReplaceOrInsert(n)
}

// forget drops the counts of a group by a level, about which there is no rule any more.
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

// forgetScope drops the domains that are eligible for a scope that no rule goes by any more.
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

// members yields the members of a group that are placed by the domains of a level, in their order, if the group is counted by that level.
func (c *companyTables) members(group, level string, yield func(domain string, count int) bool) {
	c.counts.AscendGreaterOrEqual(companyCount{companyDomain: companyDomain{group: group, level: level}}, func(n companyCount) bool {
		return n.group == group && n.level == level && (n.of[membersPlaced] == 0 || yield(n.domain, n.of[membersPlaced]))
	})
}

// companyOf calls yield with each key under which a capsule of the spec counts on a node, and how much: as placed there, or with stopping as one that
// still runs there.
func (s *Spec) companyOf(n *Node, kind companyKind, ruled func(group string, yield func(level string)), yield func(companyKey, int)) {
	for group := range s.MemberOf {
		ruled(group, func(level string) {
			if d := n.domain(level); d != "" {
				yield(companyKey{group, level, kind + membersPlaced, d}, 1)
			}
		})
	}
	for _, a := range s.Apart {
		if d := n.domain(a.Level); d != "" {
			yield(companyKey{a.Group, a.Level, kind + keepersPlaced, d}, 1)
		}
	}
	for i := range s.Extras {
		yield(companyKey{extraGroup(s.Extras[i].Name), NodeKey, kind + membersPlaced, string(n.ID)}, int(s.Extras[i].Amount))
	}
}

// survey counts the members of a group by a level, about which there was no rule. It looks at the nodes of all members, and at all nodes
// for remains.
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

// begin counts the rules of a spec for so many capsules more, and what the rules are about where that is not counted yet. It calls began for each rule about a group by a level
// of whose kind there was none, and surveyed with what there is at the state of a group that was not counted by that level.
func (c *companyTables) begin(s *State, spec *Spec, more int, began func(group, level string), surveyed func(k companyKey, count int)) {
	begin := func(group, level string, known bool) {
		if known {
			return
		}
		began(group, level)
		if r := c.rule(group, level); r.apart+r.even == 0 {
			s.survey(group, level, func(k companyKey, count int) {
				c.add(k, count)
				surveyed(k, count)
			})
		}
	}
	for i, a := range spec.Apart {
		begin(a.Group, a.Level, c.rule(a.Group, a.Level).apart > 0)
		c.addRules(&Spec{Apart: spec.Apart[i : i+1]}, more)
	}
	for i := range spec.Even {
		e := &spec.Even[i]
		begin(e.Group, e.Level, c.rule(e.Group, e.Level).even > 0)
		scope := spec.scope(e)
		if u, _ := c.scopes.Get(scopeUse{companyScope: scope}); u.rules == 0 {
			s.surveyScope(scope, spec.scopeRequire(e), func(domain string) { c.addEligible(scope, domain, 1) })
		}
		c.addRules(&Spec{Require: spec.Require, Even: spec.Even[i : i+1]}, more)
	}
	c.addRules(&Spec{Extras: spec.Extras}, more) // whoever takes an extra has a rule about it, so all are counted
}

// surveyScope counts the nodes that make domains eligible for a scope that no rule went by.
func (s *State) surveyScope(scope companyScope, require []Predicate, yield func(domain string)) {
	for i := range s.NodeBound() {
		if n := s.NodeByIndex(i); n != nil {
			if d := n.Node.eligibleIn(scope, require); d != "" {
				yield(d)
			}
		}
	}
}

// eligibleIn returns the domain that the node makes eligible for a scope, empty if it makes none.
func (n *Node) eligibleIn(scope companyScope, require []Predicate) string {
	if n.State == Lost || !n.meetsAll(require) {
		return ""
	}
	return n.domain(scope.level)
}

// addEligible changes how many nodes make a domain eligible.
func (c *companyTables) addEligible(scope companyScope, domain string, by int) {
	e, _ := c.eligible.Get(eligibleNodes{companyScope: scope, domain: domain})
	e.companyScope, e.domain = scope, domain
	if e.nodes += by; e.nodes == 0 {
		c.eligible.Delete(e)
		return
	}
	c.eligible.ReplaceOrInsert(e)
}

// scopeRequire returns the requirements of the scope of a rule of the spec.
func (s *Spec) scopeRequire(e *Even) []Predicate {
	if len(e.Domains) > 0 {
		return nil
	}
	return s.Require
}

// fewest looks for the eligible domain with the fewest members by counts.
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
		return low.domains <= maxEvenDomains
	})
	return low
}

// addRules changes how many have the rules of the spec. Of a group and a level of which it is the first, or was the last, counts are not added or
// dropped.
func (c *companyTables) addRules(spec *Spec, by int) {
	change := func(group, level string, apart, even int) {
		g, _ := c.rules.Get(groupRules{group: group})
		g.group, g.byLevel = group, slices.Clone(g.byLevel)
		i, ok := g.find(level)
		if !ok {
			g.byLevel = slices.Insert(g.byLevel, i, companyRule{group: group, level: level})
		}
		r := &g.byLevel[i]
		r.apart, r.even = r.apart+apart, r.even+even
		if r.apart == 0 && r.even == 0 {
			g.byLevel = slices.Delete(g.byLevel, i, i+1)
		}
		if len(g.byLevel) == 0 {
			c.rules.Delete(g)
			return
		}
		c.rules.ReplaceOrInsert(g)
	}
	for _, a := range spec.Apart {
		change(a.Group, a.Level, by, 0)
	}
	for i := range spec.Extras {
		change(extraGroup(spec.Extras[i].Name), NodeKey, by, 0)
	}
	for i := range spec.Even {
		e := &spec.Even[i]
		change(e.Group, e.Level, 0, by)
		u, _ := c.scopes.Get(scopeUse{companyScope: spec.scope(e)})
		u.companyScope, u.require = spec.scope(e), spec.scopeRequire(e)
		if u.rules += by; u.rules == 0 {
			c.scopes.Delete(u)
		} else {
			c.scopes.ReplaceOrInsert(u)
		}
	}
}

// tableCounts makes tables the counts that arrivals are judged by.
type tableCounts struct{ *companyTables }

func (c tableCounts) before(companyKey) int { return 0 }
func (c tableCounts) fewest(e *Even, scope companyScope, _ bool) lowest {
	return c.companyTables.fewest(e, scope, c.in)
}

// From here on the file answers what is asked of a state about the rules of company.

// verdicts says which domains the rules of company close to a spec.
type verdicts struct {
	spec   *Spec
	levels []string
	// Whose domains are not nodes, or depend on other nodes than the one that is asked about.
	wide bool
	at   companyCounts
	// Why each domain of a level is closed, empty: it is open; and the domains with the fewest members.
	known  map[[2]string]string
	lowest map[*Even]lowest
	// How often a domain of each level may have been opened.
	opened map[string]uint64
}

// Each counts as at does, and looks for the domain with the fewest once.
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

// why says why the domain of a node by a level is closed, completing "nodes ..."; empty: it is open.
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

// misfit says why a node is closed; the zero value: it is not.
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

// verdictsOn returns the verdicts on a spec by counts of these tables, in which its rules are counted; nil: no rule has to do with it.
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

// Closes returns a function that says why the rules of company close a node to capsules of the spec, completing "nodes ..."; empty: they do not. It is
// nil if no rule has to do with the spec. It is for one goroutine at a time.
func (s *State) Closes(spec *Spec) func(n *NodeState) string {
	if !spec.hasCompany() {
		return nil
	}
	tables := s.company
	if spec.hasRules() {
		tables = s.ownCompany(true)
		tables.begin(s, spec, 1, func(string, string) {}, func(companyKey, int) {})
	}
	v := tables.verdictsOn(spec, tableCounts{&tables})
	if v == nil {
		return nil
	}
	return func(n *NodeState) string { return v.misfit(n).Why }
}

// Skewed yields what departures, lost nodes, new domains and [Adopt] have left uneven: each domain in which there are more members than a
// rule Even of something placed admits. A move of a member from there to a domain with the fewest repairs it, in the fewest moves if the domain is taken first that
// has most above its fewest; while there are fewer domains than MinDomains no move does. It looks at what is on the nodes of groups with such rules.
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

// Evens yields each rule Even of something placed, kept or not, with the domain that has the most members; it is empty, and Members 0, if none is in a
// domain. If Members is more than Fewest + MaxSkew, Skewed yields that domain too. It costs what Skewed does.
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

// uneven calls look with each rule Even of something placed, and the fewest members of its domains, until that returns false.
func (s *State) uneven(look func(spec *Spec, e Even, least int, yield func(Skew) bool) bool) iter.Seq[Skew] {
	return func(yield func(Skew) bool) {
		for _, spec := range s.evenSpecs() {
			for _, e := range spec.Even {
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

// evenSpecs returns the specs with rules Even of which a capsule is placed, in order. Such a capsule is a member of the groups that its rules are about.
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

// Overcommitted yields the nodes on which more is taken of a resource, a device instance or an extra than there is of it, ordered by id: what
// [Adopt] has found there, and what capacity that has shrunk has left. It looks at every node.
func (s *State) Overcommitted() iter.Seq[*NodeState] {
	return func(yield func(*NodeState) bool) {
		for n := range s.Nodes() {
			if (n.overcommitted() || s.lacksExtras(n)) && !yield(n) {
				return
			}
		}
	}
}

// overcommitted reports whether more is taken than there is.
func (n *NodeState) overcommitted() bool {
	over := !n.used.Within(n.Node.Capacity)
	for i, used := range n.deviceUse() {
		room := int32(deviceMilli * btoi(i < n.Node.Devices.Count && !n.Node.Devices.Unhealthy.Has(i)))
		over = over || used > room
	}
	return over
}

// ExtraFree returns how much of an extra ([Extra]) a node has that nothing takes which is placed there, or has left and still runs there. It is negative where
// more is taken than the node has.
func (s *State) ExtraFree(n *NodeState, name string) int64 {
	taken := s.company.in(companyDomain{extraGroup(name), NodeKey, string(n.Node.ID)})
	return amountOf(n.Node.Extras, name) - int64(taken[membersPlaced]) - int64(taken[membersStopping])
}

// lacksExtras reports whether what is placed on a node takes more of an extra than the node has. It looks at what is there if anything has extras.
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
