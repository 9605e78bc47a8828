package race

import (
	"fmt"

	"github.com/orbitsched/orbit"
)

// least returns members of a gang with which it may start: the first of each role, and then others.
func (t *liveTurn) least(g *orbit.GangState) (comes []*orbit.Capsule) {
	var others []*orbit.Capsule
	for i := range g.Gang.Roles {
		n := g.Minimum(i)
		for _, id := range g.Gang.Roles[i].Members {
			switch c := t.state.Capsule(id); {
			case c == nil || c.Gang() != g.Gang.ID || c.Released():
			case n > 0:
				comes, n = append(comes, c), n-1
			default:
				others = append(others, c)
			}
		}
	}
	return append(comes, others[:min(len(others), max(0, g.Gang.Min-len(comes)))]...)
}

// displace lets a third party place a capsule, or a gang at its minimum. The proposal evicts all capsules of lower
// priority on the chosen nodes, whether they have to leave or not.
func (t *liveTurn) displace() [][]orbit.Commitment {
	c := t.capsule(func(c *orbit.Capsule) bool {
		return c.Pending() && c.Spec.Devices.Count == 0 && (c.Spec.Priority > 0 || lucky(t.r, 10))
	})
	if c == nil {
		return nil
	}
	evict, comes := orbit.Evict{For: c.ID}, []*orbit.Capsule{c}
	if g := t.state.Gang(c.Gang()); g != nil {
		evict, comes = orbit.Evict{ForGang: c.Gang()}, t.least(g)
	}
	var do, places []orbit.Commitment
	taken := map[orbit.NodeID]bool{}
	n, together := (*orbit.NodeState)(nil), lucky(t.r, 50)
	for _, member := range comes {
		if n == nil || !together {
			n = t.node(func(n *orbit.NodeState) bool { return n.Node.Schedulable() })
		}
		if n == nil || member == nil {
			return nil
		}
		places = append(places, orbit.Place{Capsule: member.ID, Node: n.Node.ID})
		if taken[n.Node.ID] {
			continue
		}
		taken[n.Node.ID] = true
		for _, v := range t.capsules(func(v *orbit.Capsule) bool { return v.Node == n.Node.ID && v.Spec.Priority < c.Spec.Priority }) {
			evict.Capsule, evict.From, evict.Since = v.ID, v.Node, v.PlacedAt
			do = append(do, evict)
		}
	}
	return once(append(do, places...)...)
}

// respec gives a capsule, placed or pending, the spec of another one of its module: another size, rank, requirements or
// groups. What is placed gets a smaller size by its agent, which has applied it already. Members of gangs keep the specs
// of their roles.
func (t *liveTurn) respec() [][]orbit.Commitment {
	alone := func(c *orbit.Capsule) bool { return !c.Released() && c.Gang() == "" }
	c := t.capsule(alone)
	if c == nil {
		return nil
	}
	like := t.capsule(func(o *orbit.Capsule) bool {
		same := o.Spec.Module == c.Spec.Module && o.Spec.Class == c.Spec.Class && o.Owner() == c.Owner()
		return alone(o) && same && o.Spec != c.Spec && (c.Pending() || o.Spec.Devices.Count == c.Spec.Devices.Count)
	})
	if like == nil {
		return nil
	}
	do := orbit.Respec{Capsule: c.ID, Spec: like.Spec}
	if c.Placed() {
		do.Since, do.Applied = c.PlacedAt, like.Spec.Envelope.Reservation.Within(c.Spec.Envelope.Reservation)
	}
	return once(do)
}

// budget puts a budget on a group or a module, or removes one.
func (t *liveTurn) budget() [][]orbit.Commitment {
	id := orbit.BudgetID(fmt.Sprint("b", t.r.IntN(3)))
	if lucky(t.r, 30) {
		return once(orbit.RemoveBudget{Budget: id})
	}
	c := t.capsule((*orbit.Capsule).Placed)
	if c == nil {
		return nil
	}
	b := orbit.Budget{ID: id, Module: c.Spec.Module, Expected: 1 + t.r.IntN(6), Missing: t.r.IntN(3), IgnoreReady: lucky(t.r, 30), FreeUnready: lucky(t.r, 30)}
	if c.Spec.Group != "" {
		b.Group, b.Module = c.Spec.Group, ""
	}
	return once(orbit.PutBudget{Budget: b})
}

// flap lets an agent report that a capsule is not ready any more, or is ready again.
func (t *liveTurn) flap() [][]orbit.Commitment {
	c := t.capsule(func(c *orbit.Capsule) bool { return c.Placed() && c.Begun })
	if c == nil {
		return nil
	}
	return once(orbit.Confirm{Capsule: c.ID, Since: c.PlacedAt, Ready: !c.Ready, NotReady: c.Ready})
}
