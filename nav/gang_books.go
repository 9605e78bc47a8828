package nav

import (
	"slices"

	"github.com/orbitsched/orbit"
)

// gangBooks are a gang navigator's own books: what the view shows of the nodes, less what the plan has
// reserved. Tables of domains and of shapes follow the log of changed nodes, so that a plan costs what has
// changed.
type gangBooks struct {
	view   *orbit.View
	cursor uint64
	nodes  []gangNode
	// In which order nodes are filled, lowest first: how much of the node is free, on average over what it has, from
	// 0 to 1; idle nodes come last.
	ranks []float64
	// Nodes that differ from the view.
	touched []int32
	// Changed nodes; log[0] is at position base.
	log  []int32
	base uint64
	// The sync with the view goes on: what shapes gain is others' doing, not that of trying something out.
	fresh bool
	// Capsules or holds have come or gone since the last plan.
	moved  bool
	tables map[string]*domainTable
	shapes map[string]*memberShape
	keys   map[*orbit.Spec]string
	// Number of the plan.
	plan uint64
	// Rises with whatever could make a gang fit.
	clock uint64
	// When a node last had more of anything than before: members of several shapes may fit together then, even if
	// of none of them more fit than before.
	gained uint64
	// The clock when planning the present gang began.
	began uint64
}

// gangNode is a node as the plan sees it; state is nil if there is none.
type gangNode struct {
	state *orbit.NodeState
	nodeRoom
	// Reserved in this plan.
	reserved bool
	// Nothing at all is used of it.
	idle bool
}

const (
	// logLimit is how many changed nodes are remembered.
	logLimit = 1 << 17
	// tableLimit is how many levels are kept while they are not used.
	tableLimit = 32
	// shapeBytes bounds the memory of all counts.
	shapeBytes = 128 << 20
)

// sync follows the view and forgets what was reserved.
func (b *gangBooks) sync(view *orbit.View) {
	if view != b.view {
		*b = gangBooks{view: view, base: 1, clock: b.clock, gained: b.gained, plan: b.plan,
			tables: map[string]*domainTable{}, shapes: map[string]*memberShape{}, keys: map[*orbit.Spec]string{}}
	}
	b.plan++
	b.moved, b.fresh = false, true
	b.prune()
	changed, next, all := view.Changed(b.cursor)
	b.cursor = next
	for len(b.nodes) < view.State().NodeBound() {
		b.nodes, b.ranks = append(b.nodes, gangNode{}), append(b.ranks, 0)
	}
	for _, i := range b.touched {
		b.load(i)
	}
	b.touched = b.touched[:0]
	if all {
		for i := range b.nodes {
			b.load(int32(i))
		}
		return
	}
	for _, i := range changed {
		b.load(i)
	}
}

// load takes over a node as the view shows it.
func (b *gangBooks) load(i int32) {
	n, state := &b.nodes[i], b.view.State().NodeByIndex(int(i))
	b.moved = b.moved || (n.state == nil) != (state == nil) || state != nil && state.Usage != n.state.Usage
	was := n.nodeRoom
	*n = gangNode{state: state}
	if state != nil {
		if n.nodeRoom = freeRoom(state); n.gains(&was) {
			b.gained = b.tick()
		}
	}
	b.rate(i)
	for _, t := range b.tables {
		b.put(t, i)
	}
}

// rate ranks a node, and logs that it has changed.
func (b *gangBooks) rate(i int32) {
	n := &b.nodes[i]
	if len(b.log) >= logLimit {
		b.base += uint64(len(b.log))
		b.log = b.log[:0]
	}
	b.log = append(b.log, i)
	if n.state == nil {
		return
	}
	whole := bareRoom(n.state.Node)
	free, all := n.measure(n.state.Node), whole.measure(n.state.Node)
	sum, kinds := 0.0, 0
	for d := range all {
		if all[d] > 0 {
			sum += float64(free[d]) / float64(all[d])
			kinds++
		}
	}
	b.ranks[i] = sum / float64(max(1, kinds))
	if n.idle = n.state.Capsules == 0 && !n.reserved && free == all; n.idle {
		b.ranks[i] = 2
	}
}

// since returns the nodes that changed after a position of the log, and all if it does not reach back that far.
func (b *gangBooks) since(cursor uint64) (changed []int32, next uint64, all bool) {
	next = b.base + uint64(len(b.log))
	if cursor < b.base {
		return nil, next, true
	}
	return b.log[cursor-b.base:], next, false
}

// tick returns a number that is higher than all before.
func (b *gangBooks) tick() uint64 {
	b.clock++
	return b.clock
}

// set makes a node's room what it says.
func (b *gangBooks) set(i int32, room nodeRoom, reserved bool) {
	b.nodes[i].nodeRoom, b.nodes[i].reserved = room, reserved
	b.touched = append(b.touched, i)
	b.rate(i)
}

// table returns the level's table; "" is the one in which all nodes are one domain.
func (b *gangBooks) table(level string) *domainTable {
	t := b.tables[level]
	if t == nil || t.sparse() {
		b.drop(t)
		t = &domainTable{level: level, version: b.tick()}
		b.tables[level] = t
		for i := range b.nodes {
			b.put(t, int32(i))
		}
	}
	t.used = b.plan
	return t
}

// put files a node in a table: under its label's value, if that is not empty.
func (b *gangBooks) put(t *domainTable, i int32) {
	name, in := "", b.nodes[i].state != nil
	if in && t.level != "" {
		name = b.nodes[i].state.Node.Labels[t.level]
		in = name != ""
	}
	if t.put(i, name, in) {
		t.version = b.tick()
	}
}

// shape returns what a spec asks for, in sync with the books.
func (b *gangBooks) shape(spec *orbit.Spec) *memberShape {
	key, known := b.keys[spec]
	if !known {
		key = shapeKey(spec)
		b.keys[spec] = key
	}
	s := b.shapes[key]
	if s == nil {
		b.makeRoom()
		s = newShape(spec)
		b.shapes[key] = s
	}
	s.used = b.tick()
	s.sync(b)
	return s
}

// prune forgets tables that are not used, if there are many, and the keys of specs that may be gone.
func (b *gangBooks) prune() {
	if len(b.keys) > 1<<14 {
		clear(b.keys)
	}
	if len(b.tables) <= tableLimit {
		return
	}
	for level, t := range b.tables {
		if t.used+1 < b.plan {
			delete(b.tables, level)
			b.drop(t)
		}
	}
}

// drop forgets the sums by the domains of a table.
func (b *gangBooks) drop(t *domainTable) {
	for _, s := range b.shapes {
		s.sums = slices.DeleteFunc(s.sums, func(sums domainSums) bool { return sums.table == t })
	}
}

// makeRoom forgets shapes if all together take much memory, but for those of the gang that is being planned.
// One that comes back has gained, for all that is known of it.
func (b *gangBooks) makeRoom() {
	if len(b.shapes)*(4*len(b.nodes)+1<<10) <= shapeBytes {
		return
	}
	for key, s := range b.shapes {
		if s.used < b.began {
			delete(b.shapes, key)
		}
	}
}
