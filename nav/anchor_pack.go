package nav

import (
	"cmp"
	"context"
	"slices"

	"github.com/orbitsched/orbit"
)

// anchorSeat is where one member of a group would be.
type anchorSeat struct {
	at      int
	node    *orbit.Node
	spec    *orbit.Spec
	devices orbit.DeviceSet
}

// anchorChoice is a domain for a group, and who would be where: the anchor first.
type anchorChoice struct {
	domain string
	seats  []anchorSeat
}

// mostFirsts is how many specs of a group are tried as its anchor's.
const mostFirsts = 4

// choose finds the tightest domain that takes all members that wait, or the one that takes most; nil if none has
// a fresh node for an anchor of any of the specs. Domains are looked at in the order of a bound on how many they
// can take, so that most are not looked at. It returns what it has when ctx ends.
func (p *anchorPass) choose(ctx context.Context, need *anchorNeed, firsts []*orbit.Spec) (*anchorChoice, error) {
	type candidate struct {
		*domain
		most  int
		spare float64
	}
	var candidates []candidate
	level := p.rooms.level(need.level)
	for d := range level.domains {
		if free := level.sum(&p.rooms, d); len(level.domains[d].nodes) > 0 {
			candidates = append(candidates, candidate{&level.domains[d], need.atMost(free), need.spare(free)})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.spare, b.spare), cmp.Compare(a.name, b.name))
	})
	var best *anchorChoice
	taken := 0
	for _, first := range firsts[:min(len(firsts), mostFirsts)] {
		for _, c := range candidates {
			if err := ctx.Err(); err != nil || c.most <= taken {
				if err != nil {
					return best, err
				}
				break
			}
			if seats := p.pack(c.nodes, need, first); len(seats) > taken {
				best, taken = &anchorChoice{c.name, seats}, len(seats)
			}
		}
	}
	return best, nil
}

// pack seats the anchor on a fresh node of the domain, and as many other members as find room: node by node, on
// each the hardest first. Its own node comes first, then those that groups have a part in already, so that fresh
// ones are left for other anchors, and among alike the fullest. It returns nil if there is no seat for the anchor.
func (p *anchorPass) pack(domain []int32, need *anchorNeed, first *orbit.Spec) []anchorSeat {
	nodes := p.rank(domain, need)
	lead := slices.IndexFunc(nodes, func(n rankedNode) bool { return n.fresh() && p.takesAnchor(n.at, first) })
	if lead < 0 {
		return nil
	}
	anchor := nodes[lead].at
	room := p.rooms.nodes[anchor]
	devices, _ := room.tightest(&first.Devices)
	room.take(first, devices)
	f := filling{pass: p, home: room.node.Node, left: make([]int, len(need.roles)), need: need}
	for i, r := range need.roles {
		f.left[i] = r.count - btoi(r.spec == first)
	}
	f.seats = append(f.seats, anchorSeat{anchor, f.home, first, devices})
	f.fill(anchor, room)
	slices.SortStableFunc(nodes, func(a, b rankedNode) int { return btoi(a.fresh()) - btoi(b.fresh()) })
	for _, n := range nodes {
		if len(f.seats) >= need.total {
			break
		}
		if n.at != anchor {
			f.fill(n.at, p.rooms.nodes[n.at])
		}
	}
	return f.seats
}

// takesAnchor reports whether a node would take an anchor of the spec: it fits, and others can follow there.
func (p *anchorPass) takesAnchor(i int, spec *orbit.Spec) bool {
	room := &p.rooms.nodes[i]
	_, fits := room.fits(spec)
	return fits && p.accepts(room.node, spec) && anchorDomainOf(p.state, room.node.Node, spec.Near.Level) != ""
}

// accepts reports whether a node is one that the spec and the filter allow.
func (p *anchorPass) accepts(n *orbit.NodeState, spec *orbit.Spec) bool {
	return accepts(n.Node, spec) && (p.Filter == nil || p.Filter(n, p.view.Report(n), spec) == "")
}

// rankedNode is a node of a domain and how much of it the members would leave.
type rankedNode struct {
	at    int
	id    orbit.NodeID
	claim anchorClaim
	spare float64
}

// fresh reports whether no group has a part in the node.
func (n *rankedNode) fresh() bool { return n.claim == unclaimed }

// rank returns the nodes of a domain on which a member fits, fullest first.
func (p *anchorPass) rank(domain []int32, need *anchorNeed) []rankedNode {
	var out []rankedNode
	for _, i := range domain {
		room := &p.rooms.nodes[i]
		free := room.measure(room.node.Node)
		if need.atMost(&free) > 0 {
			out = append(out, rankedNode{int(i), room.node.Node.ID, p.claimed(int(i)), need.spare(&free)})
		}
	}
	slices.SortFunc(out, func(a, b rankedNode) int {
		return cmp.Or(cmp.Compare(a.spare, b.spare), cmp.Compare(a.id, b.id))
	})
	return out
}

// filling seats members node by node.
type filling struct {
	pass *anchorPass
	need *anchorNeed
	// The anchor's node: the others must be where it is, at the level that each wants.
	home  *orbit.Node
	left  []int
	seats []anchorSeat
}

// fill seats as many members as fit on a node, of which room is a copy.
func (f *filling) fill(at int, room anchorRoom) {
	for i, r := range f.need.roles {
		if f.left[i] == 0 || !f.follows(&room, r.spec) {
			continue
		}
		for f.left[i] > 0 {
			devices, fits := room.fits(r.spec)
			if !fits {
				break
			}
			room.take(r.spec, devices)
			f.seats = append(f.seats, anchorSeat{at, room.node.Node, r.spec, devices})
			f.left[i]--
		}
	}
}

// follows reports whether members of the spec may be on a node because the anchor is where it is.
func (f *filling) follows(room *anchorRoom, spec *orbit.Spec) bool {
	state, level := f.pass.state, spec.Near.Level
	domain := anchorDomainOf(state, f.home, level)
	return domain != "" && domain == anchorDomainOf(state, room.node.Node, level) && f.pass.accepts(room.node, spec)
}
