package race

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// This file decides by brute force what the rules of company ([orbit.Apart], [orbit.Even]) permit. It compares all pairs
// of capsules, and counts members anew each time.

// tenant is a capsule of a spec on a node.
type tenant struct {
	spec *orbit.Spec
	on   *orbit.Node
}

// tenantsOf returns all placed capsules, and those that have left their node and still run there.
func tenantsOf(state *orbit.State) (out []tenant) {
	for n := range state.Nodes() {
		for c := range state.On(n.Node.ID) {
			out = append(out, tenant{c.Spec, n.Node})
		}
		for gone := range state.Remains(n.Node.ID) {
			out = append(out, tenant{gone.Spec, n.Node})
		}
	}
	return out
}

// domainOf returns the domain of a node on a level; empty: it is in none.
func domainOf(n *orbit.Node, level string) string {
	if level == orbit.NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// keepsApart reports whether the newcomer keeps its own rules Apart, and those of the tenants.
func keepsApart(tenants []tenant, newcomer tenant) bool {
	for _, rule := range newcomer.spec.Apart {
		if rule.Labelled && domainOf(newcomer.on, rule.Level) == "" {
			return false
		}
	}
	return !slices.ContainsFunc(tenants, func(t tenant) bool { return t.shuns(newcomer) || newcomer.shuns(t) })
}

// shuns reports whether a rule of t forbids the other one where it is.
func (t tenant) shuns(other tenant) bool {
	return slices.ContainsFunc(t.spec.Apart, func(rule orbit.Apart) bool {
		domain := domainOf(t.on, rule.Level)
		return other.spec.IsIn(rule.Group) && domain != "" && domain == domainOf(other.on, rule.Level)
	})
}

// even reports whether the seated members keep their rules Even.
func (s *seating) even() bool { return keepEven(s.all, s.before, s.seated) }

// keepEven reports whether newcomers that are placed together keep their rules Even.
func keepEven(rooms []room, tenants, newcomers []tenant) bool {
	after := slices.Concat(tenants, newcomers)
	return !slices.ContainsFunc(newcomers, func(t tenant) bool {
		return slices.ContainsFunc(t.spec.Even, func(e orbit.Even) bool {
			domain := domainOf(t.on, e.Level)
			count := membersIn(after, &e, domain)
			refused := domain == "" || len(e.Domains) > 0 && !slices.Contains(e.Domains, domain)
			rises := !t.spec.IsIn(e.Group) || count > membersIn(tenants, &e, domain)
			return refused || rises && count > fewest(rooms, after, t.spec, &e)+max(1, e.MaxSkew)
		})
	})
}

// keepNear reports whether navigators may place newcomers together, as far as their co-locations are concerned. No
// navigator starts a group by Spec.Near, if that is by a label: a member must be placed before. All other co-locations
// are judged as ledgers do.
func keepNear(placed, newcomers []tenant) bool {
	after := slices.Concat(placed, newcomers)
	for _, t := range newcomers {
		for near := range t.spec.AllNear {
			planned := near == t.spec.Near && near.Level != orbit.NodeKey
			member := func(o tenant) bool {
				return o.spec.IsIn(near.Group) && domainOf(o.on, near.Level) == domainOf(t.on, near.Level)
			}
			if !keepsNear(near, after, t) || planned && !slices.ContainsFunc(placed, member) {
				return false
			}
		}
	}
	return true
}

// keepsNear reports whether a tenant, which is among all that are placed, has another member of the group in its domain,
// or is the first one in any domain.
func keepsNear(near orbit.Near, placed []tenant, of tenant) bool {
	domain, here, anywhere := domainOf(of.on, near.Level), 0, 0
	for _, t := range placed {
		if at := domainOf(t.on, near.Level); at != "" && t.spec.IsIn(near.Group) {
			anywhere++
			here += btoi(at == domain)
		}
	}
	self := btoi(of.spec.IsIn(near.Group))
	return domain != "" && (here > self || self == 1 && anywhere == 1)
}

// btoi returns 1 for true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// membersIn counts the members of the group of a rule in a domain.
func membersIn(tenants []tenant, e *orbit.Even, domain string) (n int) {
	for _, t := range tenants {
		if t.spec.IsIn(e.Group) && domainOf(t.on, e.Level) == domain {
			n++
		}
	}
	return n
}

// fewest returns how many members of the group of a rule are in the eligible domain that has the fewest.
func fewest(rooms []room, tenants []tenant, spec *orbit.Spec, e *orbit.Even) int {
	counts := map[string]int{}
	for i := range rooms {
		n := rooms[i].Node
		domain := domainOf(n, e.Level)
		meets := e.IgnoreRequire || !slices.ContainsFunc(spec.Require, func(p orbit.Predicate) bool { return !p.On(n) })
		if len(e.Domains) > 0 {
			meets = slices.Contains(e.Domains, domain)
		}
		if e.HonorTaints {
			meets = meets && n.State == orbit.Ready && n.Admits(spec)
		}
		if n.State != orbit.Lost && domain != "" && meets {
			counts[domain] = membersIn(tenants, e, domain)
		}
	}
	least := -1
	for _, n := range counts {
		if least < 0 || n < least {
			least = n
		}
	}
	if len(counts) < e.MinDomains {
		return 0
	}
	return max(0, least)
}
