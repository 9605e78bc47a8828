package race

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file has the events of gangs that have started.

// finish lets some members of a gang end for good, mostly placed ones. At times all of them end.
func (t *liveTurn) finish() [][]orbit.Commitment {
	all := lucky(t.r, 15)
	return once(t.some(func(c *orbit.Capsule) []orbit.Commitment {
		if c.Released() || !all && c.Pending() && lucky(t.r, 80) {
			return nil
		}
		return []orbit.Commitment{orbit.Release{Capsule: c.ID, Final: true}}
	}, all)...)
}

// short lets a gang lose some of its placed members, which are pending again. At times their nodes are cordoned too, so
// that the members must go elsewhere.
func (t *liveTurn) short() [][]orbit.Commitment {
	cordons := lucky(t.r, 50)
	return once(t.some(func(c *orbit.Capsule) (do []orbit.Commitment) {
		if !c.Placed() {
			return nil
		}
		if do = t.stopped(c); cordons && len(do) > 0 {
			n := t.state.Node(c.Node).Node.Clone()
			n.Cordon(true)
			do = append(do, orbit.PutNode{Node: n})
		}
		return do
	}, false)...)
}

// some does something to about half of the members of a gang of which a member is placed, or to all of them.
func (t *liveTurn) some(do func(*orbit.Capsule) []orbit.Commitment, all bool) (out []orbit.Commitment) {
	of := t.capsule(func(c *orbit.Capsule) bool { return c.Gang() != "" && c.Placed() })
	if of == nil {
		return nil
	}
	for _, c := range t.capsules(func(c *orbit.Capsule) bool { return c.Gang() == of.Gang() }) {
		if all || lucky(t.r, 50) {
			out = append(out, do(c)...)
		}
	}
	return out
}

// again submits a gang of which no member is left once more, under its id and with all its members. At times one role
// has a member more than before.
func (t *liveTurn) again() [][]orbit.Commitment {
	var ended []*orbit.GangState
	for g := range t.state.Gangs() {
		if !slices.ContainsFunc(slices.Collect(t.state.Members(g.Gang.ID)), func(c *orbit.Capsule) bool { return !c.Released() }) {
			ended = append(ended, g)
		}
	}
	slices.SortFunc(ended, func(a, b *orbit.GangState) int { return cmp.Compare(a.Gang.ID, b.Gang.ID) })
	if e := t.engine("gang"); e != nil && len(ended) > 0 {
		g := one(t.r, ended...).Gang.Clone()
		if lucky(t.r, 50) {
			role := &g.Roles[t.r.IntN(len(g.Roles))]
			role.Members = append(role.Members, t.ids("more", 1)...)
		}
		return once(orbit.Submit{Gang: g, Owner: t.owner(e)})
	}
	return nil
}
