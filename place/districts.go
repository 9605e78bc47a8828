package place

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// district is the nodes that are in the same domains of all levels about which a spec has wishes or rules. The company in these domains changes the value of
// all nodes of a district by the same amount, and a rule closes all of them or none. So the node with the best score is the best of its district, and placements
// in other districts do not change that. Each district therefore has a search by itself, which goes on where it stopped, and a choice compares the best nodes of the
// districts that are open.
//
// A spec without wishes has one search of all open nodes at first, because a plan that places one capsule would begin many searches for one choice. It
// gets a search for each district when a domain has opened or closed, because one search would have to begin anew each time.
type district struct {
	// The kinds of its nodes that suit the spec, and one node of it.
	kinds kd.Kinds
	like  *orbit.Node
}

// wholeCountry stands for all districts.
const wholeCountry = -1

// divided reports whether each district has a search by itself.
func (c *specClass) divided() bool { return len(c.wishes) > 0 || c.parted }

// settleClosing finds the levels of rules by which the kinds divide the nodes. If they have changed, the districts are settled anew.
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

// settleDistricts finds the districts of the kinds that have been added since the last call.
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

// searches reports whether a search can serve what the spec wishes of company: the kinds of nodes have to know their domains, and what company on a node adds
// must not make it better than its bound.
func (c *specClass) searches(kinds *nodeKinds) bool {
	return !slices.ContainsFunc(c.wishes, kinds.leavesOut) && !slices.ContainsFunc(c.near.company.own, func(w wish) bool { return w.weight < 0 })
}

// beginDistricts makes the class the one whose districts are searched. Each search begins when it is needed.
func (e *Indexed) beginDistricts(c *specClass) {
	if e.frontier.class = c; e.frontier.ties == nil {
		e.frontier.ties, e.frontier.ring = &ties{}, &leastHashes{}
	}
	for _, f := range e.districts {
		clear(f.seen) // of trees that are no more
		f.class, f.seen = nil, f.seen[:0]
	}
	for len(e.districts) < len(c.districts) {
		e.districts = append(e.districts, &frontier{ties: e.frontier.ties, ring: e.frontier.ring})
	}
}

// searchOf returns the search to which a node of the class belongs.
func (e *Indexed) searchOf(c *specClass, slot int32) *frontier {
	if !c.divided() {
		return &e.frontier
	}
	return e.districts[c.districtOf[e.index.nodes.at(slot).kind]]
}

// visit is a district to look at, and what the company in it comes to.
type visit struct {
	district, order int
	adds            float64
}

// visitDistricts compares the best nodes of the districts in e.visits, those with the least company first.
func (e *Indexed) visitDistricts(bestOf func(v *visit, best *pick) (pick, bool)) (best pick, ok bool) {
	slices.SortFunc(e.visits, func(a, b visit) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.adds, b.adds)) })
	for i := range e.visits {
		v := &e.visits[i]
		if best.node != nil && v.order > best.order {
			break
		}
		p, ok := bestOf(v, &best)
		if !ok {
			return pick{}, false
		}
		if p.node == nil {
			continue
		}
		p.order, p.value = v.order, p.own+v.adds // as company.weigh says of each node there
		if best.node == nil || e.rater.better(&p, &best) {
			best = p
		}
	}
	return best, true
}

// searchDistricts chooses by a search of each district. It reports false if one does not converge.
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
		if len(f.heap) == 0 || best.node != nil && e.rater.parts <= 1 && f.heap[0].value+v.adds > best.value {
			return pick{}, true
		}
		return f.next(x, &e.rater)
	})
	if !ok {
		e.frontier.class = nil
	}
	return best, ok
}

// rankDistricts chooses by the scores that are kept.
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

// bestIn returns the best node of a district by its own value. It looks at all nodes of the district if one of them has changed, or if rules may close some.
func (k *tournament) bestIn(d *listedDistrict, c *specClass, r *rater) (best pick) {
	if d.known && len(c.near.rules) == 0 {
		if d.best != none {
			best = k.pick(d.best, r)
		}
		return best
	}
	d.best, d.known = none, len(c.near.rules) == 0 // a node that a rule closes now may be the best when the rule is gone
	for _, slot := range d.slots {
		value := k.values[slot]
		if value != value || d.best != none && r.parts <= 1 && value > best.own {
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

// districtList lists all nodes by district, for scores that are kept.
type districtList struct {
	levels []string
	byText map[string]int32
	all    []listedDistrict
	// The district of each node and its position there, by node index; none: there is no such node.
	of, at []int32
}

type listedDistrict struct {
	like  *orbit.Node
	slots []int32
	// The best node as it was when it was looked for, and whether that holds.
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

// sparse reports whether most districts have no nodes any more.
func (l *districtList) sparse() bool { return l != nil && len(l.all) > 2*len(l.of)+64 }

// bytes is about what the list takes.
func (l *districtList) bytes() int {
	if l == nil {
		return 0
	}
	return 4*cap(l.of) + 4*cap(l.at) + 4*len(l.of) + 96*cap(l.all)
}

// file puts a node into its district, nil into none, and forgets which node is the best there.
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

// alike reports whether two nodes are in the same district.
func (l *districtList) alike(a, b *orbit.Node) bool {
	return a == b || !slices.ContainsFunc(l.levels, func(level string) bool { return a.Labels[level] != b.Labels[level] })
}
