package place

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// district stands for all nodes that are in the same domain on each level about which a spec has preferences or rules.
// Company in these domains changes the value of all nodes of a district by the same amount, and a rule closes all of
// them or none. So the node of a district with the best score is the best node of that district, and placements in
// other districts do not change this. Each district therefore has a search of its own, which continues where it
// stopped, and a choice compares the best nodes of the open districts.
//
// A spec without preferences begins with a single search of all open nodes, because a plan that places one capsule
// would otherwise begin many searches for one choice. It gets a search for each district once a domain has opened or
// closed, because a single search would have to begin anew each time.
type district struct {
	// The kinds of nodes in the district that suit the spec, and one node of the district.
	kinds kd.Kinds
	like  *orbit.Node
}

// wholeCountry, in place of the index of a district, stands for all districts.
const wholeCountry = -1

// divided reports whether each district has a search of its own.
func (c *specClass) divided() bool { return len(c.wishes) > 0 || c.parted }

// settleClosing finds the levels of rules by which the kinds divide the nodes. If these levels have changed, it drops
// the districts, and settleDistricts computes them anew.
func (c *specClass) settleClosing(kinds *nodeKinds) {
	var closing []string
	for _, level := range c.near.rules {
		if level != orbit.NodeKey && kinds.divides(level) {
			closing = append(closing, level)
		}
	}
	if !slices.Equal(closing, c.closing) {
		c.closing, c.districtOf, c.districts = closing, c.districtOf[:0], c.districts[:0]
	}
}

// settleDistricts assigns each kind to its district, for the kinds that have been added since the last call.
func (c *specClass) settleDistricts(kinds *nodeKinds) {
	for kind := len(c.districtOf); kind < len(c.byKind); kind++ {
		like := kinds.like[kind]
		at := slices.IndexFunc(c.districts, func(d district) bool {
			differs := func(level string) bool { return d.like.Labels[level] != like.Labels[level] }
			return !slices.ContainsFunc(c.wishes, differs) && !slices.ContainsFunc(c.closing, differs)
		})
		if at < 0 {
			at = len(c.districts)
			c.districts = append(c.districts, district{like: like})
		}
		c.districtOf = append(c.districtOf, int16(at))
		if c.byKind[kind] != notSuited {
			c.districts[at].kinds |= kd.KindsOf(int32(kind))
		}
	}
}

// searches reports whether a search can serve the preferences of the spec about company. Two conditions must hold. The
// kinds leave out no level of these preferences, or a kind would not tell its domains. And no wish about single nodes
// has a negative weight: it would make a node better than its bound, which does not know the company on the node.
func (c *specClass) searches(kinds *nodeKinds) bool {
	return !slices.ContainsFunc(c.wishes, kinds.leavesOut) && !slices.ContainsFunc(c.near.company.own, func(w wish) bool { return w.weight < 0 })
}

// beginDistricts prepares the searches of the districts of a class. The search of a district begins only when a choice
// needs it.
func (e *Indexed) beginDistricts(c *specClass) {
	if e.frontier.class = c; e.frontier.ties == nil {
		e.frontier.ties, e.frontier.ring = &ties{}, &leastHashes{}
	}
	for _, f := range e.districts {
		clear(f.seen) // the boxes of old trees can be freed
		f.class, f.seen = nil, f.seen[:0]
	}
	for len(e.districts) < len(c.districts) {
		e.districts = append(e.districts, &frontier{ties: e.frontier.ties, ring: e.frontier.ring})
	}
}

// searchOf returns the search that covers a node of the class.
func (e *Indexed) searchOf(c *specClass, slot int32) *frontier {
	if !c.divided() {
		return &e.frontier
	}
	return e.districts[c.districtOf[e.index.nodes.at(slot).kind]]
}

// visit is a district to compare, with the order of its nodes (company.order) and what company in its domains adds to
// their value.
type visit struct {
	district, order int
	adds            float64
}

// visitDistricts returns the best node of the districts in e.visits. It calls bestOf for the best node of each, by its
// own value, in order of rising company, and stops where the order alone makes a district worse; a district may always be
// better than a last resort. It reports false if bestOf does.
func (e *Indexed) visitDistricts(bestOf func(v *visit, best *pick) (pick, bool)) (best pick, ok bool) {
	slices.SortFunc(e.visits, func(a, b visit) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.adds, b.adds)) })
	for i := range e.visits {
		v := &e.visits[i]
		if best.node != nil && !best.last && v.order > best.order {
			break
		}
		p, ok := bestOf(v, &best)
		if !ok {
			return pick{}, false
		}
		if p.node == nil {
			continue
		}
		p.order, p.value = v.order, p.own+v.adds // as company.weigh computes for each node of the district
		if best.node == nil || e.rater.better(&p, &best) {
			best = p
		}
	}
	return best, true
}

// searchDistricts chooses by a search of each open district. It reports false if one of them does not converge.
func (e *Indexed) searchDistricts(c *specClass) (best pick, ok bool) {
	x, wishes, open := &e.index, &c.near.company, c.reached(&e.index.nodes)
	e.visits = e.visits[:0]
	for i := range c.districts {
		if d := &c.districts[i]; d.kinds&open != 0 && c.opens(d.like) {
			e.visits = append(e.visits, visit{i, wishes.order(d.like), wishes.inDomains(d.like)})
		}
	}
	best, ok = e.visitDistricts(func(v *visit, best *pick) (pick, bool) {
		f := e.districts[v.district]
		if f.class != c {
			f.begin(c, x, int16(v.district), c.districts[v.district].kinds&open)
		}
		// The bound of the district is worse than the best node so far. With several parts the bound alone does not
		// decide, because the part comes before the value.
		if len(f.heap) == 0 || best.node != nil && !best.last && e.rater.parts <= 1 && f.heap[0].value+v.adds > best.value {
			return pick{}, true
		}
		return f.next(x, &e.rater)
	})
	if !ok {
		e.frontier.class = nil
	}
	return best, ok
}

// rankDistricts chooses the best node from the scores that the tournament of the class keeps.
func (e *Indexed) rankDistricts(c *specClass) pick {
	list, wishes := c.tournament.districts, &c.near.company
	e.visits = e.visits[:0]
	for i := range list.all {
		if d := &list.all[i]; len(d.slots) > 0 {
			e.visits = append(e.visits, visit{i, wishes.order(d.like), wishes.inDomains(d.like)})
		}
	}
	best, _ := e.visitDistricts(func(v *visit, _ *pick) (pick, bool) {
		return c.tournament.bestIn(&list.all[v.district], c, &e.rater), true
	})
	return best
}

// bestIn returns the node of a district with the best own value. It goes through all nodes of the district if one of
// them has changed, or if rules of company may close some; else it returns the node found before.
func (k *tournament) bestIn(d *listedDistrict, c *specClass, r *rater) (best pick) {
	if d.known && len(c.near.rules) == 0 {
		if d.best != none {
			best = k.pick(d.best, r)
		}
		return best
	}
	d.best, d.known = none, len(c.near.rules) == 0 // a node that is closed now may be the best once it is open
	for _, slot := range d.slots {
		value := k.values[slot]
		if value != value || d.best != none && !best.last && r.parts <= 1 && value > best.own {
			continue
		}
		p := k.pick(slot, r)
		if d.best == none || r.better(&p, &best) {
			if c.near.opens(p.node.Node) {
				d.best, best = slot, p
			}
		}
	}
	return best
}

// districtList lists all nodes by district, for a class whose scores a tournament keeps.
type districtList struct {
	levels []string
	byText map[string]int32
	all    []listedDistrict
	// By node index: the district of each node, and the position of the node in it. The district is none if there is no
	// such node.
	of, at []int32
}

// listedDistrict is a district with the indices of its nodes.
type listedDistrict struct {
	like  *orbit.Node
	slots []int32
	// The best node when it was last looked for, and whether it still is.
	best  int32
	known bool
}

func newDistrictList(levels []string, bound int) *districtList {
	l := &districtList{levels: levels, byText: map[string]int32{}, of: make([]int32, bound), at: make([]int32, bound)}
	for i := range l.of {
		l.of[i] = none
	}
	return l
}

// sparse reports whether most districts have lost all their nodes, so that the list should be built anew.
func (l *districtList) sparse() bool { return l != nil && len(l.all) > 2*len(l.of)+64 }

// bytes estimates the memory that the list takes.
func (l *districtList) bytes() int {
	if l == nil {
		return 0
	}
	return 4*cap(l.of) + 4*cap(l.at) + 4*len(l.of) + 96*cap(l.all)
}

// file moves a node to the district that its labels name now, or takes it out if n is nil. The best nodes of the
// districts concerned have to be looked for again.
func (l *districtList) file(slot int32, n *orbit.NodeState) {
	if was := l.of[slot]; was != none {
		d := &l.all[was]
		if d.known = false; n != nil && l.alike(d.like, n.Node) {
			return
		}
		end := d.slots[len(d.slots)-1]
		d.slots[l.at[slot]], l.at[end] = end, l.at[slot]
		d.slots = d.slots[:len(d.slots)-1]
		l.of[slot] = none
	}
	if n == nil {
		return
	}
	var text []byte
	for _, level := range l.levels {
		text = word(text, n.Node.Labels[level])
	}
	i, known := l.byText[string(text)]
	if !known {
		i = int32(len(l.all))
		l.byText[string(text)] = i
		l.all = append(l.all, listedDistrict{like: n.Node})
	}
	d := &l.all[i]
	l.of[slot], l.at[slot] = i, int32(len(d.slots))
	d.slots, d.known = append(d.slots, slot), false
}

// alike reports whether two nodes are in the same district: equal on all levels of the list.
func (l *districtList) alike(a, b *orbit.Node) bool {
	return a == b || !slices.ContainsFunc(l.levels, func(level string) bool { return a.Labels[level] != b.Labels[level] })
}
