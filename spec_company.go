package orbit

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
)

// This file has the rules of company of a spec ([Apart], [Even], [Extra]): their form, and in which groups and domains they count.

// companyFaults lists everything that is wrong with the rules of company in a spec; empty: they are valid.
func (s *Spec) companyFaults() (out []string) {
	if len(s.Apart) > maxRules || len(s.Even) > maxRules || len(s.PreferCompany) > maxRules {
		return []string{fmt.Sprintf("%d rules Apart, %d rules Even and %d wishes for company; there can be %d of each", len(s.Apart), len(s.Even), len(s.PreferCompany), maxRules)}
	}
	out = append(out, extraFaults(s.Extras, 1)...)
	for _, c := range s.PreferCompany {
		if c.Group == "" || c.Level == "" || !(math.Abs(c.Weight) <= maxWeight) { // NaN is not
			out = append(out, fmt.Sprintf("company of group %.100q by level %.100q with weight %v; it needs a group, a level, and a weight within ±%g", c.Group, c.Level, c.Weight, maxWeight))
		}
	}
	for _, a := range s.Apart {
		if a.Group == "" || a.Level == "" {
			out = append(out, fmt.Sprintf("apart from group %.100q by level %.100q; it needs both", a.Group, a.Level))
		}
	}
	for _, e := range s.Even {
		if e.Level == "" || e.Group == "" {
			out = append(out, fmt.Sprintf("even by level %.100q among group %.100q; it needs both", e.Level, e.Group))
		}
		if e.MaxSkew < 0 || e.MaxSkew > mostSkew || e.MinDomains < 0 || e.MinDomains > mostSkew || len(e.Domains) > maxEvenDomains || slices.Contains(e.Domains, "") {
			out = append(out, fmt.Sprintf("even among group %.100q with MaxSkew %d, MinDomains %d and %d domains; they must be from 0 to %d, %d and %d, and each domain have a name",
				e.Group, e.MaxSkew, e.MinDomains, len(e.Domains), mostSkew, mostSkew, maxEvenDomains))
		}
	}
	return out
}

// ownCompany replaces the rules of company in a copied spec by clones, so that the copy shares no memory with the
// caller's spec. The clones are in canonical form (sorted, with defaults filled in), so that equal specs have equal
// rules.
func (s *Spec) ownCompany() {
	s.Apart = slices.Clone(s.Apart)
	slices.SortFunc(s.Apart, func(a, b Apart) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level), btoi(b.Labelled)-btoi(a.Labelled))
	})
	s.Apart = slices.Clip(slices.CompactFunc(s.Apart, Apart.alike)) // of two alike the strict one stays
	s.Even = cloned(s.Even)
	for i := range s.Even {
		s.Even[i].MaxSkew = cmp.Or(s.Even[i].MaxSkew, 1)
		s.Even[i].Domains = sorted(s.Even[i].Domains)
	}
	slices.SortStableFunc(s.Even, func(a, b Even) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level)) })
	s.Extras = sortedExtras(s.Extras)
	s.PreferCompany = cloned(s.PreferCompany)
	slices.SortFunc(s.PreferCompany, func(a, b Company) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Weight, b.Weight))
	})
}

// companyWords returns all names of groups, levels, domains and extras in the rules of company.
func (s *Spec) companyWords() (out []string) {
	for _, a := range s.Apart {
		out = append(out, a.Group, a.Level)
	}
	for _, e := range s.Even {
		out = append(append(out, e.Group, e.Level), e.Domains...)
	}
	for _, r := range s.Nears {
		out = append(out, r.Group, r.Level)
	}
	for _, c := range s.PreferCompany {
		out = append(out, c.Group, c.Level)
	}
	for _, x := range s.Extras {
		out = append(out, x.Name)
	}
	return out
}

// groupsAs reports whether two specs are in the same groups and want to be near the same.
func (s *Spec) groupsAs(o *Spec) bool {
	return s == o || s.Group == o.Group && slices.Equal(s.Groups, o.Groups) && s.Near == o.Near && slices.Equal(s.Nears, o.Nears)
}

// hasCompany reports whether a rule of company can concern a capsule of this spec: either the spec has rules, or it is
// in a group that the rules of other capsules may name.
func (s *Spec) hasCompany() bool { return s.hasRules() || s.Group != "" || len(s.Groups) > 0 }

// hasRules reports whether a spec has rules of company. The extras that it takes count as rules.
func (s *Spec) hasRules() bool {
	return len(s.Apart) > 0 || len(s.Even) > 0 || len(s.Extras) > 0 || s.Near.Group != "" || len(s.Nears) > 0
}

// AllNear yields the co-locations that capsules of the spec require: Near and Nears.
func (s *Spec) AllNear(yield func(Near) bool) {
	for near := range s.nears {
		if !yield(near) {
			return
		}
	}
}

// nears yields the co-locations of the spec, and whether planners look up the domains of one by themselves: those of
// Near, if it is by a label ([Draft.NearDomains]).
func (s *Spec) nears(yield func(near Near, planned bool) bool) {
	if s.Near.Group != "" && !yield(s.Near, s.Near.Level != NodeKey) {
		return
	}
	for _, near := range s.Nears {
		if !yield(near, false) {
			return
		}
	}
}

// nearOthers yields, once, each group near which capsules of the spec have to be without being members.
func (s *Spec) nearOthers(yield func(group string) bool) {
	var known [maxGroups + 1]string
	n := 0
	for near := range s.AllNear {
		if s.IsIn(near.Group) || slices.Contains(known[:n], near.Group) {
			continue
		}
		known[n] = near.Group
		if n++; !yield(near.Group) {
			return
		}
	}
}

// nearCounts yields each group and level by which members are counted for the co-locations of the spec.
func (s *Spec) nearCounts(yield func(group, level string)) {
	for near := range s.AllNear {
		yield(near.Group, near.Level)
		if s.IsIn(near.Group) { // it may be the first member
			yield(near.Group, anyDomainOf(near.Level))
		}
	}
}

// sameNears reports whether two specs have the same co-locations, and for them the same counts.
func (s *Spec) sameNears(o *Spec) bool {
	return s.Near == o.Near && slices.Equal(s.Nears, o.Nears) &&
		!slices.ContainsFunc(append([]Near{s.Near}, s.Nears...), func(r Near) bool { return s.IsIn(r.Group) != o.IsIn(r.Group) })
}

// nearFirst chooses the co-location that is stored as Near: Near itself, or if that is the zero value, one of Nears. It
// returns the others sorted.
func (s *Spec) nearFirst() (first Near, others []Near) {
	others = cloned(s.Nears)
	if slices.ContainsFunc(others, Near.lacks) { // faults names it
		return s.Near, others
	}
	slices.SortFunc(others, func(a, b Near) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Level, b.Level)) })
	if first = s.Near; first.Group == "" {
		worth := func(r Near) int { return btoi(r.Level != NodeKey) * (1 + btoi(s.IsIn(r.Group))) }
		first = slices.MaxFunc(others, func(a, b Near) int { return cmp.Compare(worth(a), worth(b)) })
	}
	others = slices.DeleteFunc(slices.Compact(others), func(r Near) bool { return r == first })
	if len(others) == 0 {
		return first, nil
	}
	return first, slices.Clip(others)
}

// sameRules reports whether two specs have the same rules of company, and Even for the same nodes.
func (s *Spec) sameRules(o *Spec) bool {
	return s == o || slices.Equal(s.Apart, o.Apart) && slices.Equal(s.Extras, o.Extras) && s.sameNears(o) && reflect.DeepEqual(s.Even, o.Even) &&
		!slices.ContainsFunc(s.Even, func(e Even) bool { return s.scope(&e) != o.scope(&e) })
}

// scope returns the scope of a rule of the spec.
func (s *Spec) scope(e *Even) companyScope {
	scope := companyScope{level: e.Level}
	if s.selects(e) {
		scope.require = s.requirements()
	}
	if e.HonorTaints {
		scope.tolerate = s.tolerations()
	}
	return scope
}

// eligibility returns what a node must meet to make its domain eligible for a rule of the spec.
func (s *Spec) eligibility(e *Even) (must eligibility) {
	if s.selects(e) {
		must.require = s.Require
	}
	if e.HonorTaints {
		must.honors, must.tolerate = true, s.Tolerate
	}
	return must
}

// selects reports whether the requirements of the spec decide which domains are eligible for its rule Even. They do not
// if the rule names its domains or ignores them.
func (s *Spec) selects(e *Even) bool {
	return len(s.Require) > 0 && len(e.Domains) == 0 && !e.IgnoreRequire
}

// isOf reports whether capsules of the spec count under a kind for a rule: under membersPlaced if they are members of
// the rule's group, otherwise (keepersPlaced) if they have the rule.
func (s *Spec) isOf(rule Apart, kind companyKind) bool {
	if kind == membersPlaced {
		return s.IsIn(rule.Group)
	}
	return slices.ContainsFunc(s.Apart, rule.alike)
}

// companyOf calls yield with each key under which a capsule of the spec counts on a node, and with the amount: 1, or
// that of an extra. Kind is 0 for a capsule that is placed there, and stopping for one that has left and still runs
// there.
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

// spreadsItself reports whether the spread of the spec goes by the number of capsules of the same spec, not by a group.
func (s *Spec) spreadsItself() bool { return s.Spread.Level != "" && s.Group == "" }

// KeepsOff reports whether a rule [Apart] by this level, of either spec, forbids that a capsule of one and a capsule of
// the other are in the same domain of the level.
func (s *Spec) KeepsOff(other *Spec, level string) bool {
	off := func(a Apart, from *Spec) bool { return a.Level == level && from.IsIn(a.Group) }
	return slices.ContainsFunc(s.Apart, func(a Apart) bool { return off(a, other) }) || slices.ContainsFunc(other.Apart, func(a Apart) bool { return off(a, s) })
}

// keepsOff reports whether a rule Apart forbids that a capsule of this spec is on one node (at) while a newcomer is on
// another node, or on the same (on).
func (s *Spec) keepsOff(at *Node, newcomer *Spec, on *Node) bool {
	return slices.ContainsFunc(slices.Concat(s.Apart, newcomer.Apart), func(a Apart) bool {
		d := at.domain(a.Level)
		return d != "" && d == on.domain(a.Level) && s.KeepsOff(newcomer, a.Level)
	})
}
