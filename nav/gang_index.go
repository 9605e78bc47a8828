package nav

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// gangIndex is a gang navigator's draft, and what it keeps to find seats on the draft's nodes fast. All of that
// follows [orbit.Draft.Changed], so that a plan costs what has changed:
//
//	draft ── follow ──► rooms, ranks, tables (domains of a level)
//	      └─ memberShape.sync ──► counts of members, by node and by domain
type gangIndex struct {
	draft  orbit.Draft
	cursor uint64
	// What is free of each node, decoded when the node has changed, because every shape reads it.
	rooms []nodeRoom
	// In which order nodes are filled, lowest first: how much of the node is free, on average over what it has, from
	// 0 to 1; 2 for a node that is idle.
	ranks []float64
	// The nodes' Usage; 0: there is no such node.
	usage []orbit.Revision
	// The index takes in what the sync with the view has changed: others have done that, not this plan.
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
	// The clock when the plan began, and when planning the present gang began.
	start, began uint64
	// A step that the draft has refused although the index said that it fits: a defect, which Plan returns.
	fault error
}

const (
	// idleRank is the rank of idle nodes.
	idleRank = 2
	// tableLimit is how many levels are kept while they are not used.
	tableLimit = 32
	// shapeBytes bounds the memory of all counts.
	shapeBytes = 128 << 20
)

// sync begins a plan on the view. Before that, the index takes in what the last plan has left: what comes free of
// that counts as gained.
func (x *gangIndex) sync(view *orbit.View) {
	if x.fresh = false; x.tables == nil {
		x.tables, x.shapes, x.keys = map[string]*domainTable{}, map[string]*memberShape{}, map[*orbit.Spec]string{}
	}
	x.follow()
	for _, s := range x.shapes { // in any order
		if s.used >= x.start {
			s.sync(x)
		}
	}
	x.draft.Sync(view)
	x.plan++
	x.prune()
	x.start, x.fault = x.tick(), nil
	x.moved, x.fresh = false, true
	x.follow()
}

// follow takes in which nodes of the draft have changed.
func (x *gangIndex) follow() {
	changed, next, all := x.draft.Changed(x.cursor)
	x.cursor = next
	for len(x.rooms) < x.draft.Bound() {
		x.rooms, x.ranks, x.usage = append(x.rooms, nodeRoom{}), append(x.ranks, 0), append(x.usage, 0)
	}
	if all {
		for i := range x.rooms {
			x.load(int32(i))
		}
		return
	}
	for k, i := range changed {
		if k == 0 || changed[k-1] != i {
			x.load(i)
		}
	}
}

// load takes over a node as the draft shows it.
func (x *gangIndex) load(i int32) {
	n, was, usage := x.draft.Node(int(i)), x.rooms[i], orbit.Revision(0)
	if x.rooms[i] = (nodeRoom{}); n != nil {
		usage, x.rooms[i] = n.Usage, freeRoom(n)
		x.ranks[i] = rankOf(n)
	}
	x.moved = x.moved || x.usage[i] != usage
	x.usage[i] = usage
	if x.fresh && x.rooms[i].gains(&was) {
		x.gained = x.tick()
	}
	for _, t := range x.tables {
		x.put(t, i)
	}
}

// rankOf says when a node is filled.
func rankOf(n *orbit.NodeState) float64 {
	free, all := measureFree(n), measureFree(&orbit.NodeState{Node: n.Node})
	if n.Capsules == 0 && free == all {
		return idleRank
	}
	sum, kinds := 0.0, 0
	for d := range all {
		if all[d] > 0 {
			sum += float64(free[d]) / float64(all[d])
			kinds++
		}
	}
	return sum / float64(max(1, kinds))
}

// tick returns a number that is higher than all before.
func (x *gangIndex) tick() uint64 {
	x.clock++
	return x.clock
}

// id returns the id of a node.
func (x *gangIndex) id(node int32) orbit.NodeID { return x.draft.Node(int(node)).Node.ID }

// steps takes n steps of the draft, or none if there is an error, which is a fault.
func (x *gangIndex) steps(n int, step func(int) error) error {
	start := x.draft.Checkpoint()
	for i := range n {
		if err := step(i); err != nil {
			x.draft.Rollback(start)
			x.fault = fmt.Errorf("nav: the draft of a Gang refuses what its index says is possible: %w", err)
			return x.fault
		}
	}
	return nil
}

// release ends holds on the draft.
func (x *gangIndex) release(holds []orbit.Hold) error {
	return x.steps(len(holds), func(i int) error { return x.draft.Release(orbit.Release{Hold: holds[i].ID}) })
}

// hold keeps room on the draft.
func (x *gangIndex) hold(made []orbit.Hold) error {
	return x.steps(len(made), func(i int) error { return x.draft.Hold(made[i]) })
}

// place places members on their seats on the draft, ask by ask.
func (x *gangIndex) place(asks []memberAsk, seats []seat) error {
	seats = slices.Clone(seats)
	slices.SortStableFunc(seats, func(a, b seat) int {
		return cmp.Or(cmp.Compare(a.ask, b.ask), cmp.Compare(x.id(a.node), x.id(b.node)))
	})
	next := make([]int, len(asks))
	return x.steps(len(seats), func(i int) error {
		s := &seats[i]
		c := asks[s.ask].members[next[s.ask]]
		next[s.ask]++
		return x.draft.Place(c, orbit.Choice{Node: x.draft.Node(int(s.node)), Devices: s.devices})
	})
}

// table returns the level's table; "" is the one in which all nodes are one domain.
func (x *gangIndex) table(level string) *domainTable {
	t := x.tables[level]
	if t == nil || t.sparse() {
		x.drop(t)
		t = &domainTable{level: level, version: x.tick()}
		x.tables[level] = t
		for i := range x.rooms {
			x.put(t, int32(i))
		}
	}
	t.used = x.plan
	return t
}

// put files a node in a table: under its label's value, if that is not empty.
func (x *gangIndex) put(t *domainTable, i int32) {
	name, n := "", x.draft.Node(int(i))
	in := n != nil
	if in && t.level != "" {
		name = n.Node.Labels[t.level]
		in = name != ""
	}
	if t.put(i, name, in) {
		t.version = x.tick()
	}
}

// shape returns what a spec asks for, in sync with the draft.
func (x *gangIndex) shape(spec *orbit.Spec) *memberShape {
	key, known := x.keys[spec]
	if !known {
		key = shapeKey(spec)
		x.keys[spec] = key
	}
	s := x.shapes[key]
	if s == nil {
		x.makeRoom()
		s = newShape(spec)
		x.shapes[key] = s
	}
	s.used = x.tick()
	s.sync(x)
	return s
}

// prune forgets tables that are not used, if there are many, and the keys of specs that may be gone.
func (x *gangIndex) prune() {
	if len(x.keys) > 1<<14 {
		clear(x.keys)
	}
	if len(x.tables) <= tableLimit {
		return
	}
	for level, t := range x.tables {
		if t.used+1 < x.plan {
			delete(x.tables, level)
			x.drop(t)
		}
	}
}

// drop forgets the sums by the domains of a table.
func (x *gangIndex) drop(t *domainTable) {
	for _, s := range x.shapes {
		s.sums = slices.DeleteFunc(s.sums, func(sums domainSums) bool { return sums.table == t })
	}
}

// makeRoom forgets shapes if all together take much memory, but not those of the gang that is being planned.
// One that comes back has gained, for all that is known of it.
func (x *gangIndex) makeRoom() {
	if len(x.shapes)*(4*len(x.rooms)+1<<10) <= shapeBytes {
		return
	}
	for key, s := range x.shapes {
		if s.used < x.began {
			delete(x.shapes, key)
		}
	}
}
