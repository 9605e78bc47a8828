package moves

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// SpecOf returns the spec by which a capsule is placed on another node. It has no tolerations that last only for some
// time. If the capsule is a member of a gang with required levels, and all other placed members are in one domain of a
// level, it also requires the narrowest such domain. Looked counts the members that were looked at.
func SpecOf(state *orbit.State, c *orbit.Capsule) (of *orbit.Spec, looked int, err error) {
	spec, forAWhile := *c.Spec, func(o orbit.Toleration) bool { return o.For > 0 }
	spec.Tolerate = slices.DeleteFunc(slices.Clone(spec.Tolerate), forAWhile)
	in, looked := domainOf(state, c)
	if in != nil {
		spec.Require = append(slices.Clone(spec.Require), *in)
	}
	if in == nil && len(spec.Tolerate) == len(c.Spec.Tolerate) {
		return c.Spec, looked, nil
	}
	of, err = spec.Share()
	return of, looked, err
}

// domainOf returns the requirement that keeps a member of a gang in the domain of the others; nil: there is none.
func domainOf(state *orbit.State, c *orbit.Capsule) (in *orbit.Predicate, looked int) {
	g := state.Gang(c.Gang())
	if g == nil || g.Gang.Loose {
		return nil, 0
	}
	for _, level := range g.Gang.Levels {
		domains := map[string]bool{}
		for m := range state.Members(c.Gang()) {
			if looked++; m.Placed() && m.ID != c.ID {
				domains[state.Node(m.Node).Node.Labels[level]] = true
			}
		}
		for name := range domains {
			if len(domains) == 1 && name != "" {
				return &orbit.Predicate{Key: level, Op: "In", Values: []string{name}}, looked
			}
		}
	}
	return nil, looked
}
