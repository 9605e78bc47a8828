package nav

import (
	"fmt"
	"slices"

	"github.com/orbitsched/orbit"
)

// topology knows the domain of each node of a draft, for every level that was asked for. To follow the draft costs as
// much as it has changed.
type topology struct {
	draft  *orbit.Draft
	cursor uint64
	tables map[string]*domainTable
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

// begin starts a plan on a draft, on which domain names may have that many bytes. It drops all tables if there are too
// many, and those of which most domains have no nodes any more. It reports whether it has dropped any.
func (t *topology) begin(draft *orbit.Draft, longest int) (forgotten bool) {
	if t.tables == nil || len(t.tables) > maxTables || longest != t.longest {
		t.tables, forgotten = map[string]*domainTable{}, true
	}
	t.draft, t.longest = draft, longest
	for key, table := range t.tables {
		if table.sparse() {
			delete(t.tables, key)
			forgotten = true
		}
	}
	return forgotten
}

// follow updates the tables for the nodes that have changed on the draft since the last call, and returns their
// indices. An index may occur twice.
func (t *topology) follow() []int32 {
	changed, next, all := t.draft.Changed(t.cursor)
	t.cursor = next
	if more := t.draft.Bound() - len(t.filed); more > 0 {
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
		if n := t.draft.Node(int(i)); n != nil {
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

// exceedsAll reports whether a spec asks for more of a dimension, or for more devices, than any node has. Then it fits
// on no node, even if all were empty and suited it.
func (t *topology) exceedsAll(spec *orbit.Spec) bool {
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
func (t *topology) file(table *domainTable, i int32) {
	name, in := "", t.filed[i] != nil
	if in {
		name, in = domainName(t.filed[i], table.levels, t.longest)
	}
	if table.put(i, name, in) {
		t.moves++
		table.version = t.moves
		table.forgetFree(i)
	}
}

// table returns the domains of a level. For several levels, a domain has the nodes that are in the same domain at each
// of them. Without a level, all nodes are one domain. A new table costs a look at all nodes.
func (t *topology) table(levels ...string) *domainTable {
	key := fmt.Sprintf("%q", levels)
	table := t.tables[key]
	if table == nil {
		table = &domainTable{levels: levels}
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

// domainTable maps each node to its domain, and each domain to its nodes. Domains are numbered as they appear; a domain
// that has lost its last node keeps its number.
//
// Invariant: node i is in domains[of[i]].nodes at position at[i]; or of[i] is -1 and the node is in none.
type domainTable struct {
	levels  []string
	of      []int32
	at      []int32
	domains []domain
	number  map[string]int32
	// Domains that have nodes.
	live int
	// The topology's moves when a node last joined or left a domain of this table.
	version uint64
}

// domain is a value of a level's label and the nodes that carry it, in no order.
type domain struct {
	name  string
	nodes []int32
	// The sum of what is free on the schedulable nodes, valid while known is set.
	free  quantities
	known bool
}

// level returns the first level of the table; "" if all nodes are one domain.
func (t *domainTable) level() string {
	if len(t.levels) == 0 {
		return ""
	}
	return t.levels[0]
}

// put moves a node to the domain of this name, or to none if in is false. It reports whether that is a change.
func (t *domainTable) put(i int32, name string, in bool) (moved bool) {
	t.grow(int(i) + 1)
	was := t.of[i]
	if was >= 0 && in && t.domains[was].name == name || was < 0 && !in {
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
func (t *domainTable) grow(nodes int) {
	for len(t.of) < nodes {
		t.of, t.at = append(t.of, -1), append(t.at, 0)
	}
}

// join adds a node to a domain, and creates the domain if it is new.
func (t *domainTable) join(i int32, name string) {
	d, known := t.number[name]
	if !known {
		if t.number == nil {
			t.number = map[string]int32{}
		}
		d = int32(len(t.domains))
		t.number[name] = d
		t.domains = append(t.domains, domain{name: name})
	}
	nodes := &t.domains[d].nodes
	if len(*nodes) == 0 {
		t.live++
	}
	t.of[i], t.at[i] = d, int32(len(*nodes))
	*nodes = append(*nodes, i)
}

// leave takes a node out of its domain.
func (t *domainTable) leave(i int32) {
	in := &t.domains[t.of[i]]
	last := in.nodes[len(in.nodes)-1]
	in.nodes[t.at[i]], t.at[last] = last, t.at[i]
	in.nodes = in.nodes[:len(in.nodes)-1]
	if t.of[i] = -1; len(in.nodes) == 0 {
		t.live--
	}
}

// sparse reports whether most of the domains that the table knows have no nodes any more.
func (t *domainTable) sparse() bool { return len(t.domains) > 2*t.live+64 }

// forgetFree invalidates the sum of what is free in a node's domain.
func (t *domainTable) forgetFree(i int32) {
	if t.of[i] >= 0 {
		t.domains[t.of[i]].known = false
	}
}

// free returns the sum of what is free in a domain. It is valid until the next change of the draft.
func (t *domainTable) free(draft *orbit.Draft, d int) *quantities {
	in := &t.domains[d]
	if in.known {
		return &in.free
	}
	in.free, in.known = quantities{}, true
	for _, i := range in.nodes {
		if n := draft.Node(int(i)); n.Node.Schedulable() {
			for k, free := range measureFree(n) {
				in.free[k] = addFree(in.free[k], free)
			}
		}
	}
	return &in.free
}

// shared returns the domain that all nodes with these ids are in; -1 if there is none.
func (t *domainTable) shared(state *orbit.State, ids []orbit.NodeID) int32 {
	if len(ids) == 0 || slices.ContainsFunc(ids, func(id orbit.NodeID) bool { return state.Node(id) == nil }) {
		return -1
	}
	d := t.of[state.Node(ids[0]).Index()]
	for _, id := range ids {
		if t.of[state.Node(id).Index()] != d {
			return -1
		}
	}
	return d
}
