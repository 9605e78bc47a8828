package nav

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// GroupDemand is what a group that waits asks of the domains of one level.
type GroupDemand struct {
	// Gang names a gang, Group a co-location group; the other is empty.
	Gang orbit.GangID
	// Group names a co-location group; empty if Gang is set.
	Group string
	// Level is the label key of the domains; empty: all nodes are one domain.
	Level string
	// Members counts those that wait for a domain of this level.
	Members int
	// Domains are those that the group may be in, the one that takes most members first: where members run,
	// only domains in which one runs.
	Domains []DomainLack
}

// DomainLack is what a domain lacks for a group.
type DomainLack struct {
	// Domain is the value of the level's label.
	Domain string
	// Fits counts the members that are seated if nodes are filled one after another, in the order of their ids.
	Fits int
	// Lacks is what all others reserve, and LacksDevices what they ask for of devices, in milli: a node with so
	// much, and nothing on it, would take them.
	Lacks orbit.Resources
	// LacksDevices is how much of devices the other members ask for, in thousandths of a device.
	LacksDevices int64
}

// Demand returns what the groups that wait lack, as of the last Refresh: by group, level and domain. Room that
// is held for a group is free for it; company that members of a gang want is not looked at. It looks at all
// nodes once for each group and level, so ask when it is wanted.
func (w *GroupWatch) Demand() (out []GroupDemand) {
	if w.state == nil {
		return nil
	}
	for _, key := range slices.SortedFunc(maps.Keys(w.waits), groupKey.compare) {
		roles := key.roles(w.state)
		for _, level := range key.levels(w.state, roles) {
			d := GroupDemand{Gang: key.gang, Group: key.group, Level: level}
			var here []anchorRole
			for _, role := range roles {
				if key.gang != "" || role.spec.Near.Level == level {
					here = append(here, role)
					d.Members += role.count
				}
			}
			d.Domains = lacking(w.state, key, level, here)
			out = append(out, d)
		}
	}
	return out
}

// levels returns the levels that a group asks for.
func (k groupKey) levels(state *orbit.State, roles []anchorRole) (out []string) {
	if k.gang == "" {
		for _, role := range roles {
			out = append(out, role.spec.Near.Level)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	g := state.Gang(k.gang).Gang // it has members that wait
	out = slices.Clone(g.Levels)
	if len(out) == 0 || g.Loose {
		out = append(out, "")
	}
	return out
}

// lacking seats members in each domain of a level.
func lacking(state *orbit.State, key groupKey, level string, roles []anchorRole) (out []DomainLack) {
	held := map[orbit.NodeID][]orbit.Hold{}
	for h := range state.Holds() {
		if h.For == cmp.Or(string(key.gang), key.group) {
			held[h.Node] = append(held[h.Node], h)
		}
	}
	at, left := map[string]int{}, [][]int{}
	only := key.runsIn(state, level)
	for n := range state.Nodes() {
		domain := ""
		if level != "" {
			if domain = anchorDomainOf(state, n.Node, level); domain == "" {
				continue
			}
		}
		if only != nil && !only[domain] {
			continue
		}
		d, known := at[domain]
		if !known {
			d = len(out)
			at[domain] = d
			out, left = append(out, DomainLack{Domain: domain}), append(left, nil)
			for _, role := range roles {
				left[d] = append(left[d], role.count)
			}
		}
		free := freeCapacityOf(n)
		for i := range held[n.Node.ID] {
			free.give(&held[n.Node.ID][i], n.Node)
		}
		out[d].Fits += free.seat(n.Node, roles, left[d])
	}
	for d := range out {
		out[d].add(roles, left[d])
	}
	slices.SortStableFunc(out, func(a, b DomainLack) int {
		return cmp.Or(cmp.Compare(b.Fits, a.Fits), cmp.Compare(a.Domain, b.Domain))
	})
	return out
}

// runsIn returns the domains where members run; nil: none does.
func (k groupKey) runsIn(state *orbit.State, level string) map[string]bool {
	if level == "" {
		return nil
	}
	in := map[string]bool{}
	if k.gang == "" {
		in = inDomains(state, k.group, level)
	} else {
		for c := range state.Members(k.gang) {
			if c.Placed() {
				in[anchorDomainOf(state, state.Node(c.Node).Node, level)] = true
			}
		}
	}
	if len(in) == 0 {
		return nil
	}
	return in
}

// seat seats as many as there is room for of what is left of each role, and returns how many.
func (r *freeCapacity) seat(n *orbit.Node, roles []anchorRole, left []int) (seated int) {
	for i, role := range roles {
		if !n.Schedulable() || !suits(n, role.spec) {
			continue
		}
		count := min(left[i], int(r.capacity(role.spec)))
		for more := count - 1; more >= 0; more-- {
			r.take(role.spec, r.pick(role.spec, more))
		}
		left[i] -= count
		seated += count
	}
	return seated
}

// add adds what members ask for that have no seat.
func (l *DomainLack) add(roles []anchorRole, left []int) {
	for i := range roles {
		for d, want := range roles[i].spec.Envelope.Reservation {
			l.Lacks[d] = addFree(l.Lacks[d], times(want, left[i]))
		}
		l.LacksDevices += int64(roles[i].spec.Devices.Count*roles[i].spec.Devices.Milli) * int64(left[i])
	}
}

// times multiplies, up to the largest number there is.
func times(want int64, n int) int64 {
	if n > 0 && want > math.MaxInt64/int64(n) {
		return math.MaxInt64
	}
	return want * int64(n)
}
