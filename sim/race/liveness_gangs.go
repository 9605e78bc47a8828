package race

import (
	"cmp"
	"fmt"
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
		g.Min = 0
		g.Roles = slices.DeleteFunc(g.Roles, func(r orbit.Role) bool { return len(r.Members) == 0 }) // its members are forgotten
		for i := range g.Roles {
			g.Roles[i].Min = min(g.Roles[i].Min, len(g.Roles[i].Members))
		}
		if lucky(t.r, 50) {
			role := &g.Roles[t.r.IntN(len(g.Roles))]
			role.Members = append(role.Members, t.ids("more", 1)...)
		}
		return once(orbit.Submit{Gang: g, Owner: t.owner(e)})
	}
	return nil
}

// grow lets members join a gang, whether it runs or waits: of a role of it, or of a new one.
func (t *liveTurn) grow() [][]orbit.Commitment {
	e, g := t.engine("gang"), t.anyGang()
	if e == nil || g == nil {
		return nil
	}
	own := one(t.r, g.Gang.Roles...)
	role := orbit.Role{Name: own.Name, Spec: own.Spec, Members: t.ids("grown", 1+t.r.IntN(2))}
	if spec := one(t.r, e.specs...); lucky(t.r, 25) && spec.Class == own.Spec.Class {
		role.Name, role.Spec = fmt.Sprint("new", t.id), spec
	}
	return t.joins(g, role)
}

// replace lets a member of a gang end, and another one join in its place, at times under its id.
func (t *liveTurn) replace() [][]orbit.Commitment {
	g := t.anyGang()
	if g == nil {
		return nil
	}
	var left []*orbit.Capsule
	for c := range t.state.Members(g.Gang.ID) {
		if !c.Released() {
			left = append(left, c)
		}
	}
	if len(left) == 0 {
		return nil
	}
	out := one(t.r, left...)
	own := g.Gang.Roles[slices.IndexFunc(g.Gang.Roles, func(r orbit.Role) bool { return slices.Contains(r.Members, out.ID) })]
	role := orbit.Role{Name: own.Name, Spec: own.Spec, Members: t.ids("new", 1)}
	if lucky(t.r, 40) {
		role.Members = []orbit.CapsuleID{out.ID}
	}
	do := t.joins(g, role)
	do[0] = append([]orbit.Commitment{orbit.Release{Capsule: out.ID, Final: true}}, do[0]...)
	if lucky(t.r, 30) && len(left) > 1 && role.Members[0] != out.ID { // the controller is late
		return [][]orbit.Commitment{do[0][:1], do[0][1:]}
	}
	return do
}

// joins returns the submission by which a role joins a gang.
func (t *liveTurn) joins(g *orbit.GangState, role orbit.Role) [][]orbit.Commitment {
	return once(orbit.Submit{Gang: &orbit.Gang{ID: g.Gang.ID, Roles: []orbit.Role{role}}, Join: true})
}

// anyGang returns one of the gangs, nil if there is none.
func (t *liveTurn) anyGang() *orbit.GangState {
	gangs := slices.Collect(t.state.Gangs())
	if len(gangs) == 0 {
		return nil
	}
	return one(t.r, gangs...)
}
