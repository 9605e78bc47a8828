package nav

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// GroupDemand is what a waiting group asks of the domains of one level.
type GroupDemand struct {
	// Gang names a gang, Group a co-location group; the other is empty.
	Gang orbit.GangID
	// Group names a co-location group; empty if Gang is set.
	Group string
	// Level is the label key of the domains; empty: all nodes are one domain.
	Level string
	// Members is how many members wait for a domain of this level.
	Members int
	// Domains are the domains in which the group may be placed, first the one that takes the most members. If members
	// run, these are only the domains in which they run.
	Domains []DomainLack
}

// DomainLack is what a domain lacks for a group.
type DomainLack struct {
	// Domain is the value of the level's label.
	Domain string
	// Fits is how many members find room if the nodes are filled one after another, in the order of their ids.
	Fits int
	// Lacks is the sum of the reservations of all other members: an empty node with that capacity, and with the devices
	// in LacksDevices, would take them.
	Lacks orbit.Resources
	// LacksDevices is the sum of the other members' device requests, in thousandths of a device.
	LacksDevices int64
}

// Demand returns what the waiting groups lack, as of the last Refresh, by group, level and domain. Room that is held
// for a group counts as free for it. Company that members of a gang ask for is not considered. Demand looks at all
// nodes once for each group and level, so call it only when its answer is needed.
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

// levels returns the levels whose domains a group waits for; "" stands for all nodes.
func (k groupKey) levels(state *orbit.State, roles []anchorRole) (out []string) {
	if k.gang == "" {
		for _, role := range roles {
			out = append(out, role.spec.Near.Level)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	g := state.Gang(k.gang).Gang // not nil: it has members that wait
	out = slices.Clone(g.Levels)
	if len(out) == 0 || g.Loose {
		out = append(out, "")
	}
	return out
}

// lacking seats the members in each domain of a level, and returns what each domain lacks, the one that takes the most
// members first.
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
		free := seats.CapacityOf(n)
		for i := range held[n.Node.ID] {
			free.Give(&held[n.Node.ID][i], n.Node)
		}
		out[d].Fits += seatRoles(&free, n.Node, roles, left[d])
	}
	for d := range out {
		out[d].add(roles, left[d])
	}
	slices.SortStableFunc(out, func(a, b DomainLack) int {
		return cmp.Or(cmp.Compare(b.Fits, a.Fits), cmp.Compare(a.Domain, b.Domain))
	})
	return out
}

// runsIn returns the domains of a level in which members run; nil: the level is "", or no member runs.
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

// seatRoles takes room for as many members as fit, deducts them from what is left of each role, and returns how many they
// are.
func seatRoles(r *seats.Capacity, n *orbit.Node, roles []anchorRole, left []int) (seated int) {
	for i, role := range roles {
		if !n.Schedulable() || !seats.Suits(n, role.spec) {
			continue
		}
		count := min(left[i], int(r.Fits(role.spec)))
		for more := count - 1; more >= 0; more-- {
			r.Take(role.spec, r.Pick(role.spec, more))
		}
		left[i] -= count
		seated += count
	}
	return seated
}

// add adds to the lack what the members without a seat ask for.
func (l *DomainLack) add(roles []anchorRole, left []int) {
	for i := range roles {
		for d, want := range roles[i].spec.Envelope.Reservation {
			l.Lacks[d] = seats.AddFree(l.Lacks[d], times(want, left[i]))
		}
		l.LacksDevices += int64(roles[i].spec.Devices.Count*roles[i].spec.Devices.Milli) * int64(left[i])
	}
}

// times returns want times n, or the largest int64 if that overflows.
func times(want int64, n int) int64 {
	if n > 0 && want > math.MaxInt64/int64(n) {
		return math.MaxInt64
	}
	return want * int64(n)
}
