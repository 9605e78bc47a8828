package nav

import "github.com/orbitsched/orbit"

// anchorGroup is a co-location group as a plan sees it.
type anchorGroup struct {
	name    string
	running bool
	// Where its members run, by level; filled in when asked for.
	domains map[string]map[string]bool
	// How it starts is decided; and it is by self-match.
	decided, alone bool
	// Pending members that were handed over while nothing of the group runs, in order, but for stand-ins.
	waiting []*orbit.Capsule
	// The member that starts the group by self-match, if one does.
	first *orbit.Capsule
}

// group returns what the plan knows of a group.
func (p *anchorPass) group(name string) *anchorGroup {
	g := p.groups[name]
	if g == nil {
		g = &anchorGroup{name: name, running: anchorRuns(p.state, name)}
		p.groups[name] = g
	}
	return g
}

// anchorRuns reports whether anything of the group is placed.
func anchorRuns(state *orbit.State, group string) bool {
	for range state.GroupNodes(group) {
		return true
	}
	return false
}

// runsIn reports whether a member runs in a domain of the level.
func (p *anchorPass) runsIn(g *anchorGroup, level, domain string) bool {
	in, known := g.domains[level]
	if !known {
		in = inDomains(p.state, g.name, level)
		if g.domains == nil {
			g.domains = map[string]map[string]bool{}
		}
		g.domains[level] = in
	}
	return in[domain]
}

// waitsHere reports whether capsules of the spec start with the group and follow its anchor: members that must be
// near it, but for those of gangs.
func (g *anchorGroup) waitsHere(spec *orbit.Spec) bool {
	return spec.Group == g.name && spec.Near.Group == g.name && spec.Class != orbit.GangClass
}

// anchorDomainOf returns the domain of the level that a node is in, "" if it is in none: it has no such label, or
// one that is empty or too long to be named in a bet.
func anchorDomainOf(state *orbit.State, n *orbit.Node, level string) string {
	if name := n.Labels[level]; len(name) <= state.Limits().IDBytes {
		return name
	}
	return ""
}

// inDomains returns in which domains of a level members of a group run; a node without a name for its domain is in
// none.
func inDomains(state *orbit.State, group, level string) map[string]bool {
	in := map[string]bool{}
	for n := range state.GroupNodes(group) {
		if name := anchorDomainOf(state, n.Node, level); name != "" {
			in[name] = true
		}
	}
	return in
}
