package seats

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// Topology knows the domain of each node of a draft, for every level that was asked for. To follow the draft costs as
// much as it has changed.
type Topology struct {
	Draft  *orbit.Draft
	cursor uint64
	tables map[string]*Table
	// By node index: the node record that the tables were last updated with.
	filed []*orbit.Node
	// How often nodes have joined or left domains.
	moves uint64
	// The most that any one node has, whether schedulable or not; shrunk: a node that may have had the most has left or
	// changed since it was computed.
	most   nodeSize
	shrunk bool
	// The longest name that a domain can have, in bytes. Nodes with a longer label are in no domain.
	longest int
}

// maxTables is how many tables are kept from plan to plan. If there are more, all are dropped, and made again when they
// are asked for.
const maxTables = 32

// Begin starts a plan on a draft, on which domain names may have that many bytes. It drops all tables if there are too
// many, and those of which most domains have no nodes any more. It reports whether it has dropped any.
func (t *Topology) Begin(draft *orbit.Draft, longest int) (forgotten bool) {
	if t.tables == nil || len(t.tables) > maxTables || longest != t.longest {
		t.tables, forgotten = map[string]*Table{}, true
	}
	t.Draft, t.longest = draft, longest
	for key, table := range t.tables {
		if table.sparse() {
			delete(t.tables, key)
			forgotten = true
		}
	}
	return forgotten
}

// Follow updates the tables for the nodes that have changed on the draft since the last call, and returns their
// indices. An index may occur twice.
func (t *Topology) Follow() []int32 {
	changed, next, all := t.Draft.Changed(t.cursor)
	t.cursor = next
	if more := t.Draft.Bound() - len(t.filed); more > 0 {
		t.filed = append(t.filed, make([]*orbit.Node, more)...)
		for _, table := range t.tables { // in any order
			table.grow(len(t.filed))
		}
	}
	if all {
		changed = make([]int32, len(t.filed))
		for i := range changed {
			changed[i] = int32(i)
		}
	}
	for _, i := range changed {
		var node *orbit.Node
		if n := t.Draft.Node(int(i)); n != nil {
			node = n.Node
		}
		moved := t.filed[i] != node
		if moved {
			t.shrunk = t.shrunk || t.filed[i] != nil
			t.most.widen(node)
		}
		t.filed[i] = node
		for _, table := range t.tables {
			table.forgetFree(i)
			if moved {
				t.file(table, i)
			}
		}
	}
	return changed
}

// nodeSize has, for each dimension and for devices, the most that one of several nodes has.
type nodeSize struct {
	capacity orbit.Resources
	devices  int
}

// widen takes a node into account; nil changes nothing.
func (s *nodeSize) widen(n *orbit.Node) {
	if n == nil {
		return
	}
	for d, has := range n.Capacity {
		s.capacity[d] = max(s.capacity[d], has)
	}
	s.devices = max(s.devices, n.Devices.Count)
}

// ExceedsAll reports whether a spec asks for more of a dimension, or for more devices, than any node has. Then it fits
// on no node, even if all were empty and suited it.
func (t *Topology) ExceedsAll(spec *orbit.Spec) bool {
	if t.shrunk {
		t.most, t.shrunk = nodeSize{}, false
		for _, n := range t.filed {
			t.most.widen(n)
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > t.most.capacity[d] {
			return true
		}
	}
	return spec.Devices.Count > t.most.devices
}

// file moves a node to its current domain in a table.
func (t *Topology) file(table *Table, i int32) {
	name, in := "", t.filed[i] != nil
	if in {
		name, in = domainName(t.filed[i], table.levels, t.longest)
	}
	if table.put(i, name, in) {
		t.moves++
		table.Version = t.moves
		table.forgetFree(i)
	}
}

// Table returns the domains of a level. For several levels, a domain has the nodes that are in the same domain at each
// of them. Without a level, all nodes are one domain. A new table costs a look at all nodes.
func (t *Topology) Table(levels ...string) *Table {
	key := fmt.Sprintf("%q", levels)
	table := t.tables[key]
	if table == nil {
		table = &Table{levels: levels}
		t.tables[key] = table
		for i := range t.filed {
			t.file(table, int32(i))
		}
	}
	return table
}

// domainName returns the name of a node's domain. It reports false if the node is in none, because its labels for all
// levels are missing, empty or too long.
func domainName(n *orbit.Node, levels []string, longest int) (name string, in bool) {
	if len(levels) == 0 {
		return "", true
	}
	names := make([]string, len(levels))
	for i, level := range levels {
		if value := n.Labels[level]; len(value) <= longest {
			names[i] = value
			in = in || value != ""
		}
	}
	if len(names) == 1 {
		return names[0], in
	}
	return fmt.Sprintf("%q", names), in
}

// Table maps each node to its domain, and each domain to its nodes. Domains are numbered as they appear; a domain
// that has lost its last node keeps its number.
//
// Invariant: node i is in domains[of[i]].nodes at position at[i]; or of[i] is -1 and the node is in none.
type Table struct {
	levels  []string
	Of      []int32
	at      []int32
	Domains []Domain
	Number  map[string]int32
	// Domains that have nodes.
	Live int
	// The topology's moves when a node last joined or left a domain of this table.
	Version uint64
}

// Domain is a value of a level's label and the nodes that carry it, in no order.
type Domain struct {
	Name  string
	Nodes []int32
	// The sum of what is free on the schedulable nodes, valid while known is set.
	free  Quantities
	known bool
}

// Level returns the first level of the table; "" if all nodes are one domain.
func (t *Table) Level() string {
	if len(t.levels) == 0 {
		return ""
	}
	return t.levels[0]
}

// put moves a node to the domain of this name, or to none if in is false. It reports whether that is a change.
func (t *Table) put(i int32, name string, in bool) (moved bool) {
	t.grow(int(i) + 1)
	was := t.Of[i]
	if was >= 0 && in && t.Domains[was].Name == name || was < 0 && !in {
		return false
	}
	if was >= 0 {
		t.leave(i)
	}
	if in {
		t.join(i, name)
	}
	return true
}

// grow extends the table to a number of node indices.
func (t *Table) grow(nodes int) {
	for len(t.Of) < nodes {
		t.Of, t.at = append(t.Of, -1), append(t.at, 0)
	}
}

// join adds a node to a domain, and creates the domain if it is new.
func (t *Table) join(i int32, name string) {
	d, known := t.Number[name]
	if !known {
		if t.Number == nil {
			t.Number = map[string]int32{}
		}
		d = int32(len(t.Domains))
		t.Number[name] = d
		t.Domains = append(t.Domains, Domain{Name: name})
	}
	nodes := &t.Domains[d].Nodes
	if len(*nodes) == 0 {
		t.Live++
	}
	t.Of[i], t.at[i] = d, int32(len(*nodes))
	*nodes = append(*nodes, i)
}

// leave takes a node out of its domain.
func (t *Table) leave(i int32) {
	in := &t.Domains[t.Of[i]]
	last := in.Nodes[len(in.Nodes)-1]
	in.Nodes[t.at[i]], t.at[last] = last, t.at[i]
	in.Nodes = in.Nodes[:len(in.Nodes)-1]
	if t.Of[i] = -1; len(in.Nodes) == 0 {
		t.Live--
	}
}

// sparse reports whether most of the domains that the table knows have no nodes any more.
func (t *Table) sparse() bool { return len(t.Domains) > 2*t.Live+64 }

// forgetFree invalidates the sum of what is free in a node's domain.
func (t *Table) forgetFree(i int32) {
	if t.Of[i] >= 0 {
		t.Domains[t.Of[i]].known = false
	}
}

// Free returns the sum of what is free in a domain. It is valid until the next change of the draft.
func (t *Table) Free(draft *orbit.Draft, d int) *Quantities {
	in := &t.Domains[d]
	if in.known {
		return &in.free
	}
	in.free, in.known = Quantities{}, true
	for _, i := range in.Nodes {
		if n := draft.Node(int(i)); n.Node.Schedulable() {
			for k, free := range MeasureFree(n) {
				in.free[k] = AddFree(in.free[k], free)
			}
		}
	}
	return &in.free
}

// Shared returns the domain that all nodes with these ids are in; -1 if there is none.
func (t *Table) Shared(state *orbit.State, ids []orbit.NodeID) int32 {
	if len(ids) == 0 || slices.ContainsFunc(ids, func(id orbit.NodeID) bool { return state.Node(id) == nil }) {
		return -1
	}
	d := t.Of[state.Node(ids[0]).Index()]
	for _, id := range ids {
		if t.Of[state.Node(id).Index()] != d {
			return -1
		}
	}
	return d
}
