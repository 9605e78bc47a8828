package place

import (
	"cmp"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/kd"
)

// district is the kinds of nodes that are in the same domains of all levels of which a spec wishes something, and one node of them. What company in its domains
// adds is the same for all nodes of a district, so among them the best is the one with the best score of its own: each district has a search by itself, which
// continues whatever is placed elsewhere, and one choice compares the best of some of them.
type district struct {
	kinds kd.Kinds
	like  *orbit.Node
}

// wholeCountry stands for all districts.
const wholeCountry = -1

// settleKind finds the district of the next kind.
func (c *specClass) settleKind(kind int32, like *orbit.Node, suits bool) {
	same := func(d district) bool {
		return !slices.ContainsFunc(c.levels, func(level string) bool { return d.like.Labels[level] != like.Labels[level] })
	}
	at := slices.IndexFunc(c.districts, same)
	if at < 0 {
		at = len(c.districts)
		c.districts = append(c.districts, district{like: like})
	}
	c.districtOf = append(c.districtOf, int16(at))
	if suits {
		c.districts[at].kinds |= kd.KindsOf(kind)
	}
}

// searches reports whether a search can serve what the spec wishes of company: the kinds of nodes have to know their domains, and what company on a node adds
// must not make it better than its bound.
func (c *specClass) searches(kinds *nodeKinds) bool {
	return !slices.ContainsFunc(c.levels, kinds.leavesOut) && !slices.ContainsFunc(c.near.company.own, func(w wish) bool { return w.weight < 0 })
}

// visit is a district to look at, and what the company in it comes to.
type visit struct {
	district, order int
	adds            float64
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
	if len(c.levels) == 0 {
		return &e.frontier
	}
	return e.districts[c.districtOf[e.index.nodes.at(slot).kind]]
}

// searchDistricts compares the best nodes of the districts, those with the least company first. It reports false if a search does not converge.
func (e *Indexed) searchDistricts(c *specClass) (best pick, ok bool) {
	x, wishes, open := &e.index, &c.near.company, c.kinds(&e.index.nodes)
	e.visits = e.visits[:0]
	for i := range c.districts {
		if d := &c.districts[i]; d.kinds&open != 0 {
			e.visits = append(e.visits, visit{i, wishes.order(d.like), wishes.inDomains(d.like)})
		}
	}
	slices.SortFunc(e.visits, func(a, b visit) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.adds, b.adds)) })
	for _, v := range e.visits {
		if best.node != nil && v.order > best.order {
			break
		}
		f, kinds := e.districts[v.district], c.districts[v.district].kinds&open
		if f.class != c || f.kinds != kinds {
			f.begin(c, x, int16(v.district), kinds)
		}
		if len(f.heap) == 0 || best.node != nil && e.rater.parts <= 1 && f.heap[0].value+v.adds > best.value {
			continue
		}
		p, ok := f.next(x, &e.rater)
		if !ok {
			e.frontier.class = nil
			return pick{}, false
		}
		if p.node == nil {
			continue
		}
		if wishes.weigh(&p); best.node == nil || e.rater.better(&p, &best) {
			best = p
		}
	}
	return best, true
}
