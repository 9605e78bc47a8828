package place

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// company has the preferences of a spec about where other capsules are, which count beside the score: how the set of
// the spec is spread over domains (Spec.Spread), and the members of which groups make a node better or worse
// (Spec.PreferCompany). The set is the members of Spec.Group or, without a group, the capsules of the spec itself. A
// company is read anew before each choice, because its counts follow the plan.
type company struct {
	// The level over which the spec is spread, empty if it is not; the domains that Spread.Names lists; and how many
	// members of the set each domain has.
	spread  string
	names   []string
	members map[string]int
	// Wishes about domains of several nodes, and those about single nodes (NodeKey).
	wishes, own []wish
}

// wish is a preference: each member of a group in the domain of a node adds weight to the value of the node. A lower
// value is better, so a negative weight attracts.
type wish struct {
	level   string
	weight  float64
	members map[string]int
}

// lastOrder is the order of nodes outside the domains over which a spec is spread: they come after all others.
const lastOrder = math.MaxInt

// companyIn reads the preferences of a spec, and the counts that they refer to from a draft.
func companyIn(draft *orbit.Draft, spec *orbit.Spec) (c company) {
	if spec.Spread.Level != "" {
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

// wishLevels lists the levels of the preferences of a spec about domains of several nodes.
func wishLevels(spec *orbit.Spec) (levels []string) {
	if spec.Spread.Level != "" {
		levels = append(levels, spec.Spread.Level)
	}
	for i := range spec.PreferCompany {
		if level := spec.PreferCompany[i].Level; level != orbit.NodeKey && !slices.Contains(levels, level) {
			levels = append(levels, level)
		}
	}
	return levels
}

// byDomain reports whether the spec has preferences about domains of several nodes.
func (c *company) byDomain() bool { return c.spread != "" || len(c.wishes) > 0 }

// onNode returns what the wishes about single nodes add to the score of a node.
func (c *company) onNode(n *orbit.Node) float64 { return sumOf(c.own, n) }

// inDomains returns what the wishes about domains of several nodes add to the value of a node.
func (c *company) inDomains(n *orbit.Node) float64 { return sumOf(c.wishes, n) }

// sumOf adds up the weights of wishes for each member in the domains of a node. A node without the label of a wish is
// in no domain of it.
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

// weigh sets the order and the value of a pick from its own value and the preferences about the domains of its node.
func (c *company) weigh(p *pick) {
	p.value = p.own
	if c.byDomain() {
		p.order = c.order(p.node.Node)
		p.value += c.inDomains(p.node.Node)
	}
}

// order returns how many members of the set are in the domain of a node, on the level over which the spec is spread.
// Fewer is better. It is 0 if the spec is not spread, and lastOrder outside the domains.
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
