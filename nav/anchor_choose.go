package nav

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// anchorSeat is the planned node of one member of a group.
type anchorSeat struct {
	// The node, by index.
	at      int
	spec    *orbit.Spec
	devices orbit.DeviceSet
}

// anchorHome is a candidate domain for an anchor: nodes that are in the same domain at each of some levels.
type anchorHome struct {
	*seats.Domain
	// By level of the need, the domain around this home; nil if there is none, or if the level is not among those
	// considered now.
	around []*seats.Domain
	// Upper bounds on how many members find room if the group starts here, and on how many of them at home; and how
	// much of the home's free capacity would be left, by anchorNeed.spare.
	most, atHome int
	spare        float64
}

// maxTogether bounds how many levels are considered together. A group that names more levels is tried with a few of
// them at a time.
const maxTogether = 4

// chooseAtOnce is choose, but first it looks only at nodes on which all members can begin at once and none of them has
// failed lately ([orbit.Draft.LastResort]), and takes other nodes only if more members find room then.
func (p *anchorPass) chooseAtOnce(ctx context.Context, need *anchorNeed, firsts []*orbit.Spec, waiting []*orbit.Capsule) ([]anchorSeat, error) {
	p.draft.Avoid(waiting...)
	defer p.draft.Avoid()
	burdened := false
	for range p.draft.Burdened() {
		burdened = true
		break
	}
	if !burdened {
		return p.choose(ctx, need, firsts)
	}
	p.strict = true
	best, err := p.choose(ctx, need, firsts)
	if p.strict = false; err != nil || len(best) == need.total {
		return best, err
	}
	more, err := p.choose(ctx, need, firsts)
	if len(more) > len(best) {
		best = more
	}
	return best, err
}

// choose returns a seat for each member that fits if the group starts in the tightest home from which all waiting
// members find room, or else in the one from which most do. The anchor's seat is first. It returns nil if no spec has a
// fresh node for an anchor. It evaluates homes in the order of a bound on how many members can follow, so that it can
// skip most of them. When ctx ends, it returns the best result so far.
func (p *anchorPass) choose(ctx context.Context, need *anchorNeed, firsts []*orbit.Spec) (best []anchorSeat, err error) {
	for levels := range slices.Chunk(need.levels, maxTogether) {
		for _, h := range p.homes(need, levels) {
			if h.most <= len(best) {
				break
			}
			nodes := p.rank(h.Nodes, need)
			for _, first := range firsts {
				if err := ctx.Err(); err != nil {
					return best, err
				}
				if seats := p.pack(&h, nodes, need, first); len(seats) > len(best) {
					best = seats
				}
				if len(best) >= h.most {
					break
				}
			}
		}
	}
	return best, nil
}

// homes returns the candidate domains of a group, best bound first. Members that want company at a level that is not
// considered now are taken to find room everywhere.
func (p *anchorPass) homes(need *anchorNeed, levels []string) (out []anchorHome) {
	p.domains.Follow()
	together, tables := p.domains.Table(levels...), make([]*seats.Table, len(need.levels))
	for i, level := range need.levels {
		if slices.Contains(levels, level) {
			tables[i] = p.domains.Table(level)
		}
	}
	around := make([]*seats.Domain, len(together.Domains)*len(tables))
	for d := range together.Domains {
		in := &together.Domains[d]
		if len(in.Nodes) == 0 {
			continue
		}
		free := together.Free(&p.draft, d)
		h := anchorHome{Domain: in, around: around[d*len(tables):][:len(tables)], atHome: need.atMost(free), spare: need.spare(free)}
		for i, l := range tables {
			if l == nil {
				h.most += need.parts[i].total
			} else if at := l.Of[in.Nodes[0]]; at >= 0 {
				h.most += need.parts[i].atMost(l.Free(&p.draft, int(at)))
				h.around[i] = &l.Domains[at]
			}
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b anchorHome) int {
		return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(b.atHome, a.atHome), cmp.Compare(a.spare, b.spare),
			cmp.Compare(a.Name, b.Name))
	})
	return out
}

// pack seats the anchor on a fresh node of its home, and as many other members as find room. Members whose domain
// around the anchor is smallest come first. They fill node by node: the anchor's own node, then the home's nodes in
// their order, then the nodes around it; on each node the members with the largest part of the need come first. It
// returns nil if the anchor has no seat. The draft stays as it is.
func (p *anchorPass) pack(h *anchorHome, nodes []rankedNode, need *anchorNeed, first *orbit.Spec) []anchorSeat {
	start := p.draft.Checkpoint()
	defer func() { p.draft.Rollback(start) }()
	f := filling{pass: p, left: map[*orbit.Spec]int{}}
	for _, r := range need.roles {
		f.left[r.spec] = r.count
	}
	lead := slices.IndexFunc(nodes, func(n rankedNode) bool { // the rules of company may forbid a node that fits
		return n.fresh && p.takesAnchor(p.draft.Node(n.at), first) && f.seat(n.at, first)
	})
	if lead < 0 {
		return nil
	}
	own := nodes[lead : lead+1]
	f.home = p.draft.Node(own[0].at).Node
	if len(need.levels) > 1 && h.most > h.atHome { // the nodes around the home too, some of which are in it
		var around []int32
		for _, d := range h.around {
			if d != nil {
				around = append(around, d.Nodes...)
			}
		}
		nodes = slices.Concat(nodes, p.rank(around, need))
	}
	for _, part := range h.nearest(need) {
		f.fill(own, part)
		f.fill(nodes, part)
	}
	return f.seats
}

// nearest returns the members by level, those first whose domain has the fewest nodes.
func (h *anchorHome) nearest(need *anchorNeed) []*anchorNeed {
	reach := map[*anchorNeed]int{}
	for i, part := range need.parts {
		if reach[part] = math.MaxInt; h.around[i] != nil {
			reach[part] = len(h.around[i].Nodes)
		}
	}
	return slices.SortedStableFunc(slices.Values(need.parts), func(a, b *anchorNeed) int { return cmp.Compare(reach[a], reach[b]) })
}

// takesAnchor reports whether an anchor of the spec fits on a node, and the node is in a domain of the spec's level so
// that other members can follow.
func (p *anchorPass) takesAnchor(n *orbit.NodeState, spec *orbit.Spec) bool {
	return n.Fits(spec) && !p.isLast(n, spec) && p.filtered(n, spec) == "" && anchorDomainOf(p.state, n.Node, spec.Near.Level) != ""
}

// isLast reports whether a node is left out now because it is a last resort. The node must take a capsule of the spec.
func (p *anchorPass) isLast(n *orbit.NodeState, spec *orbit.Spec) bool {
	return p.strict && p.draft.LastResort(n, spec)
}

// rankedNode is a node with what decides its order in rank: spare is what the members would leave of its free capacity.
type rankedNode struct {
	at int
	id orbit.NodeID
	// No group has a member or a hold on it.
	fresh bool
	spare float64
}

// rank returns the nodes on which a member fits. Nodes on which groups have members or holds come first, so that fresh
// nodes are left for other anchors; among alike nodes the fullest comes first.
func (p *anchorPass) rank(nodes []int32, need *anchorNeed) []rankedNode {
	var out []rankedNode
	for _, i := range nodes {
		n := p.draft.Node(int(i))
		if free := seats.MeasureFree(n); need.atMost(&free) > 0 {
			out = append(out, rankedNode{int(i), n.Node.ID, p.claimed(n) == unclaimed, need.spare(&free)})
		}
	}
	slices.SortFunc(out, func(a, b rankedNode) int {
		return cmp.Or(btoi(a.fresh)-btoi(b.fresh), cmp.Compare(a.spare, b.spare), cmp.Compare(a.id, b.id))
	})
	return out
}

// filling places members on the draft, node by node.
type filling struct {
	pass *anchorPass
	// The anchor's node. The other members must be in its domain, each at the level that its spec names.
	home  *orbit.Node
	left  map[*orbit.Spec]int
	seats []anchorSeat
}

// seat reserves room for a member on a node of the draft. It reports false if the node has none.
func (f *filling) seat(at int, spec *orbit.Spec) bool {
	n := f.pass.draft.Node(at)
	if !n.Fits(spec) || f.pass.isLast(n, spec) {
		return false
	}
	devices, _ := n.PickDevices(spec)
	if f.pass.draft.Reserve(spec, orbit.Choice{Node: n, Devices: devices}) != nil {
		return false
	}
	f.seats = append(f.seats, anchorSeat{at, spec, devices})
	f.left[spec]--
	return true
}

// fill seats as many members of one level as fit on the nodes.
func (f *filling) fill(nodes []rankedNode, part *anchorNeed) {
	for _, n := range nodes {
		if !slices.ContainsFunc(part.roles, func(r anchorRole) bool { return f.left[r.spec] > 0 }) {
			return
		}
		for _, r := range part.roles {
			for f.left[r.spec] > 0 && f.follows(n.at, r.spec) && f.seat(n.at, r.spec) {
			}
		}
	}
}

// follows reports whether members of the spec may be placed on a node once the anchor runs on its own.
func (f *filling) follows(at int, spec *orbit.Spec) bool {
	state, n, level := f.pass.state, f.pass.draft.Node(at), spec.Near.Level
	domain := anchorDomainOf(state, f.home, level)
	return domain != "" && domain == anchorDomainOf(state, n.Node, level) && f.pass.filtered(n, spec) == ""
}

// anchorRole is how many of a group's waiting members have one spec.
type anchorRole struct {
	spec  *orbit.Spec
	count int
}

// waitingMembers returns how many members wait for the group's anchor, by spec, less those that this plan has placed
// already. The state counts them, so the owner of a member and the size of the pass's batch do not matter. The order is
// that of the state, which depends on the specs alone.
func (p *anchorPass) waitingMembers(g *anchorGroup) []anchorRole {
	var out []anchorRole
	for spec, count := range p.state.GroupPending(g.name) {
		if g.waitsHere(spec) {
			out = append(out, anchorRole{spec, count - g.came[spec]})
		}
	}
	return out
}

// anchorNeed is what the waiting members of a group ask for together, or its members that want company at one level.
type anchorNeed struct {
	// Hardest first: the members with the largest part of the sum.
	roles []anchorRole
	// The levels at which members want company, in order of their names, and what the members of each level ask for.
	levels []string
	parts  []*anchorNeed
	// Members that wait.
	total int
	// What all members take together; the dimensions in which that is not zero; and for each of those what single
	// members take, least first.
	sum   [seats.AllDims]float64
	dims  []int
	least [seats.AllDims][]anchorPortion
}

// anchorPortion says that count members take want each, in one dimension.
type anchorPortion struct {
	want  int64
	count int
}

// need returns what a group's waiting members ask for, in total and by level.
func (p *anchorPass) need(g *anchorGroup) *anchorNeed {
	n := needOf(p.waitingMembers(g))
	by := map[string][]anchorRole{}
	for _, r := range n.roles {
		by[r.spec.Near.Level] = append(by[r.spec.Near.Level], r)
	}
	n.levels = slices.Sorted(maps.Keys(by))
	for _, level := range n.levels {
		n.parts = append(n.parts, needOf(by[level]))
	}
	return n
}

// needOf returns what the members ask for together.
func needOf(roles []anchorRole) *anchorNeed {
	n := &anchorNeed{roles: roles}
	for _, r := range n.roles {
		n.total += r.count
		for d := range n.sum {
			n.sum[d] += float64(seats.WantOf(r.spec, d)) * float64(r.count)
		}
	}
	for d := range n.sum {
		if n.sum[d] > 0 {
			n.dims = append(n.dims, d)
		}
	}
	slices.SortStableFunc(n.roles, func(a, b anchorRole) int { return cmp.Compare(n.part(b.spec), n.part(a.spec)) })
	for _, d := range n.dims {
		for _, r := range n.roles {
			n.least[d] = append(n.least[d], anchorPortion{seats.WantOf(r.spec, d), r.count})
		}
		slices.SortStableFunc(n.least[d], func(a, b anchorPortion) int { return cmp.Compare(a.want, b.want) })
	}
	return n
}

// part returns the share of the sum that one member takes, in the dimension where that share is largest.
func (n *anchorNeed) part(spec *orbit.Spec) (part float64) {
	for _, d := range n.dims {
		part = max(part, float64(seats.WantOf(spec, d))/n.sum[d])
	}
	return part
}

// atMost returns an upper bound on how many members fit into the free capacity of a whole domain. It takes each
// dimension alone, and counts the smallest members first.
func (n *anchorNeed) atMost(free *seats.Quantities) int {
	most := n.total
	for _, d := range n.dims {
		fit, left := 0, free[d]
		for _, p := range n.least[d] {
			count := p.count
			if p.want > 0 {
				count = int(min(int64(count), left/p.want))
				left -= int64(count) * p.want
			}
			if fit += count; count < p.count {
				break
			}
		}
		most = min(most, fit)
	}
	return most
}

// spare measures how loosely the members fit into a domain: its free capacity as a multiple of what they take. Less is
// tighter.
func (n *anchorNeed) spare(free *seats.Quantities) (spare float64) {
	for _, d := range n.dims {
		spare += float64(free[d]) / n.sum[d]
	}
	return spare
}

// anchorClaim says whether any group has a member or a hold on a node. It is computed on first use.
type anchorClaim uint8

const (
	claimUnknown anchorClaim = iota
	unclaimed
	// The node hosts a member of some group, or will by this plan.
	claimHosted
	// The node has room held for a group, or will by this plan.
	claimHeld
)

// claimTexts are the reasons why a node is not fresh; each completes "n nodes ...".
var claimTexts = [...]string{claimHosted: "host another group", claimHeld: "hold room for another group"}

// claimed returns whether any group has a member or a hold on a node.
func (p *anchorPass) claimed(n *orbit.NodeState) anchorClaim {
	claim := &p.claims[n.Index()]
	if *claim != claimUnknown {
		return *claim
	}
	*claim = unclaimed
	if p.holds.on[n.Node.ID] {
		*claim = claimHeld
	}
	for c := range p.state.On(n.Node.ID) {
		if c.Spec.Group != "" {
			*claim = claimHosted
			break
		}
	}
	return *claim
}
