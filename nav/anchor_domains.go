package nav

import (
	"math"
)

// anchorLevel is the domains of one level and what is free of them, kept for levels that groups have asked for.
type anchorLevel struct {
	domainTable
	// By domain number.
	sums []domainSum
}

// domainSum is what is free on all nodes of a domain that take new work, if it is known.
type domainSum struct {
	free  quantities
	known bool
}

// maxLevels is how many levels are kept; the one not used longest goes first.
const maxLevels = 16

// level returns a level as it is now. It costs a look at all nodes when the level is new.
func (r *anchorRooms) level(key string) *anchorLevel {
	r.clock++
	l := r.levels[key]
	if l != nil && !l.sparse() {
		l.used = r.clock
		return l
	}
	if r.levels == nil {
		r.levels = map[string]*anchorLevel{}
	}
	if l == nil && len(r.levels) >= maxLevels {
		delete(r.levels, r.oldest())
	}
	l = &anchorLevel{domainTable: domainTable{level: key, used: r.clock}}
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
	na, nb := r.level(a).live, r.level(b).live
	return na > nb || na == nb && a < b
}

// move puts a node into the domain that it is in now. Either way the domain's sum is not known any more.
func (l *anchorLevel) move(r *anchorRooms, i int) {
	name := ""
	if n := r.nodes[i].node; n != nil {
		name = anchorDomainOf(r.view.State(), n.Node, l.level)
	}
	l.spoil(i)
	l.put(int32(i), name, name != "")
	l.spoil(i)
}

// spoil forgets the sum of the domain that a node is in.
func (l *anchorLevel) spoil(i int) {
	if i < len(l.of) && l.of[i] >= 0 && int(l.of[i]) < len(l.sums) {
		l.sums[l.of[i]].known = false
	}
}

// sum returns what is free in a domain, until the next call.
func (l *anchorLevel) sum(r *anchorRooms, d int) *quantities {
	for len(l.sums) < len(l.domains) {
		l.sums = append(l.sums, domainSum{})
	}
	s := &l.sums[d]
	if s.known {
		return &s.free
	}
	s.free, s.known = quantities{}, true
	for _, i := range l.domains[d].nodes {
		room := &r.nodes[i]
		if room.node.Node.Unschedulable {
			continue
		}
		for k, free := range room.measure(room.node.Node) {
			s.free[k] = addFree(s.free[k], free)
		}
	}
	return &s.free
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
