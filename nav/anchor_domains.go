package nav

import (
	"math"
)

// anchorLevel is which node is in which domain of one level, kept for levels that groups have asked for.
type anchorLevel struct {
	key     string
	domains map[string]*anchorDomain
	// By node index: its domain, nil if in none, and its position there.
	in []*anchorDomain
	at []int
	// When it was last looked at.
	used uint64
}

// anchorDomain is the nodes that have one label in common.
type anchorDomain struct {
	name string
	// Indices, in no order.
	nodes []int
	// What is free on all that take new work; wrong if stale.
	free  quantities
	stale bool
}

// maxLevels is how many levels are kept; the one not used longest goes first.
const maxLevels = 16

// level returns a level as it is now. It costs a look at all nodes when the level is new.
func (r *anchorRooms) level(key string) *anchorLevel {
	r.clock++
	if l := r.levels[key]; l != nil {
		l.used = r.clock
		return l
	}
	if r.levels == nil {
		r.levels = map[string]*anchorLevel{}
	}
	if len(r.levels) >= maxLevels {
		delete(r.levels, r.oldest())
	}
	l := &anchorLevel{key: key, domains: map[string]*anchorDomain{}, used: r.clock}
	r.levels[key] = l
	for i := range r.nodes {
		l.move(r, i)
	}
	return l
}

// oldest returns the level not used longest.
func (r *anchorRooms) oldest() (key string) {
	at := uint64(math.MaxUint64)
	for k, l := range r.levels {
		if l.used < at { // no two are used at once
			key, at = k, l.used
		}
	}
	return key
}

// narrower reports whether a has more domains than b, by name if as many.
func (r *anchorRooms) narrower(a, b string) bool {
	if a == b {
		return false
	}
	na, nb := len(r.level(a).domains), len(r.level(b).domains)
	return na > nb || na == nb && a < b
}

// of returns the domain of a node.
func (l *anchorLevel) of(i int) *anchorDomain {
	if i < len(l.in) {
		return l.in[i]
	}
	return nil
}

// move puts a node into the domain that it is in now. Either way the domain's sums are stale.
func (l *anchorLevel) move(r *anchorRooms, i int) {
	for len(l.in) <= i {
		l.in, l.at = append(l.in, nil), append(l.at, 0)
	}
	name, was := "", l.in[i]
	if n := r.nodes[i].node; n != nil {
		name = anchorDomainOf(r.view.State(), n.Node, l.key)
	}
	if was != nil {
		was.stale = true
		if was.name == name {
			return
		}
		l.leave(was, i)
	}
	if name == "" {
		return
	}
	d := l.domains[name]
	if d == nil {
		d = &anchorDomain{name: name}
		l.domains[name] = d
	}
	l.in[i], l.at[i] = d, len(d.nodes)
	d.nodes, d.stale = append(d.nodes, i), true
}

// leave takes a node out of its domain, which goes with its last node.
func (l *anchorLevel) leave(d *anchorDomain, i int) {
	last := d.nodes[len(d.nodes)-1]
	d.nodes[l.at[i]], l.at[last] = last, l.at[i]
	d.nodes = d.nodes[:len(d.nodes)-1]
	l.in[i] = nil
	if len(d.nodes) == 0 {
		delete(l.domains, d.name)
	}
}

// sum returns what is free in a domain.
func (d *anchorDomain) sum(r *anchorRooms) *quantities {
	if !d.stale {
		return &d.free
	}
	d.free, d.stale = quantities{}, false
	for _, i := range d.nodes {
		room := &r.nodes[i]
		if room.node.Node.Unschedulable {
			continue
		}
		for k, free := range room.measure(room.node.Node) {
			d.free[k] = addFree(d.free[k], free)
		}
	}
	return &d.free
}

// claimed returns which part groups have in a node.
func (p *anchorPass) claimed(i int) anchorClaim {
	room := &p.rooms.nodes[i]
	if room.claim != claimUnknown {
		return room.claim
	}
	room.claim = unclaimed
	if p.holds.on[room.node.Node.ID] > 0 {
		room.claim = claimHeld
	}
	for c := range p.state.On(room.node.Node.ID) {
		if c.Spec.Group != "" {
			room.claim = claimHosted
			break
		}
	}
	return room.claim
}
