package nav

import (
	"fmt"
	"math"

	"github.com/orbitsched/orbit"
)

// anchorDomains are the domains of the levels that groups have asked for, and what is free of each. They follow the
// draft by what has changed, and only in plans that start a group.
type anchorDomains struct {
	draft  *orbit.Draft
	cursor uint64
	levels map[string]*anchorLevel
	// By node index, in this plan.
	claims []anchorClaim
}

// anchorClaim says whether a group has a part in a node. It is looked up when it is asked for.
type anchorClaim uint8

const (
	claimUnknown anchorClaim = iota
	unclaimed
	// Hosts a member of some group, or will by this plan.
	claimHosted
	// Has room held for one, or will by this plan.
	claimHeld
)

// begin starts a plan.
func (d *anchorDomains) begin(draft *orbit.Draft) {
	d.draft = draft
	clear(d.claims)
	for len(d.claims) < draft.Bound() {
		d.claims = append(d.claims, claimUnknown)
	}
}

// follow takes over what the draft has changed since the last call.
func (d *anchorDomains) follow() {
	changed, next, all := d.draft.Changed(d.cursor)
	if d.cursor = next; all {
		d.levels = map[string]*anchorLevel{}
		return
	}
	for _, i := range changed {
		for _, l := range d.levels { // in any order
			l.move(d.draft, i)
		}
	}
}

// anchorLevel is the domains of one level and what is free of them. It may be several levels together: then nodes are
// in one domain if they are in the same one at each.
type anchorLevel struct {
	domainTable
	keys []string
	// By node index, what it was filed by.
	seen []*orbit.Node
	// By domain number.
	sums []domainSum
}

// domainSum is what is free on all nodes of a domain that take new work, if it is known.
type domainSum struct {
	free  quantities
	known bool
}

// maxLevels is how many levels are kept. One more, and all are made anew when they are asked for.
const maxLevels = 16

// level returns a level, or several together. It costs a look at all nodes when it is new.
func (d *anchorDomains) level(keys ...string) *anchorLevel {
	key := fmt.Sprintf("%q", keys)
	if l := d.levels[key]; l != nil && !l.sparse() {
		return l
	}
	if len(d.levels) >= maxLevels {
		clear(d.levels)
	}
	l := &anchorLevel{domainTable: domainTable{level: key}, keys: keys}
	d.levels[key] = l
	for i := range d.draft.Bound() {
		l.move(d.draft, int32(i))
	}
	return l
}

// move puts a node into the domain that it is in now. Either way the domain's sum is not known any more.
func (l *anchorLevel) move(draft *orbit.Draft, i int32) {
	var now *orbit.Node
	if n := draft.Node(int(i)); n != nil {
		now = n.Node
	}
	for int(i) >= len(l.seen) {
		l.seen = append(l.seen, nil)
		l.put(int32(len(l.seen)-1), "", false)
	}
	l.spoil(i)
	if l.seen[i] == now {
		return
	}
	l.seen[i] = now
	name, in := "", false
	if now != nil {
		name, in = l.domainOf(draft.View().State(), now)
	}
	l.put(i, name, in)
	l.spoil(i)
}

// domainOf names the domain that a node is in, and reports whether it is in one, at one of several levels at least.
func (l *anchorLevel) domainOf(state *orbit.State, n *orbit.Node) (name string, in bool) {
	if len(l.keys) == 1 {
		name = anchorDomainOf(state, n, l.keys[0])
		return name, name != ""
	}
	names := make([]string, len(l.keys))
	for i, key := range l.keys {
		names[i] = anchorDomainOf(state, n, key)
		in = in || names[i] != ""
	}
	return fmt.Sprintf("%q", names), in
}

// spoil forgets the sum of the domain that a node is in.
func (l *anchorLevel) spoil(i int32) {
	if at := l.of[i]; at >= 0 && int(at) < len(l.sums) {
		l.sums[at].known = false
	}
}

// sum returns what is free in a domain, until the next call.
func (l *anchorLevel) sum(draft *orbit.Draft, d int) *quantities {
	for len(l.sums) < len(l.domains) {
		l.sums = append(l.sums, domainSum{})
	}
	s := &l.sums[d]
	if s.known {
		return &s.free
	}
	s.free, s.known = quantities{}, true
	for _, i := range l.domains[d].nodes {
		n := draft.Node(int(i))
		if n.Node.Unschedulable {
			continue
		}
		for k, free := range measureFree(n) {
			s.free[k] = addFree(s.free[k], free)
		}
	}
	return &s.free
}

// measureFree returns how much of everything is free on a node, nothing below zero.
func measureFree(n *orbit.NodeState) quantities {
	room := freeRoom(n)
	return room.measure(n.Node)
}

// addFree adds what is free, of which nothing counts below zero, up to the largest number there is.
func addFree(sum, free int64) int64 {
	if free = max(free, 0); free > math.MaxInt64-sum {
		return math.MaxInt64
	}
	return sum + free
}

// claimed returns which part groups have in a node.
func (p *anchorPass) claimed(n *orbit.NodeState) anchorClaim {
	claim := &p.domains.claims[n.Index()]
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
