package whatif

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// colocation is one co-location that a spec requires.
type colocation struct {
	orbit.Near
	// domains are those in which members of the group run.
	domains map[string]bool
	// first says that any domain of the level will do, because no member runs in one and a capsule of the spec would be the
	// first.
	first bool
}

// takes reports whether a node is in a domain that meets the co-location.
func (c *colocation) takes(n *orbit.Node) bool { return c.in(domainOf(n, c.Level)) }

func (c *colocation) in(domain string) bool { return c.domains[domain] || c.first && domain != "" }

// String completes "the node ...".
func (c *colocation) String() string {
	if c.Level == orbit.NodeKey {
		return fmt.Sprintf("has no member of group %q", c.Group)
	}
	return fmt.Sprintf("is in no %s of group %q", c.Level, c.Group)
}

// domainOf returns the domain of a node by a level; empty: it has none.
func domainOf(n *orbit.Node, level string) string {
	if level == orbit.NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// askerOf returns an asker for a spec that a ledger would hand out.
func askerOf(state *orbit.State, spec *orbit.Spec) *asker {
	a := &asker{state: state, closes: closesOf(state, spec), members: map[orbit.Near]map[string]bool{}}
	a.ask(spec)
	return a
}

// ask sets the spec, and looks up its co-locations.
func (a *asker) ask(spec *orbit.Spec) {
	a.spec, a.nears = spec, nil
	for near := range spec.AllNear {
		domains, known := a.members[near]
		if !known {
			domains = a.membersBy(near)
			a.members[near] = domains
		}
		// Navigators start no group by a Near with a label.
		first := len(domains) == 0 && spec.IsIn(near.Group) && (near != spec.Near || near.Level == orbit.NodeKey)
		a.nears = append(a.nears, colocation{near, domains, first})
	}
}

// membersBy returns the domains in which members of the group of a co-location run. For Spec.Near, this is the result of
// [orbit.Draft.NearDomains] for a draft without a plan, but making a draft would visit each node and each capsule first.
func (a *asker) membersBy(near orbit.Near) map[string]bool {
	domains, limit := map[string]bool{}, a.state.Limits().IDBytes
	for n, members := range a.state.GroupNodes(near.Group) {
		if domain := domainOf(n.Node, near.Level); domain != "" && len(domain) <= limit && members > 0 {
			domains[domain] = true
		}
	}
	return domains
}

// drop removes from a spec the co-locations of another one that are in not.
func drop(not []orbit.Near, of, from *orbit.Spec) {
	from.Near, from.Nears = of.Near, slices.DeleteFunc(slices.Clone(of.Nears), func(r orbit.Near) bool { return slices.Contains(not, r) })
	if slices.Contains(not, of.Near) {
		from.Near = orbit.Near{}
	}
}
