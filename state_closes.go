package orbit

import "slices"

// This file says which domains the rules of company close to a spec.

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
func (v *verdicts) count(k companyKey) int                 { return v.at.count(k) }
func (v *verdicts) before(k companyKey) int                { return v.at.before(k) }
func (v *verdicts) fewest(e *Even, scope companyScope) lowest {
	l, known := v.lowest[e]
	if !known {
		l = v.at.fewest(e, scope)
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
	if r := (&arrival{spec: v.spec, node: n, only: level}).fault(v); r != nil {
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
		tables.begin(s, spec, func(string, string) {}, func(companyKey, int) {})
	}
	v := tables.verdictsOn(spec, tableCounts{&tables})
	if v == nil {
		return nil
	}
	return func(n *NodeState) string { return v.misfit(n).Why }
}
