package place

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// company is what a spec wishes of the company of others, beside what the score says: how its set is spread (Spec.Spread), and whose members make a node
// better or worse (Spec.PreferCompany). It is read anew before each choice, so the counts are those of the plan.
type company struct {
	// The level over which the spec is spread, empty: none; the domains that are named for it, and how many of the set each domain has.
	spread  string
	names   []string
	members map[string]int
	// Wishes about domains that are more than a node, and about nodes.
	wishes, own []wish
}

// wish is a weight for each member of a group in a node's domain.
type wish struct {
	level   string
	weight  float64
	members map[string]int
}

// lastOrder is the order of nodes that are in none of the domains over which a spec is spread.
const lastOrder = math.MaxInt

// companyIn asks a draft what the wishes of a spec come to.
func companyIn(draft *orbit.Draft, spec *orbit.Spec) (c company) {
	if spreads(spec) {
		c.spread, c.names = spec.Spread.Level, spec.Spread.Names
		c.members, _ = draft.MembersBy(spec, spec.Group, c.spread)
	}
	for _, prefers := range spec.PreferCompany {
		w := wish{level: prefers.Level, weight: prefers.Weight}
		if w.members, _ = draft.MembersBy(spec, prefers.Group, prefers.Level); w.level == orbit.NodeKey {
			c.own = append(c.own, w)
		} else {
			c.wishes = append(c.wishes, w)
		}
	}
	return c
}

// spreads reports whether engines spread a spec.
func spreads(spec *orbit.Spec) bool {
	return spec.Spread.Level != "" && (spec.Group != "" || len(spec.Spread.Names) == 0)
}

// wishLevels lists the levels of what a spec wishes of domains that are more than a node.
func wishLevels(spec *orbit.Spec) (levels []string) {
	if spreads(spec) {
		levels = append(levels, spec.Spread.Level)
	}
	for i := range spec.PreferCompany {
		if level := spec.PreferCompany[i].Level; level != orbit.NodeKey && !slices.Contains(levels, level) {
			levels = append(levels, level)
		}
	}
	return levels
}

// byDomain reports whether the spec wishes something of domains that are more than a node.
func (c *company) byDomain() bool { return c.spread != "" || len(c.wishes) > 0 }

// onNode is what wishes about a node by itself add to its score.
func (c *company) onNode(n *orbit.Node) float64 { return sumOf(c.own, n) }

// inDomains is what wishes about the domains of a node add to its value.
func (c *company) inDomains(n *orbit.Node) float64 { return sumOf(c.wishes, n) }

// sumOf adds up wishes about a node.
func sumOf(wishes []wish, n *orbit.Node) (sum float64) {
	for i := range wishes {
		w := &wishes[i]
		domain, there := label(n, w.level)
		if there && domain != "" {
			sum += w.weight * float64(w.members[domain])
		}
	}
	return sum
}

// weigh completes what is known of a node by the wishes about its domains.
func (c *company) weigh(p *pick) {
	p.value = p.own
	if c.byDomain() {
		p.order = c.order(p.node.Node)
		p.value += c.inDomains(p.node.Node)
	}
}

// order is how many of the set are in the domain over which it is spread.
func (c *company) order(n *orbit.Node) int {
	if c.spread == "" {
		return 0
	}
	domain := n.Labels[c.spread]
	if domain == "" || len(c.names) > 0 && !slices.Contains(c.names, domain) {
		return lastOrder
	}
	return c.members[domain]
}
