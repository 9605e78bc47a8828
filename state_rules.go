package orbit

import (
	"cmp"
	"iter"
	"slices"
)

// This file answers what is asked of a state about the rules of company.

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
